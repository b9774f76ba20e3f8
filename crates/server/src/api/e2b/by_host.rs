//! Requests into boxes of this dialect that come to the host name of a port, as `get_host` gives it. They become requests
//! that headers address, so that both are one way: any traffic is a use, and wakes a box that froze for being idle.

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderValue;

use super::traffic::{ID_HEADER, PORT_HEADER, TRAFFIC_TOKEN_HEADER};
use crate::driver::BOXD_PORT;
use crate::edge::OURS;
use crate::engine::View;

/// Addresses a request for a port of a box by headers. `false` when it is not for this dialect: the box is another one's,
/// the name is no port, or its sender has no token for ports that ask for one and perhaps a link of ours.
pub(crate) fn address(view: &View, service: &str, request: &mut Request<Body>) -> bool {
    let Some(e2b) = view.record.e2b.as_deref() else {
        return false;
    };
    let port = service.parse().ok().filter(|port: &u16| *port != 0);
    let Some(port) = port.filter(|_| !service.starts_with('0')) else {
        return false;
    };
    if request.uri().path().starts_with(OURS) {
        return false;
    }
    let headers = request.headers_mut();
    let needs_token = e2b.traffic_token.is_some() && port != BOXD_PORT;
    if needs_token && !headers.contains_key(TRAFFIC_TOKEN_HEADER) {
        return false;
    }
    let Ok(id) = HeaderValue::from_str(view.id().as_str()) else {
        return false;
    };
    headers.insert(ID_HEADER, id);
    headers.insert(PORT_HEADER, port.into());
    true
}
