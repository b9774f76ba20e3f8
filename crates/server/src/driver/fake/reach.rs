//! What boxes of the fake driver reach outside, for tests to say and to see.

use icebox_lifecycle::BoxId;

use super::Fake;
use crate::driver::Egress;

impl Fake {
    /// Boxes on this host have no way out, for this reason.
    pub fn no_way_out(&self, reason: &str) {
        self.world().no_way_out = Some(reason.to_owned());
    }

    /// What a box reaches outside.
    #[must_use]
    pub fn egress(&self, id: BoxId) -> Option<Egress> {
        let world = self.world();
        world.boxes.get(&id).map(|found| found.egress.clone())
    }
}
