//! A thread that is another user for a while: the change of its user, and the way back.
//!
//! Linux keeps credentials by thread. The saved user and group stay root, so that the way back is open, and no process of the
//! user can trace the thread. The kernel drops the effective capabilities by itself when the effective user stops being
//! root. It also takes boxd for one whose memory is nobody's business, which is undone: CRIU, which works in the box's own
//! user namespace for a while, could not copy a box that was restored before.

use std::io;

use rustix::process::{DumpableBehavior, getgroups, set_dumpable_behavior};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::users::User;

/// Until this is dropped, this thread is someone else.
pub(crate) struct Turned {
    groups: Vec<Gid>,
}

impl Turned {
    /// To act on files: the effective user and group. The real ones stay root, so that no process of the user can signal
    /// or trace the thread.
    pub(crate) fn for_files(user: &User) -> io::Result<Self> {
        Self::into_user(user, false)
    }

    /// To start a program: the real ones, too. The program then is the user's altogether, for `exec` makes the effective
    /// user and group the saved ones.
    pub(crate) fn for_programs(user: &User) -> io::Result<Self> {
        Self::into_user(user, true)
    }

    fn into_user(user: &User, real: bool) -> io::Result<Self> {
        let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        let turned = Self {
            groups: getgroups()?,
        };
        // Groups first: once the user has changed, the right to change them is gone.
        set_thread_groups(&groups)?;
        set_thread_res_gid(real.then_some(gid), gid, None)?;
        set_thread_res_uid(real.then_some(uid), uid, None)?;
        Ok(turned)
    }

    fn turn_back(&self) -> io::Result<()> {
        set_thread_res_uid(Some(Uid::ROOT), Uid::ROOT, None)?;
        set_thread_res_gid(Some(Gid::ROOT), Gid::ROOT, None)?;
        set_thread_groups(&self.groups)?;
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
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
