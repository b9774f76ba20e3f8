//! Looks now and then whether this machine is still as the ways out of boxes need it: its firewall may be emptied, its addresses
//! and its name servers change. Owns when that is; a box that wakes or starts is looked after in any case.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use icebox_lifecycle::BoxId;

use super::super::{Host, Trouble, While};
use super::gateway::Gateway;

/// How often. So long at most boxes are without a way out after somebody has emptied the firewall.
const INTERVAL: Duration = Duration::from_secs(10);

/// In one of so many sweeps, what does not work on this machine is tried again.
const TRY_AGAIN: u32 = 6;

/// Sweeps while this lives.
pub(in super::super) struct Sweeper {
    _lives: Sender<()>,
}

impl Sweeper {
    /// Begins. Without a thread for it, which is told, ways out are looked after at starts and wakes only.
    pub(in super::super) fn start(host: &Arc<Host>) -> Self {
        let (lives, ends) = channel();
        let host = Arc::clone(host);
        let thread = std::thread::Builder::new().name("icebox-sweep".to_owned());
        let spawned = thread.spawn(move || {
            let mut told = String::new();
            let mut sweeps = 0_u32;
            while ends.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                sweeps = sweeps.wrapping_add(1);
                if sweeps.is_multiple_of(TRY_AGAIN) {
                    host.way_out.try_again();
                }
                let trouble = sweep(&host).err();
                let trouble = trouble
                    .map(|trouble| trouble.to_string())
                    .unwrap_or_default();
                if trouble != told && !trouble.is_empty() {
                    tracing::error!(
                        "what keeps boxes from this machine cannot be made again: {trouble}"
                    );
                }
                told = trouble;
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to look after the ways out of boxes");
        }
        Self { _lives: lives }
    }
}

/// Looks after the machine and each box that has a way out; the first trouble does not keep the rest from it.
fn sweep(host: &Host) -> Result<(), Trouble> {
    let runs = fs::read_dir(host.paths.runs()).when("list the running boxes")?;
    let ids = runs
        .flatten()
        .filter_map(|run| BoxId::parse(run.file_name().to_str()?));
    let noted = ids.filter_map(|id| Some((id, Gateway::noted(&host.paths.of(id))?)));
    let noted: Vec<_> = noted.collect();
    if noted.is_empty() {
        return Ok(());
    }
    let mut result = host.way_out.machine.require();
    let now = host.way_out.surroundings()?;
    for (id, found) in noted {
        if now.gateway(&found.egress) != found {
            result = result.and(renew(host, id));
        }
    }
    result
}

/// Gives the way out of a box the rules that it needs by now. A box that something else is done with is left to that, and to
/// the next sweep.
fn renew(host: &Host, id: BoxId) -> Result<(), Trouble> {
    let lock = host.lock_of(id);
    let Ok(_alone) = lock.try_lock() else {
        return Ok(());
    };
    let paths = host.paths.of(id);
    let Some((found, namespace)) = Gateway::of(&paths)? else {
        return Ok(());
    };
    let wanted = host.way_out.surroundings()?.gateway(&found.egress);
    if wanted == found {
        return Ok(());
    }
    tracing::info!(%id, "this machine's addresses or name servers changed: so do the box's rules");
    wanted.change(&paths, &namespace)
}
