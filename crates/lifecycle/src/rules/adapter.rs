//! Rules 7.1 and 7.4: the id of a conversation. Owns the sentence; who is there is kept by the server.

use crate::rules::Rule;

/// The rule.
pub const RULE: Rule = Rule {
    number: "7.1",
    also: &["7.4"],
    name: "adapter",
    elsewhere: Some("crates/server/src/commands/presence.rs"),
    title: "How a conversation says who it is",
    sentence: "The header `X-Psbx-Agent` names the conversation behind a call: 1 to 64 letters, digits, `-` and \
               `_`; anything else there is ignored. As long as it lasts a conversation sends a heartbeat every \
               minute, and at its end it says that it leaves.",
};
