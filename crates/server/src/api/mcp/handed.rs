//! What an answer hands over once: it counts as arrived when the connection has taken the answer to its end, and waits for
//! the next one when the connection breaks before.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::{Frame, SizeHint};

use crate::commands::Receipt;

/// What one answer hands over. Clones are the same.
#[derive(Clone)]
pub(super) struct Handed(Arc<Mutex<Option<Vec<Receipt>>>>);

impl Default for Handed {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(Vec::new()))))
    }
}

impl Handed {
    /// The answer has this, too. Nothing comes of it when the answer is over, for then nobody reads it.
    pub(super) fn add(&self, receipt: Receipt) {
        if let Some(receipts) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            receipts.push(receipt);
        }
    }

    /// The body of the answer, which sees how far it gets.
    pub(super) fn with(self, inner: BoxBody<Bytes, Infallible>) -> Body {
        Body::new(Seen {
            inner,
            handed: self,
        })
    }

    fn over(&self) -> Vec<Receipt> {
        let receipts = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        receipts.unwrap_or_default()
    }
}

struct Seen {
    inner: BoxBody<Bytes, Infallible>,
    handed: Handed,
}

impl hyper::body::Body for Seen {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if frame.is_none() || self.inner.is_end_stream() {
            self.handed.over().into_iter().for_each(Receipt::arrived);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        drop(self.handed.over());
    }
}
