//! What one step answers: effects to carry out, reasons for people, and how much of the record changed.
//! Owns no decision itself.

use alloc::string::String;
use alloc::vec::Vec;

use crate::effect::Effect;
use crate::time::Time;

/// The answer of [`crate::Sandbox::handle`]. Commit the record first, then carry out the effects in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What is to be done, in this order.
    pub effects: Vec<Effect>,
    /// Why, one for each rule that decided something.
    pub reasons: Vec<Reason>,
    /// How much of the record changed.
    pub changed: Change,
}

/// One decision, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// When it was decided.
    pub at: Time,
    /// The number of the rule that decided it.
    pub rule: &'static str,
    /// What it decided and why.
    pub text: String,
}

/// How much of a record a step changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Nothing: there is nothing to store.
    #[default]
    None,
    /// Times and holds only: losing the last moment of it in a power cut is harmless.
    Activity,
    /// The state, or something promised to a user: it must be on disk before any effect is carried out.
    Transition,
}
