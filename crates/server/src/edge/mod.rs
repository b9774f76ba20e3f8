//! The boxes' own URLs. Owns which request goes to which program in which box, and what people see while it is not there.
//! Asks the engine two things only: that there was activity, and to wake a box, please.

mod activity;
mod answer;
mod elsewhere;
mod expect;
mod failures;
pub mod forward;
mod framing;
pub mod hangup;
mod host;
pub mod link;
pub mod listen;
mod page;
mod pool;
mod program;
pub mod urls;
mod visit;
mod wakes;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response, Version};
use icebox_lifecycle::BoxId;
use tower::Service as _;

use crate::api::e2b;
use crate::commands::Commands;
use activity::Activity;
use answer::Answer;
use failures::Failures;
use host::{For, Names};
use urls::Urls;
use wakes::Wakes;

pub(crate) use answer::not_passed_on;
pub(crate) use elsewhere::climbs;
pub use failures::Failure;
pub(crate) use host::{box_at, is_box_host};
pub(crate) use program::OURS;

/// What stands in front of the boxes. Clones are the same one.
#[derive(Clone)]
pub struct Edge(Arc<Inner>);

struct Inner {
    commands: Commands,
    urls: Urls,
    activity: Arc<Activity>,
    wakes: Wakes,
    failures: Failures,
}

impl Edge {
    /// Puts it together.
    #[must_use]
    pub fn new(commands: Commands) -> Self {
        let (engine, clock) = (commands.engine().clone(), commands.clock().clone());
        Self(Arc::new(Inner {
            urls: Urls::of(commands.config()),
            activity: Arc::new(Activity::new(engine, clock)),
            wakes: Wakes::default(),
            failures: Failures::default(),
            commands,
        }))
    }

    /// Where browsers find the boxes.
    #[must_use]
    pub fn urls(&self) -> &Urls {
        &self.0.urls
    }

    /// What went wrong at a box's URLs in the last half hour, by service or port (rule 8.7).
    #[must_use]
    pub fn failures(&self, id: BoxId) -> std::collections::BTreeMap<String, Failure> {
        self.0.failures.of(id, self.0.commands.clock().now())
    }
}

/// The first to see a request: sends it to the API or to a box. Clones are the same one.
#[derive(Clone)]
pub struct Front {
    names: Arc<Names>,
    api: Router,
    edge: Edge,
}

impl Front {
    /// Puts it together.
    #[must_use]
    pub fn new(api: Router, edge: Edge) -> Self {
        let config = edge.0.commands.config();
        let names = Names::new(&config.domain, &config.edge.names);
        Self {
            names: Arc::new(names),
            api,
            edge,
        }
    }

    /// Answers one request, whoever it is for.
    pub async fn serve(&self, mut request: Request<Body>) -> Response<Body> {
        let named = self.names.of(&request);
        if request.method() == Method::CONNECT {
            return Answer::NoTunnels.for_programs();
        }
        if framing::is_doubtful(&request) {
            return refused(Answer::Doubtful, request.version());
        }
        match named {
            For::Api => self.api(request).await,
            For::Program { service, id } => {
                let view = self.edge.0.commands.engine().views().get(id);
                if view.is_some_and(|view| e2b::address(&view, &service, &mut request)) {
                    link::take_cookies(request.headers_mut(), self.edge.0.urls.scheme());
                    return self.api(request).await;
                }
                self.edge.program(&service, id, request).await
            }
            For::Stranger => Answer::NotOurs.for_programs(),
            For::Unclear => Answer::Unclear.for_programs(),
        }
    }

    async fn api(&self, request: Request<Body>) -> Response<Body> {
        match self.api.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// A refusal after which nothing more is read from the client.
fn refused(answer: Answer, version: Version) -> Response<Body> {
    let mut response = answer.for_programs();
    if version != Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}
