//! HTTP to one server. Owns paths, headers, limits and turning answers into types or errors. Knows no verb.

use std::io::{self, Read};
use std::time::Duration;

use icebox_wire::rest::{
    BoxView, ErrorBody, Gap, ListResponse, OUTPUT_GAP_HEADER, OUTPUT_OFFSET_HEADER, ProcsResponse,
};
use icebox_wire::tree::{ARCHIVE_HEADER, MODE_HEADER};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{Method, Request, Response};
use ureq::{Agent, AsSendBody, SendBody};

use crate::error::CliError;
use crate::settings::Server;
use crate::tree::LARGEST;
use crate::trust;

/// How long an answer that needs no work of a box may take.
pub(crate) const READ_LIMIT: Duration = Duration::from_secs(30);
/// How long an answer that starts, freezes, wakes or stops a box may take: a dump alone may take 15 minutes.
pub(crate) const WORK_LIMIT: Duration = Duration::from_secs(1_200);
/// No answer but an output is larger, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// Boxes on one page of a list.
const PAGE: usize = 100;
/// Pages that are looked through for a box.
const MAX_PAGES: usize = 50;

/// One server, and the key for it.
pub(crate) struct Client {
    agent: Agent,
    base: String,
    key: Result<String, String>,
}

/// An answer, as it came.
pub(crate) struct Answer {
    /// The JSON that the server sent.
    pub(crate) text: String,
    url: String,
}

impl Answer {
    /// Reads it as what it should be.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, CliError> {
        serde_json::from_str(&self.text).map_err(|error| CliError::NotUnderstood {
            url: self.url.clone(),
            what: error.to_string(),
        })
    }
}

/// Output of a command, as it comes.
pub(crate) struct Output {
    /// The offset it begins at.
    pub(crate) begins: u64,
    /// What it leaves out, since that is not kept any more.
    gap: Option<Gap>,
    /// The bytes.
    pub(crate) bytes: Box<dyn Read + Send>,
}

impl Output {
    /// The parts it consists of: where each begins, and how many bytes it has at most.
    pub(crate) fn parts(&self) -> Vec<(u64, u64)> {
        match self.gap.filter(|gap| gap.from >= self.begins) {
            Some(gap) => vec![(self.begins, gap.from - self.begins), (gap.to, u64::MAX)],
            None => vec![(self.begins, u64::MAX)],
        }
    }
}

/// A file of a box, or a folder as an archive, as it comes.
pub(crate) struct Content {
    /// Whether it is an archive of a folder.
    pub(crate) archive: bool,
    /// A file's permissions, where the box tells them.
    pub(crate) mode: Option<u32>,
    /// How many bytes come, where that is known.
    pub(crate) length: Option<u64>,
    /// The bytes.
    pub(crate) bytes: Box<dyn Read + Send>,
}

/// Which stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Its name on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// What is sent, and how reading it failed: that would otherwise look like a connection that broke.
struct Source<R> {
    inner: R,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.inner.read(into).inspect_err(|error| {
            // One that asks to be repeated is none.
            if error.kind() != io::ErrorKind::Interrupted {
                self.failed = Some(io::Error::new(error.kind(), error.to_string()));
            }
        })
    }
}

impl Client {
    /// A client for a server.
    pub(crate) fn new(server: Server) -> Self {
        Self {
            agent: server.trust.agent().build().into(),
            base: server.base,
            key: server.key,
        }
    }

    /// Asks for something that is only read.
    pub(crate) fn get(&self, path: &str) -> Result<Answer, CliError> {
        self.answer(self.send(Method::GET, path, None, READ_LIMIT)?)
    }

    /// The same, waiting for at most `limit`.
    pub(crate) fn get_within(&self, path: &str, limit: Duration) -> Result<Answer, CliError> {
        self.answer(self.send(Method::GET, path, None, limit)?)
    }

    /// Asks for something to be done, waiting for at most `limit`.
    pub(crate) fn post(
        &self,
        path: &str,
        body: Option<&impl Serialize>,
        limit: Duration,
    ) -> Result<Answer, CliError> {
        self.answer(self.send(Method::POST, path, json(body)?, limit)?)
    }

    /// Asks for something to be changed or removed that needs no work of a box.
    pub(crate) fn change(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Answer, CliError> {
        self.answer(self.send(method, path, json(body)?, READ_LIMIT)?)
    }

    /// Sends something that is no JSON.
    pub(crate) fn upload(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: impl AsSendBody,
        limit: Duration,
    ) -> Result<Answer, CliError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("content-type", content_type);
        if let Ok(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let request = request.body(body).map_err(|_| CliError::Url {
            url: format!("{}{path}", self.base),
        })?;
        let sent = self.run(request, limit);
        self.answer(sent.map_err(|error| self.failure(error, limit))?)
    }

    /// The same, as it is read.
    pub(crate) fn upload_from(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        source: impl Read,
        limit: Duration,
    ) -> Result<Answer, CliError> {
        let mut source = Source {
            inner: source,
            failed: None,
        };
        let body = SendBody::from_reader(&mut source);
        let answer = self.upload(method, path, content_type, body, limit);
        match source.failed {
            Some(error) => Err(CliError::io("read what is to be sent")(error)),
            None => answer,
        }
    }

    /// Fetches what a path of a box names, as it comes.
    pub(crate) fn download(&self, id: &str, path: &str) -> Result<Content, CliError> {
        let path = format!("/v1/boxes/{id}/files?path={}", escaped(path));
        // It wakes a frozen box first.
        let response = self.send(Method::GET, &path, None, WORK_LIMIT)?;
        if !response.status().is_success() {
            return Err(self.refusal(response));
        }
        let header = |name| response.headers().get(name).and_then(|v| v.to_str().ok());
        Ok(Content {
            archive: header(ARCHIVE_HEADER) == Some("true"),
            mode: header(MODE_HEADER).and_then(|mode| u32::from_str_radix(mode, 8).ok()),
            length: header("content-length").and_then(|length| length.parse().ok()),
            bytes: Box::new(
                response
                    .into_body()
                    .into_with_config()
                    .limit(LARGEST)
                    .reader(),
            ),
        })
    }

    /// One box.
    pub(crate) fn get_box(&self, id: &str) -> Result<(BoxView, Answer), CliError> {
        let answer = self.get(&format!("/v1/boxes/{id}"))?;
        Ok((answer.read()?, answer))
    }

    /// The commands of a box, newest first.
    pub(crate) fn procs(&self, id: &str) -> Result<(ProcsResponse, Answer), CliError> {
        // It wakes a frozen box first.
        let path = format!("/v1/boxes/{id}/procs");
        let answer = self.answer(self.send(Method::GET, &path, None, WORK_LIMIT)?)?;
        Ok((answer.read()?, answer))
    }

    /// Every box, most recently used first; stopped ones too with `all`. `None`: there are too many.
    pub(crate) fn every_box(&self, all: bool) -> Result<Option<Vec<BoxView>>, CliError> {
        let mut boxes = Vec::new();
        let mut cursor = String::new();
        for _ in 0..MAX_PAGES {
            let answer = self.get(&list_path(all, PAGE, &cursor))?;
            let page: ListResponse = answer.read()?;
            boxes.extend(page.boxes);
            match page.next_cursor {
                Some(next) => cursor = next,
                None => return Ok(Some(boxes)),
            }
        }
        Ok(None)
    }

    /// A command's output from `offset` on. With `follow` it goes on until the command's end.
    pub(crate) fn output(
        &self,
        output_url: &str,
        stream: Stream,
        offset: u64,
        follow: bool,
    ) -> Result<Output, CliError> {
        // Behind the address anything else could turn it into another one.
        if !output_url.starts_with('/') {
            return Err(CliError::NotUnderstood {
                url: self.base.clone(),
                what: format!("the output is said to be at `{output_url}`"),
            });
        }
        let (stream, follow) = (stream.as_str(), u8::from(follow));
        let path = format!("{output_url}?stream={stream}&offset={offset}&follow={follow}");
        let response = self.send(Method::GET, &path, None, WORK_LIMIT)?;
        if !response.status().is_success() {
            return Err(self.refusal(response));
        }
        let header = |name| response.headers().get(name).and_then(|v| v.to_str().ok());
        let begins = header(OUTPUT_OFFSET_HEADER).and_then(|v| v.parse().ok());
        let gap = header(OUTPUT_GAP_HEADER).and_then(|v| {
            let (from, to) = v.split_once('-')?;
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            Some(Gap { from, to })
        });
        Ok(Output {
            begins: begins.unwrap_or(offset),
            gap,
            bytes: Box::new(response.into_body().into_reader()),
        })
    }

    /// A connection that broke while an output was read.
    pub(crate) fn lost(&self, error: io::Error) -> CliError {
        CliError::Lost {
            url: self.base.clone(),
            source: error,
        }
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        limit: Duration,
    ) -> Result<Response<ureq::Body>, CliError> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        if let Ok(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let sent = match body {
            Some(body) => {
                let request = request
                    .header("content-type", "application/json")
                    .body(body);
                request.map(|request| self.run(request, limit))
            }
            None => request.body(()).map(|request| self.run(request, limit)),
        };
        let sent = sent.map_err(|_| CliError::Url {
            url: format!("{}{path}", self.base),
        })?;
        sent.map_err(|error| self.failure(error, limit))
    }

    fn run(
        &self,
        request: Request<impl AsSendBody>,
        limit: Duration,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        let request = self
            .agent
            .configure_request(request)
            .timeout_recv_response(Some(limit));
        self.agent.run(request.build())
    }

    fn failure(&self, source: ureq::Error, limit: Duration) -> CliError {
        let url = self.base.clone();
        if matches!(source, ureq::Error::Timeout(ureq::Timeout::RecvResponse)) {
            let limit_s = limit.as_secs();
            return CliError::NoAnswer { url, limit_s };
        }
        let unreachable = matches!(
            &source,
            ureq::Error::HostNotFound
                | ureq::Error::ConnectionFailed
                | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
        ) || matches!(&source, ureq::Error::Io(error) if is_refused(error));
        if let Some(trouble) = trust::trouble(&source) {
            let unknown = matches!(trouble, rustls::Error::InvalidCertificate(_));
            let why = trouble.to_string();
            return CliError::NoTls { url, why, unknown };
        }
        let source = source.into_io();
        if unreachable {
            CliError::Unreachable { url, source }
        } else {
            CliError::Lost { url, source }
        }
    }

    fn answer(&self, response: Response<ureq::Body>) -> Result<Answer, CliError> {
        if !response.status().is_success() {
            return Err(self.refusal(response));
        }
        let (_, mut body) = response.into_parts();
        let text = body.with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        let text = text.map_err(|error| self.lost(error.into_io()))?;
        Ok(Answer {
            text,
            url: self.base.clone(),
        })
    }

    /// What an answer that is not a success says.
    fn refusal(&self, response: Response<ureq::Body>) -> CliError {
        let (head, mut body) = response.into_parts();
        if let (401, Err(why)) = (head.status.as_u16(), &self.key) {
            return CliError::NoKey(why.clone());
        }
        let retry_after = head.headers.get("retry-after");
        let retry_after = retry_after.and_then(|v| Some(v.to_str().ok()?.to_owned()));
        let text = body
            .with_config()
            .limit(MAX_ANSWER_BYTES)
            .lossy_utf8(true)
            .read_to_string();
        match serde_json::from_str::<ErrorBody>(&text.unwrap_or_default()) {
            Ok(body) => CliError::Api { body, retry_after },
            Err(_) => CliError::NotUnderstood {
                url: self.base.clone(),
                what: format!("HTTP status {}", head.status),
            },
        }
    }
}

fn json(body: Option<&impl Serialize>) -> Result<Option<String>, CliError> {
    let body = body.map(serde_json::to_string).transpose();
    body.map_err(|error| CliError::Usage(format!("cannot send that: {error}")))
}

/// The path of one page of a list.
pub(crate) fn list_path(all: bool, limit: usize, cursor: &str) -> String {
    let mut path = format!("/v1/boxes?limit={limit}");
    if all {
        path.push_str("&all=1");
    }
    if !cursor.is_empty() {
        path.push_str("&cursor=");
        path.push_str(&escaped(cursor));
    }
    path
}

/// A value as it goes into a path or a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn is_refused(error: &io::Error) -> bool {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    [
        ConnectionRefused,
        HostUnreachable,
        NetworkUnreachable,
        AddrNotAvailable,
        TimedOut,
    ]
    .contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_cannot_add_parameters() {
        assert_eq!(
            list_path(true, 5, "a&b=c d"),
            "/v1/boxes?limit=5&all=1&cursor=a%26b%3Dc%20d"
        );
        assert_eq!(list_path(false, 100, ""), "/v1/boxes?limit=100");
    }
}
