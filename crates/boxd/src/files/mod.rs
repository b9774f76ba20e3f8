//! Files of the box for E2B's clients: the filesystem service, and uploads and downloads over plain HTTP.
//!
//! Work that may block is done on helper threads, by [`acting::Acting`] as whoever acts. Transfers have a thread each,
//! joined to the connection by a short queue, so that memory stays flat whatever the size.

pub(crate) mod acting;
mod carry;
mod entry;
mod gunzip;
mod metadata;
mod path;
pub(crate) mod receive;
mod refusal;
pub(crate) mod send;
mod service;
mod staging;
mod tree;
mod watch;
mod watchers;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::refusal::{refusal, refuse};
pub(crate) use self::service::FilesystemService;
pub(crate) use self::watchers::Watchers;
use crate::error::Error;
use crate::restart::gate::AtWork;
use crate::settings::Settings;

/// The most transfers at once; each has a thread.
const MAX_TRANSFERS: usize = 64;

/// How long a transfer waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(30);

/// What a transfer's thread may use; packing builds its tables on it, and what is not touched takes no memory.
const STACK_BYTES: usize = 2 << 20;

/// What transfers share.
pub(crate) struct Transfers {
    pub(crate) settings: Arc<Settings>,
    /// Where uploads are collected that cannot be written beside their place.
    spool_dir: PathBuf,
    turns: Arc<Semaphore>,
}

impl Transfers {
    pub(crate) fn new(settings: Arc<Settings>, spool_dir: PathBuf) -> Self {
        Self {
            settings,
            spool_dir,
            turns: Arc::new(Semaphore::new(MAX_TRANSFERS)),
        }
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, Error> {
        let turn = Arc::clone(&self.turns).acquire_owned();
        match tokio::time::timeout(TURN_WITHIN, turn).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Error::Limit(format!(
                "{MAX_TRANSFERS} transfers run already, which is the most; try again later"
            ))),
        }
    }
}

/// Runs `work` on a thread of its own.
fn on_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(AtWork::over(work));
    thread
        .map(drop)
        .map_err(|error: io::Error| Error::Limit(format!("cannot start a thread: {error}")))
}
