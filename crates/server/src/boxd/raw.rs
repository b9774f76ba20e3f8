//! Plain HTTP to a box's daemon, for what streams: one connection a request, gone with it.

use std::io;

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderValue, Request, Response, header};
use http_body_util::StreamBody;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use icebox_lifecycle::BoxId;

use super::Boxds;
use crate::driver::BOXD_PORT;

/// What is sent.
pub type Sending = UnsyncBoxBody<Bytes, io::Error>;

/// Nothing to send.
#[must_use]
pub fn nothing() -> Sending {
    use http_body_util::{BodyExt as _, Empty};
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Sends pieces as they come. An error ends the request in its middle.
pub fn pieces(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Sending {
    use futures_util::StreamExt as _;
    UnsyncBoxBody::new(StreamBody::new(pieces.map(|piece| piece.map(Frame::data))))
}

impl Boxds {
    /// Sends a request to a running box's daemon; the answer's body is read as it comes.
    pub async fn raw(
        &self,
        id: BoxId,
        mut request: Request<Sending>,
    ) -> io::Result<Response<Incoming>> {
        let stream = self.driver.connect(id, BOXD_PORT).await;
        let stream = stream.map_err(|error| io::Error::other(error.to_string()))?;
        let connecting = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = connecting.await.map_err(io::Error::other)?;
        tokio::spawn(async move {
            // Whoever reads the answer sees the same error.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a daemon ended early");
            }
        });
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static("boxd"));
        sender.send_request(request).await.map_err(io::Error::other)
    }
}
