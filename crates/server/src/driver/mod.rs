//! What the engine may ask of a runtime: few, idempotent methods, the same for every kind of box.
//!
//! Owns the trait, its error and its vocabulary. Knows no state machine (that is `lifecycle`), no
//! database and no HTTP. A runtime's own words (runc, CRIU, cgroups, …) stay inside its folder.

pub mod conformance;
pub mod container;
pub mod egress;
pub mod fake;

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

use async_trait::async_trait;
use icebox_lifecycle::{BoxId, CopyId, Seen, SnapshotId};
use tokio::io::{AsyncRead, AsyncWrite};

pub use egress::Egress;

/// A kind of box on this host.
///
/// Every method may be asked again after a crash of the server, in any state of the box, and then
/// finishes or repeats what the earlier call began. None of them decides anything about a box's life.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// What this runtime can do on this host.
    fn capabilities(&self) -> Capabilities;

    /// Makes the box run and waits until its daemon answers. Without `keep_files` the box starts from its
    /// image, or from its origin, and leftovers of an earlier try are removed; with it, processes start anew on the files that
    /// are there. Where its way out cannot be made it runs without one.
    async fn boot(&self, spec: &BoxSpec, keep_files: bool) -> Result<Reaches, DriverError>;

    /// Stops everything in the box and, with [`FreezeMode::Copy`], writes a checksummed, fsynced copy of
    /// it. Whatever comes of it, the box then stands still in RAM, whole, unless the error is
    /// [`DriverError::Gone`]. [`DriverError::Refused`]: this box's memory cannot be copied (rule 4.10).
    async fn freeze(&self, id: BoxId, mode: FreezeMode) -> Result<(), DriverError>;

    /// Ends the processes of a standing box that has the good copy `copy`, and gives its memory back.
    /// Refuses when that copy is not complete.
    async fn evict(&self, id: BoxId, copy: CopyId) -> Result<(), DriverError>;

    /// Brings the box from its copy back into RAM, standing still. Nothing of it has run afterwards, so
    /// the copy stays good. A box that stands in RAM already is left as it is.
    async fn thaw(&self, id: BoxId, copy: CopyId) -> Result<(), DriverError>;

    /// Lets a standing box run and sets right what stood still (rule 5.10); returns when its daemon
    /// answers. It reaches outside what `egress` says, which may have changed since; where that cannot be made, nothing.
    /// The caller has recorded before that the box has no copy any more.
    async fn release(&self, id: BoxId, egress: &Egress) -> Result<Reaches, DriverError>;

    /// Lets a running box reach this from now on: connections to what it may not reach any more end. A box that does not run
    /// is left as it is. An error: it could not even be kept from what it reached before.
    async fn reach(&self, id: BoxId, egress: &Egress) -> Result<Reaches, DriverError>;

    /// Gives a running box the daemon that new boxes get, without an end to anything that runs in it; connections to the daemon
    /// end. An error: all in the box goes on, most likely with the daemon that it had; or it has no processes any more.
    async fn renew(&self, id: BoxId) -> Result<(), DriverError>;

    /// Whether a box has, or will wake with, another daemon than new boxes get. A driver that cannot tell says no.
    async fn is_outdated(&self, id: BoxId) -> bool {
        let _ = id;
        false
    }

    /// Removes everything of the box, or with `keep_files` everything but its files. Succeeds when there
    /// is nothing left to remove. A failing step does not skip the next ones (rule 6.11).
    async fn destroy(&self, id: BoxId, keep_files: bool) -> Result<(), DriverError>;

    /// Removes one copy, if it is there.
    async fn drop_copy(&self, id: BoxId, copy: CopyId) -> Result<(), DriverError>;

    /// Copies a box that stands still, or has no processes, into a snapshot that belongs to no box: its files and, with
    /// `copy`, the memory of that good copy. Afterwards it is there whole, or not at all. Gives its size in bytes; what it
    /// shares with others counts in full.
    async fn save(
        &self,
        id: BoxId,
        copy: Option<CopyId>,
        snapshot: SnapshotId,
    ) -> Result<u64, DriverError>;

    /// Removes a snapshot, if it is there. Boxes made from it do not need it any more.
    async fn drop_snapshot(&self, snapshot: SnapshotId) -> Result<(), DriverError>;

    /// Every snapshot this driver has anything of, whole or not.
    async fn snapshots(&self) -> Result<Vec<SnapshotId>, DriverError>;

    /// The server ends. Boxes run on; what none of them needs is taken back from this host.
    async fn leave(&self) {}

    /// Every box this driver has anything of, after work that an earlier server left under way (a dump, a
    /// restore) has come to its end.
    async fn list(&self) -> Result<Vec<(BoxId, Seen)>, DriverError>;

    /// What a running box has used so far; with `disk`, also what its own files take up. Counting stops at a bound.
    async fn usage(&self, id: BoxId, disk: bool) -> Result<Counters, DriverError>;

    /// How often the kernel ended a program of a running box because the box had no memory left. It may begin anew when the
    /// box does. Answers at once; a driver that cannot tell says 0.
    async fn memory_kills(&self, id: BoxId) -> u64 {
        let _ = id;
        0
    }

    /// Resolves when the first process of a running box ends, with what is known of its end.
    async fn exited(&self, id: BoxId) -> Result<String, DriverError>;

    /// A byte stream to `localhost:port` inside the box. The driver closes it before a freeze.
    async fn connect(&self, id: BoxId, port: u16) -> Result<Stream, NoConnection>;

    /// Takes connections that programs in a running box make to `address:port`, a loopback address of the box's own. The
    /// driver ends it before a freeze, with every connection that came of it, so that none of them gets into a copy.
    async fn listen(
        &self,
        id: BoxId,
        address: Ipv4Addr,
        port: u16,
    ) -> Result<Box<dyn Listener>, NoListener>;
}

/// Takes connections inside a box.
#[async_trait]
pub trait Listener: Send {
    /// The next one. An error: it takes no more, since the box stands still or is gone.
    async fn accept(&mut self) -> io::Result<Stream>;
}

/// What a box that runs reaches outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaches {
    /// What it may.
    AsAsked,
    /// Nothing, although it may: its way out could not be made, for this reason.
    Nothing(String),
}

/// What a box has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// CPU time, in microseconds. It may begin anew when the box does.
    pub cpu_us: u64,
    /// Memory, page cache included, in bytes.
    pub memory_bytes: u64,
    /// Page cache, in bytes.
    pub cache_bytes: u64,
    /// Its own files, in bytes, if they were counted.
    pub disk_bytes: Option<u64>,
}

/// A byte stream into a box.
pub type Stream = Box<dyn Io>;

/// What a [`Stream`] can do.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The port of boxd in every box.
pub const BOXD_PORT: u16 = 49_983;

/// What a runtime can do on this host.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The driver's name, for people.
    pub name: &'static str,
    /// Whether it can write memory to disk; if not, why, and what to do about it. Boxes then freeze in
    /// RAM only.
    pub checkpoint: Result<(), String>,
    /// Whether its boxes can reach outside; if not, why, and what to do about it.
    pub egress: Result<(), String>,
    /// CPUs that boxes may use together.
    pub cpus: u32,
    /// Memory that one box may have at most, in MiB.
    pub memory_mb: u64,
    /// Disk that one box may have at most, in GiB.
    pub disk_gb: u64,
}

/// How to freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreezeMode {
    /// Stand still and write this copy.
    Copy(CopyId),
    /// Only stand still.
    RamOnly,
}

/// What a box is made of. The driver keeps what it needs of it with the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxSpec {
    /// Its id.
    pub id: BoxId,
    /// The image it starts from; `host` is the default.
    pub image: String,
    /// Its size.
    pub size: Size,
    /// Variables that every command in it gets.
    pub env: BTreeMap<String, String>,
    /// What it may reach outside.
    pub egress: Egress,
    /// What it begins as, instead of as its image.
    pub origin: Option<Origin>,
}

/// What a new box begins as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The snapshot, which stays until the box has booted.
    pub snapshot: SnapshotId,
    /// Its programs go on as they were; otherwise the box boots on the files.
    pub memory: bool,
}

/// How large a box is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// CPUs, in thousandths.
    pub milli_cpus: u32,
    /// Memory in MiB.
    pub memory_mb: u64,
    /// Disk in GiB.
    pub disk_gb: u64,
}

/// Why a driver did not do what it was asked, sorted by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Never in this form: the request does not fit this box or this host.
    #[error("{0}")]
    Refused(String),
    /// It did not work this time; the box is as it was.
    #[error("{0}")]
    Failed(String),
    /// The box, or the copy that was named, is not there.
    #[error("{0}")]
    Gone(String),
}

/// Why there is no byte stream into a box.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoConnection {
    /// The box runs, and nothing in it listens on that port.
    #[error("nothing listens there")]
    NothingListens,
    /// The box does not run, takes no connections now, or could not be asked.
    #[error("{0}")]
    Unreachable(String),
}

/// Why no connections are taken inside a box.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoListener {
    /// A program in the box listens there itself.
    #[error("a program in the box listens on port {0} itself")]
    Taken(u16),
    /// The box does not run, or could not be asked.
    #[error("{0}")]
    Unreachable(String),
}
