//! How many CPUs a command keeps busy: read off `/proc`, twice. A command's processes are those of its session, so that what
//! left it by `setsid` is not counted; what ended and was waited for is counted with whoever waited.

use std::fs;
use std::time::{Duration, Instant};

use crate::clock;

/// The longest time that use is measured over.
const MOST: Duration = Duration::from_secs(1);

/// CPU time that was used until a moment, by session.
struct Sample {
    at: Instant,
    used: Vec<Used>,
}

/// What one process used.
#[derive(Debug, PartialEq, Eq)]
struct Used {
    session: i32,
    ticks: u64,
}

/// CPU use over a while.
pub(crate) struct Use {
    before: Sample,
    after: Sample,
}

/// Measures over this long, a second at most; not at all over nothing.
pub(crate) async fn measured(over: Duration) -> Option<Use> {
    if over.is_zero() {
        return None;
    }
    let before = sampled().await?;
    tokio::time::sleep(over.min(MOST)).await;
    let after = sampled().await?;
    Some(Use { before, after })
}

/// Beside everything else: there may be many processes to read.
async fn sampled() -> Option<Sample> {
    tokio::task::spawn_blocking(Sample::now).await.ok()
}

impl Use {
    /// How many CPUs the session that this process leads kept busy.
    pub(crate) fn of(&self, leader: i32) -> f64 {
        let took = self.after.at.saturating_duration_since(self.before.at);
        // A process that ended unseen takes its time with it.
        let ticks = (self.after.of(leader)).saturating_sub(self.before.of(leader));
        let used = Duration::from_millis(ticks * 1_000 / ticks_per_second());
        if took.is_zero() {
            return 0.0;
        }
        used.as_secs_f64() / took.as_secs_f64()
    }
}

impl Sample {
    fn now() -> Self {
        let began = clock::now();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = entries.filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
        });
        // Those that end meanwhile cannot be read any more.
        let used = processes
            .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
            .filter_map(|stat| read(&stat))
            .collect();
        // The middle of the reading is when most was read.
        let at = began + began.elapsed() / 2;
        Self { at, used }
    }

    fn of(&self, session: i32) -> u64 {
        let used = self.used.iter().filter(|used| used.session == session);
        used.map(|used| used.ticks).sum()
    }
}

/// Reads a line of `/proc/<pid>/stat`: the session, and the time of the process and of children it waited for.
fn read(stat: &str) -> Option<Used> {
    // The name before the bracket may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map(|ticks| ticks.parse::<u64>());
    Some(Used {
        session: fields.get(3)?.parse().ok()?,
        ticks: ticks.sum::<Result<u64, _>>().ok()?,
    })
}

fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name() {
        let stat = "42 (a) 1 (b) R 1 42 40 34816 42 4194304 100 0 0 0 7 5 30 2 20 0 1 0 900 0 0";
        let read = read(stat);
        assert_eq!(
            read,
            Some(Used {
                session: 40,
                ticks: 44
            })
        );
        assert_eq!(super::read("nonsense"), None);
        assert_eq!(super::read("1 (x) S 1 2"), None);
    }
}
