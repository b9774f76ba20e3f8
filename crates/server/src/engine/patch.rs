//! Changes of a box's record and settings: all that was asked for, or nothing.

use std::sync::Arc;

use icebox_lifecycle::{Ask, BoxId, Change, Command};

use super::inbox::{Admitted, AskError, Patch};
use super::turn::{Core, Turn};

impl Core {
    pub(super) fn patch(
        &mut self,
        turn: &mut Turn,
        id: BoxId,
        patch: Patch,
    ) -> Result<Admitted, AskError> {
        let work = self.work(turn, id).ok_or(AskError::NotFound)?;
        let policy = patch.policy.map(|change| change(&work.sandbox.policy));
        let mut commands: Vec<Command> = Vec::new();
        commands.extend(policy.map(|policy| Command::SetPolicy(Box::new(policy))));
        commands.extend(patch.keep.map(Command::Keep));
        let before = self.work(turn, id).ok_or(AskError::NotFound)?;
        // The same again changes nothing, but tries what could not be made.
        let lacks = before.sandbox.way_out.is_some();
        let egress = patch
            .egress
            .filter(|(egress, _)| lacks || *egress != before.record.egress);
        commands.extend(egress.is_some().then_some(Command::Reach));
        // All of it or nothing: a refusal comes before the first change.
        for command in &commands {
            self.admit(turn, id, &Ask::from(command))?;
        }
        for command in commands {
            self.commanded(turn, id, command);
        }
        let work = self.work(turn, id).ok_or(AskError::NotFound)?;
        let mut record = (*work.record).clone();
        if let Some(name) = patch.name {
            record.name = name.map(Into::into);
        }
        if let Some(goal) = patch.goal {
            record.goal = goal.map(Into::into);
        }
        if let Some((egress, hears)) = egress {
            record.egress = egress;
            work.reaching.push(hears);
        }
        if let Some(e2b) = patch.e2b {
            record.e2b = Some(e2b);
        }
        if let Some(private) = patch.private {
            record.private = private;
        }
        if let Some((secret, instead)) = patch.link_secret
            && (instead || record.link_secret.is_none())
        {
            record.link_secret = Some(secret.into());
        }
        if let Some(change) = patch.wiring {
            change(&mut record);
        }
        if record != *work.record {
            work.record = Arc::new(record);
            work.record_changed = true;
            work.changed = Change::Transition;
        }
        Ok(Admitted::Accepted)
    }
}
