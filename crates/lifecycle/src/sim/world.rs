//! The model of what really exists of one box: processes and copies. Owns what an effect does to them, and notices
//! when one is asked for that must never be.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::random::Random;
use crate::effect::Effect;
use crate::event::{Outcome, Processes, Seen};
use crate::id::CopyId;

/// What exists of a box.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// Its processes.
    pub(crate) processes: Processes,
    /// Complete copies, each with the number of times the box had been let run when it was taken.
    pub(crate) copies: Vec<(CopyId, u64)>,
    /// How many times it was let run.
    pub(crate) runs: u64,
    /// Its files exist.
    pub(crate) files: bool,
    /// One effect in this many fails; 0: none does.
    pub(crate) trouble: u64,
    /// How often a way out was made, or could not be.
    ways_out: u64,
}

impl World {
    /// Nothing exists yet.
    pub(crate) fn new(trouble: u64) -> Self {
        Self {
            processes: Processes::Absent,
            copies: Vec::new(),
            runs: 0,
            files: false,
            trouble,
            ways_out: 0,
        }
    }

    /// What a driver would report.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            processes: self.processes,
            copy: self.copies.iter().map(|(copy, _)| *copy).max(),
            detail: Box::default(),
        }
    }

    /// Whether this copy is there and nothing ran since it was taken.
    pub(crate) fn is_good(&self, copy: CopyId) -> bool {
        self.copies.contains(&(copy, self.runs))
    }

    /// The machine under it restarts: memory goes, disks stay.
    pub(crate) fn reboot(&mut self) {
        self.processes = Processes::Absent;
    }

    /// Carries out an effect. Says when it must not have been asked for.
    pub(crate) fn carry_out(
        &mut self,
        effect: &Effect,
        random: &mut Random,
    ) -> Result<Outcome, String> {
        let trouble = self.trouble > 0 && random.one_in(self.trouble);
        Ok(match effect {
            Effect::Boot { keep_files, .. } => {
                if *keep_files && !self.files {
                    return Err("booted on files that are gone".into());
                }
                self.files = true;
                self.processes = Processes::Absent;
                if trouble {
                    return Ok(failed());
                }
                self.run();
                Outcome::Done
            }
            Effect::Freeze { copy, ram_only, .. } => self.freeze(*copy, *ram_only, trouble, random),
            Effect::Evict { .. } => {
                if self.processes == Processes::Running {
                    return Err("evicted a box that runs".into());
                }
                if trouble && self.processes == Processes::Stopped {
                    return Ok(failed());
                }
                self.processes = Processes::Absent;
                Outcome::Done
            }
            Effect::Thaw { copy, .. } => return self.thaw(*copy, trouble),
            Effect::Release { .. } => match self.processes {
                Processes::Absent => gone(),
                Processes::Running | Processes::Stopped if trouble => failed(),
                Processes::Running | Processes::Stopped => {
                    self.run();
                    Outcome::Done
                }
            },
            Effect::Destroy { keep_files, .. } => {
                self.processes = Processes::Absent;
                if trouble {
                    return Ok(failed());
                }
                self.copies.clear();
                self.files &= *keep_files;
                Outcome::Done
            }
            Effect::DropCopy { copy } => {
                self.copies.retain(|(there, _)| there != copy);
                Outcome::Done
            }
            Effect::Save { copy, .. } => return self.save(*copy),
            Effect::Reach | Effect::StopRecording | Effect::FreezePhones => Outcome::Done,
        })
    }

    /// What became of the way out of a box that an effect let run, or whose way out it changed: where there is trouble, two in
    /// three cannot be made.
    pub(crate) fn way_out(&mut self, effect: &Effect) -> Option<Option<Box<str>>> {
        let makes_it = matches!(
            effect,
            Effect::Boot { .. } | Effect::Release { .. } | Effect::Reach
        );
        if !makes_it || self.trouble == 0 || self.processes != Processes::Running {
            return None;
        }
        self.ways_out += 1;
        let fails = !self.ways_out.is_multiple_of(3);
        Some(fails.then(|| format!("trouble {}", self.ways_out / 9).into()))
    }

    fn save(&self, copy: Option<CopyId>) -> Result<Outcome, String> {
        if self.processes == Processes::Running {
            return Err("made a snapshot of a box that runs".into());
        }
        match copy {
            Some(copy) if !self.is_good(copy) => {
                Err(format!("made a snapshot from {copy:?}, which is not good"))
            }
            Some(_) | None if !self.files => Err("made a snapshot of files that are gone".into()),
            Some(_) | None => Ok(Outcome::Done),
        }
    }

    fn freeze(
        &mut self,
        copy: CopyId,
        ram_only: bool,
        trouble: bool,
        random: &mut Random,
    ) -> Outcome {
        if self.processes == Processes::Absent {
            return gone();
        }
        self.processes = Processes::Stopped;
        match (trouble, random.below(8)) {
            (true, 0..4) => failed(),
            (true, 4) => {
                self.processes = Processes::Absent;
                gone()
            }
            (true, _) => Outcome::Refused {
                reason: "it cannot be copied".into(),
            },
            (false, _) => {
                if !ram_only {
                    self.copies.push((copy, self.runs));
                }
                Outcome::Done
            }
        }
    }

    fn thaw(&mut self, copy: CopyId, trouble: bool) -> Result<Outcome, String> {
        if self.processes == Processes::Running {
            return Err("thawed a box that runs".into());
        }
        if !self.copies.iter().any(|(there, _)| *there == copy) {
            return Ok(gone());
        }
        if !self.is_good(copy) {
            return Err(format!("used copy {} after the box ran", copy.0));
        }
        self.processes = Processes::Absent;
        if trouble {
            return Ok(failed());
        }
        self.processes = Processes::Stopped;
        Ok(Outcome::Done)
    }

    fn run(&mut self) {
        self.processes = Processes::Running;
        self.runs += 1;
    }
}

fn failed() -> Outcome {
    Outcome::Failed {
        reason: "trouble".into(),
    }
}

fn gone() -> Outcome {
    Outcome::Gone {
        reason: "nothing there".into(),
    }
}
