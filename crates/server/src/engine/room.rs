//! Room on the host (rules 5.9, 14.1): the one place where the engine decides whether a box may come up now. Starts,
//! restores and wakes that have to wait are kept here, each with its asker; in which order they go is [`Fleet`]'s.
//! A box that waits is frozen as before and knows nothing of it: its clocks stand still meanwhile (rule 3.6), and the
//! queue does not outlive the server, since the askers do not. What comes up without an asker, such as a wake that was
//! under way when the server ended, counts and does not wait.

use std::collections::BTreeMap;
use std::mem::{self, Discriminant, discriminant};

use icebox_lifecycle::fleet::{Fleet, Place, Room, Shortage, Standing, Ticket, Wish};
use icebox_lifecycle::time::{Ms, SEC};
use icebox_lifecycle::{BoxId, Command, Event, Sandbox, State, Time};

use super::inbox::{AskError, Asker, Call, Message, NewBox, Reply};
use super::turn::{Core, Turn, Waiting};
use super::views::View;
use crate::config::Limits;
use crate::driver::Capabilities;
use crate::record::{AccountId, Record};

/// How long a call or a wake that finds its box frozen waits for room when it does not say; shorter than most clients
/// wait for an answer. Starts and restores do not wait unless they say so.
pub(crate) const WAKE_WAIT_MS: Ms = 30 * SEC;

/// Who has room, and who waits for it with what they asked.
pub(super) struct Rooms {
    fleet: Fleet,
    held: BTreeMap<Ticket, Held>,
    marks: BTreeMap<BoxId, Mark>,
    /// What was asked of boxes that have become something else meanwhile: asked again in the next turn.
    again: Vec<Held>,
    /// The boxes that were given room in this turn, whether or not anything comes of it.
    given: Vec<BoxId>,
    changed: bool,
}

/// What somebody asked who waits for room.
pub(super) enum Held {
    Start(Box<NewBox>, Asker, Reply),
    Call(Call, Reply),
    Ask(BoxId, Command, Asker, Reply),
}

impl Held {
    fn id(&self) -> BoxId {
        match self {
            Self::Start(new, ..) => new.id,
            Self::Call(call, _) => call.id,
            Self::Ask(id, ..) => *id,
        }
    }

    fn ticket(&self) -> Ticket {
        match self {
            Self::Start(_, asker, _) | Self::Ask(_, _, asker, _) => asker.ticket,
            Self::Call(call, _) => call.asker.ticket,
        }
    }

    fn wanted(&self) -> Wanted {
        match self {
            Self::Start(..) => Wanted::Start,
            Self::Ask(_, Command::Restore, ..) => Wanted::Restore,
            Self::Ask(..) | Self::Call(..) => Wanted::Wake,
        }
    }

    fn is_abandoned(&self) -> bool {
        match self {
            Self::Start(.., reply) | Self::Call(_, reply) | Self::Ask(.., reply) => {
                reply.is_closed()
            }
        }
    }

    fn again(self) -> Message {
        match self {
            Self::Start(new, asker, reply) => Message::Create(new, asker, reply),
            Self::Call(call, reply) => Message::Call(call, reply),
            Self::Ask(id, command, asker, reply) => Message::Ask(id, command, asker, reply),
        }
    }

    fn answer(self, turn: &mut Turn, error: AskError) {
        let id = self.id();
        let (Self::Start(.., reply) | Self::Call(_, reply) | Self::Ask(.., reply)) = self;
        let taken = Err(error);
        turn.replies.push(Waiting { id, reply, taken });
    }
}

/// A box that waits.
struct Mark {
    /// Up to when its clocks know of the wait.
    told_until: Time,
    /// What it was when it began to wait.
    state: Discriminant<State>,
}

/// What somebody wants room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A new box.
    Start,
    /// A box that a rule stopped.
    Restore,
    /// A box that is frozen.
    Wake,
}

/// How it was found out that there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// There is none at the moment, and whoever asked does not wait.
    AtOnce,
    /// It was waited for in vain.
    Waited,
    /// There never will be.
    Never,
}

/// Why there is no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// What it was wanted for.
    pub wanted: Wanted,
    /// What there is too little of.
    pub shortage: Shortage,
    /// How it was found out.
    pub tried: Tried,
    /// What the box needs.
    pub needs: Room,
    /// What there is and who waits.
    pub capacity: Capacity,
}

/// The room of the host (rule 13.6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// What there is altogether.
    pub host: Room,
    /// What each account may have of it.
    pub account: Room,
    /// What is taken.
    pub taken: Room,
    /// The boxes that wait, oldest first.
    pub queue: Vec<Queued>,
}

/// A box that waits for room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The box. A new one has no record yet.
    pub id: BoxId,
    /// Whose it is.
    pub account: AccountId,
    /// What is wanted.
    pub wanted: Wanted,
    /// Since when.
    pub since: Time,
    /// Until when, at most.
    pub until: Time,
}

impl Capacity {
    /// How many are before a box that waits, and the box.
    #[must_use]
    pub fn place(&self, id: BoxId) -> Option<(usize, &Queued)> {
        let mut queue = self.queue.iter().enumerate();
        queue.find(|(_, queued)| queued.id == id)
    }
}

impl Rooms {
    pub(super) fn new(limits: &Limits, machine: &Capabilities) -> Self {
        Self {
            fleet: Fleet::new(limits.host_room(machine), limits.account_room()),
            held: BTreeMap::new(),
            marks: BTreeMap::new(),
            again: Vec::new(),
            given: Vec::new(),
            changed: true,
        }
    }

    /// Whether a box waits.
    pub(super) fn waits(&self, id: BoxId) -> bool {
        self.marks.contains_key(&id) && self.fleet.waits(id)
    }

    /// Keeps what somebody asked until there is room.
    pub(super) fn keep(&mut self, held: Held) {
        self.held.insert(held.ticket(), held);
    }

    /// For how long the clocks of a box have not heard yet that it waits. For one that waits no more this is the end.
    pub(super) fn waited(&mut self, id: BoxId, now: Time) -> Option<Ms> {
        let waits = self.waits(id);
        let mark = self.marks.get_mut(&id)?;
        let ms = now.since(mem::replace(&mut mark.told_until, now));
        if !waits {
            self.marks.remove(&id);
        }
        Some(ms)
    }

    /// How much memory warm boxes have to give back for whoever is first in the queue.
    pub(super) fn short_mb(&self) -> u64 {
        self.fleet.short_mb()
    }

    /// Counts a box that was loaded. How far a stop had come is not known, so it counts as if it had not begun.
    pub(super) fn found(&mut self, view: &View) {
        if let State::Stopping { keep: None, .. } = view.sandbox.state {
            self.fleet.found(wish(view.id(), &view.record));
        }
        self.follow(view);
    }

    /// Counts a box as it is now. Who waits for a box that has become something else is heard again.
    pub(super) fn follow(&mut self, view: &View) {
        self.changed = true;
        let id = view.id();
        let wish = || wish(id, &view.record);
        match &view.sandbox.state {
            // What it has is free when it is gone.
            State::Stopping { keep: None, .. } => {}
            State::Stopping { keep: Some(_), .. } => self.fleet.stands(wish(), Standing::Leaves),
            state if is_up(state) => self.fleet.found(wish()),
            State::Frozen(frozen) if frozen.resident => {
                let standing = if frozen.evicting.is_some() {
                    Standing::Leaves
                } else if frozen.copy.is_some() || frozen.keeps_files_only() {
                    Standing::Warm
                } else {
                    Standing::Stays
                };
                self.fleet.stands(wish(), standing);
            }
            State::Starting { .. }
            | State::Ready
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => self.fleet.leave(id),
        }
        let state = discriminant(&view.sandbox.state);
        if self.marks.get(&id).is_some_and(|mark| mark.state != state) {
            self.marks.remove(&id);
            for ticket in self.fleet.call_off(id) {
                self.again.extend(self.held.remove(&ticket));
            }
        }
    }

    fn enter(
        &mut self,
        now: Time,
        wish: Wish,
        wanted: Wanted,
        asker: Asker,
    ) -> Result<bool, AskError> {
        let wait_ms = asker.wait_ms.unwrap_or(match wanted {
            Wanted::Start | Wanted::Restore => 0,
            Wanted::Wake => WAKE_WAIT_MS,
        });
        self.changed = true;
        match self.fleet.enter(now, wish, asker.ticket, wait_ms) {
            Place::Taken => {
                self.given.push(wish.id);
                Ok(true)
            }
            Place::Waits { .. } => Ok(false),
            Place::NoRoom(shortage) => Err(self.full(wanted, wish, shortage, Tried::AtOnce)),
            Place::Never(shortage) => Err(self.full(wanted, wish, shortage, Tried::Never)),
        }
    }

    fn full(&self, wanted: Wanted, wish: Wish, shortage: Shortage, tried: Tried) -> AskError {
        AskError::NoCapacity(Box::new(Full {
            wanted,
            shortage,
            tried,
            needs: wish.needs,
            capacity: self.capacity(),
        }))
    }

    fn capacity(&self) -> Capacity {
        let queued = self.fleet.queue().map(|place| {
            let first = place.waiters.first();
            let held = first.and_then(|(ticket, _)| self.held.get(ticket));
            Queued {
                id: place.wish.id,
                account: AccountId(place.wish.account.cast_signed()),
                wanted: held.map_or(Wanted::Wake, Held::wanted),
                since: place.since,
                until: place.until(),
            }
        });
        Capacity {
            host: self.fleet.host(),
            account: self.fleet.account(),
            taken: self.fleet.taken(),
            queue: queued.collect(),
        }
    }
}

impl Core {
    /// Whether a new box has room; `false`: it waits.
    pub(super) fn room_for_new(
        &mut self,
        turn: &Turn,
        new: &NewBox,
        asker: Asker,
    ) -> Result<bool, AskError> {
        let wish = wish(new.id, &new.record);
        self.rooms.enter(turn.now, wish, Wanted::Start, asker)
    }

    /// Whether what happens to a box may happen now, which takes room if it brings the box up; `false`: it waits.
    pub(super) fn room_for(
        &mut self,
        turn: &mut Turn,
        id: BoxId,
        event: &Event,
        asker: Asker,
    ) -> Result<bool, AskError> {
        let now = turn.now;
        let work = self.work(turn, id).ok_or(AskError::NotFound)?;
        if !comes_up(&work.sandbox, now, event) {
            return Ok(true);
        }
        let wish = wish(id, &work.record);
        let state = discriminant(&work.sandbox.state);
        let wanted = if *event == Event::Command(Command::Restore) {
            Wanted::Restore
        } else {
            Wanted::Wake
        };
        let has_room = self.rooms.enter(now, wish, wanted, asker)?;
        if !has_room {
            let mark = Mark {
                told_until: now,
                state,
            };
            self.rooms.marks.entry(id).or_insert(mark);
        }
        Ok(has_room)
    }

    /// Lets those go for whom there is room, oldest first, and tells those whose time is over.
    pub(super) fn serve_queue(&mut self, turn: &mut Turn) {
        for held in mem::take(&mut self.rooms.again) {
            self.take(turn, held.again());
        }
        while let Some((wish, tickets)) = self.rooms.fleet.next_up() {
            self.rooms.given.push(wish.id);
            for ticket in tickets {
                let held = self.rooms.held.remove(&ticket);
                // Nobody gets a box that they no longer ask for.
                if let Some(held) = held.filter(|held| !held.is_abandoned()) {
                    self.take(turn, held.again());
                }
            }
            self.waits_no_more(turn, wish.id);
        }
        for (wish, ticket, shortage) in self.rooms.fleet.give_up(turn.now) {
            if let Some(held) = self.rooms.held.remove(&ticket) {
                let full = self
                    .rooms
                    .full(held.wanted(), wish, shortage, Tried::Waited);
                held.answer(turn, full);
            }
            self.waits_no_more(turn, wish.id);
        }
    }

    /// Somebody does not listen any more, and waits no longer if they did.
    pub(super) fn hung_up(&mut self, turn: &mut Turn, id: BoxId, ticket: Ticket) {
        if self.rooms.fleet.hang_up(id, ticket) {
            self.rooms.held.remove(&ticket);
            self.waits_no_more(turn, id);
        }
    }

    /// A call wants a box frozen: whoever waits for it does not get it.
    pub(super) fn call_off(&mut self, turn: &mut Turn, id: BoxId) {
        for ticket in self.rooms.fleet.call_off(id) {
            if let Some(held) = self.rooms.held.remove(&ticket) {
                held.answer(turn, AskError::CalledOff);
            }
        }
        self.waits_no_more(turn, id);
    }

    /// The clocks of a box that waited go on.
    fn waits_no_more(&mut self, turn: &mut Turn, id: BoxId) {
        self.rooms.changed = true;
        if self.rooms.marks.contains_key(&id) && !self.rooms.fleet.waits(id) {
            turn.due.push(id);
            self.step(turn, id, Event::Tick);
        }
    }

    /// After a turn: room that was given in vain is free again, and readers see how it is.
    pub(super) fn settle_room(&mut self) {
        for id in mem::take(&mut self.rooms.given) {
            match self.views.get(id) {
                Some(view) => self.rooms.follow(&view),
                None => self.rooms.fleet.leave(id),
            }
        }
        if mem::take(&mut self.rooms.changed) {
            self.views.show_capacity(self.rooms.capacity());
        }
    }

    /// The earliest moment something may be due: for a box, an account, or in the queue.
    pub(super) fn next_deadline(&mut self) -> Option<Time> {
        if self.rooms.fleet.has_next() || !self.rooms.again.is_empty() {
            return Some(self.clock.now());
        }
        let boxes = self.deadlines.next();
        let queue = self.rooms.fleet.next_deadline();
        boxes
            .into_iter()
            .chain(self.billing.next())
            .chain(queue)
            .min()
    }
}

/// What a box needs while it is up.
fn wish(id: BoxId, record: &Record) -> Wish {
    Wish {
        id,
        account: record.account.0.cast_unsigned(),
        needs: Room {
            boxes: 1,
            memory_mb: record.size.memory_mb,
            milli_cpus: u64::from(record.size.milli_cpus),
        },
    }
}

/// Whether an event brings up a box that is not. The rules are asked, so that this cannot differ from what they do.
fn comes_up(sandbox: &Sandbox, now: Time, event: &Event) -> bool {
    if is_up(&sandbox.state) {
        return false;
    }
    let mut after = sandbox.clone();
    after.handle(now, event.clone());
    is_up(&after.state)
}

/// Whether a box has a place among those that are up: it runs, or is on its way to or from it.
fn is_up(state: &State) -> bool {
    match state {
        State::Starting { .. }
        | State::Ready
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. } => true,
        State::Frozen(frozen) => frozen.wake,
        State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => false,
    }
}
