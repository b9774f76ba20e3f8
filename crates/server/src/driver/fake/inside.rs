//! How a test looks into a fake box and leaves marks there.

use std::net::Ipv4Addr;

use async_trait::async_trait;
use icebox_lifecycle::{BoxId, Processes};

use super::Fake;
use crate::driver::conformance::Inside;

#[async_trait]
impl Inside for Fake {
    async fn write_file(&self, id: BoxId, name: &str, content: &str) {
        if let Some(found) = self.world().boxes.get_mut(&id) {
            found.files.insert(name.to_owned(), content.to_owned());
        }
    }

    async fn read_file(&self, id: BoxId, name: &str) -> Option<String> {
        self.world().boxes.get(&id)?.files.get(name).cloned()
    }

    async fn remember(&self, id: BoxId, word: &str) {
        if let Some(found) = self.world().boxes.get_mut(&id) {
            found.memory.word = Some(word.to_owned());
        }
    }

    async fn recall(&self, id: BoxId) -> Option<String> {
        let world = self.world();
        let found = world.boxes.get(&id)?;
        let runs = found.processes == Processes::Running;
        found.memory.word.clone().filter(|_| runs)
    }

    async fn reaches(&self, id: BoxId, address: Ipv4Addr) -> bool {
        let world = self.world();
        let found = world.boxes.get(&id);
        found.is_some_and(|found| {
            found.processes == Processes::Running && found.egress.allows(address)
        })
    }

    async fn left(&self) -> Vec<String> {
        let world = self.world();
        let open = world
            .boxes
            .iter()
            .filter(|(_, found)| found.processes != Processes::Absent && !found.egress.is_closed());
        open.map(|(id, _)| format!("the way out of {id}")).collect()
    }
}
