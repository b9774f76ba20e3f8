//! Refuses requests whose end is a matter of opinion: both `Content-Length` and `Transfer-Encoding`, either of them twice,
//! or in a form that others might read differently (request smuggling). The HTTP library repairs some of these in silence;
//! this looks at the bytes before it does, and spoils such a head, so that the answer is 400 and the connection ends.
//!
//! A connection whose first bytes do not come ends here, too: the library waits for them for ever, to learn which version
//! of HTTP it is.
//!
//! Owns nothing else of HTTP: what it does not understand goes on as it is, for the library refuses it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::listen::{HEAD_SIZE, MOST_HEADERS};

/// What no head may contain; the library refuses it.
const SPOILED: &[u8] = b"\0\r\n\r\n";
/// How HTTP/2 begins.
const HTTP2: &[u8] = b"PRI * HTTP/2.0";
/// All that comes before it says anything.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The longest line that says how long a chunk is.
const SIZE_LINE: usize = 4 * 1024;

/// Whether a field could be taken for another one: by whoever reads `_` as `-` and then finds two ends of the body, or in
/// HTTP/2 by whoever strips what it forbids around a value (RFC 9113, section 8.2.1).
pub(super) fn is_doubtful<B>(request: &Request<B>) -> bool {
    let blank = |byte: Option<&u8>| byte.is_some_and(|byte| b" \t".contains(byte));
    let headers = request.headers();
    let padded = request.version() == Version::HTTP_2
        && headers.values().any(|value| {
            let value = value.as_bytes();
            blank(value.first()) || blank(value.last())
        });
    padded || headers.keys().any(|name| looks_like_an_end(name.as_str()))
}

/// Whether a name differs from those of the fields that say where a body ends by nothing but what is between the words.
fn looks_like_an_end(name: &str) -> bool {
    [["content", "length"], ["transfer", "encoding"]]
        .iter()
        .any(|[first, second]| {
            let between = name
                .strip_prefix(first)
                .and_then(|rest| rest.strip_suffix(second));
            between.is_some_and(|between| {
                between != "-" && between.bytes().all(|byte| b"-_".contains(&byte))
            })
        })
}

/// A connection whose requests are looked at as they come in.
pub(super) struct Framed<S> {
    stream: S,
    watch: Watch,
    /// To be read instead of what came.
    instead: &'static [u8],
    /// There until it shows which version of HTTP this is.
    opening: Option<Opening>,
}

/// The first bytes of a connection.
struct Opening {
    limit: Pin<Box<Sleep>>,
    /// So many of them are those of [`PREFACE`].
    matched: usize,
}

impl Opening {
    /// Whether the version is known with these bytes.
    fn is_over(&mut self, came: &[u8]) -> bool {
        let expected = &PREFACE[self.matched..];
        self.matched += came.len();
        came.len() >= expected.len() || !expected.starts_with(came)
    }
}

impl<S> Framed<S> {
    /// The first bytes have to come within `limit`.
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self {
            stream,
            watch: Watch::Head(Vec::new()),
            instead: &[],
            opening: Some(Opening {
                limit: Box::pin(tokio::time::sleep(limit)),
                matched: 0,
            }),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.instead.is_empty() {
            let before = buf.filled().len();
            if Pin::new(&mut self.stream).poll_read(cx, buf)?.is_pending() {
                let Some(opening) = &mut self.opening else {
                    return Poll::Pending;
                };
                ready!(opening.limit.as_mut().poll(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let came = &buf.filled()[before..];
            if self
                .opening
                .as_mut()
                .is_some_and(|opening| opening.is_over(came))
            {
                self.opening = None;
            }
            let good = self.watch.see(&buf.filled()[before..]);
            match good {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(Spoil { good }) => {
                    buf.set_filled(before + good);
                    self.instead = SPOILED;
                    self.watch = Watch::Off;
                }
            }
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
        let some = self.instead.len().min(buf.remaining());
        let (now, later) = self.instead.split_at(some);
        buf.put_slice(now);
        self.instead = later;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where in the requests the connection is.
#[derive(Debug, PartialEq, Eq)]
enum Watch {
    /// In a head, of which this came already.
    Head(Vec<u8>),
    /// In a body of which so many bytes are missing.
    Body(u64),
    /// In a chunked body.
    Chunks(Chunks),
    /// It carries something else now, or something that the library refuses.
    Off,
}

#[derive(Debug, PartialEq, Eq)]
enum Chunks {
    /// In the line with a chunk's size.
    Size(Vec<u8>),
    /// In a chunk and the line end after it, of which so many bytes are missing.
    Data(u64),
    /// In the lines after the last chunk; this much of the current one came.
    Trailers(usize),
}

/// A head is no good. So many bytes of what came belong to what was before it.
struct Spoil {
    good: usize,
}

impl Watch {
    /// Takes note of bytes that came.
    fn see(&mut self, came: &[u8]) -> Result<(), Spoil> {
        let mut rest = came;
        while !rest.is_empty() && *self != Self::Off {
            let good = came.len() - rest.len();
            rest = match self {
                Self::Head(before) => {
                    let had = before.len();
                    let seen = if had == 0 {
                        head(rest)
                    } else {
                        before.extend_from_slice(rest);
                        head(before)
                    };
                    match seen {
                        Head::Partial if had + rest.len() > HEAD_SIZE => {
                            *self = Self::Off;
                            return Ok(());
                        }
                        Head::Partial => {
                            if had == 0 {
                                before.extend_from_slice(rest);
                            }
                            return Ok(());
                        }
                        Head::Bad => return Err(Spoil { good }),
                        Head::Whole { len, next } => {
                            *self = next;
                            &rest[len - had..]
                        }
                    }
                }
                Self::Body(missing) => {
                    let rest = skip(rest, missing);
                    if *missing == 0 {
                        *self = Self::Head(Vec::new());
                    }
                    rest
                }
                Self::Chunks(chunks) => match chunks.see(rest) {
                    (rest, Step::Goes) => rest,
                    (rest, Step::Ends) => {
                        *self = Self::Head(Vec::new());
                        rest
                    }
                    (rest, Step::Odd) => {
                        *self = Self::Off;
                        rest
                    }
                },
                Self::Off => return Ok(()),
            };
        }
        Ok(())
    }
}

enum Step {
    Goes,
    Ends,
    Odd,
}

impl Chunks {
    fn see<'b>(&mut self, bytes: &'b [u8]) -> (&'b [u8], Step) {
        match self {
            Self::Size(line) => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let (now, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                line.extend_from_slice(now);
                if line.len() > SIZE_LINE {
                    return (rest, Step::Odd);
                }
                if end.is_none() {
                    return (rest, Step::Goes);
                }
                match size(line) {
                    Some(0) => *self = Self::Trailers(0),
                    Some(size) => *self = Self::Data(size.saturating_add(2)),
                    None => return (rest, Step::Odd),
                }
                (rest, Step::Goes)
            }
            Self::Data(missing) => {
                let rest = skip(bytes, missing);
                if *missing == 0 {
                    *self = Self::Size(Vec::new());
                }
                (rest, Step::Goes)
            }
            Self::Trailers(line) => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let (now, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                let visible = now.iter().filter(|byte| !b"\r\n".contains(byte)).count();
                *line += visible;
                match (end, *line) {
                    (None, _) => (rest, Step::Goes),
                    (Some(_), 0) => (rest, Step::Ends),
                    (Some(_), _) => {
                        *line = 0;
                        (rest, Step::Goes)
                    }
                }
            }
        }
    }
}

/// Passes over what is missing, as far as it is there.
fn skip<'b>(bytes: &'b [u8], missing: &mut u64) -> &'b [u8] {
    let there = usize::try_from(*missing).map_or(bytes.len(), |missing| missing.min(bytes.len()));
    *missing -= there as u64;
    &bytes[there..]
}

/// The size that such a line says.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    let digits = std::str::from_utf8(digits).ok()?;
    let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !hex || digits.is_empty() {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

enum Head {
    Partial,
    Bad,
    /// So long, and what comes after it.
    Whole {
        len: usize,
        next: Watch,
    },
}

fn head(bytes: &[u8]) -> Head {
    if HTTP2.starts_with(bytes) {
        return Head::Partial;
    }
    if bytes.starts_with(HTTP2) {
        return Head::Whole {
            len: bytes.len(),
            next: Watch::Off,
        };
    }
    let mut fields = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => Head::Partial,
        Ok(httparse::Status::Complete(len)) => match after(&request) {
            Some(next) => Head::Whole { len, next },
            None => Head::Bad,
        },
        // The library says what is wrong with it.
        Err(_) => Head::Whole {
            len: bytes.len(),
            next: Watch::Off,
        },
    }
}

/// What comes after a head; `None` when that is a matter of opinion.
fn after(request: &httparse::Request<'_, '_>) -> Option<Watch> {
    let of = |name: &str| {
        let fields = request.headers.iter();
        let named = fields.filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value).collect::<Vec<_>>()
    };
    let (lengths, codings, hosts) = (of("content-length"), of("transfer-encoding"), of("host"));
    if hosts.len() > 1 {
        return None;
    }
    let body = match (&lengths[..], &codings[..]) {
        ([], []) => Watch::Head(Vec::new()),
        ([length], []) => {
            let digits = length.iter().all(u8::is_ascii_digit) && !length.is_empty();
            let length = std::str::from_utf8(length).ok().filter(|_| digits)?;
            match length.parse().ok()? {
                0 => Watch::Head(Vec::new()),
                missing => Watch::Body(missing),
            }
        }
        ([], [coding]) => {
            let chunked = coding.eq_ignore_ascii_case(b"chunked") && request.version == Some(1);
            chunked.then_some(())?;
            Watch::Chunks(Chunks::Size(Vec::new()))
        }
        _ => return None,
    };
    let leaves_http = !of("upgrade").is_empty() || request.method == Some("CONNECT");
    Some(if leaves_http { Watch::Off } else { body })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the library gets to read of these bytes, `step` at a time.
    fn passes(bytes: &[u8], step: usize) -> (Vec<u8>, bool) {
        let mut watch = Watch::Head(Vec::new());
        let mut read = Vec::new();
        for piece in bytes.chunks(step) {
            match watch.see(piece) {
                Ok(()) => read.extend_from_slice(piece),
                Err(Spoil { good }) => {
                    read.extend_from_slice(&piece[..good]);
                    return (read, false);
                }
            }
        }
        (read, true)
    }

    #[tokio::test]
    async fn the_version_shows_with_the_first_byte_that_differs() {
        for (pieces, over) in [
            (&["G"][..], true),
            (&["PRI", "X"], true),
            (&["POST"], true),
            (&["P", "RI * HTTP/2.0\r\n"], false),
            (&["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore"], true),
            (&["PRI * HTTP/2.0\r\n\r\n", "SM\r\n\r\n"], true),
        ] {
            let mut opening = Opening {
                limit: Box::pin(tokio::time::sleep(Duration::ZERO)),
                matched: 0,
            };
            let (last, first) = pieces.split_last().unwrap();
            for piece in first {
                assert!(!opening.is_over(piece.as_bytes()), "{pieces:?}");
            }
            assert_eq!(opening.is_over(last.as_bytes()), over, "{pieces:?}");
        }
    }

    const NEXT: &str =
        "GET /next HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn bodies_are_passed_over_and_what_follows_is_looked_at() {
        let table = [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\na;x=y\r\n0\r\n\r\n12345\r\n0\r\nT: v\r\nU: w\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ];
        for good in table {
            for step in [1, 2, 3, 7, 1_000] {
                let (read, whole) = passes(good.repeat(2).as_bytes(), step);
                assert!(whole && read == good.repeat(2).as_bytes(), "{step}: {good}");
                let followed = format!("{good}{NEXT}");
                let (read, whole) = passes(followed.as_bytes(), step);
                assert!(!whole, "{step}: what follows {good} goes unseen");
                assert!(read.starts_with(good.as_bytes()), "{step}: {good}");
                assert!(read.len() < followed.len(), "{step}: {good}");
            }
        }
    }

    #[test]
    fn heads_that_can_be_read_in_two_ways_are_spoiled() {
        let table = [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5, 5",
            "Content-Length: +5",
            "Content-Length: 0x5",
            "Content-Length: -1",
            "Content-Length:",
            "Content-Length: 99999999999999999999",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: \"chunked\"",
            "Transfer-Encoding:",
            "tRANSFER-eNCODING: chunked\r\ncONTENT-lENGTH: 0",
            "Host: b",
        ];
        for fields in table {
            let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\nhello");
            for step in [1, 5, 1_000] {
                let (read, whole) = passes(request.as_bytes(), step);
                assert!(!whole && read.len() < request.len() - 5, "{step}: {fields}");
            }
        }
        let old = "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        assert!(!passes(old.as_bytes(), 1_000).1);
    }

    #[test]
    fn what_is_not_requests_is_left_alone() {
        let table = [
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\u{81}\0\0\0",
            "nonsense\r\n\r\n",
        ];
        for other in table {
            for step in [1, 4, 1_000] {
                let bytes = format!("{other}{NEXT}");
                assert!(passes(bytes.as_bytes(), step).1, "{step}: {other}");
            }
        }
    }
}
