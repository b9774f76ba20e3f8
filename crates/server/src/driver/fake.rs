//! A driver whose boxes live in memory, for tests of the engine. The world of boxes outlives every server that looks at
//! it, and can be told to be slow, to fail, to refuse, to lose boxes, or to act without saying so. Its boxes have files,
//! memory and a daemon that runs a handful of commands; nothing of it touches the machine.

mod boxd;
mod inside;
mod listener;
mod memory;
mod program;
mod reach;
mod script;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use icebox_lifecycle::{BoxId, CopyId, Processes, Seen, SnapshotId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    BOXD_PORT, BoxSpec, Capabilities, Counters, Driver, DriverError, Egress, FreezeMode, Listener,
    NoConnection, NoListener, Origin, Reaches, Stream,
};

use memory::{Ended, Memory, Running};
use script::Script;
pub use script::{Behaviour, Gate, Step};

/// The world; clones are the same one. It is the driver of as many servers as look at it, one after the other.
#[derive(Clone, Default)]
pub struct Fake(Arc<Shared>);

#[derive(Default)]
struct Shared {
    world: Mutex<World>,
    script: Script,
    /// Changes whenever something in the world does, for those who wait inside.
    changes: Changes,
}

/// A counter that can be waited for.
struct Changes(watch::Sender<u64>);

impl Default for Changes {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

#[derive(Default)]
struct World {
    boxes: HashMap<BoxId, FakeBox>,
    snapshots: BTreeMap<SnapshotId, FakeSnapshot>,
    /// What was done, in order: the step and the box.
    done: Vec<(Step, BoxId)>,
    cannot_checkpoint: Option<String>,
    no_way_out: Option<String>,
    /// Why no way out can be made at the moment.
    broken_way_out: Option<String>,
}

/// One box of the world.
struct FakeBox {
    files: BTreeMap<String, String>,
    processes: Processes,
    memory: Memory,
    copies: BTreeMap<CopyId, Memory>,
    /// What it reaches outside.
    egress: Egress,
    /// Why that is not what it may.
    lacks: Option<String>,
    /// Ends the connections into the box.
    connected: CancellationToken,
    /// What is known of its end, once its first process ended.
    ended: Option<String>,
    /// Where its programs really listen, by their port in the box.
    programs: HashMap<u16, SocketAddr>,
    /// The same of the server's own sockets in it.
    listeners: HashMap<u16, SocketAddr>,
}

/// A snapshot of one.
#[derive(Clone)]
struct FakeSnapshot {
    files: BTreeMap<String, String>,
    memory: Option<Memory>,
    /// Programs that go on with the memory.
    programs: HashMap<u16, SocketAddr>,
}

impl Fake {
    /// An empty world.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next time `step` is asked for any box behave so.
    pub fn next(&self, step: Step, behaviour: Behaviour) {
        self.0.script.add(step, behaviour);
    }

    /// What was done so far, in order.
    #[must_use]
    pub fn done(&self) -> Vec<(Step, BoxId)> {
        self.world().done.clone()
    }

    /// How often a step was done.
    #[must_use]
    pub fn count(&self, step: Step) -> usize {
        self.world()
            .done
            .iter()
            .filter(|(done, _)| *done == step)
            .count()
    }

    /// The host cannot write memory to disk, for this reason.
    pub fn cannot_checkpoint(&self, reason: &str) {
        self.world().cannot_checkpoint = Some(reason.to_owned());
    }

    /// The first process of a box ends by itself, and everything in memory with it.
    pub fn kill(&self, id: BoxId, detail: &str) {
        if let Some(found) = self.world().boxes.get_mut(&id) {
            found.lose_memory(detail);
        }
        self.changed();
    }

    /// The host reboots: what is in memory is gone, copies and files are not.
    pub fn reboot(&self) {
        for found in self.world().boxes.values_mut() {
            found.lose_memory("the host was restarted");
        }
        self.changed();
    }

    /// Takes a copy away, as a damaged disk would.
    pub fn lose_copy(&self, id: BoxId, copy: CopyId) {
        if let Some(found) = self.world().boxes.get_mut(&id) {
            found.copies.remove(&copy);
        }
    }

    /// Puts a box into the world that no server asked for.
    pub fn plant(&self, id: BoxId) {
        self.world().boxes.insert(id, FakeBox::running());
    }

    /// Makes a program that listens on this machine one of the box, or takes it away.
    pub fn listen(&self, id: BoxId, port: u16, program: Option<SocketAddr>) {
        if let Some(found) = self.world().boxes.get_mut(&id) {
            found.programs.remove(&port);
            found
                .programs
                .extend(program.map(|program| (port, program)));
        }
    }

    /// Ends a command in a running box, as if by itself.
    pub fn finish(&self, id: BoxId, exec_id: &str) {
        if let Some(found) = self.world().boxes.get_mut(&id) {
            found.memory.end(exec_id, &Ended::Exit(0));
        }
        self.changed();
    }

    /// The ids of the commands that run in a box.
    #[must_use]
    pub fn running_commands(&self, id: BoxId) -> Vec<String> {
        let world = self.world();
        let commands = world.boxes.get(&id).map(|found| &found.memory.commands);
        let running = commands
            .into_iter()
            .flatten()
            .filter(|command| command.ended.is_none());
        running.map(|command| command.exec_id.clone()).collect()
    }

    /// Waits until a command runs in a box.
    pub async fn until_command(&self, id: BoxId) {
        let mut changes = self.0.changes.0.subscribe();
        while self.running_commands(id).is_empty() {
            // The sender lives as long as the world.
            let _ = changes.changed().await;
        }
    }

    /// What the driver sees of a box.
    #[must_use]
    pub fn seen(&self, id: BoxId) -> Option<Seen> {
        self.world().boxes.get(&id).map(FakeBox::seen)
    }

    fn world(&self) -> MutexGuard<'_, World> {
        let world = self.0.world.lock();
        world.unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.0.changes.0.send_modify(|count| *count += 1);
    }

    /// Does a step as the script has it.
    async fn play(
        &self,
        step: Step,
        id: BoxId,
        act: impl FnOnce(&mut World) -> Result<(), DriverError> + Send,
    ) -> Result<(), DriverError> {
        let behaviour = self.0.script.take(step);
        let act = || {
            let mut world = self.world();
            world.done.push((step, id));
            let result = act(&mut world);
            drop(world);
            self.changed();
            result
        };
        match behaviour {
            None => act(),
            Some(Behaviour::Fail(reason)) => Err(DriverError::Failed(reason)),
            Some(Behaviour::Refuse(reason)) => act().and(Err(DriverError::Refused(reason))),
            Some(Behaviour::Gone(reason)) => Err(DriverError::Gone(reason)),
            Some(Behaviour::HoldBefore(gate)) => {
                gate.pass().await;
                act()
            }
            Some(Behaviour::HoldAfter(gate)) => {
                let result = act();
                gate.pass().await;
                result
            }
            Some(Behaviour::ActAndFail(reason)) => act().and(Err(DriverError::Failed(reason))),
            Some(Behaviour::Panic) => panic!("the script says so"),
        }
    }
}

impl FakeBox {
    fn running() -> Self {
        Self {
            files: BTreeMap::new(),
            processes: Processes::Running,
            memory: Memory::default(),
            copies: BTreeMap::new(),
            egress: Egress::default(),
            lacks: None,
            connected: CancellationToken::new(),
            ended: None,
            programs: HashMap::new(),
            listeners: HashMap::new(),
        }
    }

    fn lose_memory(&mut self, detail: &str) {
        self.disconnect();
        if self.processes != Processes::Absent {
            self.ended = Some(detail.to_owned());
        }
        self.processes = Processes::Absent;
        self.memory = Memory::default();
    }

    fn disconnect(&mut self) {
        self.connected.cancel();
        self.connected = CancellationToken::new();
        self.listeners.clear();
    }

    fn seen(&self) -> Seen {
        Seen {
            processes: self.processes,
            copy: self.copies.keys().next_back().copied(),
            detail: self.ended.as_deref().unwrap_or_default().into(),
        }
    }
}

#[async_trait]
impl Driver for Fake {
    fn capabilities(&self) -> Capabilities {
        let world = self.world();
        Capabilities {
            name: "fake",
            checkpoint: world.cannot_checkpoint.clone().map_or(Ok(()), Err),
            egress: world.no_way_out.clone().map_or(Ok(()), Err),
            cpus: 8,
            memory_mb: 16_384,
            disk_gb: 100,
        }
    }

    async fn boot(&self, spec: &BoxSpec, keep_files: bool) -> Result<Reaches, DriverError> {
        let id = spec.id;
        let origin = spec.origin.filter(|_| !keep_files);
        let egress = spec.egress.clone();
        let act = move |world: &mut World| {
            let mut fresh = FakeBox::running();
            if let Some(Origin { snapshot, memory }) = origin {
                let gone = || DriverError::Gone(format!("there is no snapshot {snapshot}"));
                let from = world.snapshots.get(&snapshot).cloned().ok_or_else(gone)?;
                fresh.files = from.files;
                if memory {
                    let none = || DriverError::Refused("it has no memory".to_owned());
                    fresh.memory = from.memory.ok_or_else(none)?;
                    fresh.programs = from.programs;
                }
            }
            if let Some(mut old) = world.boxes.remove(&id) {
                old.disconnect();
                if keep_files {
                    fresh.files = old.files;
                    fresh.copies = old.copies;
                }
            }
            world.boxes.insert(id, fresh);
            world.settle(id, egress)
        };
        self.play(Step::Boot, id, act).await?;
        Ok(self.reaches(id))
    }

    async fn freeze(&self, id: BoxId, mode: FreezeMode) -> Result<(), DriverError> {
        self.play(Step::Freeze, id, move |world| world.freeze(id, mode))
            .await
    }

    async fn evict(&self, id: BoxId, copy: CopyId) -> Result<(), DriverError> {
        let act = move |world: &mut World| {
            let found = world.get(id)?;
            if !found.copies.contains_key(&copy) || found.processes == Processes::Running {
                return Err(DriverError::Refused("there is no good copy".to_owned()));
            }
            found.processes = Processes::Absent;
            found.memory = Memory::default();
            Ok(())
        };
        self.play(Step::Evict, id, act).await
    }

    async fn thaw(&self, id: BoxId, copy: CopyId) -> Result<(), DriverError> {
        self.play(Step::Thaw, id, move |world| world.thaw(id, copy))
            .await
    }

    async fn release(&self, id: BoxId, egress: &Egress) -> Result<Reaches, DriverError> {
        let egress = egress.clone();
        let act = move |world: &mut World| {
            let found = world.get(id)?;
            if found.processes == Processes::Absent {
                return Err(DriverError::Gone("nothing of it stands".to_owned()));
            }
            found.processes = Processes::Running;
            world.settle(id, egress)
        };
        self.play(Step::Release, id, act).await?;
        Ok(self.reaches(id))
    }

    async fn reach(&self, id: BoxId, egress: &Egress) -> Result<Reaches, DriverError> {
        let egress = egress.clone();
        let act = move |world: &mut World| match world.boxes.get(&id) {
            Some(found) if found.processes == Processes::Running => world.settle(id, egress),
            Some(_) | None => Ok(()),
        };
        self.play(Step::Reach, id, act).await?;
        Ok(self.reaches(id))
    }

    async fn renew(&self, id: BoxId) -> Result<(), DriverError> {
        self.play(Step::Renew, id, move |world| world.renew(id))
            .await
    }

    /// New boxes always get another one.
    async fn is_outdated(&self, _: BoxId) -> bool {
        true
    }

    async fn destroy(&self, id: BoxId, keep_files: bool) -> Result<(), DriverError> {
        let act = move |world: &mut World| {
            if let Some(found) = world.boxes.get_mut(&id) {
                found.lose_memory("it was destroyed");
                found.copies.clear();
                if !keep_files {
                    world.boxes.remove(&id);
                }
            }
            Ok(())
        };
        self.play(Step::Destroy, id, act).await
    }

    async fn drop_copy(&self, id: BoxId, copy: CopyId) -> Result<(), DriverError> {
        let act = move |world: &mut World| {
            if let Some(found) = world.boxes.get_mut(&id) {
                found.copies.remove(&copy);
            }
            Ok(())
        };
        self.play(Step::DropCopy, id, act).await
    }

    async fn save(
        &self,
        id: BoxId,
        copy: Option<CopyId>,
        snapshot: SnapshotId,
    ) -> Result<u64, DriverError> {
        let act = move |world: &mut World| world.save(id, copy, snapshot);
        self.play(Step::Save, id, act).await.map(|()| 1)
    }

    async fn drop_snapshot(&self, snapshot: SnapshotId) -> Result<(), DriverError> {
        let act = move |world: &mut World| {
            world.snapshots.remove(&snapshot);
            Ok(())
        };
        // It belongs to no box.
        self.play(Step::DropSnapshot, BoxId::FIRST, act).await
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotId>, DriverError> {
        Ok(self.world().snapshots.keys().copied().collect())
    }

    async fn list(&self) -> Result<Vec<(BoxId, Seen)>, DriverError> {
        let world = self.world();
        let boxes = world.boxes.iter();
        Ok(boxes.map(|(id, found)| (*id, found.seen())).collect())
    }

    async fn usage(&self, id: BoxId, _: bool) -> Result<Counters, DriverError> {
        self.world().get(id).map(|_| Counters::default())
    }

    async fn memory_kills(&self, id: BoxId) -> u64 {
        let found = self.world().get(id).map(|found| found.memory.kills);
        found.unwrap_or(0)
    }

    async fn exited(&self, id: BoxId) -> Result<String, DriverError> {
        let mut changes = self.0.changes.0.subscribe();
        if !self.world().boxes.contains_key(&id) {
            return Err(DriverError::Gone("there is no such box".to_owned()));
        }
        loop {
            match self.world().boxes.get(&id) {
                None => return Ok("it was destroyed".to_owned()),
                Some(found) if found.processes == Processes::Absent => {
                    return Ok(found.ended.clone().unwrap_or_else(|| "it ended".to_owned()));
                }
                Some(_) => {}
            }
            if changes.changed().await.is_err() {
                return Err(DriverError::Failed("the world is gone".to_owned()));
            }
        }
    }

    async fn connect(&self, id: BoxId, port: u16) -> Result<Stream, NoConnection> {
        let unreachable = |why: &str| NoConnection::Unreachable(why.to_owned());
        let (connected, program) = {
            let mut world = self.world();
            let found = world
                .get(id)
                .map_err(|gone| unreachable(&gone.to_string()))?;
            if found.processes != Processes::Running {
                return Err(unreachable("it does not run"));
            }
            let listener = found.listeners.get(&port);
            let program = found.programs.get(&port).or(listener).copied();
            (found.connected.clone(), program)
        };
        if port == BOXD_PORT {
            return Ok(boxd::connection(self.clone(), id, connected));
        }
        let program = program.ok_or(NoConnection::NothingListens)?;
        program::connection(program, connected).await
    }

    async fn listen(
        &self,
        id: BoxId,
        _: Ipv4Addr,
        port: u16,
    ) -> Result<Box<dyn Listener>, NoListener> {
        listener::listen(self.clone(), id, port).await
    }
}

#[cfg(test)]
mod tests;
