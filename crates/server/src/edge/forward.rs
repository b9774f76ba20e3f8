//! Passes one request on to a program in a box, or where its service leads, and the answer back. Both stream; nothing is kept. Owns what a proxy must
//! leave out, what it adds, and tunnels (WebSockets and every other `Upgrade`). Knows no rules, no host names and no pages:
//! whoever calls it has decided that the request may go through.

use std::any::Any;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{
    CONNECTION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, SET_COOKIE, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, Uri, Version};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use icebox_lifecycle::BoxId;
use tokio::io::AsyncWriteExt as _;

use super::elsewhere;
pub use super::elsewhere::Place;
use super::expect::Continue;
pub use super::pool::{ForwardError, Upstreams};
use super::pool::{Line, Reuse};
use crate::{cookies, sessions};

/// How long the program may take to begin its answer.
const HEAD_LIMIT: Duration = Duration::from_secs(900);
/// How long the client's end of a tunnel may take to be closed.
const GOODBYE_LIMIT: Duration = Duration::from_secs(1);
/// The buffers of a tunnel, in bytes each way.
const TUNNEL_BUFFER: usize = 8 * 1024;

/// What only concerns one connection, besides what `Connection` names.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

pub(super) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// How they and others like them begin.
const FORWARDED: &str = "x-forwarded-";

/// What a client could pretend to be a proxy with.
const PROXY_WORDS: [&str; 3] = ["forwarded", "x-real-ip", "x-client-ip"];

/// How a connection came in; the listener notes it on each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The other end.
    pub peer: SocketAddr,
}

/// What is held for as long as the tunnel that a request becomes; whoever passes the request on puts it into its extensions.
#[derive(Clone)]
pub struct Kept(pub Arc<dyn Any + Send + Sync>);

/// A request that wants to become a tunnel.
struct Upgrading {
    protocol: HeaderValue,
    client: OnUpgrade,
    kept: Option<Kept>,
}

/// Where a request goes, and how it got here.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// The box.
    pub id: BoxId,
    /// What its request is for.
    pub place: Place<'a>,
    /// `http` or `https`, as the client sees it.
    pub scheme: &'a str,
    /// How long to wait for something to listen on the port.
    pub patience: Duration,
}

impl Upstreams {
    /// Passes a request on and gives its answer. What comes of the bodies shows later: when either end hangs up, so does
    /// the other.
    pub async fn forward(
        &self,
        way: Way<'_>,
        request: Request<Body>,
    ) -> Result<Response<Body>, ForwardError> {
        let (mut parts, body) = request.into_parts();
        let client_upgrade = parts.extensions.remove::<OnUpgrade>();
        let kept = parts.extensions.remove::<Kept>();
        let upgrade = rewrite(&mut parts, way.scheme);
        if let Place::Elsewhere { target, .. } = way.place {
            elsewhere::address(&mut parts, target)?;
        }
        let spot = way.place.spot();
        let repeatable = body.is_end_stream() && is_safe(&parts.method);
        let reuse = match (&upgrade, repeatable) {
            (Some(_), _) => Reuse::None,
            (None, true) => Reuse::Any,
            (None, false) => Reuse::Fresh,
        };
        // Where the body of such a request ends, programs may see differently: what follows it must not share its way.
        let alone = is_safe(&parts.method) && !body.is_end_stream();
        let held = Continue::of(&parts, &body);
        let body = match &held {
            Some(held) => Body::new(held.hold(body)),
            None => body,
        };
        let mut line = self.line(way.id, &spot, reuse, way.patience).await?;
        let again = (line.used_before && repeatable).then(|| parts.clone());
        let mut request = Request::from_parts(parts, body);
        if let Some(held) = &held {
            held.listen(&mut request);
        }
        let mut sent = send(&mut line, request).await;
        if let Err(failed) = &mut sent
            && line.used_before
        {
            // The program closed the connection just as the request came: that is nobody's fault.
            let unsent = failed.unsent.take().map(|unsent| *unsent);
            let again =
                unsent.or_else(|| again.map(|parts| Request::from_parts(parts, Body::empty())));
            if let Some(again) = again {
                line = self.line(way.id, &spot, Reuse::None, way.patience).await?;
                sent = send(&mut line, again).await;
            }
        }
        let response = sent.map_err(|failed| failed.error)?;
        // A body that is still held back leaves the connection in the middle of a request.
        let keeps = !alone && held.is_none_or(|held| held.may_go());
        let upgrading = upgrade
            .zip(client_upgrade)
            .map(|(protocol, client)| Upgrading {
                protocol,
                client,
                kept,
            });
        answer(response, line, keeps, upgrading)
    }
}

async fn send(
    line: &mut Line,
    request: Request<Body>,
) -> Result<Response<Incoming>, super::pool::SendFailed> {
    match tokio::time::timeout(HEAD_LIMIT, line.send(request)).await {
        Ok(sent) => sent,
        Err(_) => Err(super::pool::SendFailed {
            error: ForwardError::BrokeOff(format!("there was none for {} s", HEAD_LIMIT.as_secs())),
            unsent: None,
        }),
    }
}

fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// Makes the head of a request ours: hop-by-hop fields go, so does everything that only a proxy says, and ours come.
/// Gives the protocol that the client wants to change to.
fn rewrite(parts: &mut Parts, scheme: &str) -> Option<HeaderValue> {
    let peer = parts
        .extensions
        .get::<Arrival>()
        .map(|arrival| arrival.peer);
    parts.extensions.clear();
    let chunked = parts.headers.contains_key(TRANSFER_ENCODING);
    let trailers = lists(&parts.headers, &TE, "trailers");
    let upgrade = upgrade_of(&parts.headers).filter(|_| parts.version == Version::HTTP_11);
    let authority = parts.uri.authority().map(|authority| authority.to_string());
    strip(&mut parts.headers);
    let headers = &mut parts.headers;
    for name in sessions::COOKIES {
        // It is for the server alone.
        cookies::take(headers, name);
    }
    if let Some(protocol) = &upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if chunked {
        // Said, so that a body of unknown length goes along with every method.
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let host = authority
        .filter(|_| !headers.contains_key(HOST))
        .and_then(|authority| HeaderValue::from_str(&authority).ok());
    if let Some(host) = host {
        headers.insert(HOST, host);
    }
    join_cookies(headers);
    forwarded(headers, peer, scheme);
    let path = parts.uri.path_and_query().cloned();
    parts.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    parts.version = Version::HTTP_11;
    upgrade
}

fn forwarded(headers: &mut HeaderMap, peer: Option<SocketAddr>, scheme: &str) {
    let theirs: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            let prefix = name.get(..FORWARDED.len());
            prefix.is_some_and(|prefix| reads_as(prefix, FORWARDED))
                || PROXY_WORDS.iter().any(|word| reads_as(name, word))
        })
        .cloned()
        .collect();
    for name in theirs {
        headers.remove(name);
    }
    let address = peer.and_then(|peer| {
        let address = peer.ip().to_canonical().to_string();
        HeaderValue::from_str(&address).ok()
    });
    if let Some(address) = address {
        headers.insert(FORWARDED_FOR, address);
    }
    if let Some(host) = headers.get(HOST).cloned() {
        headers.insert(FORWARDED_HOST, host);
    }
    if let Ok(scheme) = HeaderValue::from_str(scheme) {
        headers.insert(FORWARDED_PROTO, scheme);
    }
}

/// Whether a name is this one, to programs as well that see fields as variables and so read `_` like `-`.
fn reads_as(name: &str, word: &str) -> bool {
    let like = |(a, b): (u8, u8)| a == b || (a == b'_' && b == b'-');
    name.len() == word.len() && name.bytes().zip(word.bytes()).all(like)
}

/// HTTP/2 may split cookies over several fields; programs that speak HTTP/1.1 expect one.
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(COOKIE).iter();
    let (Some(first), Some(_)) = (cookies.next(), cookies.next()) else {
        return;
    };
    let mut joined = first.as_bytes().to_vec();
    for cookie in headers.get_all(COOKIE).iter().skip(1) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(cookie.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(COOKIE, joined);
    }
}

/// Removes what concerns one connection only.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        // Whom a request is for concerns everybody.
        .filter(|name| *name != HOST)
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Whether a field lists this word.
pub(super) fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter();
    let mut words = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    words.any(|listed| listed.trim().eq_ignore_ascii_case(word))
}

fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    lists(headers, &CONNECTION, "upgrade").then(|| protocol.clone())
}

/// The answer as the client gets it.
fn answer(
    mut response: Response<Incoming>,
    line: Line,
    keeps: bool,
    upgrading: Option<Upgrading>,
) -> Result<Response<Body>, ForwardError> {
    const SWITCHING: u16 = 101;
    let protocol = upgrade_of(response.headers());
    strip(response.headers_mut());
    host_only_cookies(response.headers_mut());
    *response.version_mut() = Version::HTTP_11;
    if response.status().as_u16() == SWITCHING {
        let Some(asked) = upgrading else {
            let text = "it changed to another protocol unasked".to_owned();
            return Err(ForwardError::BrokeOff(text));
        };
        let program = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            let _kept = asked.kept;
            tunnel(asked.client, program, line).await;
        });
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol.unwrap_or(asked.protocol));
        return Ok(response.map(|_| Body::empty()));
    }
    let (parts, body) = response.into_parts();
    let ends = body.is_end_stream();
    let passing = Passing {
        body,
        line: Some(line),
        keeps,
    };
    Ok(Response::from_parts(
        parts,
        if ends {
            passing.whole();
            Body::empty()
        } else {
            Body::new(passing)
        },
    ))
}

/// A cookie is for the host that sets it: with `Domain` it would reach the other boxes and the API. None signs anybody in.
fn host_only_cookies(headers: &mut HeaderMap) {
    let odd = |value: &HeaderValue| {
        let mut parts = value.as_bytes().split(|byte| *byte == b';');
        parts.next().is_some_and(is_session) || parts.any(is_domain)
    };
    if !headers.get_all(SET_COOKIE).iter().any(odd) {
        return;
    }
    let cookies: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().cloned().collect();
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        if is_session(cookie.as_bytes()) {
            continue;
        }
        let parts = cookie.as_bytes().split(|byte| *byte == b';').enumerate();
        let kept: Vec<&[u8]> = parts
            .filter(|(n, part)| *n == 0 || !is_domain(part))
            .map(|(_, part)| part)
            .collect();
        if let Ok(cookie) = HeaderValue::from_bytes(&kept.join(&b';')) {
            headers.append(SET_COOKIE, cookie);
        }
    }
}

/// Whether a cookie would sign somebody in.
fn is_session(cookie: &[u8]) -> bool {
    let name = cookie.split(|byte| *byte == b'=').next().unwrap_or(cookie);
    let name = name.trim_ascii();
    sessions::COOKIES.iter().any(|ours| name == ours.as_bytes())
}

fn is_domain(part: &[u8]) -> bool {
    let name = part.split(|byte| *byte == b'=').next().unwrap_or(part);
    name.trim_ascii().eq_ignore_ascii_case(b"domain")
}

/// Carries bytes both ways until both ends have said all, or the box stops running.
async fn tunnel(client: OnUpgrade, program: OnUpgrade, line: Line) {
    let ended = line.ended();
    let joined = tokio::select! {
        joined = async { tokio::try_join!(client, program) } => joined,
        () = ended.cancelled() => return,
    };
    let Ok((client, program)) = joined else {
        return;
    };
    let (mut client, mut program) = (TokioIo::new(client), TokioIo::new(program));
    let carried = tokio::io::copy_bidirectional_with_sizes(
        &mut client,
        &mut program,
        TUNNEL_BUFFER,
        TUNNEL_BUFFER,
    );
    tokio::select! {
        // An end that broke off ends the tunnel like one that closed.
        _ = carried => {}
        () = ended.cancelled() => {}
    }
    // The client sees an end of the stream, not a reset; should it be gone, there is nobody to tell.
    let _ = tokio::time::timeout(GOODBYE_LIMIT, client.shutdown()).await;
}

/// The body of an answer, and the connection it comes over: kept when the answer is whole, ended when it is not.
struct Passing {
    body: Incoming,
    line: Option<Line>,
    keeps: bool,
}

impl Passing {
    fn whole(mut self) {
        self.over();
    }

    fn over(&mut self) {
        if let Some(line) = self.line.take()
            && self.keeps
        {
            line.give_back();
        }
    }
}

impl hyper::body::Body for Passing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let whole = match &frame {
            None => true,
            Some(Ok(_)) => self.body.is_end_stream(),
            Some(Err(_)) => false,
        };
        if whole {
            self.over();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
