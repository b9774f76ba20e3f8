//! Decides what a box does next: `(sandbox, now, event) -> (sandbox, effects, reasons)`.
//!
//! Owns the states, the rules and the clocks of one box. Deliberately knows no I/O, no clock (`now` is a
//! parameter), no database, no wire format and no driver: it is `no_std`, so the compiler keeps it so.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod effect;
pub mod event;
pub mod id;
pub mod policy;
pub mod state;
pub mod time;

pub use effect::{Effect, Tier};
pub use event::{CallKind, Command, Event, Outcome, Processes, Seen};
pub use id::{BoxId, CallId, CopyId, OpId};
pub use policy::Policy;
pub use state::State;
pub use time::{Ms, Time};
