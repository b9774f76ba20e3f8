//! The first turns after a server start: the records are loaded, the time nobody looked is made up for, and every box is
//! told what the driver sees of it. There is no other recovery.

use std::collections::HashMap;
use std::sync::Arc;

use icebox_lifecycle::{BoxId, Event, Processes, Seen, State};

use super::StartError;
use super::turn::{Core, absent};
use super::views::View;

/// Boxes that are brought up to date in one turn.
const AT_A_TIME: usize = 1_000;

/// Brings every box up to date. Gives the boxes that the driver has and no record names.
pub(super) fn recover(core: &mut Core, seen: Vec<(BoxId, Seen)>) -> Result<Vec<BoxId>, StartError> {
    let last_seen = core.store.last_seen()?;
    let gap_ms = last_seen.map_or(0, |last| core.clock.now().since(last));
    core.watches.down_since = last_seen.unwrap_or_else(|| core.clock.now());
    let mut seen: HashMap<BoxId, Seen> = seen.into_iter().collect();
    let mut ids = Vec::new();
    for row in core.store.load()? {
        let view = Arc::new(View {
            sandbox: row.sandbox,
            record: Arc::new(row.record),
            generation: row.generation,
            recorded_at: row.recorded_at,
            observed_at: None,
        });
        core.load(&view);
        ids.push(view.id());
    }
    for some in ids.chunks(AT_A_TIME) {
        bring_up_to_date(core, some, gap_ms, &mut seen)?;
    }
    let mut orphans: Vec<BoxId> = seen.into_keys().collect();
    orphans.sort_unstable();
    for id in &orphans {
        tracing::warn!(%id, "the driver has this box but no record names it; it is left alone");
    }
    Ok(orphans)
}

fn bring_up_to_date(
    core: &mut Core,
    ids: &[BoxId],
    gap_ms: i64,
    seen: &mut HashMap<BoxId, Seen>,
) -> Result<(), StartError> {
    let mut turn = core.begin();
    for id in ids {
        let Some(view) = core.views.get(*id) else {
            continue;
        };
        // Before anything else, for with any event the due clocks strike.
        core.step(&mut turn, *id, Event::Gap { ms: gap_ms });
        let found = seen.remove(id).unwrap_or_else(|| absent(""));
        if ended_for_good(&view) && found.processes == Processes::Absent && found.copy.is_none() {
            continue;
        }
        core.observe(&mut turn, *id, found);
    }
    core.finish(turn).map_err(|_| StartError::Commit)?;
    for id in ids {
        if let Some(view) = core.views.get(*id) {
            core.follow_loaded(&view);
        }
    }
    Ok(())
}

fn ended_for_good(view: &View) -> bool {
    matches!(view.sandbox.state, State::Terminated { kept: None, .. })
}
