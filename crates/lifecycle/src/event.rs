//! Everything that can happen to a box. One enum, so that the list of what may change a state can be
//! read in one place. Creation is not here: see [`crate::Sandbox::new`].

use alloc::boxed::Box;

use crate::effect::Tier;
use crate::id::{BoxId, CallId, CopyId, OpId};
use crate::policy::Policy;
use crate::saving::Save;
use crate::state::TakeoverCause;
use crate::time::{Ms, Time};

/// Something that happened, or that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call that names the box began (rules 3.1, 3.2, 5.1). Its kind says whether it is use and whether it wakes.
    CallBegan {
        /// Which call; its end names it again.
        call: CallId,
        /// What the call is to the box.
        kind: CallKind,
        /// The conversation it came from, if it said so (7.3).
        agent: Option<Box<str>>,
    },
    /// A call ended, whether or not its caller still listens (3.5).
    CallEnded {
        /// The call that ended.
        call: CallId,
    },
    /// A command was started with `background: true`, or found running after a restart.
    BackgroundBegan {
        /// Its `execId`.
        exec: Box<str>,
        /// Its command line, cut short, for people ("`npm run dev` is running").
        label: Box<str>,
    },
    /// That command ended.
    BackgroundEnded {
        /// Its `execId`.
        exec: Box<str>,
    },
    /// An HTTP request came through one of the box's URLs, or a WebSocket opened (3.4).
    UrlRequest,
    /// A person takes the screen, by themselves, asked, or by opening a review (4.2, 9).
    TakeoverBegan {
        /// Why the person has it.
        cause: TakeoverCause,
        /// The latest time it comes back by itself (9.2).
        until: Time,
    },
    /// A person typed or clicked.
    TakeoverInput,
    /// The screen was handed back.
    TakeoverEnded,
    /// Another box opened a link to this one (4.2, 5.1). One box is one link, however many connections it has: the link
    /// is closed with the last of them.
    LinkOpened {
        /// The box at the other end.
        from: BoxId,
    },
    /// Whether the box at the other end of a link is awake for something other than links (4.2).
    LinkSource {
        /// The box at the other end.
        from: BoxId,
        /// Whether it is held, or used, by something else than links.
        awake_by_itself: bool,
    },
    /// That link was closed.
    LinkClosed {
        /// The box at the other end.
        from: BoxId,
    },
    /// A recording began, or ended by itself (4.4).
    Recording {
        /// Whether one is under way now.
        on: bool,
    },
    /// How many attached phones are awake (4.2, 14.4).
    Phones {
        /// Awake phones.
        awake: u16,
    },
    /// Somebody asks for something. Refusals are decided before, by [`crate::Sandbox::admit`]; a command
    /// that no longer fits when it arrives changes nothing.
    Command(Command),
    /// The driver finished what an effect asked for.
    Outcome {
        /// The operation it answers; anything but the awaited one is dropped.
        op: OpId,
        /// How it went.
        outcome: Outcome,
    },
    /// What became of the way out of a box that runs, or is about to: it reaches what its record says, or nothing (5.12).
    WayOut {
        /// Why it reaches nothing, if it should reach something.
        failure: Option<Box<str>>,
    },
    /// What the driver sees of the box: after a server start, or when a watched process ended. Calls and links are over
    /// with that, since they run through the server; a takeover is not.
    Observed(Seen),
    /// The server was down or the host slept for this long (3.6). No clock strikes on it: what was observed, or a tick,
    /// comes next.
    Gap {
        /// How long, in milliseconds.
        ms: Ms,
        /// Whether the box ran on meanwhile, as far as can be told; otherwise that time is not billed (14.5).
        ran: bool,
    },
    /// The account ran out of credits (4.12), or has some again (5.3).
    Credits {
        /// Whether there are any.
        any: bool,
    },
    /// Whether the host has room to keep this box's memory in RAM while it is frozen (4.11).
    Warm {
        /// Keep it there; otherwise it is given back once the copy is good.
        keep: bool,
    },
    /// Time passed: look at the deadlines.
    Tick,
}

/// What a call is to the box it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// It acts: it is use from its start to its end, wakes, and holds the box awake (3.1, 3.7).
    Acts,
    /// It wakes a frozen box but is not use itself (3.2); the wake is.
    Wakes,
    /// It only reads or leaves a message (3.2): never wakes, never holds.
    Reads,
}

/// What a user, or the program on their behalf, may ask of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Freeze now, whatever the idle clock says.
    Freeze,
    /// Pause: freeze now, whatever holds it, until what wakes a paused box comes (15.2).
    Pause {
        /// Give the memory up and keep the files (15.3).
        files_only: bool,
    },
    /// Wake; `cold` boots from the files and gives the memory up (5.7, offered when a copy is damaged).
    Wake {
        /// Start from the files instead of from the copy.
        cold: bool,
    },
    /// Stop for good, keeping nothing (6.6).
    Stop,
    /// Stop for good, keeping nothing: it worked for another box, which has no use for it any more (6.6).
    Unneeded,
    /// Bring back a box that the rules stopped, from its kept copy (6.5).
    Restore,
    /// Change the box's own limits. Equal settings change nothing (3.5).
    SetPolicy(Box<Policy>),
    /// Pin against the sleep TTL, or let go (13.5).
    Keep(bool),
    /// What it may reach outside has changed, as its record says. It is not use, and wakes nothing (3.5).
    Reach,
    /// Make a snapshot of it. It stands still for that, and goes on by itself if it ran.
    Save(Save),
}

/// How an operation of the driver went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done. For [`crate::Effect::Freeze`]: a good copy is on disk and the box stands still in RAM.
    Done,
    /// Freeze only: the memory cannot be copied (4.10), the box stands still in RAM.
    Refused {
        /// What the checkpointer said.
        reason: Box<str>,
    },
    /// It did not work; the box is as it was before (after a freeze: stopped in RAM, whole).
    Failed {
        /// What went wrong, for people.
        reason: Box<str>,
    },
    /// The box has neither processes nor what the operation needed.
    Gone {
        /// What is known of its end.
        reason: Box<str>,
    },
}

/// What the driver sees of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its processes.
    pub processes: Processes,
    /// The newest complete copy on disk, if there is one.
    pub copy: Option<CopyId>,
    /// What is known of the end of its processes; empty when unknown.
    pub detail: Box<str>,
}

/// The processes of a box, as the driver sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes {
    /// They run.
    Running,
    /// They stand still in RAM.
    Stopped,
    /// There are none.
    Absent,
}

impl Seen {
    /// The tier a frozen box in this condition has.
    #[must_use]
    pub fn tier(&self) -> Tier {
        match self.processes {
            Processes::Running | Processes::Stopped => Tier::Ram,
            Processes::Absent => Tier::Disk,
        }
    }
}
