//! What apps log: projects with a write key each, what their pages and programs send, source maps that turn stacks of
//! minified scripts into those of their sources, and search. Owns who may send and read, and how much is kept; touches no box:
//! nothing here is use of one, or wakes one.
//!
//! - A stack is resolved once, as it arrives, with the maps that are there then; a map that comes later is for what is sent
//!   later.
//! - Rows are kept for [`LogSettings::keep_days`] and up to [`LogSettings::project_mb`] a project, the oldest go first.
//! - What is sent has limits that nobody who logs by hand comes near to, and beyond them it is refused, not queued.

mod event;
mod filter;
mod ingest;
mod maps;
mod origin;
mod projects;
mod rate;
mod resolve;
mod search;
mod shape;
mod since;
mod stack;
mod sweep;

use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::{Notify, Semaphore};

use crate::commands::{Commands, Trouble};
use crate::edge::urls::Urls;
use crate::store::{LogTables, StoreError};

pub use ingest::{BODY_LIMIT, Sender};
pub use maps::{MapUpload, RELEASE_LEN, UPLOAD_LIMIT};
pub use search::{ErrorsRequest, LIMIT_MAX, SearchRequest, TailRequest, WAIT_MAX_SEC, Wanted};

use maps::Maps;
use origin::Origin;
use projects::Registry;

/// The collector for pages.
pub const COLLECTOR: &str = include_str!("collector.js");

/// Batches that are taken in at a time, and that wait for it.
const TAKING: usize = 2;
const WAITING: usize = 64;
/// Searches at a time.
const SEARCHING: usize = 2;
/// Tails that wait, of all accounts together.
const TAILS: usize = 256;
/// Uploads of maps at a time, for each is in memory whole.
const UPLOADS: usize = 2;

/// How much is kept.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// For how long rows are kept, in days.
    pub keep_days: u32,
    /// What the rows of one project may take up, in MiB. A row counts for 200 bytes more than it has, so that this bounds
    /// their number, too.
    pub project_mb: u64,
    /// What the source maps of one project may take up, in MiB.
    pub project_maps_mb: u64,
    /// Projects that one account may have.
    pub account_projects: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            keep_days: 7,
            project_mb: 256,
            project_maps_mb: 128,
            account_projects: 20,
        }
    }
}

impl LogSettings {
    /// Names every value that is no good.
    pub fn check(&self, wrong: &mut Vec<String>) {
        let mut check = |name: &str, value: u64, most: u64| {
            if !(1..=most).contains(&value) {
                wrong.push(format!("logs.{name}: a whole number from 1 to {most}"));
            }
        };
        check("keep_days", u64::from(self.keep_days), 3_650);
        check("project_mb", self.project_mb, 1_000_000);
        check("project_maps_mb", self.project_maps_mb, 1_000_000);
        let projects = u64::try_from(self.account_projects).unwrap_or(u64::MAX);
        check("account_projects", projects, 1_000);
    }
}

/// The logs of a server. Clones are the same ones.
#[derive(Clone)]
pub struct Logs(Arc<Shared>);

struct Shared {
    commands: Commands,
    tables: LogTables,
    projects: Registry,
    maps: Maps,
    /// The boxes' URLs, whose pages may send where a project names no origins.
    boxes: Option<Origin>,
    taking: Semaphore,
    waiting: Semaphore,
    searching: Semaphore,
    tails: Semaphore,
    uploads: Semaphore,
    /// There is more than is to be kept.
    too_much: Notify,
}

impl Logs {
    /// Puts them together, and keeps house until the server ends.
    pub fn start(commands: Commands, tables: LogTables) -> Result<Self, StoreError> {
        let urls = Urls::of(commands.config());
        let boxes = Origin::parse(&urls.of_server("")).map(Origin::all_below);
        let shared = Arc::new(Shared {
            projects: Registry::load(tables.projects()?),
            tables,
            maps: Maps::default(),
            boxes,
            taking: Semaphore::new(TAKING),
            waiting: Semaphore::new(WAITING),
            searching: Semaphore::new(SEARCHING),
            tails: Semaphore::new(TAILS),
            uploads: Semaphore::new(UPLOADS),
            too_much: Notify::new(),
            commands,
        });
        tokio::spawn(sweep::run(Arc::clone(&shared)));
        Ok(Self(shared))
    }
}

impl Shared {
    /// Does something that blocks, off the threads for requests.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let shared = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&shared)).await;
        done.map_err(|error| Trouble::internal(&error))?
    }

    /// The settings.
    fn settings(&self) -> &LogSettings {
        &self.commands.config().logs
    }
}

fn internal(error: StoreError) -> Trouble {
    Trouble::internal(&error)
}
