//! One request to a program in a box: which box and port, whether its sender may look, whether the box is awake, and what
//! comes of it. Owns the order of these and the patience with a program that restarts (rules 8.2 to 8.8).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response};
use icebox_lifecycle::{BoxId, Command, Refusal, State, Status};

use super::Edge;
use super::answer::{Answer, entered, is_failure, lives_at};
use super::elsewhere::is_for;
use super::forward::{ForwardError, Place, Way};
use super::link::{self, ENTER_PATH};
use super::page::{Language, Page};
use super::visit::loads_page;
use crate::driver::BOXD_PORT;
use crate::engine::{AskError, View};
use crate::outside::Target;
use crate::record::Leads;

/// How long a program may take to listen again (rule 8.7).
const PATIENCE: Duration = Duration::from_secs(3);
/// Where the waiting page asks whether the box is awake.
const AWAKE_PATH: &str = "/.icebox/awake";
/// How long that question may wait for its answer.
const AWAKE_LIMIT: Duration = Duration::from_secs(25);
/// Paths that are ours on every host.
pub(crate) const OURS: &str = "/.icebox/";

/// A request on its way.
struct Visitor {
    is_page: bool,
    language: Language,
}

impl Visitor {
    fn answer(&self, answer: &Answer) -> Response<Body> {
        if self.is_page {
            answer.for_people(self.language)
        } else {
            answer.for_programs()
        }
    }
}

impl Edge {
    /// Answers a request for a service, or a port, of a box.
    pub(super) async fn program(
        &self,
        service: &str,
        id: BoxId,
        mut request: Request<Body>,
    ) -> Response<Body> {
        let visitor = Visitor {
            is_page: loads_page(&request),
            language: Language::of(request.headers()),
        };
        let Some(view) = self.0.commands.engine().views().get(id) else {
            return visitor.answer(&Answer::NoBox);
        };
        let found = match find(&view, service) {
            Ok(found) => found,
            Err(answer) => {
                self.failed(id, service, &answer);
                return visitor.answer(&answer);
            }
        };
        let port = found.port;
        let scheme = self.0.urls.scheme();
        let path = request.uri().path();
        if path == ENTER_PATH {
            return self.enter(&view, port, scheme, &request, &visitor);
        }
        let tokens = link::take_cookies(request.headers_mut(), scheme);
        if view.record.private && !self.may_look(&view, port, &tokens) {
            return visitor.answer(&Answer::Private);
        }
        let path = request.uri().path();
        if path == AWAKE_PATH {
            return self.awake(id).await;
        }
        if path.starts_with(OURS) {
            let text =
                format!("there is nothing at {path}; paths under {OURS} are not the program's");
            return visitor.answer(&Answer::NoService { text });
        }
        if let Some((of, port)) = found.link {
            // It has rules of its own: who may look, what wakes it, what counts.
            return lives_at(&self.0.urls.of_path(of, &port.to_string(), &request));
        }
        if view.sandbox.state != State::Ready {
            return self.not_awake(&view, &visitor).await;
        }
        let target = match self.elsewhere(&view, service, found, &request) {
            Ok(target) => target,
            Err(answer) => {
                self.failed(id, service, &answer);
                return visitor.answer(&answer);
            }
        };
        let place = match &target {
            Some(target) => Place::Elsewhere {
                target,
                private_too: self.0.commands.private_too(view.record.account),
            },
            None => Place::Port(port),
        };
        self.pass_on(&view, service, place, scheme, request, &visitor)
            .await
    }

    /// Where a request goes that is not for a program in the box.
    fn elsewhere(
        &self,
        view: &View,
        service: &str,
        found: Found<'_>,
        request: &Request<Body>,
    ) -> Result<Option<Target>, Answer> {
        let scene = view.record.scene.as_deref();
        let elsewhere = scene.and_then(|scene| scene.elsewhere.as_ref());
        let elsewhere = elsewhere.filter(|_| view.record.scene_place() == Some(service));
        let url = match elsewhere {
            Some(elsewhere) if is_for(elsewhere, request) => Some(&*elsewhere.base_url),
            Some(_) | None => found.external,
        };
        let target = url.map(Target::parse).transpose();
        target.map_err(|why| Answer::Unreachable {
            why: format!("the address of the service does not fit: {why}"),
        })
    }

    /// Passes a request on to a box that is awake.
    async fn pass_on(
        &self,
        view: &Arc<View>,
        service: &str,
        place: Place<'_>,
        scheme: &str,
        request: Request<Body>,
        visitor: &Visitor,
    ) -> Response<Body> {
        let id = view.id();
        self.0.wakes.is_awake(id);
        let idle_ms = view.sandbox.policy.freeze_after_ms;
        self.0.activity.request(id, idle_ms).await;
        let way = Way {
            id,
            place,
            scheme,
            patience: PATIENCE,
        };
        let upstreams = self.0.commands.boxds().upstreams();
        let error = match upstreams.forward(way, request).await {
            Ok(response) => {
                if is_failure(&response) {
                    let status = response.status().as_u16();
                    self.record(
                        id,
                        service,
                        status,
                        format!("the program answered {status}"),
                    );
                }
                return response;
            }
            Err(error) => error,
        };
        // It may have been frozen or stopped under the request.
        let view = self.0.commands.engine().views().get(id);
        match view {
            Some(view) if view.sandbox.state != State::Ready => {
                return self.not_awake(&view, visitor).await;
            }
            Some(_) => {}
            None => return visitor.answer(&Answer::NoBox),
        }
        let answer = match error {
            ForwardError::NothingListens(port) => Answer::NothingListens { port },
            ForwardError::Crowded => Answer::Crowded {
                why: error.to_string(),
            },
            ForwardError::Unreachable(_)
            | ForwardError::BrokeOff(_)
            | ForwardError::NoHttp(..)
            | ForwardError::Elsewhere(..)
            | ForwardError::Circle => Answer::Unreachable {
                why: error.to_string(),
            },
        };
        self.failed(id, service, &answer);
        visitor.answer(&answer)
    }

    /// The answer of a box that is not awake; a page load wakes it (rules 8.2 to 8.6).
    async fn not_awake(&self, view: &Arc<View>, visitor: &Visitor) -> Response<Body> {
        let status = match view.sandbox.status() {
            status @ (Status::Stopping | Status::Terminated | Status::Interrupted) => {
                let status = status.as_str();
                return visitor.answer(&Answer::Ended { status });
            }
            Status::Claimed | Status::Starting => "starting",
            Status::Freezing
            | Status::Frozen
            | Status::Thawing
            | Status::Ready
            | Status::Takeover => "frozen",
        };
        let waking = |reload_sec| Answer::NotAwake {
            status,
            page: Page::Waking { reload_sec },
        };
        if !visitor.is_page {
            return visitor.answer(&waking(None));
        }
        let id = view.id();
        let now = self.0.commands.clock().now();
        let load = self.0.wakes.load(id, now, sleeps(view));
        if !view.sandbox.credits {
            return visitor.answer(&Answer::Paused);
        }
        if view.sandbox.is_closed() {
            // Paused until it is resumed, which a page load is not (rule 15.2).
            return visitor.answer(&Answer::NotAwake {
                status,
                page: Page::StaysFrozen,
            });
        }
        if load.may_wake {
            let command = Command::Wake { cold: false };
            if let Err(AskError::Refused(refusal, _)) =
                self.0.commands.engine().command(id, command).await
            {
                let answer = match *refusal {
                    Refusal::NoCredits => Answer::Paused,
                    Refusal::Gone { .. } => Answer::Ended {
                        status: Status::Terminated.as_str(),
                    },
                    Refusal::Interrupted { .. } => Answer::Ended {
                        status: Status::Interrupted.as_str(),
                    },
                    Refusal::LifetimeOver
                    | Refusal::Paused
                    | Refusal::RestoreTooLate { .. }
                    | Refusal::CannotRestore(_)
                    | Refusal::TakenOver(_)
                    | Refusal::Held { .. }
                    | Refusal::NoMemory { .. }
                    | Refusal::Policy(_)
                    | Refusal::CapLowered => Answer::NotAwake {
                        status,
                        page: Page::StaysFrozen,
                    },
                };
                return visitor.answer(&answer);
            }
        }
        visitor.answer(&waking(load.reload_sec))
    }

    /// Says when the box is awake, to the page that waits for it. It is no activity and wakes nothing.
    async fn awake(&self, id: BoxId) -> Response<Body> {
        let views = self.0.commands.engine().views();
        let ready = views.wait_for(id, |view| match view.sandbox.state {
            State::Ready => std::ops::ControlFlow::Break(()),
            State::Starting { .. }
            | State::Freezing { .. }
            | State::Frozen(_)
            | State::Thawing { .. }
            | State::Releasing { .. }
            | State::Stopping { .. }
            | State::Terminated { .. }
            | State::Interrupted { .. } => std::ops::ControlFlow::Continue(()),
        });
        let answer = match tokio::time::timeout(AWAKE_LIMIT, ready).await {
            Ok(Some(())) => Answer::Awake,
            Ok(None) => Answer::NoBox,
            Err(_) => Answer::NotAwake {
                status: "frozen",
                page: Page::Waking { reload_sec: None },
            },
        };
        answer.for_programs()
    }

    /// Takes a link, and gives a cookie for it.
    fn enter(
        &self,
        view: &View,
        port: u16,
        scheme: &str,
        request: &Request<Body>,
        visitor: &Visitor,
    ) -> Response<Body> {
        let now = self.0.commands.clock().now();
        let good = link::token_of(request.uri().query())
            .filter(|_| [Method::GET, Method::HEAD].contains(request.method()))
            .zip(view.record.link_secret.as_deref())
            .and_then(|(token, secret)| {
                let end = link::good_until(token, secret, view.id(), port, now)?;
                Some(link::cookie(scheme, token, now, end))
            });
        match good {
            Some(cookie) => entered(&cookie),
            None => visitor.answer(&Answer::Private),
        }
    }

    fn may_look(&self, view: &View, port: u16, tokens: &[String]) -> bool {
        let now = self.0.commands.clock().now();
        let Some(secret) = view.record.link_secret.as_deref() else {
            return false;
        };
        tokens
            .iter()
            .any(|token| link::good_until(token, secret, view.id(), port, now).is_some())
    }

    fn failed(&self, id: BoxId, place: &str, answer: &Answer) {
        self.record(id, place, answer.status().as_u16(), answer.text());
    }

    fn record(&self, id: BoxId, place: &str, status: u16, error: String) {
        let now = self.0.commands.clock().now();
        self.0.failures.record(id, place, now, status, error);
    }
}

/// Whether nothing has woken the box yet.
fn sleeps(view: &View) -> bool {
    match &view.sandbox.state {
        State::Frozen(frozen) => !frozen.wake,
        State::Freezing { wake, .. } => !wake,
        State::Starting { .. }
        | State::Ready
        | State::Thawing { .. }
        | State::Releasing { .. }
        | State::Stopping { .. }
        | State::Terminated { .. }
        | State::Interrupted { .. } => false,
    }
}

/// What a URL of a box is for.
#[derive(Clone, Copy)]
struct Found<'a> {
    /// The port of its program in the box; that of the name, if there is none.
    port: u16,
    /// The box that a service leads to, and the port there.
    link: Option<(BoxId, u16)>,
    /// Where a service leads, if to a server elsewhere.
    external: Option<&'a str>,
}

/// What a service, or a port by its number, leads to.
fn find<'a>(view: &'a View, service: &str) -> Result<Found<'a>, Answer> {
    let no = |text: String| Err(Answer::NoService { text });
    let mut services = view.record.services.iter();
    let declared = services.find(|known| known.name == service);
    let found = match declared {
        Some(declared) => Found {
            port: declared.listens_on().unwrap_or(declared.port),
            link: declared.link(),
            external: match &declared.leads {
                Leads::External(url) => Some(url),
                Leads::Own | Leads::OwnAt(_) | Leads::Link { .. } => None,
            },
        },
        None if !service.starts_with(|c: char| c.is_ascii_digit()) => {
            return no(format!("this box has no service `{service}`"));
        }
        None => match service.parse() {
            Ok(port) if port > 0 && !service.starts_with('0') => Found {
                port,
                link: None,
                external: None,
            },
            Ok(_) | Err(_) => return no(format!("`{service}` is no port; ports are 1 to 65535")),
        },
    };
    if found.port == BOXD_PORT {
        // Whoever reaches the daemon can do everything in the box.
        return no(format!(
            "port {BOXD_PORT} is the box's own daemon, which has no URL"
        ));
    }
    Ok(found)
}
