//! The container driver: OCI containers by runc, checkpointed by CRIU, on plain Linux without KVM.
//!
//! Owns `<data>/{images,boxd,boxes,snapshots,run}`, the `icebox` cgroups, and every mount, namespace and process of
//! a box. Knows no state machine: each method finishes or repeats what an earlier call began.

mod boot;
mod bootid;
pub mod by_hand;
mod cgroup;
mod copy;
mod copytree;
mod criu;
mod doctor;
mod freeze;
mod fsutil;
mod image;
mod listen;
mod mount;
mod namespace;
mod netns;
mod oci;
mod paths;
mod probe;
mod programs;
mod record;
mod renew;
mod snapshot;
mod thaw;
mod usage;
mod userns;
mod watches;
mod wayout;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

use async_trait::async_trait;
use icebox_lifecycle::{BoxId, CopyId, Processes, Seen, SnapshotId};
use tokio::sync::Mutex as AsyncMutex;

use super::{
    BoxSpec, Capabilities, Counters, Driver, DriverError, Egress, FreezeMode, Listener,
    NoConnection, NoListener, Reaches, Stream,
};
use cgroup::Hierarchies;
use copy::HostFacts;
use criu::Criu;
use image::Images;
use netns::Connections;
use paths::Paths;
use wayout::{Sweeper, WayOut};

pub use doctor::{Check, CheckState, doctor};

/// Boxes as containers on this host.
pub struct ContainerDriver {
    host: Arc<Host>,
    _sweeper: Sweeper,
}

/// What every operation needs of this host.
struct Host {
    paths: Paths,
    hierarchies: Hierarchies,
    images: Images,
    connections: Connections,
    criu: Result<Criu, String>,
    facts: HostFacts,
    /// The checksum of the boxd that new boxes get.
    boxd: String,
    /// Boots that have a range of ids but no record yet take one at a time.
    choosing_ids: Mutex<()>,
    way_out: WayOut,
    /// One operation on a box at a time: a late one must not meet the next.
    locks: Mutex<HashMap<BoxId, Arc<AsyncMutex<()>>>>,
    /// One snapshot is not removed while it is made or a box begins with it.
    snapshot_locks: Mutex<HashMap<SnapshotId, Arc<RwLock<()>>>>,
}

/// What went wrong while a box was worked on, before it is known what the caller can do about it.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{what}: {source}")]
    Io {
        what: &'static str,
        source: io::Error,
    },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Gone(String),
}

impl Trouble {
    /// A file that could not be written; `full` says it when the disk is.
    fn of_disk(what: &'static str, source: io::Error, full: fn(&str) -> Self) -> Self {
        if source.kind() == io::ErrorKind::StorageFull {
            return full(&source.to_string());
        }
        Self::Io { what, source }
    }
}

impl From<Trouble> for DriverError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Io { .. } => Self::Failed(trouble.to_string()),
            Trouble::Refused(text) => Self::Refused(text),
            Trouble::Failed(text) => Self::Failed(text),
            Trouble::Gone(text) => Self::Gone(text),
        }
    }
}

/// Says what was being done when a system call failed.
trait While<T> {
    fn when(self, what: &'static str) -> Result<T, Trouble>;
}

impl<T> While<T> for io::Result<T> {
    fn when(self, what: &'static str) -> Result<T, Trouble> {
        self.map_err(|source| Trouble::Io { what, source })
    }
}

impl ContainerDriver {
    /// Where the boxd that belongs to this program is; a place to name in an error when there is none.
    #[must_use]
    pub fn find_boxd() -> PathBuf {
        probe::find_boxd()
    }

    /// Opens the driver on `data`; `boxd` is the static daemon that new boxes get.
    ///
    /// # Errors
    /// A sentence that says what this host lacks and what to do about it.
    pub fn open(data: &Path, boxd: &Path) -> Result<Self, String> {
        let data = prepare_data_dir(data)?;
        if !rustix::process::geteuid().is_root() {
            return Err("boxes need root: run icebox serve as root".to_owned());
        }
        probe::require_runc()?;
        probe::require_static(boxd)?;
        let paths = Paths::new(&data);
        let folders = [
            paths.images(),
            paths.boxd(),
            paths.boxes(),
            paths.snapshots(),
            paths.runs(),
        ];
        for dir in folders {
            fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        }
        let images = Images::new(paths.clone());
        let boxd = images
            .keep_boxd(boxd)
            .map_err(|e| format!("cannot keep {}: {e}", boxd.display()))?;
        let criu = Criu::find();
        if let Err(why) = &criu {
            tracing::warn!("boxes freeze in RAM only: {why}");
        }
        let facts = HostFacts::here(criu.as_ref().map_or("none", |c| c.version.as_str()));
        let host = Host {
            hierarchies: Hierarchies::detect()?,
            images,
            connections: Connections::default(),
            criu,
            facts,
            boxd,
            choosing_ids: Mutex::new(()),
            way_out: WayOut::default(),
            locks: Mutex::default(),
            snapshot_locks: Mutex::default(),
            paths,
        };
        let host = Arc::new(host);
        make_image_ahead(Arc::clone(&host));
        Ok(Self {
            _sweeper: Sweeper::start(&host),
            host,
        })
    }

    /// Names who resolves names for boxes, instead of the host's own name servers; nobody leaves it at those.
    pub fn resolve_with(&self, resolvers: Vec<Ipv4Addr>) {
        self.host.way_out.resolve_with(resolvers);
    }

    /// No box reaches anything outside, whatever its setting.
    pub fn close_way_out(&self) {
        self.host.way_out.close();
    }

    /// Runs one operation on a box, after whatever is under way on it, off the async threads.
    async fn on_box<T: Send + 'static>(
        &self,
        id: BoxId,
        work: impl FnOnce(&Host) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, DriverError> {
        let guard = self.host.lock_of(id).lock_owned().await;
        let host = Arc::clone(&self.host);
        // The guard goes with the work, so that a caller that gives up does not let the next one in.
        let work = tokio::task::spawn_blocking(move || {
            let result = work(&host);
            drop(guard);
            result
        });
        match work.await {
            Ok(result) => result.map_err(DriverError::from),
            Err(_) => Err(DriverError::Failed(format!(
                "the driver failed on box {id}; its log says where"
            ))),
        }
    }

    /// Does what belongs to no box, off the async threads.
    async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Host) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, DriverError> {
        let host = Arc::clone(&self.host);
        match tokio::task::spawn_blocking(move || work(&host)).await {
            Ok(result) => result.map_err(DriverError::from),
            Err(_) => Err(DriverError::Failed(
                "the driver failed; its log says where".to_owned(),
            )),
        }
    }
}

#[async_trait]
impl Driver for ContainerDriver {
    fn capabilities(&self) -> Capabilities {
        probe::capabilities(&self.host)
    }

    async fn boot(&self, spec: &BoxSpec, keep_files: bool) -> Result<Reaches, DriverError> {
        let (id, spec) = (spec.id, spec.clone());
        self.on_box(id, move |host| boot::boot(host, &spec, keep_files))
            .await
    }

    async fn freeze(&self, id: BoxId, mode: FreezeMode) -> Result<(), DriverError> {
        self.on_box(id, move |host| freeze::freeze(host, id, mode))
            .await
    }

    async fn evict(&self, id: BoxId, copy: CopyId) -> Result<(), DriverError> {
        self.on_box(id, move |host| freeze::evict(host, id, copy))
            .await
    }

    async fn thaw(&self, id: BoxId, copy: CopyId) -> Result<(), DriverError> {
        self.on_box(id, move |host| thaw::thaw(host, id, copy))
            .await
    }

    async fn release(&self, id: BoxId, egress: &Egress) -> Result<Reaches, DriverError> {
        let egress = egress.clone();
        self.on_box(id, move |host| thaw::release(host, id, &egress))
            .await
    }

    async fn reach(&self, id: BoxId, egress: &Egress) -> Result<Reaches, DriverError> {
        let egress = egress.clone();
        self.on_box(id, move |host| wayout::change(host, id, &egress))
            .await
    }

    async fn renew(&self, id: BoxId) -> Result<(), DriverError> {
        self.on_box(id, move |host| renew::renew(host, id)).await
    }

    async fn is_outdated(&self, id: BoxId) -> bool {
        let outdated = move |host: &Host| Ok(host.record(id)?.boxd != host.boxd);
        self.beside(outdated).await.unwrap_or(false)
    }

    async fn destroy(&self, id: BoxId, keep_files: bool) -> Result<(), DriverError> {
        self.on_box(id, move |host| boot::destroy(host, id, keep_files))
            .await
    }

    async fn drop_copy(&self, id: BoxId, copy: CopyId) -> Result<(), DriverError> {
        self.on_box(id, move |host| freeze::drop_copy(host, id, copy))
            .await
    }

    async fn save(
        &self,
        id: BoxId,
        copy: Option<CopyId>,
        snapshot: SnapshotId,
    ) -> Result<u64, DriverError> {
        self.on_box(id, move |host| snapshot::save(host, id, copy, snapshot))
            .await
    }

    async fn drop_snapshot(&self, snapshot: SnapshotId) -> Result<(), DriverError> {
        self.beside(move |host| snapshot::drop_snapshot(host, snapshot))
            .await
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotId>, DriverError> {
        self.beside(snapshot::list).await
    }

    async fn leave(&self) {
        let left = self.beside(|host| {
            let left = host.way_out.leave();
            let groups = host.hierarchies.leave();
            left.and(groups.when("remove the cgroup of all boxes"))
        });
        if let Err(error) = left.await {
            tracing::warn!(%error, "something for boxes stays on this machine that none of them needs");
        }
    }

    async fn list(&self) -> Result<Vec<(BoxId, Seen)>, DriverError> {
        self.beside(probe::list).await
    }

    async fn usage(&self, id: BoxId, disk: bool) -> Result<Counters, DriverError> {
        let host = Arc::clone(&self.host);
        let counting = tokio::task::spawn_blocking(move || usage::count(&host, id, disk));
        let counted = counting.await;
        counted.map_err(|error| DriverError::Failed(error.to_string()))?
    }

    async fn memory_kills(&self, id: BoxId) -> u64 {
        // One short file that the kernel keeps in memory: not worth a thread.
        self.host.hierarchies.of(id).memory_kills()
    }

    async fn exited(&self, id: BoxId) -> Result<String, DriverError> {
        probe::exited(&self.host, id).await
    }

    async fn connect(&self, id: BoxId, port: u16) -> Result<Stream, NoConnection> {
        let host = Arc::clone(&self.host);
        let connecting = tokio::task::spawn_blocking(move || host.connect(id, port));
        let no_thread =
            |error: tokio::task::JoinError| NoConnection::Unreachable(error.to_string());
        let stream = connecting.await.map_err(no_thread)??;
        let stream = self.host.connections.register(id, stream);
        let stream = stream.map_err(|error| NoConnection::Unreachable(error.to_string()))?;
        Ok(Box::new(stream))
    }

    async fn listen(
        &self,
        id: BoxId,
        address: Ipv4Addr,
        port: u16,
    ) -> Result<Box<dyn Listener>, NoListener> {
        let host = Arc::clone(&self.host);
        let listening =
            tokio::task::spawn_blocking(move || listen::listen(&host, id, address, port));
        let listener = listening.await;
        let listener = listener.map_err(|error| NoListener::Unreachable(error.to_string()))??;
        Ok(Box::new(listener))
    }
}

impl Host {
    /// The pid here of a box's first process.
    fn first_process(&self, id: BoxId) -> Result<Option<u32>, Trouble> {
        probe::first_process(&self.hierarchies.of(id)).when("look at the box's processes")
    }

    /// The lock of a box.
    fn lock_of(&self, id: BoxId) -> Arc<AsyncMutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(|e| e.into_inner());
        // Boxes come and go: a lock that nobody holds is not kept.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(id).or_default())
    }

    fn require_first_process(&self, id: BoxId) -> Result<u32, Trouble> {
        self.first_process(id)?
            .ok_or_else(|| Trouble::Gone("the box has no processes any more".to_owned()))
    }

    fn connect(&self, id: BoxId, port: u16) -> Result<std::net::TcpStream, NoConnection> {
        let pid = self.require_first_process(id);
        let pid = pid.map_err(|gone| NoConnection::Unreachable(gone.to_string()))?;
        netns::connect(pid, port).map_err(|error| {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                return NoConnection::NothingListens;
            }
            NoConnection::Unreachable(format!("no connection to port {port}: {error}"))
        })
    }

    fn record(&self, id: BoxId) -> Result<record::Record, Trouble> {
        let record = record::Record::load(&self.paths.of(id)).when("read box.json")?;
        record.ok_or_else(|| Trouble::Gone(format!("box {id} has no files on this host")))
    }
}

/// Makes the image in the background, so that the first box does not wait for it. A box that comes earlier
/// waits for the same work.
fn make_image_ahead(host: Arc<Host>) {
    let thread = std::thread::Builder::new().name("icebox-image".to_owned());
    let spawned = thread.spawn(move || {
        if let Err(error) = host.images.current_host() {
            tracing::warn!(%error, "the image `host` could not be made ahead");
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to make the image `host` ahead");
    }
}

fn prepare_data_dir(data: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(data).map_err(|e| format!("cannot make {}: {e}", data.display()))?;
    let data = fs::canonicalize(data).map_err(|e| format!("cannot use {}: {e}", data.display()))?;
    require_passable(&data)?;
    let text = data.to_string_lossy();
    // Overlay options and mountinfo give these characters a meaning.
    if text.contains([',', ':', '\\', ' ', '\n', '\t']) {
        return Err(format!(
            "the data folder {text:?} has a comma, colon, backslash or white space in its path: \
             choose another with --data"
        ));
    }
    Ok(data)
}

/// A box's own root, which is nobody in particular on the host, has to get from `/` to the box's files.
fn require_passable(data: &Path) -> Result<(), String> {
    for folder in data.ancestors() {
        let meta = fs::metadata(folder)
            .map_err(|e| format!("cannot look at {}: {e}", folder.display()))?;
        if meta.mode() & 0o001 == 0 {
            let folder = folder.display();
            return Err(format!(
                "boxes cannot reach their files through {folder}: run `chmod o+x {folder}`, or choose \
                 another folder with --data"
            ));
        }
    }
    Ok(())
}

/// The processes and the newest complete copy of a box.
fn seen(processes: Processes, copy: Option<CopyId>, detail: &str) -> Seen {
    Seen {
        processes,
        copy,
        detail: detail.into(),
    }
}
