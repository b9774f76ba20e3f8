//! What the steps of a freeze, a thaw and a snapshot do to the world.

use icebox_lifecycle::{BoxId, CopyId, Processes, SnapshotId};

use super::{Fake, FakeBox, FakeSnapshot, World};
use crate::driver::{DriverError, FreezeMode};

impl Fake {
    /// Waits until there are so many snapshots.
    pub async fn until_snapshots(&self, count: usize) {
        let mut changes = self.0.changes.0.subscribe();
        while self.world().snapshots.len() != count {
            // The sender lives as long as the world.
            let _ = changes.changed().await;
        }
    }
}

impl World {
    pub(super) fn get(&mut self, id: BoxId) -> Result<&mut FakeBox, DriverError> {
        let found = self.boxes.get_mut(&id);
        found.ok_or_else(|| DriverError::Gone(format!("there is no box {id}")))
    }

    pub(super) fn freeze(&mut self, id: BoxId, mode: FreezeMode) -> Result<(), DriverError> {
        let found = self.get(id)?;
        match (found.processes, mode) {
            (Processes::Absent, FreezeMode::Copy(copy)) if found.copies.contains_key(&copy) => {
                return Ok(());
            }
            (Processes::Absent, _) => {
                let detail = found.ended.clone().unwrap_or_default();
                return Err(DriverError::Gone(detail));
            }
            (Processes::Running | Processes::Stopped, _) => {}
        }
        found.processes = Processes::Stopped;
        found.disconnect();
        if let FreezeMode::Copy(copy) = mode {
            let memory = found.memory.clone();
            found.copies.insert(copy, memory);
        }
        Ok(())
    }

    pub(super) fn renew(&mut self, id: BoxId) -> Result<(), DriverError> {
        match self.get(id)?.processes {
            Processes::Running => Ok(()),
            Processes::Stopped => Err(DriverError::Failed("it stands still".to_owned())),
            Processes::Absent => Err(DriverError::Gone("nothing of it runs".to_owned())),
        }
    }

    pub(super) fn save(
        &mut self,
        id: BoxId,
        copy: Option<CopyId>,
        snapshot: SnapshotId,
    ) -> Result<(), DriverError> {
        if self.snapshots.contains_key(&snapshot) {
            return Ok(());
        }
        let found = self.get(id)?;
        if found.processes == Processes::Running {
            return Err(DriverError::Failed("the box runs".to_owned()));
        }
        let memory = copy.map(|copy| {
            let kept = found.copies.get(&copy).cloned();
            kept.ok_or_else(|| DriverError::Gone("there is no such copy".to_owned()))
        });
        let made = FakeSnapshot {
            files: found.files.clone(),
            memory: memory.transpose()?,
            programs: found.programs.clone(),
        };
        self.snapshots.insert(snapshot, made);
        Ok(())
    }

    pub(super) fn thaw(&mut self, id: BoxId, copy: CopyId) -> Result<(), DriverError> {
        let found = self.get(id)?;
        let Some(memory) = found.copies.get(&copy) else {
            return Err(DriverError::Gone(format!("there is no copy {}", copy.0)));
        };
        match found.processes {
            Processes::Running => Err(DriverError::Refused("the box runs".to_owned())),
            Processes::Stopped => Ok(()),
            Processes::Absent => {
                found.memory = memory.clone();
                found.processes = Processes::Stopped;
                found.ended = None;
                Ok(())
            }
        }
    }
}
