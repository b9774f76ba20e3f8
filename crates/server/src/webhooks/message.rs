//! What an endpoint is sent: the JSON of an event, and the id that stays the same at every try.

use icebox_wire::rest::WebhookMessage;

use super::attempt::Message;
use crate::clock::machine_now;
use crate::commands::event_view;
use crate::commands::trouble::timestamp;
use crate::random;
use crate::store::Told;

/// What `webhook-id` says of an event to a webhook.
#[must_use]
pub fn delivery_id(hook: &str, seq: i64) -> String {
    format!("msg_{hook}_{seq}")
}

pub(super) fn of_event(hook: &str, told: Told) -> Message {
    let seq = told.seq;
    let kind = format!("box.{}", told.kind);
    let event = event_view(told);
    message(
        delivery_id(hook, seq),
        &WebhookMessage {
            kind,
            timestamp: event.at,
            data: Some(event),
        },
    )
}

pub(super) fn of_test(hook: &str) -> Message {
    let id = format!("msg_{hook}_test_{}", random::hex::<8>());
    message(
        id,
        &WebhookMessage {
            kind: "webhook.test".to_owned(),
            timestamp: timestamp(machine_now()),
            data: None,
        },
    )
}

fn message(id: String, message: &WebhookMessage) -> Message {
    Message {
        id,
        // Our own types of plain texts and numbers always have a JSON form.
        body: serde_json::to_string(message).unwrap_or_default(),
    }
}
