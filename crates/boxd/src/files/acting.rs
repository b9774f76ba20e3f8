//! Acting on files as another user.
//!
//! A file call runs on one of the runtime's helper threads, which takes on the user's effective user, group and
//! supplementary groups, does its work, and turns back into root. The kernel then checks and owns everything as for a
//! process of that user. Only opening, making, renaming and removing are done this way; reading and writing need no
//! credentials once a file is open.

use std::io;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::error::Error;
use crate::restart::gate::AtWork;
use crate::settings::Settings;
use crate::turned::Turned;
use crate::users::User;

/// What root may do with files of others.
const ROOTS_RIGHTS: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::CHOWN);

/// Whose files are made, whose rights count, and where relative paths begin.
#[derive(Debug, Clone)]
pub(crate) struct Acting {
    pub(crate) user: User,
    /// Root's rights, though what is made belongs to the user.
    pub(crate) as_root: bool,
    /// Empty: the user's home.
    pub(crate) workdir: String,
}

impl Acting {
    /// Of a call in which `user` acts.
    pub(crate) fn new(user: User, settings: &Settings) -> Self {
        let now = settings.now();
        Self {
            user,
            as_root: now.files_as_root,
            workdir: now.default_workdir.clone(),
        }
    }

    /// Whether files of others may be changed.
    pub(crate) fn has_roots_rights(&self) -> bool {
        self.user.uid == 0 || self.as_root
    }

    /// Does `work` as the user, on this thread.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.user.uid == 0 {
            return work();
        }
        let _turns_back = Turned::for_files(&self.user).map_err(Error::ActAs)?;
        if self.as_root {
            take_roots_rights().map_err(Error::ActAs)?;
        }
        work()
    }

    /// Does `work` as the user, on a helper thread.
    pub(crate) async fn aside<T: Send + 'static>(
        self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let done = tokio::task::spawn_blocking(AtWork::over(move || self.run(work)));
        done.await
            .map_err(|error| Error::ActAs(io::Error::from(error)))?
    }
}

/// For this thread, until it turns back into root, who has them anyway.
fn take_roots_rights() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective = sets.permitted & ROOTS_RIGHTS;
    set_capabilities(None, sets)?;
    Ok(())
}
