//! Image `host`: generations of this host's own software, kept while any box uses them, and the copies of
//! boxd that boxes carry. Owns `<data>/images` and `<data>/boxd`.
//!
//! A generation is hard-linked, so it costs folders only, and it never changes: a lower layer on the live
//! root would make memory unrestorable after the next package upgrade (a replaced file that is mapped
//! fails the restore), and would show the host's later files to running boxes.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::fsutil;
use super::paths::Paths;
use super::wayout::RESOLV_CONF;

/// Where boxd is seen inside a box.
pub(super) const BOXD_IN_BOX: &str = icebox_wire::boxd::PLACE;

/// Host folders that a generation hard-links.
const LINKED: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Entries of `/etc` that say something about this host or may hold a secret though anybody may read them.
const ETC_LEFT_OUT: [&str; 22] = [
    "NetworkManager",
    "cloud",
    "containers",
    "crypttab",
    "default",
    "docker",
    "environment",
    "exports",
    "fstab",
    "hostname",
    "hosts",
    "kubernetes",
    "machine-id",
    "mtab",
    "netplan",
    "network",
    "passwd-",
    "rancher",
    "resolv.conf",
    "ssh",
    "sudoers.d",
    "systemd",
];

/// What changes when software is installed or removed; the fingerprint of a generation is made of it.
const WATCHED: [&str; 10] = [
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/pacman/local",
    "/usr/bin",
    "/usr/lib",
    "/usr/local/bin",
    "/usr/local/lib",
    "/etc/passwd",
    "/etc/group",
    "/etc/alternatives",
];

/// The layout of a generation; part of its name, so that a newer Icebox makes its own.
const LAYOUT: u32 = 3;

/// What every image gets for databases in tests.
const TESTDB: &str = include_str!("psbx-testdb.bash");

/// The images on this host.
pub(super) struct Images {
    paths: Paths,
}

impl Images {
    pub(super) fn new(paths: Paths) -> Self {
        Self { paths }
    }

    /// Held while generations are made or removed, also against another process on this data folder.
    fn lock(&self) -> io::Result<File> {
        let file = File::create(self.paths.images_lock())?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// The folder of a generation that a box was made from.
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        self.paths.images().join(name)
    }

    /// The name of the generation that the host's software is at now, made if it is not there yet.
    pub(super) fn current_host(&self) -> io::Result<String> {
        let name = format!("host-{}", fingerprint());
        let dir = self.dir(&name);
        let _one_at_a_time = self.lock()?;
        if dir.try_exists()? {
            return Ok(name);
        }
        let tmp = self.dir("unfinished");
        fsutil::remove_tree(&tmp)?;
        tracing::info!(image = %name, "making a generation of image host");
        make_generation(&tmp)?;
        fs::rename(&tmp, &dir)?;
        fsutil::sync_filesystem(&self.paths.images())?;
        Ok(name)
    }

    /// Keeps a boxd under its checksum and returns that. A kept one is never overwritten: memory that was
    /// frozen with it maps it.
    pub(super) fn keep_boxd(&self, boxd: &Path) -> io::Result<String> {
        let content = fs::read(boxd)?;
        let sum = format!("{:032x}", xxh3_128(&content));
        let kept = self.boxd(&sum);
        if !kept.try_exists()? {
            let dir = self.paths.boxd().join(&sum);
            fs::create_dir_all(&dir)?;
            fsutil::write_atomic(&kept, &content)?;
            fs::set_permissions(&kept, fs::Permissions::from_mode(0o755))?;
        }
        Ok(sum)
    }

    /// The path of a kept boxd.
    pub(super) fn boxd(&self, sum: &str) -> PathBuf {
        self.paths.boxd().join(sum).join("boxd")
    }

    /// The checksums of all that are kept.
    pub(super) fn boxds(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.paths.boxd())?;
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries.map(|entry| entry.map(name)).collect()
    }

    /// Removes the generations that are not among `used`, and what an interrupted build left.
    pub(super) fn sweep_generations(&self, used: &[String]) -> io::Result<()> {
        let _no_build_meanwhile = self.lock()?;
        remove_all_but(&self.paths.images(), used)
    }

    /// Removes the boxds that are not among `used`.
    pub(super) fn sweep_boxds(&self, used: &[String]) -> io::Result<()> {
        remove_all_but(&self.paths.boxd(), used)
    }

    /// The name that [`Self::current_host`] would have now, without making it.
    pub(super) fn current_host_name() -> String {
        format!("host-{}", fingerprint())
    }
}

fn remove_all_but(dir: &Path, used: &[String]) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !used.contains(&name) {
            tracing::info!(folder = %entry.path().display(), "no box uses it: removed");
            fsutil::remove_tree(&entry.path())?;
        }
    }
    Ok(())
}

fn fingerprint() -> String {
    let mut hash = Xxh3::new();
    hash.update(&LAYOUT.to_le_bytes());
    hash.update(TESTDB.as_bytes());
    for path in WATCHED {
        hash.update(path.as_bytes());
        if let Ok(meta) = fs::metadata(path) {
            hash.update(&meta.size().to_le_bytes());
            hash.update(&meta.mtime().to_le_bytes());
            hash.update(&meta.mtime_nsec().to_le_bytes());
        }
    }
    format!("{:016x}", hash.digest())
}

fn make_generation(root: &Path) -> io::Result<()> {
    fs::create_dir_all(root)?;
    for name in LINKED {
        let source = Path::new("/").join(name);
        let Ok(meta) = fs::symlink_metadata(&source) else {
            continue;
        };
        take(&source, &meta, &root.join(name), Take::Link)?;
    }
    take_etc(&root.join("etc"))?;
    spare_login_shells(&root.join("etc/profile"))?;
    make_own_files(root)
}

/// Debian's `/etc/profile` runs `id` to learn the uid, half of the time that a login shell takes; E2B's clients run every
/// command in one. bash knows its uid, other shells go on asking.
fn spare_login_shells(profile: &Path) -> io::Result<()> {
    let text = match fs::read_to_string(profile) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let spared = text.replace("$(id -u)", "${EUID:-$(id -u)}");
    if spared == text {
        return Ok(());
    }
    fs::write(profile, spared)
}

/// How the content of a file gets into a generation.
#[derive(Clone, Copy)]
enum Take {
    /// By a hard link: for software, which package managers replace and never edit in place.
    Link,
    /// By a copy: for configuration, which people edit in place.
    Copy,
}

/// Takes a file, a link or a whole folder over; leaves out what not everybody may read, and what is
/// neither of the three.
fn take(source: &Path, meta: &Metadata, target: &Path, how: Take) -> io::Result<()> {
    let kind = meta.file_type();
    if kind.is_symlink() {
        return symlink(fs::read_link(source)?, target);
    }
    if kind.is_file() && meta.mode() & 0o004 != 0 {
        return take_file(source, meta, target, how);
    }
    if kind.is_dir() && meta.mode() & 0o005 == 0o005 {
        fs::create_dir(target)?;
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            take(
                &entry.path(),
                &entry.metadata()?,
                &target.join(entry.file_name()),
                how,
            )?;
        }
        fs::set_permissions(target, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        std::os::unix::fs::lchown(target, Some(meta.uid()), Some(meta.gid()))?;
    }
    Ok(())
}

fn take_file(source: &Path, meta: &Metadata, target: &Path, how: Take) -> io::Result<()> {
    match how {
        Take::Link => match fs::hard_link(source, target) {
            // The host's software lies on another filesystem than our data, or has too many names already.
            Err(error) if is_cross_device(&error) => copy_file(source, meta, target),
            // Gone between the listing and now: a package manager is at work.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        },
        Take::Copy => copy_file(source, meta, target),
    }
}

fn is_cross_device(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::CrossesDevices | io::ErrorKind::TooManyLinks
    )
}

fn copy_file(source: &Path, meta: &Metadata, target: &Path) -> io::Result<()> {
    fs::copy(source, target)?;
    std::os::unix::fs::lchown(target, Some(meta.uid()), Some(meta.gid()))?;
    // After the owner, whose change takes set-user-id bits away.
    fs::set_permissions(target, fs::Permissions::from_mode(meta.mode() & 0o7777))
}

fn take_etc(target: &Path) -> io::Result<()> {
    fs::create_dir(target)?;
    for entry in fs::read_dir("/etc")? {
        let entry = entry?;
        let name = entry.file_name();
        if ETC_LEFT_OUT
            .iter()
            .any(|left_out| name == OsStr::new(left_out))
        {
            continue;
        }
        take(
            &entry.path(),
            &entry.metadata()?,
            &target.join(&name),
            Take::Copy,
        )?;
    }
    Ok(())
}

/// What every image gets: the user `user` with sudo, boxd's place, empty standard folders.
fn make_own_files(root: &Path) -> io::Result<()> {
    for (dir, mode) in [
        ("work", 0o777),
        ("home", 0o755),
        ("home/user", 0o755),
        ("root", 0o700),
        ("dev", 0o755),
        ("proc", 0o755),
        ("sys", 0o755),
        ("run", 0o755),
        ("tmp", 0o1777),
        ("mnt", 0o755),
        ("opt", 0o755),
        ("srv", 0o755),
        ("var", 0o755),
        ("var/cache", 0o755),
        ("var/lib", 0o755),
        ("var/log", 0o755),
        ("var/tmp", 0o1777),
        ("var/spool", 0o755),
        ("usr/local/bin", 0o755),
        ("usr/lib/icebox", 0o755),
        ("etc/sudoers.d", 0o750),
    ] {
        let path = root.join(dir);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    symlink("/run", root.join("var/run"))?;
    symlink("/run/lock", root.join("var/lock"))?;
    fs::write(root.join(BOXD_IN_BOX.trim_start_matches('/')), "")?;
    let user = make_user(root)?;
    std::os::unix::fs::lchown(root.join("home/user"), Some(user), Some(user))?;
    std::os::unix::fs::lchown(root.join("work"), Some(user), Some(user))?;
    for (file, mode, text) in [
        (
            "etc/sudoers",
            0o440,
            "root ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n",
        ),
        (
            "etc/sudoers.d/icebox",
            0o440,
            "user ALL=(ALL:ALL) NOPASSWD: ALL\n",
        ),
        ("etc/hostname", 0o644, "box\n"),
        (
            "etc/hosts",
            0o644,
            "127.0.0.1 localhost box\n::1 localhost\n",
        ),
        ("etc/resolv.conf", 0o644, RESOLV_CONF),
        ("etc/machine-id", 0o444, ""),
        ("usr/local/bin/psbx-testdb", 0o755, TESTDB),
    ] {
        let path = root.join(file);
        fsutil::remove_file(&path)?;
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Adds the user `user` where the host has none; returns its uid, which is its gid too.
fn make_user(root: &Path) -> io::Result<u32> {
    let passwd_path = root.join("etc/passwd");
    let group_path = root.join("etc/group");
    let passwd = fs::read_to_string(&passwd_path).unwrap_or_default();
    let group = fs::read_to_string(&group_path).unwrap_or_default();
    let id_of = |line: &str| line.split(':').nth(2).and_then(|id| id.parse::<u32>().ok());
    let existing = passwd
        .lines()
        .find(|l| l.starts_with("user:"))
        .and_then(id_of);
    if let Some(id) = existing {
        return Ok(id);
    }
    let taken = |id: u32| {
        passwd
            .lines()
            .chain(group.lines())
            .any(|l| id_of(l) == Some(id))
    };
    let id = (1000..60_000).find(|id| !taken(*id)).unwrap_or(1000);
    let line = format!("user:x:{id}:{id}::/home/user:/bin/bash\n");
    fs::write(&passwd_path, passwd.clone() + &line)?;
    fs::write(&group_path, group.clone() + &format!("user:x:{id}:\n"))?;
    let names = passwd
        .lines()
        .chain(line.lines())
        .filter_map(|l| l.split(':').next());
    let shadow: String = names
        .map(|name| format!("{name}:*:19000:0:99999:7:::\n"))
        .collect();
    fs::write(root.join("etc/shadow"), shadow)?;
    fs::set_permissions(root.join("etc/shadow"), fs::Permissions::from_mode(0o640))?;
    Ok(id)
}
