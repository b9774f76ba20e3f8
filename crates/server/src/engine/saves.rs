//! Snapshots within a turn: which are being made of which boxes, whether they came to something, and when the bytes of those
//! that nobody wants any more may go. Whether and when a box is saved is the lifecycle's; the bytes are the driver's.
//!
//! One that the server went down over is removed at the next start, unless the freeze that it waits for goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use icebox_lifecycle::{Ask, BoxId, Command, Effect, Event, Save, SnapshotId, State};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::Parts;
use super::inbox::{Admitted, AskError, Message, Sender};
use super::turn::{Core, Turn};
use super::views::View;
use crate::driver::Driver;
use crate::record::{AccountId, Record};
use crate::snapshot::{Snapshot, Snapshots, Stage};
use crate::store::{Batch, StoreError};

/// How long to leave the driver alone after it could not remove one, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A snapshot to be made.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Its id.
    pub id: SnapshotId,
    /// Whose it will be.
    pub account: AccountId,
    /// Its name, if it gets one.
    pub name: Option<String>,
    /// The box to make it of.
    pub source: BoxId,
    /// With its memory.
    pub memory: bool,
    /// Only for forks.
    pub hidden: bool,
}

/// What came of asking for a snapshot.
#[derive(Debug)]
pub enum Saved {
    /// It is whole.
    Made(Arc<Snapshot>),
    /// It could not be made, for this reason. Nothing of it is left, and the box goes on.
    Failed(String),
    /// Not at this moment; ask again when the box changes.
    Wait(Arc<View>),
}

/// Where the answer goes.
pub(super) type SaveReply = oneshot::Sender<Result<Saved, AskError>>;
/// Where the answer to a removal goes.
pub(super) type UnsaveReply = oneshot::Sender<Result<(), AskError>>;

/// What the engine knows of snapshots besides what readers see.
pub(super) struct Saves {
    pub(super) snapshots: Arc<Snapshots>,
    /// The most that an account may have.
    most: usize,
    /// The number of the latest one.
    latest: u64,
    runtime: Handle,
    driver: Arc<dyn Driver>,
    inbox: Sender,
    /// Those being made, and of which box.
    making: BTreeMap<SnapshotId, BoxId>,
    /// Those that the driver is making.
    launched: BTreeSet<SnapshotId>,
    waiting: HashMap<SnapshotId, SaveReply>,
    /// Boxes that begin with one at the moment.
    users: HashMap<BoxId, SnapshotId>,
    /// Those whose bytes are to go, and whether that is under way.
    removing: BTreeMap<SnapshotId, bool>,
}

/// What becomes of snapshots in a turn.
#[derive(Default)]
pub(super) struct SaveChanges {
    /// What is to be recorded; `None`: nothing any more.
    put: BTreeMap<SnapshotId, Option<Arc<Snapshot>>>,
    asked: Vec<(SnapshotId, SaveReply)>,
    failed: Vec<(SnapshotId, String)>,
    unsaved: Vec<UnsaveReply>,
}

impl Saves {
    pub(super) fn new(
        runtime: &Handle,
        parts: &Parts,
        inbox: &Sender,
        snapshots: Arc<Snapshots>,
    ) -> Self {
        Self {
            snapshots,
            most: parts.limits.account_snapshots,
            latest: 0,
            runtime: runtime.clone(),
            driver: Arc::clone(&parts.driver),
            inbox: inbox.clone(),
            making: BTreeMap::new(),
            launched: BTreeSet::new(),
            waiting: HashMap::new(),
            users: HashMap::new(),
            removing: BTreeMap::new(),
        }
    }

    /// Follows a box: as long as it begins with a snapshot, that one stays.
    pub(super) fn follow(&mut self, view: &View) {
        let begins = matches!(
            view.sandbox.state,
            State::Starting {
                keep_files: false,
                ..
            }
        );
        match view.record.origin().filter(|_| begins) {
            Some(origin) => {
                self.users.insert(view.id(), origin.snapshot);
            }
            None => {
                self.users.remove(&view.id());
            }
        }
    }

    /// The driver begins to make one.
    pub(super) fn launched(&mut self, snapshot: SnapshotId) {
        self.launched.insert(snapshot);
    }

    fn show(&mut self, id: SnapshotId, snapshot: Option<Arc<Snapshot>>) {
        let stage = snapshot.as_ref().map(|it| it.stage);
        match &snapshot {
            Some(it) if it.stage == Stage::Making => {
                self.making.insert(id, it.source);
            }
            Some(_) | None => {
                self.making.remove(&id);
                self.launched.remove(&id);
            }
        }
        match stage {
            Some(Stage::Removing) => {
                self.removing.entry(id).or_insert(false);
            }
            Some(Stage::Making | Stage::Ready) | None => {
                self.removing.remove(&id);
            }
        }
        match snapshot {
            Some(snapshot) => self.snapshots.put(snapshot),
            None => self.snapshots.remove(id),
        }
    }

    /// Has the bytes removed of those that no box begins with.
    pub(super) fn remove_unused(&mut self) {
        for (id, under_way) in &mut self.removing {
            if *under_way || self.users.values().any(|used| used == id) {
                continue;
            }
            *under_way = true;
            let (driver, inbox) = (Arc::clone(&self.driver), self.inbox.clone());
            self.runtime.spawn(remove(driver, *id, inbox));
        }
    }
}

async fn remove(driver: Arc<dyn Driver>, id: SnapshotId, inbox: Sender) {
    let mut pause = FIRST_PAUSE;
    while let Err(error) = driver.drop_snapshot(id).await {
        tracing::warn!(%id, %error, "a snapshot is still there; trying again");
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
    // A closed inbox means that the server ends; the next one finds the record.
    let _ = inbox.send(Message::Unsaved(id)).await;
}

impl Core {
    /// Somebody wants a snapshot.
    pub(super) fn save(&mut self, turn: &mut Turn, new: NewSnapshot, reply: SaveReply) {
        let of_account = self.saves.snapshots.of(new.account).len();
        if !new.hidden && of_account >= self.saves.most {
            let most = self.saves.most;
            let _ = reply.send(Err(AskError::TooManySnapshots { most }));
            return;
        }
        let before = self.views.get(new.source);
        let memory = new.memory;
        let admitted = self.admit(turn, new.source, &Ask::Save { memory });
        match (admitted, before) {
            (Ok(Admitted::Accepted), Some(before)) => {
                let save = Save {
                    snapshot: new.id,
                    memory,
                };
                self.step(turn, new.source, Event::Command(Command::Save(save)));
                self.saves.latest += 1;
                let snapshot = Snapshot {
                    number: self.saves.latest,
                    id: new.id,
                    account: new.account,
                    name: new.name,
                    source: new.source,
                    created_at: turn.now,
                    memory,
                    bytes: 0,
                    stage: Stage::Making,
                    hidden: new.hidden,
                    record: (*before.record).clone(),
                };
                turn.saves.put.insert(new.id, Some(Arc::new(snapshot)));
                turn.saves.asked.push((new.id, reply));
            }
            // The asker may have gone away; so below.
            (Ok(_), Some(before)) => drop(reply.send(Ok(Saved::Wait(before)))),
            (Ok(_), None) => drop(reply.send(Err(AskError::NotFound))),
            (Err(error), _) => drop(reply.send(Err(error))),
        }
    }

    /// The driver made one, or could not.
    pub(super) fn saved(&mut self, turn: &mut Turn, id: SnapshotId, result: Result<u64, String>) {
        let Some(snapshot) = self.snapshot(turn, id) else {
            return;
        };
        if snapshot.stage != Stage::Making {
            return;
        }
        match result {
            Ok(bytes) => {
                let waiting = self.saves.waiting.get(&id);
                let wanted = !snapshot.hidden || waiting.is_some_and(|reply| !reply.is_closed());
                if let Some(name) = &snapshot.name {
                    self.take_name(turn, snapshot.account, name);
                }
                let made = Snapshot {
                    bytes,
                    stage: if wanted {
                        Stage::Ready
                    } else {
                        Stage::Removing
                    },
                    ..(*snapshot).clone()
                };
                turn.saves.put.insert(id, Some(Arc::new(made)));
            }
            Err(reason) => fail(turn, &snapshot, reason),
        }
    }

    /// Whoever has this name loses it.
    fn take_name(&mut self, turn: &mut Turn, account: AccountId, name: &str) {
        if let Some(before) = self.saves.snapshots.find(account, name) {
            let nameless = Snapshot {
                name: None,
                ..(*before).clone()
            };
            turn.saves.put.insert(before.id, Some(Arc::new(nameless)));
        }
    }

    /// Its owner wants it gone.
    pub(super) fn unsave(&mut self, turn: &mut Turn, id: SnapshotId, reply: UnsaveReply) {
        let snapshot = self.snapshot(turn, id);
        // The driver is busy with one that is being made.
        if let Some(snapshot) = snapshot.filter(|it| it.stage == Stage::Ready) {
            put_away(turn, &snapshot);
        }
        turn.saves.unsaved.push(reply);
    }

    /// Its bytes are gone.
    pub(super) fn unsaved(turn: &mut Turn, id: SnapshotId) {
        turn.saves.put.insert(id, None);
    }

    /// Whether a new box may begin with what its record says.
    pub(super) fn has_origin(&self, turn: &Turn, record: &Record) -> bool {
        record.origin().is_none_or(|origin| {
            let snapshot = self.snapshot(turn, origin.snapshot);
            snapshot.is_some_and(|it| it.stage == Stage::Ready && it.account == record.account)
        })
    }

    fn snapshot(&self, turn: &Turn, id: SnapshotId) -> Option<Arc<Snapshot>> {
        match turn.saves.put.get(&id) {
            Some(put) => put.clone(),
            None => self.saves.snapshots.any(id),
        }
    }

    /// Notes which snapshots come to nothing, because their box goes on without having been saved.
    pub(super) fn follow_saves(&self, turn: &mut Turn) {
        let new = turn.saves.put.values().flatten();
        let new = new
            .filter(|it| it.stage == Stage::Making)
            .map(|it| (it.id, it.source));
        let known = self.saves.making.iter().map(|(id, source)| (*id, *source));
        let making: BTreeMap<_, _> = known.chain(new).collect();
        for (id, source) in making {
            let Some(work) = turn.work.get(&source) else {
                continue;
            };
            let waits = work
                .sandbox
                .saving()
                .is_some_and(|save| save.snapshot == id);
            let begins = work
                .effects
                .iter()
                .any(|effect| matches!(effect, Effect::Save { snapshot, .. } if *snapshot == id));
            if waits || begins || self.saves.launched.contains(&id) {
                continue;
            }
            let why: Vec<&str> = work.reasons.iter().map(|it| it.text.as_str()).collect();
            let why = if why.is_empty() {
                "the box changed meanwhile".to_owned()
            } else {
                why.join("; ")
            };
            if let Some(snapshot) = self.snapshot(turn, id) {
                fail(turn, &snapshot, why);
            }
        }
    }

    pub(super) fn put_snapshots(turn: &Turn, batch: &mut Batch<'_>) {
        batch.durable |= !turn.saves.put.is_empty();
        let put = turn.saves.put.iter();
        batch.snapshots = put.map(|(id, put)| (*id, put.clone())).collect();
    }

    /// Shows the snapshots of a turn that was committed, and answers who waited.
    pub(super) fn show_snapshots(&mut self, changes: SaveChanges) {
        self.saves.waiting.extend(changes.asked);
        for (id, reason) in changes.failed {
            if let Some(reply) = self.saves.waiting.remove(&id) {
                // The asker may have gone away; so below.
                let _ = reply.send(Ok(Saved::Failed(reason)));
            }
        }
        // Whoever is answered sees all of it, also that another one lost its name.
        for (id, snapshot) in &changes.put {
            self.saves.show(*id, snapshot.clone());
        }
        for (id, snapshot) in changes.put {
            if let Some(made) = snapshot.filter(|it| it.stage == Stage::Ready)
                && let Some(reply) = self.saves.waiting.remove(&id)
            {
                let _ = reply.send(Ok(Saved::Made(made)));
            }
        }
        for reply in changes.unsaved {
            let _ = reply.send(Ok(()));
        }
    }

    /// Tells those who asked in a turn that could not be committed.
    pub(super) fn give_up_snapshots(changes: SaveChanges) {
        for (_, reply) in changes.asked {
            let _ = reply.send(Err(AskError::Store));
        }
        for reply in changes.unsaved {
            let _ = reply.send(Err(AskError::Store));
        }
    }

    /// Loads the records. `found`: what the driver has.
    pub(super) fn load_snapshots(&mut self, found: Vec<SnapshotId>) -> Result<(), StoreError> {
        for mut snapshot in self.store.snapshots()? {
            let id = snapshot.id;
            self.saves.latest = self.saves.latest.max(snapshot.number);
            let goes_on = self.views.get(snapshot.source).is_some_and(|view| {
                let saving = view.sandbox.saving();
                saving.is_some_and(|save| save.snapshot == id)
            });
            snapshot.stage = match snapshot.stage {
                Stage::Making if goes_on => Stage::Making,
                Stage::Ready if !snapshot.hidden => Stage::Ready,
                // Nobody waits for its forks any more.
                Stage::Making | Stage::Ready | Stage::Removing => Stage::Removing,
            };
            self.saves.show(id, Some(Arc::new(snapshot)));
        }
        // As with boxes: a database that is older than the bytes must not cost them.
        for id in found {
            if self.saves.snapshots.any(id).is_none() {
                tracing::warn!(%id, "the driver has this snapshot but no record names it; it is left alone");
            }
        }
        Ok(())
    }
}

fn fail(turn: &mut Turn, snapshot: &Snapshot, reason: String) {
    put_away(turn, snapshot);
    turn.saves.failed.push((snapshot.id, reason));
}

fn put_away(turn: &mut Turn, snapshot: &Snapshot) {
    let gone = Snapshot {
        stage: Stage::Removing,
        name: None,
        ..snapshot.clone()
    };
    turn.saves.put.insert(snapshot.id, Some(Arc::new(gone)));
}
