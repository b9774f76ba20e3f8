//! The WebSocket of a terminal: opens it over TCP or TLS, with the same trust and key as every other call, and turns what
//! goes wrong on the way into the errors of other calls.

use std::io;
use std::sync::Arc;

use icebox_wire::rest::ErrorBody;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{self, handshake::client::Request};
use ureq::http::Uri;

use crate::client::WORK_LIMIT;
use crate::error::CliError;
use crate::settings::Server;
use crate::trust::CONNECT_LIMIT;

/// What lies below a WebSocket.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An open one.
pub(super) type Socket = WebSocketStream<Box<dyn Stream>>;

/// Opens a terminal of this size in a box.
pub(super) async fn open(
    server: &Server,
    id: &str,
    (cols, rows): (u16, u16),
) -> Result<Socket, CliError> {
    let path = format!("/v1/boxes/{id}/terminal?cols={cols}&rows={rows}");
    let request = request(server, &path)?;
    let stream = connect(server, request.uri()).await?;
    // It wakes a frozen box first.
    let opening = tokio_tungstenite::client_async(request, stream);
    match timeout(WORK_LIMIT, opening).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(error)) => Err(refusal(server, error)),
        Err(_) => Err(CliError::NoAnswer {
            url: server.base.clone(),
            limit_s: WORK_LIMIT.as_secs(),
        }),
    }
}

fn request(server: &Server, path: &str) -> Result<Request, CliError> {
    let wrong = || CliError::Url {
        url: server.base.clone(),
    };
    // `http` becomes `ws`, and `https` `wss`.
    let rest = server.base.strip_prefix("http").ok_or_else(wrong)?;
    let request = format!("ws{rest}{path}").into_client_request();
    let mut request = request.map_err(|_| wrong())?;
    if let Ok(key) = &server.key {
        let value = format!("Bearer {key}").parse().map_err(|_| wrong())?;
        request.headers_mut().insert("authorization", value);
    }
    Ok(request)
}

async fn connect(server: &Server, uri: &Uri) -> Result<Box<dyn Stream>, CliError> {
    let host = uri.host().unwrap_or_default();
    // An address of version 6 has brackets in a URL alone.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let config = server.trust.tls();
    let usual = if config.is_some() { 443 } else { 80 };
    let port = uri.port_u16().unwrap_or(usual);
    let unreachable = |source: io::Error| CliError::Unreachable {
        url: server.base.clone(),
        source,
    };
    let connecting = timeout(CONNECT_LIMIT, TcpStream::connect((host, port))).await;
    let stream = connecting.map_err(|_| unreachable(io::ErrorKind::TimedOut.into()))?;
    let stream = stream.map_err(unreachable)?;
    // Keys are small, and somebody waits for each.
    stream.set_nodelay(true).map_err(unreachable)?;
    let Some(config) = config else {
        return Ok(Box::new(stream));
    };
    let no_tls = |why: String| CliError::NoTls {
        url: server.base.clone(),
        why,
        unknown: true,
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|error| no_tls(error.to_string()))?;
    let connecting = TlsConnector::from(Arc::new(config?)).connect(name, stream);
    let stream = timeout(CONNECT_LIMIT, connecting).await;
    let stream = stream.map_err(|_| unreachable(io::ErrorKind::TimedOut.into()))?;
    Ok(Box::new(stream.map_err(|error| no_tls(error.to_string()))?))
}

/// Why there is no WebSocket.
fn refusal(server: &Server, error: tungstenite::Error) -> CliError {
    let url = server.base.clone();
    let tungstenite::Error::Http(response) = error else {
        let source = io::Error::other(error.to_string());
        return CliError::Lost { url, source };
    };
    let (head, body) = response.into_parts();
    if let (401, Err(why)) = (head.status.as_u16(), &server.key) {
        return CliError::NoKey(why.clone());
    }
    match serde_json::from_slice::<ErrorBody>(&body.unwrap_or_default()) {
        Ok(body) => CliError::Api {
            body,
            retry_after: None,
        },
        Err(_) => CliError::NotUnderstood {
            url,
            what: format!("HTTP status {}", head.status),
        },
    }
}
