//! Webhooks and deliveries as they are stored: what each of them has. Owns these types; their tables are in
//! [`super::webhooks`].

use icebox_lifecycle::Time;

use super::Told;
use crate::record::AccountId;
use crate::webhooks::Secret;

/// A webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub account: AccountId,
    /// When it was made.
    pub created_at: Time,
    /// Where to.
    pub url: String,
    /// Only events of these kinds; empty: all.
    pub kinds: Vec<String>,
    /// Only events of this box.
    pub of_box: Option<String>,
    /// What signs its messages.
    pub secret: Secret,
    /// Whether it is sent anything.
    pub enabled: bool,
    /// Why it was disabled, if nobody asked for that.
    pub disabled_reason: Option<String>,
    /// How many deliveries wait.
    pub waiting: u64,
}

/// What becomes of a webhook; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct HookChange {
    /// Where to.
    pub url: Option<String>,
    /// Only events of these kinds.
    pub kinds: Option<Vec<String>>,
    /// Only events of this box.
    pub of_box: Option<Option<String>>,
    /// What signs its messages.
    pub secret: Option<Secret>,
    /// Whether it is sent anything.
    pub enabled: Option<bool>,
}

/// How far putting events in line came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// All there are.
    Done,
    /// There may be more.
    More,
    /// There may be more, and no room for it.
    Full,
}

/// The first event in the line of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The number of the event.
    pub seq: i64,
    /// When it is to be tried.
    pub at: Time,
    /// How often it was tried.
    pub tries: u32,
    /// The event, if it is still kept.
    pub event: Option<Told>,
}

/// What came of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The HTTP status of the answer, if there was one.
    pub status: Option<u16>,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// What follows.
    pub then: Then,
}

/// What follows a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It was taken.
    Delivered,
    /// Another try at this moment.
    Again(Time),
    /// No more.
    GiveUp,
    /// No more of anything: the endpoint says that it is gone.
    Disable,
}

/// A delivery as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The number of the event.
    pub seq: i64,
    /// The box it is about.
    pub of_box: String,
    /// The kind of the event.
    pub kind: String,
    /// `waiting`, `delivered` or `given_up`.
    pub state: String,
    /// How often it was tried.
    pub tries: u32,
    /// When it was tried last.
    pub tried_at: Option<Time>,
    /// The HTTP status of the last answer.
    pub status: Option<u16>,
    /// Why the last try failed.
    pub error: Option<String>,
    /// When it is tried next, if it is first in line.
    pub next_at: Option<Time>,
}
