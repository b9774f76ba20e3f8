//! Where everything of the container driver lies on disk. Owns the layout and nothing else.
//!
//! ```text
//! <data>/images/host-<fingerprint>/        one generation of image `host`
//! <data>/boxd/<checksum>/boxd              every boxd that a box may still carry
//! <data>/boxes/<id>/box.json               what the box is made of
//! <data>/boxes/<id>/{upper,work}/          its files
//! <data>/boxes/<id>/copies/<n>/            a complete copy: manifest.json, img/
//! <data>/boxes/<id>/copies/<n>.tmp/        a copy being written
//! <data>/boxes/<id>/origin/                the memory that a box begins with, until it runs: as a copy
//! <data>/snapshots/<id>/                   a whole snapshot: snapshot.json, upper/, memory/
//! <data>/snapshots/<id>.tmp/               one being made, or removed
//! <data>/run/<id>/                         mount points, bundle, logs: only while it has processes
//! ```

use std::io;
use std::path::{Path, PathBuf};

use icebox_lifecycle::{BoxId, CopyId, SnapshotId};

/// The folders of the driver.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    data: PathBuf,
}

impl Paths {
    pub(super) fn new(data: &Path) -> Self {
        Self {
            data: data.to_path_buf(),
        }
    }

    pub(super) fn images(&self) -> PathBuf {
        self.data.join("images")
    }

    pub(super) fn images_lock(&self) -> PathBuf {
        self.data.join("images.lock")
    }

    pub(super) fn boxd(&self) -> PathBuf {
        self.data.join("boxd")
    }

    pub(super) fn boxes(&self) -> PathBuf {
        self.data.join("boxes")
    }

    pub(super) fn runs(&self) -> PathBuf {
        self.data.join("run")
    }

    pub(super) fn snapshots(&self) -> PathBuf {
        self.data.join("snapshots")
    }

    pub(super) fn snapshot(&self, id: SnapshotId) -> SnapshotPaths {
        SnapshotPaths {
            dir: self.snapshots().join(id.as_str()),
            tmp: self.snapshots().join(format!("{id}.tmp")),
        }
    }

    pub(super) fn of(&self, id: BoxId) -> BoxPaths {
        BoxPaths {
            dir: self.boxes().join(id.as_str()),
            run: self.runs().join(id.as_str()),
        }
    }
}

/// The folders of one snapshot.
#[derive(Clone, Debug)]
pub(super) struct SnapshotPaths {
    /// The whole one.
    pub(super) dir: PathBuf,
    /// What is not whole.
    pub(super) tmp: PathBuf,
}

impl SnapshotPaths {
    pub(super) fn record(dir: &Path) -> PathBuf {
        dir.join("snapshot.json")
    }

    pub(super) fn upper(dir: &Path) -> PathBuf {
        dir.join("upper")
    }

    pub(super) fn memory(dir: &Path) -> PathBuf {
        dir.join("memory")
    }
}

/// The folders of one box.
#[derive(Clone, Debug)]
pub(super) struct BoxPaths {
    /// What stays while the box exists.
    pub(super) dir: PathBuf,
    /// What is there only while it has processes.
    pub(super) run: PathBuf,
}

impl BoxPaths {
    pub(super) fn record(&self) -> PathBuf {
        self.dir.join("box.json")
    }

    pub(super) fn upper(&self) -> PathBuf {
        self.dir.join("upper")
    }

    pub(super) fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    pub(super) fn origin(&self) -> PathBuf {
        self.dir.join("origin")
    }

    pub(super) fn copies(&self) -> PathBuf {
        self.dir.join("copies")
    }

    pub(super) fn copy(&self, copy: CopyId) -> PathBuf {
        self.copies().join(copy.0.to_string())
    }

    pub(super) fn copy_tmp(&self, copy: CopyId) -> PathBuf {
        self.copies().join(format!("{}.tmp", copy.0))
    }

    pub(super) fn lower(&self) -> PathBuf {
        self.run.join("lower")
    }

    pub(super) fn rootfs(&self) -> PathBuf {
        self.run.join("rootfs")
    }

    /// What programs in the box read as its boot id.
    pub(super) fn boot_id(&self) -> PathBuf {
        self.run.join("boot_id")
    }

    pub(super) fn runc_state(&self) -> PathBuf {
        self.run.join("runc")
    }

    /// The pid and start time of the CRIU that works on this box.
    pub(super) fn criu_pid(&self) -> PathBuf {
        self.run.join("criu.pid")
    }

    /// Holds the network namespace in front of the box, where it has a way out.
    pub(super) fn gateway(&self) -> PathBuf {
        self.run.join("gateway")
    }

    /// What is noted of it once it is whole.
    pub(super) fn egress(&self) -> PathBuf {
        self.run.join("egress.json")
    }

    /// There from the beginning of a restore until the box runs: its processes may be half of it.
    pub(super) fn restoring(&self) -> PathBuf {
        self.run.join("restoring")
    }

    /// There once a restore has come to its good end and until the box runs.
    pub(super) fn restored(&self) -> PathBuf {
        self.run.join("restored")
    }

    /// Whether what runs of the box is the rest of a restore that did not come to its end.
    pub(super) fn is_half_restored(&self) -> io::Result<bool> {
        Ok(self.restoring().try_exists()? && !self.restored().try_exists()?)
    }

    /// The script that CRIU runs just before it lets restored processes go.
    pub(super) fn restore_hook(&self) -> PathBuf {
        self.run.join("hook.sh")
    }
}
