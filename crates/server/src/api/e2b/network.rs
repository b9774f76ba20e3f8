//! Network settings of a box: who reaches its ports, and the addresses that it may reach. Allowed ones beat denied ones.
//! Boxes have no IPv6, so that every list of such addresses that they may not reach holds.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::net::IpAddr;

use super::super::App;
use super::error::{self, Done, Failure};
use super::input::{Body, Client, find};
use crate::commands::{Kind, Trouble};
use crate::driver::Egress;
use crate::driver::egress::Range;

/// The most entries of one list.
const LIST_MAX: usize = 1_000;

/// The first setting that this server does not do yet.
pub(super) fn cannot_yet(network: Option<&Value>) -> Option<&'static str> {
    let network = network?;
    let given = |field: &str| {
        let value = network.get(field);
        value.is_some_and(|value| match value {
            Value::Null => false,
            Value::Object(fields) => !fields.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
        })
    };
    if given("rules") {
        return Some("network rules for hosts");
    }
    if given("egressProxy") {
        return Some("an egress proxy");
    }
    if given("httpsPorts") {
        return Some("HTTPS ports");
    }
    if given("dnsServers") {
        return Some("DNS servers of a box's own");
    }
    let named = addresses(network, "allowOut").any(|address| !is_range(address));
    let is_v6 = |address: &str| address.contains(':');
    if named {
        return Some("network rules for domains");
    }
    addresses(network, "allowOut")
        .any(is_v6)
        .then_some("IPv6 in boxes")
}

/// The settings, if they make sense.
pub(super) fn checked(network: Option<&Value>) -> Result<Option<Value>, Failure> {
    let Some(network) = network.filter(|network| !network.is_null()) else {
        return Ok(None);
    };
    if !network.is_object() {
        return Err(bad("network", "an object"));
    }
    for field in ["allowOut", "denyOut"] {
        let list = match network.get(field) {
            None | Some(Value::Null) => continue,
            Some(Value::Array(list)) => list,
            Some(_) => return Err(bad(field, "a list of addresses")),
        };
        if list.len() > LIST_MAX {
            return Err(bad(field, "a list of at most 1000 addresses"));
        }
        if !list.iter().all(Value::is_string) {
            return Err(bad(field, "a list of addresses"));
        }
    }
    if !addresses(network, "denyOut").all(is_range) {
        return Err(bad("denyOut", "a list of IP addresses and CIDR ranges"));
    }
    Ok(Some(network.clone()))
}

/// What a box may reach by these settings, if its account may. Where boxes have no way out, it reaches nothing.
pub(super) fn egress(
    app: &App,
    client: &Client,
    internet: Option<bool>,
    network: Option<&Value>,
) -> Result<Egress, Failure> {
    let ranges = |field: &str| {
        let listed = network.into_iter().flat_map(|it| addresses(it, field));
        listed
            .filter_map(|text| text.parse::<Range>().ok())
            .collect()
    };
    let egress = Egress {
        open: internet != Some(false),
        allow: ranges("allowOut"),
        deny: ranges("denyOut"),
    };
    app.commands.may_reach(client.0.account, &egress)?;
    match app.commands.can_reach_out() {
        Ok(()) => Ok(egress),
        Err(_) => Ok(Egress::default()),
    }
}

/// Whether the ports of the box are for those with its token only.
pub(super) fn is_closed(network: Option<&Value>) -> bool {
    network.and_then(|network| network.get("allowPublicTraffic")) == Some(&Value::Bool(false))
}

fn addresses<'a>(network: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    let list = network.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// An address, or a range of them.
fn is_range(text: &str) -> bool {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return false;
    };
    let most = match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    bits.is_none_or(|bits| bits.parse().is_ok_and(|bits: u8| bits <= most))
}

/// `PUT /sandboxes/{id}/network`: replaces what the box may reach.
pub(super) async fn replace(
    State(app): State<App>,
    client: Client,
    Path(id): Path<String>,
    Body(asked): Body<Value>,
) -> Result<Response, Failure> {
    let found = find(&app, &client, &id)?;
    if let Some(what) = cannot_yet(Some(&asked)) {
        return Ok(error::cannot_yet(what));
    }
    let network = checked(Some(&asked))?;
    let mut record = found.record.e2b.as_deref().cloned().unwrap_or_default();
    let internet = asked.get("allow_internet_access").and_then(Value::as_bool);
    record.internet = internet;
    // Who reaches its ports is not the business of this call.
    let public = record.network.as_ref();
    let public = public.and_then(|network| network.get("allowPublicTraffic").cloned());
    record.network = network.map(|mut network| {
        if let (Some(public), Some(fields)) = (public, network.as_object_mut()) {
            fields.insert("allowPublicTraffic".to_owned(), public);
        }
        network
    });
    let egress = egress(&app, &client, internet, record.network.as_ref())?;
    app.commands
        .describe_e2b(found.id(), record, egress)
        .await?;
    Ok(Done.into_response())
}

fn bad(field: &str, limit: &str) -> Failure {
    Trouble::new(Kind::BadRequest, format!("`{field}` must be {limit}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_ranges_and_names() {
        for text in ["10.0.0.1", "10.0.0.0/8", "::1", "2000::/3", "0.0.0.0/0"] {
            assert!(is_range(text), "{text}");
        }
        for text in [
            "example.com",
            "*.example.com",
            "10.0.0.0/33",
            "10.0.0.0/x",
            "",
        ] {
            assert!(!is_range(text), "{text}");
        }
    }

    #[test]
    fn what_is_not_done_yet_is_said() {
        let said = |network: Value| cannot_yet(Some(&network));
        assert_eq!(said(json!({"denyOut": ["0.0.0.0/0"]})), None);
        assert_eq!(said(json!({"rules": {}, "egressProxy": null})), None);
        assert!(said(json!({"allowOut": ["example.com"]})).is_some());
        assert!(said(json!({"rules": {"example.com": []}})).is_some());
    }
}
