//! What boxes of the fake driver reach outside, for tests to say and to see.

use icebox_lifecycle::BoxId;

use super::{Fake, World};
use crate::driver::{DriverError, Egress, Reaches};

impl Fake {
    /// Boxes on this host have no way out, for this reason.
    pub fn no_way_out(&self, reason: &str) {
        self.world().no_way_out = Some(reason.to_owned());
    }

    /// From now on no way out can be made, for this reason; or they can again.
    pub fn break_way_out(&self, reason: Option<&str>) {
        self.world().broken_way_out = reason.map(str::to_owned);
    }

    /// What a box reaches outside.
    #[must_use]
    pub fn egress(&self, id: BoxId) -> Option<Egress> {
        let world = self.world();
        world.boxes.get(&id).map(|found| found.egress.clone())
    }

    /// Whether that is what it may.
    pub(super) fn reaches(&self, id: BoxId) -> Reaches {
        let world = self.world();
        let lacks = world.boxes.get(&id).and_then(|found| found.lacks.clone());
        lacks.map_or(Reaches::AsAsked, Reaches::Nothing)
    }
}

impl World {
    /// Makes the way out of a box, if that can be done.
    pub(super) fn settle(&mut self, id: BoxId, egress: Egress) -> Result<(), DriverError> {
        let broken = self.broken_way_out.clone().filter(|_| !egress.is_closed());
        let found = self.get(id)?;
        found.egress = if broken.is_none() {
            egress
        } else {
            Egress::default()
        };
        found.lacks = broken;
        Ok(())
    }
}
