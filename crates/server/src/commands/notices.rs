//! The lines under a result (rules 4.12, 6.4): credits that run out, and which boxes the caller has to be told about. When
//! either is warned of is the rule's.

use icebox_lifecycle::BoxId;

use super::trouble::stamp;
use super::{Caller, Commands};

/// The most lines under one result.
const MOST: usize = 10;
/// The most boxes of a conversation that are looked at for one result.
const MOST_BOXES: usize = 100;

impl Commands {
    /// What to say under a result of this caller that names `named`: that the account's credits run out (rule 4.12), and
    /// one line for each box that the idle rules are about to stop and that the result names or the conversation used
    /// (rule 6.4).
    #[must_use]
    pub fn notices(&self, caller: &Caller, named: Option<BoxId>) -> Vec<String> {
        let views = self.0.engine.views();
        let mut ids: Vec<BoxId> = named.into_iter().collect();
        if let Some(agent) = &caller.agent {
            let used = views.used_by(caller.account, agent, MOST_BOXES);
            ids.extend(used.into_iter().filter(|id| Some(*id) != named));
        }
        let now = self.0.clock.now();
        let line = |id: BoxId| {
            let view = views
                .get(id)
                .filter(|view| view.record.account == caller.account)?;
            let warning = view.sandbox.forecast(now).warn?;
            Some(format!(
                "box {id}: the idle rules stop it for good at {} (in {} minutes) \
                 unless something uses it before then, and /work goes with it.",
                stamp(warning.stops_at),
                warning.minutes
            ))
        };
        let credits = self.credits_notice(caller.account).into_iter();
        credits
            .chain(ids.into_iter().filter_map(line).take(MOST))
            .collect()
    }
}
