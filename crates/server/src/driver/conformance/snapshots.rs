//! The cases about snapshots.

use icebox_lifecycle::id::BOX_ID_LEN;
use icebox_lifecycle::{BoxId, Processes, SnapshotId};

use super::{FIRST, Subject, spec};
use crate::driver::{Driver, DriverError, Egress, FreezeMode, Origin};

/// Removes everything that a case on this box makes.
///
/// # Panics
/// When the driver does not.
pub async fn clean(driver: &dyn Driver, id: BoxId) {
    for id in [id, another(id, 1), another(id, 2)] {
        driver.destroy(id, false).await.expect("destroy");
    }
    let snapshot = snapshot_of(id);
    for time in ["drop", "drop again"] {
        driver.drop_snapshot(snapshot).await.expect(time);
    }
    let left = driver.snapshots().await.expect("list the snapshots");
    assert!(!left.contains(&snapshot), "a snapshot is left");
}

/// A box that belongs to the case of `id` as well.
pub(super) fn another(id: BoxId, number: u8) -> BoxId {
    let mut bytes = [number; BOX_ID_LEN];
    bytes[1..].copy_from_slice(&id.as_str().as_bytes()[1..]);
    BoxId::from_random(bytes)
}

/// The snapshot of the case of `id`.
pub(super) fn snapshot_of(id: BoxId) -> SnapshotId {
    let mut bytes = [0; BOX_ID_LEN];
    bytes.copy_from_slice(id.as_str().as_bytes());
    SnapshotId::from_random(bytes)
}

impl Subject<'_> {
    pub(super) async fn snapshot_with_memory(&self, id: BoxId) {
        let snapshot = snapshot_of(id);
        let (one, two) = (another(id, 1), another(id, 2));
        self.booted(id).await;
        self.inside.write_file(id, "mark", "before").await;
        self.inside.remember(id, "in memory").await;
        self.driver
            .freeze(id, FreezeMode::Copy(FIRST))
            .await
            .expect("freeze");
        for time in ["save", "save again"] {
            let saved = self.driver.save(id, Some(FIRST), snapshot).await;
            assert!(saved.expect(time) > 0);
        }
        let listed = self.driver.snapshots().await.expect("list the snapshots");
        assert!(listed.contains(&snapshot), "{listed:?}");
        // The original runs on, and what becomes of it and its copy is no business of the snapshot.
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        self.driver.drop_copy(id, FIRST).await.expect("drop");
        self.inside.write_file(id, "mark", "after").await;
        for id in [one, two] {
            self.boot_from(id, snapshot, true).await.expect("boot");
            self.expect(id, Processes::Running, None).await;
            assert_eq!(self.inside.recall(id).await.as_deref(), Some("in memory"));
            let mark = self.inside.read_file(id, "mark").await;
            assert_eq!(mark.as_deref(), Some("before"));
            self.inside.write_file(id, "mark", id.as_str()).await;
        }
        self.driver.destroy(id, false).await.expect("destroy");
        self.driver
            .drop_snapshot(snapshot)
            .await
            .expect("drop the snapshot");
        // They are boxes like any other.
        for id in [one, two] {
            self.frozen_to_disk(id, FIRST).await;
            self.driver.thaw(id, FIRST).await.expect("thaw");
            self.driver
                .release(id, &Egress::default())
                .await
                .expect("release");
            assert_eq!(self.inside.recall(id).await.as_deref(), Some("in memory"));
            let mark = self.inside.read_file(id, "mark").await;
            assert_eq!(mark.as_deref(), Some(id.as_str()));
            self.boot(id, true).await.expect("cold boot");
            assert_eq!(self.inside.recall(id).await, None);
            let mark = self.inside.read_file(id, "mark").await;
            assert_eq!(mark.as_deref(), Some(id.as_str()));
        }
        let gone = self.boot_from(one, snapshot, true).await;
        assert!(matches!(gone, Err(DriverError::Gone(_))), "{gone:?}");
    }

    pub(super) async fn snapshot_of_files(&self, id: BoxId) {
        let snapshot = snapshot_of(id);
        self.booted(id).await;
        self.inside.write_file(id, "mark", "kept").await;
        self.inside.remember(id, "lost").await;
        // From a box on disk, and without the memory that is there.
        self.frozen_to_disk(id, FIRST).await;
        self.driver.save(id, None, snapshot).await.expect("save");
        let new = another(id, 1);
        for _ in 0..2 {
            self.boot_from(new, snapshot, false).await.expect("boot");
            let mark = self.inside.read_file(new, "mark").await;
            assert_eq!(mark.as_deref(), Some("kept"));
            assert_eq!(self.inside.recall(new).await, None);
            self.inside.write_file(new, "mark", "changed").await;
        }
        let refused = self.boot_from(new, snapshot, true).await;
        assert!(
            matches!(refused, Err(DriverError::Refused(_))),
            "{refused:?}"
        );
        self.driver.thaw(id, FIRST).await.expect("thaw");
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        assert_eq!(self.inside.recall(id).await.as_deref(), Some("lost"));
    }

    pub(super) async fn snapshot_when(&self, id: BoxId) {
        let snapshot = snapshot_of(id);
        let gone = self.driver.save(id, None, snapshot).await;
        assert!(matches!(gone, Err(DriverError::Gone(_))), "{gone:?}");
        self.booted(id).await;
        let running = self.driver.save(id, None, snapshot).await;
        assert!(
            matches!(running, Err(DriverError::Failed(_))),
            "{running:?}"
        );
        self.driver
            .freeze(id, FreezeMode::RamOnly)
            .await
            .expect("freeze in RAM");
        let gone = self.driver.save(id, Some(FIRST), snapshot).await;
        assert!(matches!(gone, Err(DriverError::Gone(_))), "{gone:?}");
        let listed = self.driver.snapshots().await.expect("list the snapshots");
        assert!(!listed.contains(&snapshot), "{listed:?}");
        self.driver.save(id, None, snapshot).await.expect("save");
        self.driver
            .release(id, &Egress::default())
            .await
            .expect("release");
        self.expect(id, Processes::Running, None).await;
    }

    async fn boot_from(
        &self,
        id: BoxId,
        snapshot: SnapshotId,
        memory: bool,
    ) -> Result<(), DriverError> {
        let origin = Origin { snapshot, memory };
        let booted = self.driver.boot(&spec(id, Some(origin)), false).await;
        booted.map(drop)
    }
}
