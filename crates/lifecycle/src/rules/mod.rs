//! The rules: one a file, each with the sentence a user would read and the code that keeps it.
//! Owns the list of rules and the order in which clocks strike; that order is their precedence.

use crate::sandbox::Sandbox;
use crate::time::Time;
use crate::turn::Turn;

pub mod activity;
pub mod adapter;
pub mod asked_stop;
pub mod background;
pub mod billing;
pub mod blocked_by;
pub mod boundaries;
pub mod cold_start;
pub mod conversation;
pub mod deadlines;
pub mod during_freeze;
pub mod failed_wake;
pub mod fields;
pub mod freeze_commit;
pub mod frozen_stop;
pub mod gaps;
pub mod hang_up;
pub mod holds;
pub mod idle_freeze;
pub mod inactivity;
pub mod inside;
pub mod interrupted;
pub mod keep;
pub mod lifetime;
pub mod listed;
pub mod new_words;
pub mod no_credits;
pub mod observed;
pub mod own_limit;
pub mod pause;
pub mod policies;
pub mod ram_only;
pub mod reads;
pub mod recording;
pub mod release;
pub mod requests;
pub mod restore;
pub mod room;
pub mod start;
pub mod status_reason;
pub mod steps;
pub mod stops_at;
pub mod takeover;
pub mod teardown;
pub mod usage;
pub mod wake;
pub mod warm;
pub mod warning;
pub mod way_out;

/// A promise to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number in the rule book, or of the first of its family.
    pub number: &'static str,
    /// The other numbers it covers.
    pub also: &'static [&'static str],
    /// The name of its file and of its table.
    pub name: &'static str,
    /// The file that keeps it, from the root of the repository, where more than the state of one box is needed to decide
    /// it; the tests of its numbers are there. `None`: it is decided here, and has a table.
    pub elsewhere: Option<&'static str>,
    /// A heading.
    pub title: &'static str,
    /// What a user would read.
    pub sentence: &'static str,
}

/// A clock of a rule. What it does when it strikes must leave it not due, or the state it looks at gone.
pub(crate) struct Clock {
    /// When it strikes; `None` when it does not run.
    pub(crate) due: fn(&Sandbox) -> Option<Time>,
    /// What happens then.
    pub(crate) strike: fn(&mut Turn<'_>),
}

/// A clock that does not wait is due then.
pub(crate) const AT_ONCE: Time = Time(i64::MIN);

/// The clocks in order of precedence: when several are due, an earlier one may leave a later one nothing to do.
/// What ends a box goes before what stops it being used, and that before repeats and clean-up.
pub(crate) const CLOCKS: [Clock; 13] = [
    lifetime::DESTROY,
    own_limit::CLOCK,
    frozen_stop::CLOCK,
    restore::CLOCK,
    interrupted::FILES,
    takeover::CLOCK,
    no_credits::CLOCK,
    lifetime::FREEZE,
    idle_freeze::CLOCK,
    warm::CLOCK,
    release::CLOCK,
    way_out::CLOCK,
    teardown::CLOCK,
];

/// Every rule, in the order of the rule book.
#[must_use]
pub fn all_rules() -> &'static [Rule] {
    &RULES
}

const RULES: [Rule; 49] = [
    policies::RULE,
    start::RULE,
    interrupted::RULE,
    new_words::RULE,
    observed::RULE,
    status_reason::RULE,
    usage::RULE,
    activity::RULE,
    gaps::RULE,
    boundaries::RULE,
    idle_freeze::RULE,
    holds::RULE,
    background::RULE,
    recording::RULE,
    requests::RULE,
    blocked_by::RULE,
    during_freeze::RULE,
    freeze_commit::RULE,
    ram_only::RULE,
    warm::RULE,
    no_credits::RULE,
    wake::RULE,
    cold_start::RULE,
    failed_wake::RULE,
    room::RULE,
    release::RULE,
    way_out::RULE,
    frozen_stop::RULE,
    own_limit::RULE,
    stops_at::RULE,
    warning::RULE,
    restore::RULE,
    asked_stop::RULE,
    listed::RULE,
    teardown::RULE,
    adapter::RULE,
    conversation::RULE,
    takeover::RULE,
    reads::RULE,
    steps::RULE,
    inside::RULE,
    fields::RULE,
    deadlines::RULE,
    hang_up::RULE,
    inactivity::RULE,
    lifetime::RULE,
    keep::RULE,
    billing::RULE,
    pause::RULE,
];
