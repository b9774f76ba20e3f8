//! The cases about what boxes reach outside. Two addresses have to be there, both of the internet.

use std::net::Ipv4Addr;

use icebox_lifecycle::{BoxId, Processes};

use super::snapshots::{another, snapshot_of};
use super::{FIRST, Subject, spec};
use crate::driver::{Egress, FreezeMode, Origin, Reaches};

const ONE: Ipv4Addr = Ipv4Addr::new(9, 9, 9, 9);
const OTHER: Ipv4Addr = Ipv4Addr::new(8, 8, 4, 4);

/// Nothing but one of them.
fn one() -> Egress {
    Egress {
        allow: ["9.9.9.9".parse().expect("an address")].into(),
        ..Egress::default()
    }
}

/// The internet but the other.
fn but_other() -> Egress {
    Egress {
        deny: ["8.8.0.0/16".parse().expect("a range")].into(),
        ..Egress::open()
    }
}

impl Subject<'_> {
    pub(super) async fn reach_changes(&self, id: BoxId) {
        self.booted(id).await;
        self.expect_reach(id, &Egress::default()).await;
        for egress in [
            one(),
            one(),
            Egress::open(),
            but_other(),
            Egress::default(),
            Egress::default(),
            Egress::open(),
            one(),
        ] {
            self.changed(id, &egress).await;
            self.expect_reach(id, &egress).await;
        }
        // Its programs do not notice.
        self.inside.remember(id, "all along").await;
        self.changed(id, &Egress::open()).await;
        assert_eq!(self.inside.recall(id).await.as_deref(), Some("all along"));
    }

    pub(super) async fn reach_after_freeze(&self, id: BoxId) {
        self.booted_with(id, &Egress::open()).await;
        self.expect_reach(id, &Egress::open()).await;
        self.inside.remember(id, "kept").await;
        // In RAM, with what it had and with something else; a change of one that stands still is left to its release.
        for egress in [Egress::open(), one(), Egress::default(), but_other()] {
            let mode = FreezeMode::RamOnly;
            self.driver.freeze(id, mode).await.expect("freeze");
            self.changed(id, &Egress::open()).await;
            self.expect(id, Processes::Stopped, None).await;
            self.released(id, &egress).await;
        }
        // On disk, the same; and a release that is repeated.
        for egress in [but_other(), Egress::open(), Egress::default(), one()] {
            self.frozen_to_disk(id, FIRST).await;
            self.changed(id, &Egress::open()).await;
            self.expect(id, Processes::Absent, Some(FIRST)).await;
            self.driver.thaw(id, FIRST).await.expect("thaw");
            self.changed(id, &Egress::open()).await;
            self.expect(id, Processes::Stopped, Some(FIRST)).await;
            self.released(id, &egress).await;
            self.released(id, &egress).await;
            self.driver.drop_copy(id, FIRST).await.expect("drop");
        }
        assert_eq!(self.inside.recall(id).await.as_deref(), Some("kept"));
        // A freeze that is not gone through with.
        let mode = FreezeMode::Copy(FIRST);
        self.driver.freeze(id, mode).await.expect("freeze");
        self.released(id, &one()).await;
    }

    pub(super) async fn reach_of_fork(&self, id: BoxId) {
        let snapshot = snapshot_of(id);
        self.booted_with(id, &Egress::open()).await;
        self.inside.remember(id, "in memory").await;
        let mode = FreezeMode::Copy(FIRST);
        self.driver.freeze(id, mode).await.expect("freeze");
        let saved = self.driver.save(id, Some(FIRST), snapshot).await;
        saved.expect("save");
        self.released(id, &Egress::open()).await;
        for (number, memory, egress) in [
            (1, true, one()),
            (2, true, Egress::default()),
            (2, false, Egress::open()),
        ] {
            let fork = another(id, number);
            let mut spec = spec(fork, Some(Origin { snapshot, memory }));
            spec.egress = egress.clone();
            let reaches = self.driver.boot(&spec, false).await.expect("boot");
            assert_eq!(reaches, Reaches::AsAsked);
            self.expect_reach(fork, &egress).await;
            self.expect_reach(id, &Egress::open()).await;
        }
        let fork = another(id, 1);
        let word = self.inside.recall(fork).await;
        assert_eq!(word.as_deref(), Some("in memory"));
    }

    pub(super) async fn reach_leaves_nothing(&self, id: BoxId) {
        let open = Egress::open();
        // Whatever it is doing when it goes.
        self.booted_with(id, &open).await;
        self.gone(id).await;
        self.booted_with(id, &open).await;
        let mode = FreezeMode::RamOnly;
        self.driver.freeze(id, mode).await.expect("freeze");
        self.gone(id).await;
        self.booted_with(id, &open).await;
        self.frozen_to_disk(id, FIRST).await;
        self.driver.leave().await;
        assert_eq!(self.inside.left().await, Vec::<String>::new());
        self.driver.thaw(id, FIRST).await.expect("thaw");
        self.gone(id).await;
        // And when it only starts anew, or reaches nothing any more.
        self.booted_with(id, &open).await;
        self.booted_with(id, &open).await;
        self.expect_reach(id, &open).await;
        self.changed(id, &Egress::default()).await;
        self.driver.leave().await;
        assert_eq!(self.inside.left().await, Vec::<String>::new());
        self.changed(id, &open).await;
        // What boxes need stays when a server leaves.
        self.driver.leave().await;
        self.expect_reach(id, &open).await;
        self.driver.destroy(id, true).await.expect("destroy");
        self.driver.leave().await;
        assert_eq!(self.inside.left().await, Vec::<String>::new());
        // There is nothing to be changed of what is not there.
        self.changed(id, &open).await;
    }

    async fn booted_with(&self, id: BoxId, egress: &Egress) {
        let mut spec = spec(id, None);
        spec.egress = egress.clone();
        let reaches = self.driver.boot(&spec, false).await.expect("boot");
        assert_eq!(reaches, Reaches::AsAsked);
    }

    async fn changed(&self, id: BoxId, egress: &Egress) {
        let reaches = self.driver.reach(id, egress).await.expect("change");
        assert_eq!(reaches, Reaches::AsAsked);
    }

    async fn released(&self, id: BoxId, egress: &Egress) {
        let reaches = self.driver.release(id, egress).await.expect("release");
        assert_eq!(reaches, Reaches::AsAsked);
        self.expect_reach(id, egress).await;
    }

    async fn gone(&self, id: BoxId) {
        self.destroyed(id).await;
        self.driver.leave().await;
        assert_eq!(self.inside.left().await, Vec::<String>::new());
    }

    async fn expect_reach(&self, id: BoxId, egress: &Egress) {
        for address in [ONE, OTHER] {
            let reached = self.inside.reaches(id, address).await;
            assert_eq!(reached, egress.allows(address), "{address} with {egress:?}");
        }
    }
}
