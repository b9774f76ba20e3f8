//! The first turns after a server start: the records are loaded, the time nobody looked is made up for, and every box is
//! told what the driver sees of it. There is no other recovery. Most boxes rest, frozen on disk or ended, and are found
//! just as their records say: they cost no turn and no write.

use std::collections::HashMap;
use std::sync::Arc;

use icebox_lifecycle::{BoxId, Event, Processes, Sandbox, Seen, SnapshotId, State, Time};

use super::StartError;
use super::turn::{Core, absent};
use super::views::View;
use super::work::deadline;
use crate::store::{Gap, Loaded};

/// Boxes that are brought up to date in one turn.
const AT_A_TIME: usize = 1_000;

/// Brings every box up to date. Gives the boxes that the driver has and no record names.
pub(super) fn recover(
    core: &mut Core,
    seen: Vec<(BoxId, Seen)>,
    saved: Vec<SnapshotId>,
) -> Result<Vec<BoxId>, StartError> {
    let now = core.clock.now();
    core.watches.down_since = core.store.last_seen()?.unwrap_or(now);
    core.record_gap(now)?;
    for account in core.store.accounts()? {
        core.billing.accounts.put(account.into());
    }
    let (mut restless, orphans, versions) = load(core, now, seen)?;
    core.load_snapshots(saved)?;
    let ids: Vec<BoxId> = restless.keys().copied().collect();
    for id in &ids {
        if let Some(view) = core.views.get(*id) {
            core.count_loaded(&view);
        }
    }
    for some in ids.chunks(AT_A_TIME) {
        bring_up_to_date(core, some, &mut restless)?;
    }
    core.end_unlinked_versions(&versions)?;
    core.billing.loaded(core.clock.now());
    core.saves.remove_unused();
    for id in &orphans {
        tracing::warn!(%id, "the driver has this box but no record names it; it is left alone");
    }
    Ok(orphans)
}

/// What has yet to be told to a box: the time it has missed, and what is seen of it.
type News = HashMap<BoxId, (Option<Gap>, Seen)>;

/// Loads all records. Gives those boxes for which something is to be done, those that no record names, and those that run
/// versions for others.
fn load(
    core: &mut Core,
    now: Time,
    mut seen: Vec<(BoxId, Seen)>,
) -> Result<(News, Vec<BoxId>, Vec<BoxId>), StartError> {
    let (mut restless, mut orphans, mut due) = (News::new(), Vec::new(), Vec::new());
    let mut versions = Vec::new();
    // Rows come in the order of their ids.
    seen.sort_unstable_by_key(|(id, _)| *id);
    let mut seen = seen.into_iter().peekable();
    let Core { store, views, .. } = &mut *core;
    store.load(|row| {
        let missed = row.missed;
        let mut view = view(row);
        let id = view.id();
        while let Some((other, _)) = seen.next_if(|(other, _)| *other < id) {
            orphans.push(other);
        }
        if view.record.runs.is_some() {
            versions.push(id);
        }
        let found = seen.next_if(|(other, _)| *other == id);
        let found = found.map_or_else(|| absent(""), |(_, found)| found);
        match at_rest(&view.sandbox, missed, &found, now) {
            Some(sandbox) => {
                due.extend(deadline(&sandbox).map(|at| (at, id)));
                view.sandbox = sandbox;
                view.observed_at = Some(now);
            }
            None => {
                restless.insert(id, (missed, found));
            }
        }
        views.load(Arc::new(view));
    })?;
    views.list_all();
    core.deadlines = due.into_iter().collect();
    orphans.extend(seen.map(|(id, _)| id));
    Ok((restless, orphans, versions))
}

/// The box as it was stored.
fn view(row: Loaded) -> View {
    View {
        sandbox: row.sandbox,
        record: Arc::new(row.record),
        generation: row.generation,
        recorded_at: row.recorded_at,
        observed_at: None,
    }
}

/// The box with the time counted in that it has missed, and after it was told what is seen of it; if it takes no memory
/// and nothing that would have to be recorded or done comes of it.
fn at_rest(sandbox: &Sandbox, missed: Option<Gap>, found: &Seen, now: Time) -> Option<Sandbox> {
    let rests = match &sandbox.state {
        State::Frozen(frozen) => !frozen.resident,
        State::Terminated { .. } | State::Interrupted { .. } => true,
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. } => false,
    };
    if !rests {
        return None;
    }
    let mut told = sandbox.clone();
    if let Some(Gap { at, ms }) = missed {
        told.handle(at, Event::Gap { ms, ran: false });
    }
    told.handle(now, Event::Observed(found.clone()))
        .is_nothing()
        .then_some(told)
}

fn bring_up_to_date(core: &mut Core, ids: &[BoxId], news: &mut News) -> Result<(), StartError> {
    let mut turn = core.begin();
    for id in ids {
        let Some(view) = core.views.get(*id) else {
            continue;
        };
        let (missed, found) = news.remove(id).unwrap_or_else(|| (None, absent("")));
        if let Some(gap) = missed {
            core.missed(&mut turn, *id, gap, found.processes == Processes::Running);
        }
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
