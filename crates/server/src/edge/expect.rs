//! Requests whose clients wait for `100 Continue` before they send the body. Owns how long such a body is held back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http::header::EXPECT;
use http::request::Parts;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

use super::forward::lists;

/// How long a body is held back for the program's `100 Continue`; clients do not wait for ever either.
const CONTINUE_LIMIT: Duration = Duration::from_secs(1);

/// A request whose client waits for `100 Continue`: its body stays where it is until the program asks for it.
pub(super) struct Continue {
    asked: CancellationToken,
}

impl Continue {
    pub(super) fn of(parts: &Parts, body: &Body) -> Option<Self> {
        let waits = lists(&parts.headers, &EXPECT, "100-continue") && !body.is_end_stream();
        waits.then(|| Self {
            asked: CancellationToken::new(),
        })
    }

    pub(super) fn listen(&self, request: &mut Request<Body>) {
        let asked = self.asked.clone();
        hyper::ext::on_informational(request, move |answer| {
            if answer.status().as_u16() == 100 {
                asked.cancel();
            }
        });
    }

    pub(super) fn hold(&self, body: Body) -> Held {
        let asked = self.asked.clone();
        let wait = async move {
            // Programs that know nothing of `Expect` never ask.
            let _ = tokio::time::timeout(CONTINUE_LIMIT, asked.cancelled()).await;
            asked.cancel();
        };
        Held {
            body,
            wait: Some(Box::pin(wait)),
        }
    }

    pub(super) fn may_go(&self) -> bool {
        self.asked.is_cancelled()
    }
}

pub(super) struct Held {
    body: Body,
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl hyper::body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
