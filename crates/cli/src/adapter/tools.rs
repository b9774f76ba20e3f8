//! The list of tools, which is the server's: clients keep what they were told, so they hear when it is another one, as after
//! the server was renewed. Owns what was told last.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::service::{Peer, RoleServer};
use serde_json::{Value, json};

use super::upstream::{Failure, Upstream};
use super::{Again, patiently_for};

/// How long a server that restarts is waited for: clients ask as they start, and are not that patient.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the list is looked at.
const INTERVAL: Duration = Duration::from_secs(600);

/// What clients were told.
#[derive(Default)]
pub(super) struct Tools(Mutex<Option<Value>>);

impl Tools {
    /// Asks the server for the list, and whether clients were told another one before.
    pub(super) fn list(&self, upstream: &Upstream) -> Result<(Value, bool), Failure> {
        let answer = patiently_for(PATIENCE, Again::Freely, || {
            upstream.ask("tools/list", &json!({}), &Arc::default(), &|| {})
        });
        let tools = answer?["tools"].take();
        let other = self.is_other(&tools);
        Ok((tools, other))
    }

    /// Whether clients were told another list; from here on they are told this one.
    fn is_other(&self, tools: &Value) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let other = told.as_ref().is_some_and(|told| told != tools);
        *told = Some(tools.clone());
        other
    }

    /// Looks whether it is another one now, and then tells the client.
    pub(super) async fn check(self: Arc<Self>, upstream: Arc<Upstream>, client: Peer<RoleServer>) {
        let looking = tokio::task::spawn_blocking(move || self.list(&upstream));
        if matches!(looking.await, Ok(Ok((_, true)))) {
            // A client that is gone needs to know nothing.
            let _ = client.notify_tool_list_changed().await;
        }
    }

    /// Does that now and then, for as long as there is a client.
    pub(super) async fn watch(self: Arc<Self>, upstream: Arc<Upstream>, client: Peer<RoleServer>) {
        let mut looks = tokio::time::interval(INTERVAL);
        looks.tick().await;
        while !client.is_transport_closed() {
            looks.tick().await;
            let (tools, upstream) = (Arc::clone(&self), Arc::clone(&upstream));
            tools.check(upstream, client.clone()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_hear_of_a_list_that_is_not_the_one_they_were_told() {
        let tools = Tools::default();
        let (one, two) = (
            json!([{"name": "a"}]),
            json!([{"name": "a"}, {"name": "b"}]),
        );
        let told: Vec<bool> = [&one, &one, &two, &two, &one]
            .into_iter()
            .map(|list| tools.is_other(list))
            .collect();
        assert_eq!(told, [false, false, true, false, true]);
    }
}
