//! What people say to this conversation. The server repeats a message with every result until it is confirmed, so that none
//! is lost with a connection; the client sees each one once. Owns what it has seen, and what is still to be confirmed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use icebox_wire::rest::MessageView;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use super::SIGN;
use super::upstream::{Failure, Upstream};

/// The field of results that has them.
const FIELD: &str = "fromHuman";
/// The most messages that are remembered: numbers grow, and what is older was confirmed long ago.
const REMEMBERED: usize = 10_000;
/// The most that are confirmed at once.
const AT_ONCE: usize = 100;

#[derive(Default)]
pub(super) struct Messages(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    ids: BTreeSet<i64>,
    /// By box.
    unconfirmed: BTreeMap<String, BTreeSet<i64>>,
}

impl Messages {
    /// A result is on its way to the client: leaves out what that has seen, and shows the rest as lines, too. Whether there
    /// is anything to confirm.
    pub(super) fn arrive(&self, of_box: &str, result: &mut CallToolResult) -> bool {
        let Some(Value::Object(fields)) = &mut result.structured_content else {
            return false;
        };
        let Some(came) = fields.remove(FIELD) else {
            return false;
        };
        // Whatever else a server calls so is for the client to read.
        let Ok(came) = serde_json::from_value::<Vec<MessageView>>(came.clone()) else {
            fields.insert(FIELD.to_owned(), came);
            return false;
        };
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unconfirmed = seen.unconfirmed.entry(of_box.to_owned()).or_default();
        unconfirmed.extend(came.iter().map(|message| message.id));
        let new: Vec<_> = came
            .into_iter()
            .filter(|message| seen.ids.insert(message.id))
            .collect();
        while seen.ids.len() > REMEMBERED {
            seen.ids.pop_first();
        }
        if !new.is_empty() {
            fields.insert(FIELD.to_owned(), json!(new));
        }
        if let Some(first) = result.content.first_mut() {
            *first = ContentBlock::text(Value::Object(fields.clone()).to_string());
        }
        let lines = new.iter().map(|message| message.line(of_box));
        // Behind the result itself, before whatever else there is.
        let behind = result.content.len().min(1);
        let lines = lines.map(ContentBlock::text);
        result.content.splice(behind..behind, lines);
        true
    }

    /// Tells the server what arrived. What cannot be told now is told next time.
    pub(super) fn confirm(&self, upstream: &Upstream) {
        let told = |seen: &Seen| {
            let (of_box, ids) = seen.unconfirmed.iter().find(|(_, ids)| !ids.is_empty())?;
            let ids: Vec<i64> = ids.iter().copied().take(AT_ONCE).collect();
            Some((of_box.clone(), ids))
        };
        loop {
            let next = told(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
            let Some((of_box, ids)) = next else { return };
            let path = format!("/v1/boxes/{of_box}/messages/received");
            match upstream.post(&path, &json!({"ids": ids}), SIGN) {
                // A server that refuses does so next time, too: the box is gone.
                Ok(_)
                | Err(Failure::Said {
                    status: 400..500, ..
                }) => {}
                Err(_) => return,
            }
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(left) = seen.unconfirmed.get_mut(&of_box) {
                left.retain(|id| !ids.contains(id));
            }
            seen.unconfirmed.retain(|_, ids| !ids.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(ids: &[i64]) -> CallToolResult {
        let at = "2026-01-01T00:00:00Z";
        let messages = ids
            .iter()
            .map(|id| json!({"id": id, "at": at, "text": format!("number {id}")}));
        let messages: Vec<Value> = messages.collect();
        let fields = json!({"exitCode": 0, FIELD: messages});
        let mut result = CallToolResult::success(vec![
            ContentBlock::text(fields.to_string()),
            ContentBlock::text("box a: a notice"),
        ]);
        result.structured_content = Some(fields);
        result
    }

    fn texts(result: &CallToolResult) -> Vec<String> {
        let texts = result
            .content
            .iter()
            .map(|item| json!(item)["text"].clone());
        texts
            .map(|text| text.as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_message_that_comes_again_is_shown_once() {
        let messages = Messages::default();
        let mut first = result(&[1]);
        assert!(messages.arrive("a", &mut first));
        let shown = texts(&first);
        assert_eq!(
            shown[1..],
            ["box a: a person says: number 1", "box a: a notice"]
        );
        assert_eq!(
            first.structured_content.as_ref().unwrap()[FIELD][0]["id"],
            1
        );
        assert_eq!(shown[0], first.structured_content.unwrap().to_string());

        let mut again = result(&[1, 2]);
        assert!(messages.arrive("a", &mut again));
        let ids = again.structured_content.as_ref().unwrap()[FIELD]
            .as_array()
            .unwrap();
        assert_eq!((ids.len(), &ids[0]["id"]), (1, &json!(2)));
        assert_eq!(texts(&again)[1], "box a: a person says: number 2");

        let mut nothing_new = result(&[1, 2]);
        assert!(
            messages.arrive("a", &mut nothing_new),
            "it is confirmed again"
        );
        assert_eq!(texts(&nothing_new), ["{\"exitCode\":0}", "box a: a notice"]);
    }

    #[test]
    fn results_without_messages_stay_as_they_are() {
        let messages = Messages::default();
        for fields in [
            json!({"exitCode": 0}),
            json!({FIELD: "a report"}),
            json!([1]),
        ] {
            let mut result = CallToolResult::success(vec![ContentBlock::text(fields.to_string())]);
            result.structured_content = Some(fields);
            let before = result.clone();
            assert!(!messages.arrive("a", &mut result));
            assert_eq!(result, before);
        }
    }
}
