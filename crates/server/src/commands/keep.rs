//! What accounts keep for their boxes beside the engine: the tables, the vault that seals what is secret in them, and which
//! boxes have any of it, in memory, so that a call on a box without costs nothing.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use icebox_lifecycle::BoxId;

use super::handover::Messages;
use super::{Commands, Trouble};
use crate::builds::Builds;
use crate::store::{Beside, StoreError};
use crate::vault::Vault;

/// All of it.
pub struct Keep {
    beside: Arc<Beside>,
    pub(super) vault: Vault,
    pub(super) builds: Builds,
    /// The boxes that were given secrets or an environment.
    pub(super) given: Boxes,
    /// Messages that wait at boxes, or are on their way from there.
    pub(super) messages: Messages,
}

impl Keep {
    /// Takes notice of what is there.
    pub fn open(beside: Beside, vault: Vault, builds: Builds) -> Result<Self, StoreError> {
        Ok(Self {
            given: Boxes(RwLock::new(beside.with_given()?)),
            messages: Messages::waiting_at(beside.with_messages()?),
            beside: Arc::new(beside),
            vault,
            builds,
        })
    }
}

impl Keep {
    /// The tables.
    #[must_use]
    pub fn beside(&self) -> &Arc<Beside> {
        &self.beside
    }
}

/// Some boxes.
pub(super) struct Boxes(RwLock<HashSet<BoxId>>);

impl Boxes {
    pub(super) fn has(&self, id: BoxId) -> bool {
        let boxes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        boxes.contains(&id)
    }

    pub(super) fn add(&self, id: BoxId) {
        let mut boxes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        boxes.insert(id);
    }

    pub(super) fn remove(&self, id: BoxId) -> bool {
        let mut boxes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        boxes.remove(&id)
    }
}

impl Commands {
    /// Does something with the tables, off the threads for requests.
    pub(super) async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Beside) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Trouble> {
        let beside = Arc::clone(&self.0.keep.beside);
        tokio::task::spawn_blocking(move || work(&beside))
            .await
            .map_err(|error| Trouble::internal(&error))?
            .map_err(|error| Trouble::internal(&error))
    }
}
