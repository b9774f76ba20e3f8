//! Decides what a box does next: `(sandbox, now, event) -> (sandbox, effects, reasons)`.
//!
//! Owns the states, the rules and the clocks of one box. Deliberately knows no I/O, no clock (`now` is a
//! parameter), no database, no wire format and no driver: it is `no_std`, so the compiler keeps it so.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod admit;
pub mod credits;
pub mod decision;
pub mod effect;
pub mod event;
pub mod fleet;
pub mod forecast;
pub mod id;
mod invariant;
mod observed;
mod outcome;
pub mod policy;
pub mod rules;
pub mod sandbox;
mod saving;
#[cfg(feature = "sim")]
pub mod sim;
pub mod state;
pub mod status;
mod step;
pub mod time;
mod turn;
pub mod words;

pub use admit::{Admission, Ask, NoRestore, Refusal};
pub use decision::{Change, Decision, Reason};
pub use effect::{Effect, Tier};
pub use event::{CallKind, Command, Event, Outcome, Processes, Seen};
pub use forecast::{Forecast, Hold, HoldKind, Warning};
pub use id::{BoxId, CallId, CopyId, OpId, SnapshotId};
pub use policy::{Policy, PolicyError};
pub use rules::conversation::{AgentState, AgentView, Presence};
pub use rules::{Rule, all_rules};
pub use sandbox::Sandbox;
pub use saving::Save;
pub use state::State;
pub use status::Status;
pub use time::{Ms, Time};
pub use turn::INTERRUPTED_FILES_MS;
