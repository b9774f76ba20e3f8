//! One watcher: the kernel's inotify events of a directory, as the filesystem service tells them.
//!
//! Owns the watches and the translation. An event becomes at most one of the protocol's, by the file it names:
//! a creation or arrival CREATE, a change of content WRITE, of attributes CHMOD, a removal REMOVE, a departure RENAME.
//! Files that boxd's own uploads are collected in stay unseen; such an upload shows as WRITE, after CREATE if the file
//! is new, as if it had been written in place.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use buffa::MessageField;
use icebox_wire::filesystem::{EventType, FilesystemEvent};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::entry::{Names, entry};
use super::staging::Unfinished;
use crate::error::Error;

/// How many bytes of events are read at once.
const READ_BYTES: usize = 64 * 1024;

/// The most directories one watcher watches.
const MAX_DIRS: usize = 8192;

/// The most names remembered because they were announced before the kernel told of them.
const MAX_ANNOUNCED: usize = 8192;

/// Types of file systems that are shared over a network: NFS, SMB, CIFS, SMB2, FUSE, Ceph, AFS, 9p.
const NETWORK: [u64; 8] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x00c3_6400,
    0x5346_414f,
    0x0102_1997,
];

/// What to watch.
#[derive(Debug, Clone)]
pub(crate) struct What {
    pub(crate) root: PathBuf,
    pub(crate) recursive: bool,
    pub(crate) include_entry: bool,
    pub(crate) allow_network_mounts: bool,
}

/// The watches of one watcher. All methods block and run as the user whose watcher it is.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: Arc<OwnedFd>,
    what: What,
    /// Each watched directory, relative to the root.
    dirs: HashMap<i32, PathBuf>,
    /// Names told of when their directory was found, which the kernel may tell of again.
    announced: HashSet<(i32, OsString)>,
    /// As they were when the latest events were read.
    names: Names,
}

/// One event as the kernel tells it.
#[derive(Debug)]
struct Raw {
    wd: i32,
    flags: ReadFlags,
    cookie: u32,
    name: OsString,
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn begin(what: What) -> Result<Self, Error> {
        let root = &what.root;
        let meta = fs::metadata(root).map_err(Error::file("watch", root))?;
        if !meta.is_dir() {
            let kind = io::Error::from_raw_os_error(libc::ENOTDIR);
            return Err(Error::file("watch", root)(kind));
        }
        let statfs = rustix::fs::statfs(root).map_err(Error::file("watch", root))?;
        // The field's type differs between machines; the numbers have 32 bits.
        let on_network = NETWORK.contains(&(statfs.f_type as u64 & 0xffff_ffff));
        if on_network && !what.allow_network_mounts {
            return Err(Error::BadRequest(format!(
                "{} is on a network file system, where events may be missing; allow network mounts to watch it all the same",
                root.display()
            )));
        }
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let inotify = inotify::init(flags).map_err(Error::file("watch", root))?;
        let mut watch = Self {
            inotify: Arc::new(inotify),
            what,
            dirs: HashMap::new(),
            announced: HashSet::new(),
            names: Names::default(),
        };
        watch.add(PathBuf::new(), &mut Vec::new(), false)?;
        Ok(watch)
    }

    /// What becomes readable when there is something to [`read`](Self::read).
    pub(crate) fn descriptor(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.inotify)
    }

    /// Translates what the kernel has ready, at most one buffer of it.
    pub(crate) fn read(&mut self) -> Result<Vec<FilesystemEvent>, Error> {
        let batch = self
            .read_raw()
            .map_err(Error::file("watch", &self.what.root))?;
        if self.what.include_entry {
            self.names = Names::read();
        }
        // A directory's departure and arrival carry the same number, one after the other.
        let arrived: HashMap<u32, (i32, OsString)> = batch
            .iter()
            .filter(|raw| raw.flags.contains(ReadFlags::MOVED_TO))
            .map(|raw| (raw.cookie, (raw.wd, raw.name.clone())))
            .collect();
        let mut finished = HashMap::new();
        let mut events = Vec::new();
        for raw in batch {
            if raw.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                return Err(lost());
            }
            if raw.flags.contains(ReadFlags::IGNORED) {
                self.dirs.remove(&raw.wd);
                continue;
            }
            let Some(dir) = self.dirs.get(&raw.wd) else {
                continue;
            };
            if let Some(unfinished) = Unfinished::of_name(&raw.name) {
                if raw.flags.contains(ReadFlags::MOVED_FROM) {
                    finished.insert(raw.cookie, unfinished);
                }
                continue;
            }
            let relative = dir.join(&raw.name);
            let replaced = finished
                .get(&raw.cookie)
                .is_some_and(|unfinished| unfinished.replaces);
            if let Some(kind) = self.kind(&raw, replaced) {
                events.push(self.event(&relative, kind));
            }
            if raw.flags.contains(ReadFlags::ISDIR) && self.what.recursive {
                self.follow_dir(&raw, relative, arrived.get(&raw.cookie), &mut events)?;
            }
        }
        Ok(events)
    }

    fn read_raw(&self) -> io::Result<Vec<Raw>> {
        let mut buffer = vec![MaybeUninit::uninit(); READ_BYTES];
        let mut reader = Reader::new(&*self.inotify, &mut buffer);
        let mut batch = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => batch.push(Raw {
                    wd: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(owned).unwrap_or_default(),
                }),
                Err(rustix::io::Errno::AGAIN) => return Ok(batch),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if reader.is_buffer_empty() {
                return Ok(batch);
            }
        }
    }

    /// What to tell of an event, if anything.
    fn kind(&mut self, raw: &Raw, replaced: bool) -> Option<EventType> {
        let is_root = self
            .dirs
            .get(&raw.wd)
            .is_some_and(|dir| dir.as_os_str().is_empty());
        if raw.name.is_empty() {
            // About a watched directory itself; the one above told of all but the root.
            return match raw.flags {
                _ if !is_root => None,
                flags if flags.contains(ReadFlags::DELETE_SELF) => {
                    Some(EventType::EVENT_TYPE_REMOVE)
                }
                flags if flags.contains(ReadFlags::MOVE_SELF) => Some(EventType::EVENT_TYPE_RENAME),
                flags if flags.contains(ReadFlags::ATTRIB) => Some(EventType::EVENT_TYPE_CHMOD),
                _ => None,
            };
        }
        let known = (raw.wd, raw.name.clone());
        match raw.flags {
            flags if flags.contains(ReadFlags::CREATE) => {
                (!self.announced.remove(&known)).then_some(EventType::EVENT_TYPE_CREATE)
            }
            flags if flags.contains(ReadFlags::MOVED_TO) => {
                let again = self.announced.remove(&known) || replaced;
                (!again).then_some(EventType::EVENT_TYPE_CREATE)
            }
            flags if flags.contains(ReadFlags::MODIFY) => Some(EventType::EVENT_TYPE_WRITE),
            flags if flags.contains(ReadFlags::ATTRIB) => Some(EventType::EVENT_TYPE_CHMOD),
            flags if flags.contains(ReadFlags::DELETE) => {
                self.announced.remove(&known);
                Some(EventType::EVENT_TYPE_REMOVE)
            }
            flags if flags.contains(ReadFlags::MOVED_FROM) => {
                self.announced.remove(&known);
                Some(EventType::EVENT_TYPE_RENAME)
            }
            _ => None,
        }
    }

    fn event(&self, relative: &Path, kind: EventType) -> FilesystemEvent {
        let gone = matches!(
            kind,
            EventType::EVENT_TYPE_REMOVE | EventType::EVENT_TYPE_RENAME
        );
        let info = if self.what.include_entry && !gone {
            // It may be gone again.
            entry(&self.what.root.join(relative), &self.names).ok()
        } else {
            None
        };
        let name = match relative.as_os_str().is_empty() {
            true => ".".into(),
            false => relative.to_string_lossy().into_owned(),
        };
        FilesystemEvent {
            name,
            r#type: kind.into(),
            entry: info.map_or_else(MessageField::none, MessageField::some),
            ..Default::default()
        }
    }

    /// Watches a directory that came, lets go of one that left.
    fn follow_dir(
        &mut self,
        raw: &Raw,
        relative: PathBuf,
        arrived: Option<&(i32, OsString)>,
        events: &mut Vec<FilesystemEvent>,
    ) -> Result<(), Error> {
        if raw.flags.contains(ReadFlags::CREATE) {
            self.add(relative, events, true)
        } else if raw.flags.contains(ReadFlags::MOVED_TO) {
            // Watched already when it came from within.
            if self.dirs.values().any(|dir| *dir == relative) {
                return Ok(());
            }
            self.add(relative, events, false)
        } else if raw.flags.contains(ReadFlags::MOVED_FROM) {
            let to = arrived.and_then(|(wd, name)| Some(self.dirs.get(wd)?.join(name)));
            self.moved(&relative, to.as_deref());
            Ok(())
        } else {
            Ok(())
        }
    }

    /// A watched directory and those below it have another name, or left.
    fn moved(&mut self, from: &Path, to: Option<&Path>) {
        let mut left = Vec::new();
        for (wd, dir) in &mut self.dirs {
            let Ok(below) = dir.strip_prefix(from) else {
                continue;
            };
            match to {
                Some(to) if below.as_os_str().is_empty() => *dir = to.to_owned(),
                Some(to) => *dir = to.join(below),
                None => left.push(*wd),
            }
        }
        for wd in left {
            self.dirs.remove(&wd);
            // Fails when the directory is gone already.
            let _ = inotify::remove_watch(&*self.inotify, wd);
        }
    }

    /// Watches `relative` and, if asked to, all below it; `announce` tells of what is in there already.
    fn add(
        &mut self,
        relative: PathBuf,
        events: &mut Vec<FilesystemEvent>,
        announce: bool,
    ) -> Result<(), Error> {
        let mut todo = vec![relative];
        while let Some(dir) = todo.pop() {
            let is_root = dir.as_os_str().is_empty();
            let path = self.what.root.join(&dir);
            if self.dirs.len() >= MAX_DIRS {
                return Err(Error::Limit(format!(
                    "more than {MAX_DIRS} directories to watch under {}; watch fewer",
                    self.what.root.display()
                )));
            }
            let wd = match inotify::add_watch(&*self.inotify, &path, flags(is_root)) {
                Ok(wd) => wd,
                Err(rustix::io::Errno::NOSPC) => {
                    return Err(Error::Limit(
                        "this box watches as many directories as it may".to_owned(),
                    ));
                }
                // Below the root it may be gone again, or not be the user's to look into.
                Err(_) if !is_root => continue,
                Err(errno) => return Err(Error::file("watch", &path)(errno)),
            };
            let before = self.dirs.insert(wd, dir.clone());
            // One that was found before the kernel told of it has the watch that it had: all in it is known or will be told.
            let is_new = before.as_ref() != Some(&dir);
            if self.what.recursive && is_new {
                self.look_into(wd, &dir, announce, events, &mut todo);
            }
        }
        Ok(())
    }

    /// Finds the directories in a directory that is watched now, so nothing in it goes unseen.
    fn look_into(
        &mut self,
        wd: i32,
        dir: &Path,
        announce: bool,
        events: &mut Vec<FilesystemEvent>,
        todo: &mut Vec<PathBuf>,
    ) {
        let children = fs::read_dir(self.what.root.join(dir));
        for child in children.into_iter().flatten().flatten() {
            let name = child.file_name();
            if Unfinished::of_name(&name).is_some() {
                continue;
            }
            let relative = dir.join(&name);
            if announce && self.announced.len() < MAX_ANNOUNCED {
                events.push(self.event(&relative, EventType::EVENT_TYPE_CREATE));
                self.announced.insert((wd, name));
            }
            if child.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(relative);
            }
        }
    }
}

/// Events went missing.
pub(crate) fn lost() -> Error {
    Error::Limit(
        "more happened than could be told, and events were lost; list the directory and watch it anew"
            .to_owned(),
    )
}

fn flags(is_root: bool) -> WatchFlags {
    let flags = WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::ONLYDIR
        | WatchFlags::EXCL_UNLINK;
    if is_root {
        flags | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF
    } else {
        flags | WatchFlags::DONT_FOLLOW
    }
}

fn owned(name: &CStr) -> OsString {
    OsStr::from_bytes(name.to_bytes()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens when a directory comes between the watch on the one above and the look into that.
    #[test]
    fn a_directory_that_was_found_before_it_was_told_of_is_told_once() {
        let root = tempfile::tempdir().expect("a folder");
        let what = What {
            root: root.path().to_owned(),
            recursive: true,
            include_entry: false,
            allow_network_mounts: true,
        };
        let mut watch = Watch::begin(what).expect("watches");
        let above = *watch.dirs.keys().next().expect("the root's");
        fs::create_dir_all(root.path().join("found/below")).expect("made");
        let mut events = Vec::new();
        watch.look_into(above, Path::new(""), true, &mut events, &mut Vec::new());
        watch
            .add("found".into(), &mut events, true)
            .expect("watches");
        events.extend(watch.read().expect("the kernel tells"));
        let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["found", "found/below"]);
        fs::write(root.path().join("found/below/file"), "").expect("written");
        let told = watch.read().expect("the kernel tells");
        assert_eq!(told[0].name, "found/below/file");
    }
}
