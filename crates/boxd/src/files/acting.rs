//! Acting on files as another user.
//!
//! Owns the change of a thread's user and the way back. A file call runs on one of the runtime's helper threads, and
//! Linux keeps credentials by thread: the helper takes on the user's effective user, group and supplementary groups,
//! does its work, and turns back into root. The kernel then checks and owns everything as for a process of that user:
//! it drops the effective capabilities by itself when the effective user stops being root. Real and saved user stay
//! root, so that no process of the user can signal or trace the thread, and so that the way back is open. Only opening,
//! making, renaming and removing are done this way; reading and writing need no credentials once a file is open.

use std::io;

use rustix::process::getgroups;
use rustix::thread::{
    CapabilitySet, Gid, Uid, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::error::Error;
use crate::settings::Settings;
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
        let _turns_back = Turned::into_user(self).map_err(Error::ActAs)?;
        work()
    }

    /// Does `work` as the user, on a helper thread.
    pub(crate) async fn aside<T: Send + 'static>(
        self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let done = tokio::task::spawn_blocking(move || self.run(work));
        done.await
            .map_err(|error| Error::ActAs(io::Error::from(error)))?
    }
}

/// A thread that is someone else until this is dropped.
struct Turned {
    groups: Vec<Gid>,
}

impl Turned {
    fn into_user(acting: &Acting) -> io::Result<Self> {
        let user = &acting.user;
        let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
        let turned = Self {
            groups: getgroups()?,
        };
        // Groups first: once the user has changed, the right to change them is gone.
        set_thread_groups(&groups)?;
        set_thread_res_gid(None, Gid::from_raw(user.gid), None)?;
        set_thread_res_uid(None, Uid::from_raw(user.uid), None)?;
        if acting.as_root {
            let mut sets = capabilities(None)?;
            sets.effective = sets.permitted & ROOTS_RIGHTS;
            set_capabilities(None, sets)?;
        }
        Ok(turned)
    }

    fn turn_back(&self) -> io::Result<()> {
        set_thread_res_uid(None, Uid::ROOT, None)?;
        set_thread_res_gid(None, Gid::ROOT, None)?;
        set_thread_groups(&self.groups)?;
        Ok(())
    }
}

impl Drop for Turned {
    fn drop(&mut self) {
        if let Err(error) = self.turn_back() {
            // Other work would be done as the wrong user from here on.
            eprintln!("boxd: cannot become root again: {error}");
            std::process::abort();
        }
    }
}
