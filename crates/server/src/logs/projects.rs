//! Projects: making them, listing them, their keys, and which one is meant. All of them are in memory, so that a batch of
//! events is let in, or refused, without touching the disk.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use icebox_lifecycle::Time;
use icebox_wire::rest::{ProjectMade, ProjectRequest, ProjectView, ProjectsResponse};
use tokio::sync::watch;

use super::origin::Origin;
use super::rate::Rate;
use super::{Logs, Shared, internal};
use crate::commands::trouble::timestamp;
use crate::commands::{Caller, Kind, Trouble};
use crate::random;
use crate::record::AccountId;
use crate::store::{KeyHash, MadeProject, ProjectRow, cut, hash};

const ID_PREFIX: &str = "prj_";
const KEY_PREFIX: &str = "psw_";
const KEY_HEX: usize = 40;
const NAME_LEN: usize = 60;
const NAME: &str = "1 to 60 letters, digits, spaces and `._-`, a letter or digit first, and not like the id of a project";
const ORIGINS: usize = 20;
const ORIGIN: &str = "a list of at most 20 origins as in `https://app.example`, `http://localhost:3000` or \
    `https://*.app.example`, without a path";

/// A project, as long as it is there.
pub(super) struct Project {
    pub(super) number: i64,
    pub(super) id: String,
    pub(super) account: AccountId,
    pub(super) name: String,
    /// The origins of its pages; empty: the boxes' URLs.
    pub(super) origins: Vec<Origin>,
    created_at: Time,
    /// What its rows take up.
    pub(super) bytes: AtomicU64,
    /// The number of its newest row.
    pub(super) newest: watch::Sender<i64>,
    /// What it may send by now.
    pub(super) rate: Mutex<Rate>,
}

impl Project {
    fn of(row: ProjectRow) -> Arc<Self> {
        Arc::new(Self {
            number: row.number,
            id: row.id,
            account: row.account,
            name: row.name,
            origins: row.origins.split(' ').filter_map(Origin::parse).collect(),
            created_at: row.created_at,
            bytes: AtomicU64::new(row.bytes),
            newest: watch::Sender::new(row.newest),
            rate: Mutex::new(Rate::default()),
        })
    }
}

/// All projects, by id and by what is kept of their keys.
#[derive(Default)]
pub(super) struct Registry(RwLock<Known>);

#[derive(Default)]
struct Known {
    by_id: HashMap<String, Arc<Project>>,
    by_key: HashMap<KeyHash, Arc<Project>>,
}

impl Registry {
    pub(super) fn load(rows: Vec<ProjectRow>) -> Self {
        let registry = Self::default();
        for row in rows {
            registry.add(row);
        }
        registry
    }

    fn add(&self, row: ProjectRow) -> Arc<Project> {
        let key = row.key;
        let project = Project::of(row);
        self.change(|known| {
            known.by_id.insert(project.id.clone(), Arc::clone(&project));
            known.by_key.insert(key, Arc::clone(&project));
        });
        project
    }

    fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The project of a write key.
    pub(super) fn of_key(&self, key: &str) -> Option<Arc<Project>> {
        let hex = key.strip_prefix(KEY_PREFIX)?;
        let fits = hex.len() == KEY_HEX && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let hash = fits.then(|| hash(key))?;
        self.read(|known| known.by_key.get(&hash).cloned())
    }

    /// Every project.
    pub(super) fn all(&self) -> Vec<Arc<Project>> {
        self.read(|known| known.by_id.values().cloned().collect())
    }
}

impl Shared {
    /// The caller's project of that id or name.
    pub(super) fn project(&self, caller: &Caller, named: &str) -> Result<Arc<Project>, Trouble> {
        let found = self.projects.read(|known| {
            let by_id = known.by_id.get(named);
            let by_id = by_id.filter(|project| project.account == caller.account);
            let named = |project: &&Arc<Project>| {
                project.account == caller.account && project.name == named
            };
            by_id.or_else(|| known.by_id.values().find(named)).cloned()
        });
        found.ok_or_else(|| {
            let text = format!(
                "there is no project `{}`; `icebox project ls` shows yours",
                cut(named, 64)
            );
            Trouble::new(Kind::NotFound, text).with("field", "project")
        })
    }

    /// The origins whose pages may send to a project.
    pub(super) fn origins<'p>(&'p self, project: &'p Project) -> impl Iterator<Item = &'p Origin> {
        let boxes = self
            .boxes
            .iter()
            .filter(move |_| project.origins.is_empty());
        project.origins.iter().chain(boxes)
    }

    fn view(&self, project: &Project) -> ProjectView {
        ProjectView {
            id: project.id.clone(),
            name: project.name.clone(),
            origins: self.origins(project).map(Origin::to_string).collect(),
            created_at: timestamp(project.created_at),
            bytes: project.bytes.load(Ordering::Relaxed),
        }
    }
}

impl Logs {
    /// Makes a project; its write key is given out this once.
    pub async fn make_project(
        &self,
        caller: &Caller,
        request: ProjectRequest,
    ) -> Result<ProjectMade, Trouble> {
        let name = request.name;
        let fits = |c: char| c.is_ascii_alphanumeric() || " ._-".contains(c);
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins
            || name.len() > NAME_LEN
            || !name.chars().all(fits)
            || name.starts_with(ID_PREFIX)
        {
            return Err(Trouble::bad("name", NAME));
        }
        if request.origins.len() > ORIGINS {
            return Err(Trouble::bad("origins", ORIGIN));
        }
        let origins = request.origins.iter().map(|origin| {
            let origin = Origin::parse(origin).ok_or_else(|| Trouble::bad("origins", ORIGIN))?;
            Ok(origin.to_string())
        });
        let origins: Vec<String> = origins.collect::<Result<_, Trouble>>()?;
        let (write_key, key) = fresh_key();
        let mut row = ProjectRow {
            number: 0,
            id: format!("{ID_PREFIX}{}", random::hex::<8>()),
            account: caller.account,
            name,
            origins: origins.join(" "),
            key,
            created_at: self.0.commands.clock().now(),
            bytes: 0,
            newest: 0,
        };
        let (new, most) = (row.clone(), self.0.settings().account_projects);
        let made = self.0.blocking(move |shared| {
            let made = shared.tables.make_project(&new, most);
            made.map_err(internal)
        });
        match made.await? {
            MadeProject::Made(number) => row.number = number,
            MadeProject::NameTaken => {
                let text = format!(
                    "`name` must be new: there is a project `{}` already",
                    row.name
                );
                return Err(Trouble::new(Kind::BadRequest, text).with("field", "name"));
            }
            MadeProject::TooMany => {
                let text = format!("an account has at most {most} projects; remove one first");
                return Err(Trouble::new(Kind::TooMany, text).with("limit", most));
            }
        }
        let project = self.0.projects.add(row);
        Ok(ProjectMade {
            project: self.0.view(&project),
            write_key,
        })
    }

    /// The account's projects, by name.
    #[must_use]
    pub fn projects(&self, caller: &Caller) -> ProjectsResponse {
        let mut mine = self.0.projects.all();
        mine.retain(|project| project.account == caller.account);
        mine.sort_by(|one, other| one.name.cmp(&other.name));
        ProjectsResponse {
            projects: mine.iter().map(|project| self.0.view(project)).collect(),
        }
    }

    /// One of them.
    pub fn project(&self, caller: &Caller, named: &str) -> Result<ProjectView, Trouble> {
        let project = self.0.project(caller, named)?;
        Ok(self.0.view(&project))
    }

    /// Gives a project another write key; the one before is good for nothing from then on.
    pub async fn rotate(&self, caller: &Caller, named: &str) -> Result<ProjectMade, Trouble> {
        let project = self.0.project(caller, named)?;
        let (write_key, key) = fresh_key();
        let number = project.number;
        let kept = self.0.blocking(move |shared| {
            let kept = shared.tables.set_project_key(number, &key);
            kept.map_err(internal)
        });
        kept.await?;
        self.0.projects.change(|known| {
            known.by_key.retain(|_, other| other.number != number);
            // Unless it was removed meanwhile.
            if known.by_id.contains_key(&project.id) {
                known.by_key.insert(key, Arc::clone(&project));
            }
        });
        Ok(ProjectMade {
            project: self.0.view(&project),
            write_key,
        })
    }

    /// Removes a project with all that was logged to it.
    pub async fn remove_project(&self, caller: &Caller, named: &str) -> Result<(), Trouble> {
        let project = self.0.project(caller, named)?;
        let number = project.number;
        let removed = self.0.blocking(move |shared| {
            let removed = shared.tables.remove_project(number);
            removed.map_err(internal)
        });
        removed.await?;
        self.0.projects.change(|known| {
            known.by_id.remove(&project.id);
            known.by_key.retain(|_, other| other.number != number);
        });
        self.0.maps.forget(number);
        self.0.too_much.notify_one();
        Ok(())
    }
}

/// A write key that nobody has yet, and what is kept of it.
fn fresh_key() -> (String, KeyHash) {
    let key = format!("{KEY_PREFIX}{}", random::hex::<{ KEY_HEX / 2 }>());
    let hash = hash(&key);
    (key, hash)
}
