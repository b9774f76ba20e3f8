//! The lines under a result (rules 4.12, 5.12, 6.4): credits that run out, and which boxes the caller has to be told about.
//! When any of it is warned of is the rule's.

use icebox_lifecycle::{BoxId, Time};

use super::trouble::stamp;
use super::{Caller, Commands};
use crate::engine::View;

/// The most lines under one result.
const MOST: usize = 10;
/// The most boxes of a conversation that are looked at for one result.
const MOST_BOXES: usize = 100;

impl Commands {
    /// What to say under a result of this caller that names `named`: that the account's credits run out (rule 4.12), and of
    /// each box that the result names or the conversation used that the idle rules are about to stop it (rule 6.4), or that
    /// its way out could not be made (rule 5.12).
    #[must_use]
    pub fn notices(&self, caller: &Caller, named: Option<BoxId>) -> Vec<String> {
        let views = self.0.engine.views();
        let mut ids: Vec<BoxId> = named.into_iter().collect();
        if let Some(agent) = &caller.agent {
            let used = views.used_by(caller.account, agent, MOST_BOXES);
            ids.extend(used.into_iter().filter(|id| Some(*id) != named));
        }
        let now = self.0.clock.now();
        let views = ids.into_iter().filter_map(|id| views.get(id));
        let own = views.filter(|view| view.record.account == caller.account);
        let lines = own.flat_map(|view| lines(&view, now));
        let credits = self.credits_notice(caller.account).into_iter();
        credits.chain(lines.take(MOST)).collect()
    }
}

/// What there is to say of one box.
fn lines(view: &View, now: Time) -> impl Iterator<Item = String> + use<> {
    let id = view.id();
    let stops = view.sandbox.forecast(now).warn.map(|warning| {
        format!(
            "box {id}: the idle rules stop it for good at {} (in {} minutes) \
             unless something uses it before then, and /work goes with it.",
            stamp(warning.stops_at),
            warning.minutes
        )
    });
    let lacks = view.sandbox.way_out.as_deref().map(|failure| {
        format!(
            "box {id}: it reaches nothing outside for now, although it may; that is tried again by itself: {}",
            failure.reason
        )
    });
    stops.into_iter().chain(lacks)
}
