//! One connection that a program in a box made, on its way to where its name leads. Owns the limits of that; an error is what
//! the box's owner is told when the connection came to nothing.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use icebox_lifecycle::BoxId;

use super::{Source, Way, Wires, link};
use crate::driver::{NoConnection, Stream};
use crate::edge::forward::{Place, Way as Forward};
use crate::edge::not_passed_on;
use crate::outside::{self, Target};

/// How long a program may take to listen again.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is looked whether it does by now.
const LISTENS_BY_NOW: Duration = Duration::from_millis(100);
/// How long a connection to somewhere else may take to be made.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long a program in the box may take to send the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// What is on the way in each direction, in bytes.
const BUFFER: usize = 16 * 1024;

/// Carries a connection to its end.
pub(super) async fn carry(
    wires: &Wires,
    source: Source,
    way: &Way,
    stream: Stream,
) -> Result<(), String> {
    match way {
        Way::Own(port) => {
            let program = connect(wires, source.id, *port).await?;
            both_ways(stream, program).await;
            Ok(())
        }
        Way::Link { id, port } => link::carry(wires, source, *id, *port, stream).await,
        Way::External(target) => {
            http(wires, source, target, stream).await;
            Ok(())
        }
        Way::Endpoint(endpoint) => {
            let open = outside::connect(&endpoint.host, endpoint.port, true);
            let open = within(CONNECT_LIMIT, open).await?;
            both_ways(stream, Box::new(open)).await;
            Ok(())
        }
    }
}

/// A connection to a program in a box, which may be about to listen.
pub(super) async fn connect(wires: &Wires, id: BoxId, port: u16) -> Result<Stream, String> {
    let connecting = async {
        loop {
            match wires.0.driver.connect(id, port).await {
                Ok(stream) => return Ok(stream),
                Err(NoConnection::NothingListens) => tokio::time::sleep(LISTENS_BY_NOW).await,
                Err(NoConnection::Unreachable(why)) => return Err(why),
            }
        }
    };
    match tokio::time::timeout(PATIENCE, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(format!("nothing listens on port {port} of box {id}")),
    }
}

/// Carries bytes both ways until both ends have said all, or one breaks off.
pub(super) async fn both_ways(mut one: Stream, mut other: Stream) {
    // An end that broke off ends the connection like one that closed.
    let _ = tokio::io::copy_bidirectional_with_sizes(&mut one, &mut other, BUFFER, BUFFER).await;
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(format!("it was not reached within {} s", limit.as_secs())),
    }
}

/// Passes the requests of one connection on to a server elsewhere. What goes wrong there is the answer to each.
async fn http(wires: &Wires, source: Source, target: &Target, stream: Stream) {
    let Some(rest) = wires.0.rest.get() else {
        return;
    };
    let private_too = rest.reach.private_too(source.account);
    let serve = service_fn(|request: Request<Incoming>| async move {
        let way = Forward {
            id: source.id,
            place: Place::Elsewhere {
                target,
                private_too,
            },
            scheme: "http",
            patience: CONNECT_LIMIT,
        };
        let forwarded = match rest.boxds.upgrade() {
            Some(boxds) => boxds.upstreams().forward(way, request.map(Body::new)).await,
            None => return Ok(not_passed_on("the server is shutting down")),
        };
        let answer = forwarded.unwrap_or_else(|error| not_passed_on(&error.to_string()));
        Ok::<_, Infallible>(answer)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), serve)
        .with_upgrades();
    // Whichever way it ends, the program in the box sees its connection end.
    let _ = serving.await;
}
