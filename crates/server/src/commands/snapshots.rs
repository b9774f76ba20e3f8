//! Snapshots of boxes, boxes made from them, and forks: a snapshot that nobody sees, and boxes made from it (api.md).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use icebox_lifecycle::policy::LifetimeFrom;
use icebox_lifecycle::{BoxId, Policy, State};
use icebox_wire::rest::{ForkRequest, SnapshotRequest, StartRequest};

use super::check::unfit;
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, ask, check, to_its_end};
use crate::engine::{NewBox, NewSnapshot, Saved, View};
use crate::random;
use crate::record::{E2b, Origin, Record, Size};
use crate::snapshot::Snapshot;

/// How long a snapshot waits for a box that is in no state for one.
const ADMISSION_LIMIT: Duration = Duration::from_secs(90);
/// The most forks of one call.
const MOST_FORKS: u32 = 20;

/// What becomes of the policy of a box in its forks.
pub type ForkPolicy = Box<dyn Fn(Policy) -> Policy + Send + Sync>;

impl Commands {
    /// Makes a snapshot of a box.
    pub async fn snapshot(
        &self,
        caller: &Caller,
        id: &str,
        request: SnapshotRequest,
    ) -> Result<Arc<Snapshot>, Trouble> {
        let view = self.find(caller, id)?;
        let name = request.name.as_deref().map(check::snapshot_name);
        let new = NewSnapshot {
            id: random::snapshot_id(),
            account: caller.account,
            name: name.transpose()?,
            source: view.id(),
            memory: request.memory.unwrap_or_else(|| self.has_memory(&view)),
            hidden: false,
        };
        self.save(new).await
    }

    /// The caller's snapshots, the newest first.
    #[must_use]
    pub fn snapshots(&self, caller: &Caller) -> Vec<Arc<Snapshot>> {
        self.engine().snapshots().of(caller.account)
    }

    /// The caller's snapshot of that id or name.
    pub fn find_snapshot(&self, caller: &Caller, name: &str) -> Result<Arc<Snapshot>, Trouble> {
        let name = name.strip_suffix(":default").unwrap_or(name);
        let found = self.engine().snapshots().find(caller.account, name);
        found.ok_or_else(|| no_such_snapshot(name))
    }

    /// Removes a snapshot of the caller.
    pub async fn remove_snapshot(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Arc<Snapshot>, Trouble> {
        let snapshot = self.find_snapshot(caller, name)?;
        let removed = self.engine().unsave(snapshot.id).await;
        removed.map_err(|error| ask(error, snapshot.source))?;
        Ok(snapshot)
    }

    /// Forks a box: new boxes with its memory and files, while it runs on. It is done even if the caller goes away.
    pub async fn fork(
        &self,
        caller: &Caller,
        id: &str,
        request: ForkRequest,
        policy: ForkPolicy,
    ) -> Result<Vec<Result<Arc<View>, Trouble>>, Trouble> {
        let count = request.count.unwrap_or(1);
        if !(1..=MOST_FORKS).contains(&count) {
            return Err(unfit("count"));
        }
        check::name(request.name.as_deref())?;
        let view = self.find(caller, id)?;
        let (commands, caller) = (self.clone(), caller.clone());
        let forking = async move {
            commands
                .make_forks(&caller, &view, count, request.name, &policy)
                .await
        };
        to_its_end(forking).await
    }

    async fn make_forks(
        &self,
        caller: &Caller,
        view: &View,
        count: u32,
        name: Option<String>,
        policy: &ForkPolicy,
    ) -> Result<Vec<Result<Arc<View>, Trouble>>, Trouble> {
        let new = NewSnapshot {
            id: random::snapshot_id(),
            account: caller.account,
            name: None,
            source: view.id(),
            memory: self.has_memory(view),
            hidden: true,
        };
        let snapshot = self.save(new).await?;
        let forks = (1..=count).map(|number| {
            let name = match &name {
                Some(name) if count > 1 => Some(format!("{name} {number}").into()),
                Some(name) => Some(name.as_str().into()),
                None => snapshot.record.name.clone(),
            };
            let record = Record {
                name,
                e2b: snapshot.record.e2b.as_deref().map(own_tokens),
                link_secret: None,
                // Another box has a use for that one, and none for this one.
                runs: None,
                origin: Some(Box::new(Origin {
                    fork_of: Some(view.id().to_string()),
                    ..origin(&snapshot, snapshot.memory)
                })),
                ..snapshot.record.clone()
            };
            let new = NewBox {
                id: random::box_id(),
                record,
                policy: policy(anew((*view.sandbox.policy).clone(), self)),
                agent: caller.agent.clone(),
            };
            self.start_fork(view.id(), new)
        });
        let forks = join_all(forks).await;
        let removed = self.engine().unsave(snapshot.id).await;
        if let Err(error) = removed {
            tracing::warn!(id = %snapshot.id, %error, "a fork's snapshot stays until the next start");
        }
        Ok(forks)
    }

    /// Starts a fork, which has the secrets and the environment of the box it is of.
    async fn start_fork(&self, of: BoxId, new: NewBox) -> Result<Arc<View>, Trouble> {
        let id = new.id;
        self.pass_on(of, id).await?;
        let started = self.start_described(new).await;
        if started.is_err() && self.engine().views().get(id).is_none() {
            self.take_back(id).await;
        }
        started
    }

    /// What a start from a snapshot begins with: the snapshot, and whether with its memory.
    pub(super) fn begin_with(
        &self,
        caller: &Caller,
        request: &StartRequest,
    ) -> Result<Option<(Arc<Snapshot>, bool)>, Trouble> {
        let Some(name) = &request.snapshot else {
            return match request.memory {
                Some(_) => Err(Trouble::bad("memory", "left out without `snapshot`")),
                None => Ok(None),
            };
        };
        if request.image.is_some() {
            let limit = "left out with `snapshot`, which has an image of its own";
            return Err(Trouble::bad("image", limit));
        }
        let snapshot = self.find_snapshot(caller, name)?;
        let memory = request.memory.unwrap_or(snapshot.memory);
        if memory && !snapshot.memory {
            let limit = format!(
                "false or absent: snapshot {} holds files alone",
                snapshot.id
            );
            return Err(Trouble::bad("memory", limit));
        }
        Ok(Some((snapshot, memory)))
    }

    async fn save(&self, new: NewSnapshot) -> Result<Arc<Snapshot>, Trouble> {
        let id = new.source;
        let asking = async {
            loop {
                let saved = self.engine().save(new.clone()).await;
                match saved.map_err(|error| ask(error, id))? {
                    Saved::Wait(view) => self.change_after(&view).await,
                    done @ (Saved::Made(_) | Saved::Failed(_)) => return Ok(done),
                }
            }
        };
        // Making it takes as long as it takes; what is limited is the time until it begins.
        let asked = self.until_saveable(id, asking).await?;
        match asked {
            Saved::Made(snapshot) => Ok(snapshot),
            Saved::Failed(reason) => Err(failed(id, &reason)),
            Saved::Wait(_) => Err(no_state_for_it(id)),
        }
    }

    /// Gives up when the box has been in no state for a snapshot for too long.
    async fn until_saveable(
        &self,
        id: BoxId,
        asking: impl Future<Output = Result<Saved, Trouble>>,
    ) -> Result<Saved, Trouble> {
        let mut asking = std::pin::pin!(asking);
        loop {
            tokio::select! {
                asked = &mut asking => return asked,
                () = tokio::time::sleep(ADMISSION_LIMIT) => {}
            }
            let view = self.engine().views().get(id);
            let waits = view.is_none_or(|view| match view.sandbox.state {
                State::Starting { .. } | State::Thawing { .. } => true,
                State::Ready
                | State::Freezing { .. }
                | State::Frozen(_)
                | State::Releasing { .. }
                | State::Stopping { .. }
                | State::Terminated { .. }
                | State::Interrupted { .. } => false,
            });
            if waits {
                return Err(no_state_for_it(id));
            }
        }
    }

    /// Whether a box has memory that can be copied, as far as is known.
    fn has_memory(&self, view: &View) -> bool {
        match &view.sandbox.state {
            State::Frozen(frozen) => frozen.copy.is_some(),
            State::Freezing { ram_only, .. } => !ram_only,
            State::Starting { .. }
            | State::Ready
            | State::Thawing { .. }
            | State::Releasing { .. } => self.driver().capabilities().checkpoint.is_ok(),
            State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => false,
        }
    }
}

/// Makes a new box go on from where a snapshot is: with its variables and, unless others are named, its services.
pub fn continues(record: &mut Record, snapshot: &Snapshot, memory: bool, size: Size) {
    let mut env = snapshot.record.env.to_map();
    env.extend(record.env.to_map());
    record.env = env.into();
    record.image = Arc::clone(&snapshot.record.image);
    record.size = size;
    if record.services.is_empty() {
        record.services.clone_from(&snapshot.record.services);
        record.scene.clone_from(&snapshot.record.scene);
    }
    record.origin = Some(Box::new(origin(snapshot, memory)));
}

/// What a box begins with that is made from a snapshot.
fn origin(snapshot: &Snapshot, memory: bool) -> Origin {
    Origin {
        snapshot: snapshot.id.to_string(),
        memory,
        fork_of: None,
    }
}

/// What an E2B client said of a box, with tokens of its own where it has any.
fn own_tokens(e2b: &E2b) -> Box<E2b> {
    let anew = |token: &Option<String>| token.as_ref().map(|_| random::hex::<20>());
    Box::new(E2b {
        access_token: anew(&e2b.access_token),
        traffic_token: anew(&e2b.traffic_token),
        ..e2b.clone()
    })
}

/// The policy of a new box: an end that was set counts from now.
fn anew(mut policy: Policy, commands: &Commands) -> Policy {
    if let Some(lifetime) = &mut policy.lifetime
        && let LifetimeFrom::Moment(from) = &mut lifetime.from
    {
        *from = commands.clock().now();
    }
    policy
}

/// No such snapshot, or somebody else's.
fn no_such_snapshot(name: &str) -> Trouble {
    Trouble::new(Kind::NotFound, format!("there is no snapshot `{name}`"))
}

fn no_state_for_it(id: BoxId) -> Trouble {
    let text = format!(
        "box {id} was in no state for a snapshot for {} s; try again",
        ADMISSION_LIMIT.as_secs()
    );
    Trouble::new(Kind::Busy, text)
}

fn failed(id: BoxId, reason: &str) -> Trouble {
    let text = format!("box {id} could not be copied, and goes on as before: {reason}");
    Trouble::new(Kind::SnapshotFailed, text).with("reason", reason)
}
