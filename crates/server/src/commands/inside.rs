//! What goes on in a box that runs, looked up from outside (rules 11.4, 11.6): its commands, its databases, its daemon, and
//! what takes up room. None of it is use, none of it wakes, and all of it is given up after a few seconds. Sizes alone are
//! good for a while; everything else is asked anew with each look.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use connectrpc::client::CallOptions;
use icebox_lifecycle::{BoxId, State};
use icebox_wire::boxd::{self, InfoRequest, InfoResponse, Stream};
use icebox_wire::rest::{
    ContainerView, DiskView, FilesystemView, RunningCommandView, RunningView, UsedView,
};
use tokio::time::Instant;

use super::exec::{CMD_SHOWN, is_own};
use super::trouble::timestamp;
use super::{Caller, Commands, Trouble};
use crate::clock::{machine_now, monotonic_now};
use crate::random;

const SIZES: &str = include_str!("inside/disk.bash");
/// Prints the databases of a box, a line each.
const LIST_DATABASES: &str = concat!(
    ": /work/.psbx-sync/; ",
    "if [ -d /work/.sbx/testdb ] && command -v psbx-testdb >/dev/null; then psbx-testdb list; fi"
);
/// How long a look waits for the sizes of what is on the disk (rule 11.4).
const DISK_WAIT: Duration = Duration::from_secs(5);
/// How long sizes are good.
const DISK_GOOD: Duration = Duration::from_secs(30);
/// How long measuring may take.
const DISK_LIMIT: Duration = Duration::from_secs(600);
/// How long everything else may take.
const QUICK: Duration = Duration::from_secs(2);
/// The most output of the script that is read, in bytes.
const OUTPUT: u32 = 1 << 20;
/// The most entries of each list.
const LISTED: usize = 100;
/// The most boxes whose sizes are kept in memory.
const MOST: usize = 10_000;
/// What is measured, in the order in which it is.
const PARTS: [&str; 4] = ["filesystems", "work", "caches", "temp"];
/// Where databases say how they are reached.
const DATABASES: &str = "/work/.sbx/testdb";

/// What is known of a box from inside.
#[derive(Clone, Debug, Default)]
pub struct Inside {
    /// Its daemon's version, when that answers.
    pub boxd_version: Option<String>,
    /// Whether its daemon answers.
    pub daemon: Option<&'static str>,
    /// Its processes.
    pub processes: Option<u32>,
    /// Whether new boxes get another daemon.
    pub outdated: bool,
    /// How many of its programs were ended for want of memory.
    pub memory_kills: u64,
    /// What runs in it.
    pub running: Option<RunningView>,
    /// What takes up room.
    pub disk: Option<DiskView>,
}

/// Sizes that were measured, or are being.
#[derive(Default)]
pub(super) struct Disks(Mutex<HashMap<BoxId, Measuring>>);

#[derive(Clone)]
struct Measuring {
    exec_id: String,
    began: Instant,
    whole: Option<DiskView>,
}

impl Commands {
    /// Looks into a box. A box that does not run has nothing inside. `disk`: sizes, too, which may take 5 s.
    pub async fn inside(&self, caller: &Caller, id: &str, disk: bool) -> Result<Inside, Trouble> {
        let view = self.find(caller, id)?;
        if view.sandbox.state != State::Ready {
            return Ok(Inside::default());
        }
        let id = view.id();
        let disk = async { if disk { self.measured(id).await } else { None } };
        let (info, commands, containers, disk) =
            tokio::join!(self.info(id), self.running(id), self.databases(id), disk);
        // A box that stopped running meanwhile is not ill.
        let still = self.0.engine.views().get(id);
        if still.is_none_or(|view| view.sandbox.state != State::Ready) {
            return Ok(Inside::default());
        }
        Ok(Inside {
            daemon: Some(if info.is_some() { "ok" } else { "silent" }),
            processes: info.as_ref().map(|info| info.processes),
            outdated: self.0.driver.is_outdated(id).await,
            memory_kills: self.memory_kills(id).await,
            boxd_version: info.map(|info| info.version),
            running: commands.map(|commands| RunningView {
                commands,
                containers: containers.unwrap_or_default(),
            }),
            disk,
        })
    }

    async fn info(&self, id: BoxId) -> Option<InfoResponse> {
        let options = CallOptions::default().with_timeout(QUICK);
        let client = self.0.boxds.client(id);
        let answer = client.info_with_options(InfoRequest::default(), options);
        answer.await.ok().map(|answer| answer.into_owned())
    }

    async fn running(&self, id: BoxId) -> Option<Vec<RunningCommandView>> {
        let procs = tokio::time::timeout(QUICK, self.0.boxds.procs(id)).await;
        let procs = procs.ok()?.ok()?;
        let now_ms = machine_now().0;
        let running = procs.iter().filter(|proc| proc.running && !is_own(proc));
        let shown = running.map(|proc| RunningCommandView {
            exec_id: proc.exec_id.clone(),
            cmd: proc.cmd.chars().take(CMD_SHOWN).collect(),
            background: proc.background,
            ms: u64::try_from(now_ms - proc.started_ms).unwrap_or(0),
        });
        Some(shown.take(LISTED).collect())
    }

    /// The databases that were made with the box's helper, as they are now.
    async fn databases(&self, id: BoxId) -> Option<Vec<ContainerView>> {
        let request = boxd::ExecRequest {
            cmd: LIST_DATABASES.to_owned(),
            timeout_ms: u64::try_from(QUICK.as_millis()).unwrap_or(u64::MAX),
            tail_bytes: Some(OUTPUT),
            ..boxd::ExecRequest::default()
        };
        let options = CallOptions::default().with_timeout(QUICK * 2);
        let client = self.0.boxds.client(id);
        let listed = client.exec_with_options(request, options).await.ok()?;
        let listed = listed.into_owned();
        let text = String::from_utf8_lossy(&listed.result.stdout_tail).into_owned();
        Some(text.lines().filter_map(database).take(LISTED).collect())
    }

    /// What takes up room: as it was a moment ago, or now as far as the wait allows.
    async fn measured(&self, id: BoxId) -> Option<DiskView> {
        let until = monotonic_now() + DISK_WAIT;
        let under_way = match self.0.disks.get(id) {
            Some(known) => match known.whole {
                Some(whole) if monotonic_now().duration_since(known.began) < DISK_GOOD => {
                    return Some(whole);
                }
                Some(_) => None,
                None => Some(known.exec_id),
            },
            None => None,
        };
        let exec_id = match under_way {
            Some(exec_id) => exec_id,
            None => {
                let exec_id = random::hex::<8>();
                self.begin_quietly(id, &exec_id, SIZES, DISK_LIMIT).await?;
                self.0.disks.put(id, &exec_id, None);
                exec_id
            }
        };
        let left = until.saturating_duration_since(monotonic_now());
        let ended = match self.0.boxds.wait(id, &exec_id, left).await {
            Ok(ended) => ended,
            Err(_) => {
                // The daemon is another one since; the next look measures anew.
                self.0.disks.forget(id);
                return None;
            }
        };
        let text = self.written(id, &exec_id).await?;
        let mut disk = read(&text);
        disk.measured_at = Some(timestamp(self.0.clock.now()));
        disk.measuring = ended.is_none();
        if ended.is_some() {
            if disk.not_measured.len() == PARTS.len() {
                self.0.disks.forget(id);
                return None;
            }
            self.0.disks.put(id, &exec_id, Some(disk.clone()));
        }
        Some(disk)
    }

    async fn begin_quietly(
        &self,
        id: BoxId,
        exec_id: &str,
        script: &str,
        limit: Duration,
    ) -> Option<()> {
        let request = boxd::ExecRequest {
            exec_id: exec_id.to_owned(),
            cmd: script.to_owned(),
            timeout_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            background: true,
            tail_bytes: Some(0),
            ..boxd::ExecRequest::default()
        };
        let options = CallOptions::default().with_timeout(QUICK);
        let client = self.0.boxds.client(id);
        client.exec_with_options(request, options).await.ok()?;
        Some(())
    }

    async fn written(&self, id: BoxId, exec_id: &str) -> Option<String> {
        let request = boxd::OutputRequest {
            exec_id: exec_id.to_owned(),
            stream: Stream::STREAM_STDOUT.into(),
            max_bytes: OUTPUT,
            ..boxd::OutputRequest::default()
        };
        let answer = tokio::time::timeout(QUICK, self.0.boxds.output(id, request)).await;
        let answer = answer.ok()?.ok()?;
        Some(String::from_utf8_lossy(&answer.data).into_owned())
    }
}

impl Disks {
    fn get(&self, id: BoxId) -> Option<Measuring> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&id).cloned()
    }

    fn put(&self, id: BoxId, exec_id: &str, whole: Option<DiskView>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, one| monotonic_now().duration_since(one.began) < DISK_LIMIT);
        }
        if known.len() < MOST {
            known.insert(
                id,
                Measuring {
                    exec_id: exec_id.to_owned(),
                    began: monotonic_now(),
                    whole,
                },
            );
        }
    }

    fn forget(&self, id: BoxId) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&id);
    }
}

/// Reads what the script wrote so far.
fn read(text: &str) -> DiskView {
    let mut view = DiskView {
        not_measured: PARTS.map(str::to_owned).to_vec(),
        ..DiskView::default()
    };
    let mut devices: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let (kind, rest) = line.split_once('|').unwrap_or((line, ""));
        match kind {
            "end" => view.not_measured.retain(|part| part != rest),
            "fs" => {
                let words: Vec<&str> = rest.splitn(5, '|').collect();
                if let [device, size, used, free, path] = words[..] {
                    let same = devices.iter().find(|(other, _)| other == device);
                    let same_as = same.map(|(_, path)| path.clone());
                    let sizes = same_as.is_none().then_some((size, used, free));
                    view.filesystems.push(FilesystemView {
                        path: path.to_owned(),
                        size_gb: sizes.map(|(size, _, _)| gigabytes(size)),
                        used_gb: sizes.map(|(_, used, _)| gigabytes(used)),
                        free_gb: sizes.map(|(_, _, free)| gigabytes(free)),
                        same_as,
                    });
                    devices.push((device.to_owned(), path.to_owned()));
                }
            }
            "work" | "caches" | "temp" => {
                if let Some((kb, path)) = rest.split_once('|')
                    && let Ok(kb) = kb.parse::<u64>()
                {
                    let list = match kind {
                        "work" => &mut view.work,
                        "caches" => &mut view.caches,
                        _ => &mut view.temp,
                    };
                    list.push(UsedView {
                        path: path.to_owned(),
                        mb: tenths(kb, 1024),
                    });
                }
            }
            _ => {}
        }
    }
    for list in [&mut view.work, &mut view.caches, &mut view.temp] {
        list.sort_by(|a, b| b.mb.total_cmp(&a.mb).then_with(|| a.path.cmp(&b.path)));
        list.truncate(LISTED);
    }
    view
}

/// A database, as the box's helper says it is.
fn database(line: &str) -> Option<ContainerView> {
    let mut words = line.split('|');
    let (name, kind, status) = (words.next()?, words.next()?, words.next()?);
    Some(ContainerView {
        name: name.to_owned(),
        image: kind.to_owned(),
        status: status.to_owned(),
        ports: words.next()?.parse().into_iter().collect(),
        env_file: Some(format!("{DATABASES}/{name}.env")),
    })
}

fn gigabytes(kb: &str) -> f64 {
    tenths(kb.parse().unwrap_or(0), 1 << 20)
}

/// So many units, to the tenth.
#[expect(
    clippy::cast_precision_loss,
    reason = "no disk is so large that a tenth of a unit gets lost"
)]
fn tenths(kb: u64, unit: u64) -> f64 {
    (kb.saturating_mul(10) / unit) as f64 / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_told_and_the_rest_named() {
        let text = "fs|9|10485760|5242880|5242880|/work\nfs|9|10485760|5242880|5242880|/\nfs|7|1024|0|1024|/tmp\n\
                    end|filesystems\nwork|100|/work/a\nwork|2048|/work/b|c\nend|work\ncaches|1|/root/.npm\n";
        let view = read(text);
        assert_eq!(view.not_measured, ["caches", "temp"]);
        assert_eq!(view.filesystems[0].size_gb, Some(10.0));
        assert_eq!(view.filesystems[1].same_as.as_deref(), Some("/work"));
        assert_eq!(view.filesystems[1].size_gb, None);
        let work: Vec<_> = view
            .work
            .iter()
            .map(|used| (&*used.path, used.mb))
            .collect();
        assert_eq!(work, [("/work/b|c", 2.0), ("/work/a", 0.0)]);
        assert_eq!(view.caches.len(), 1);
        let nothing = read("nonsense\n|\n");
        assert_eq!(nothing.not_measured.len(), PARTS.len());
    }

    #[test]
    fn databases_are_read_by_line() {
        let main = database("main|postgres|running|5432").unwrap();
        assert_eq!(
            (&*main.name, &*main.image, &*main.status),
            ("main", "postgres", "running")
        );
        assert_eq!(main.ports, [5432]);
        assert_eq!(main.env_file.as_deref(), Some("/work/.sbx/testdb/main.env"));
        assert!(database("cache|redis|stopped|").unwrap().ports.is_empty());
        assert!(database("nonsense").is_none());
    }
}
