//! `GET /files`: downloads, whole or a range, packed when the client asks for that.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::acting::Acting;
use super::path::resolve;
use super::refusal::refuse;
use super::{Transfers, on_thread, refusal};
use crate::error::Error;

/// What one piece of a body holds.
const PIECE_BYTES: u64 = 256 * 1024;

/// How many pieces wait for the connection.
const PIECES: usize = 4;

/// The handler.
pub(crate) async fn send(
    State(transfers): State<Arc<Transfers>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    match download(&transfers, &query, &headers).await {
        Ok(answer) => answer,
        Err(error) => refusal(&error),
    }
}

async fn download(
    transfers: &Transfers,
    query: &HashMap<String, String>,
    headers: &HeaderMap,
) -> Result<Response, Error> {
    let user = transfers
        .settings
        .now()
        .user(query.get("username").map(String::as_str))?;
    let acting = Acting::new(user, &transfers.settings);
    let path = query.get("path").map_or("", String::as_str);
    let path = resolve(path, &acting)?;
    let Some(coding) = coding(headers) else {
        return Ok(refuse(
            StatusCode::NOT_ACCEPTABLE,
            "Accept-Encoding rules out both identity and gzip",
        ));
    };
    let turn = transfers.turn().await?;
    let opened = path.clone();
    let (file, len) = acting.aside(move || open(&opened)).await?;
    let asked = match coding {
        Coding::Identity if len > 0 => asked_range(headers, len),
        Coding::Identity | Coding::Gzip => Asked::All,
    };
    let range = match asked {
        Asked::All => 0..len,
        Asked::Part(ref range) => range.clone(),
        Asked::Nothing => {
            let mut answer = refuse(
                StatusCode::RANGE_NOT_SATISFIABLE,
                &format!("the file has {len} bytes, and none of them is in the range"),
            );
            set(
                &mut answer,
                header::CONTENT_RANGE,
                &format!("bytes */{len}"),
            );
            return Ok(answer);
        }
    };
    let body = body(file, range.clone(), coding, turn)?;
    let mut answer = Response::new(body);
    describe(&mut answer, &path, coding);
    if coding == Coding::Identity && len > 0 {
        let length = range.end - range.start;
        set(&mut answer, header::CONTENT_LENGTH, &length.to_string());
    }
    if let Asked::Part(range) = asked {
        *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
        let part = format!("bytes {}-{}/{len}", range.start, range.end - 1);
        set(&mut answer, header::CONTENT_RANGE, &part);
    }
    Ok(answer)
}

/// Opens a file for reading; only a file: opening other things can block or do something.
fn open(path: &Path) -> Result<(File, u64), Error> {
    let meta = fs::metadata(path).map_err(Error::file("read", path))?;
    if !meta.is_file() {
        let kind = if meta.is_dir() {
            "a directory"
        } else {
            "not a file"
        };
        return Err(Error::BadRequest(format!("{} is {kind}", path.display())));
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(Error::file("read", path))?;
    let meta = file.metadata().map_err(Error::file("read", path))?;
    if !meta.is_file() {
        return Err(Error::BadRequest(format!(
            "{} is not a file",
            path.display()
        )));
    }
    Ok((file, meta.len()))
}

fn describe(answer: &mut Response, path: &Path, coding: Coding) {
    set(answer, header::CONTENT_TYPE, "application/octet-stream");
    // The content is whatever the box holds: a browser must not take it for a page.
    set(answer, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(answer, header::CONTENT_DISPOSITION, &disposition(path));
    set(answer, header::VARY, "Accept-Encoding");
    match coding {
        Coding::Identity => set(answer, header::ACCEPT_RANGES, "bytes"),
        Coding::Gzip => set(answer, header::CONTENT_ENCODING, "gzip"),
    }
}

fn set(answer: &mut Response, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// Names the file for those that save it; the second form is for names that are not plain ASCII.
fn disposition(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\') || c == ' ';
    if name.chars().all(plain) {
        return format!("inline; filename=\"{name}\"");
    }
    let ascii: String = name
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    let encoded: String = name
        .bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'-' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect();
    format!("inline; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}

/// How the content is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
}

/// What the client takes. Most list gzip by habit, which says nothing about what they want over a fast connection; one
/// that lists nothing else, or rules everything else out, gets it. None when it takes neither.
fn coding(headers: &HeaderMap) -> Option<Coding> {
    let mut quality: HashMap<String, f32> = HashMap::new();
    let listed = headers.get_all(header::ACCEPT_ENCODING);
    let listed = listed.iter().filter_map(|value| value.to_str().ok());
    for item in listed.flat_map(|value| value.split(',')) {
        let mut parts = item.split(';');
        let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let q = parts.find_map(|part| part.trim().strip_prefix("q=")?.trim().parse().ok());
        if !name.is_empty() {
            quality.insert(name, q.unwrap_or(1.0));
        }
    }
    let of = |name: &str| quality.get(name).or_else(|| quality.get("*")).copied();
    let gzip = of("gzip").is_some_and(|q| q > 0.0);
    let identity = of("identity").is_none_or(|q| q > 0.0);
    let only_gzip = quality.keys().all(|name| name == "gzip");
    match (gzip, identity) {
        (true, false) => Some(Coding::Gzip),
        (true, true) if only_gzip => Some(Coding::Gzip),
        (_, true) => Some(Coding::Identity),
        (false, false) => None,
    }
}

/// What a request wants of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    All,
    Part(Range<u64>),
    /// A range that holds none of its bytes.
    Nothing,
}

/// Reads `Range`. Several ranges, other units and conditions on a state we do not name get the whole file, as they may.
fn asked_range(headers: &HeaderMap, len: u64) -> Asked {
    if headers.contains_key(header::IF_RANGE) {
        return Asked::All;
    }
    let range = headers
        .get(header::RANGE)
        .and_then(|value| value.to_str().ok());
    let Some((first, last)) = range
        .and_then(|range| range.strip_prefix("bytes="))
        .and_then(|range| range.trim().split_once('-'))
    else {
        return Asked::All;
    };
    let part = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(len),
        (Ok(first), Err(_)) if last.is_empty() => first..len,
        (Err(_), Ok(count)) if first.is_empty() => len.saturating_sub(count)..len,
        _ => return Asked::All,
    };
    if part.is_empty() {
        Asked::Nothing
    } else {
        Asked::Part(part)
    }
}

/// The content as a stream that a thread fills. Of a file of no size all is sent that can be read: those of the kernel
/// have content all the same.
fn body(
    mut file: File,
    range: Range<u64>,
    coding: Coding,
    turn: OwnedSemaphorePermit,
) -> Result<Body, Error> {
    let (pieces, mut taken) = mpsc::channel(PIECES);
    on_thread("boxd-download", move || {
        let _until_the_end = turn;
        let mut out = Pieces(pieces);
        let sent = file
            .seek(SeekFrom::Start(range.start))
            .and_then(|_| match coding {
                Coding::Identity => copy(&mut file, &range, |piece| out.send(Ok(piece))),
                Coding::Gzip => pack(&mut file, &range, &mut out),
            });
        if let Err(error) = sent {
            // The client must not take what it has for the whole. It may be gone, too.
            drop(out.send(Err(error)));
        }
    })?;
    let pieces = stream::poll_fn(move |context| taken.poll_recv(context));
    Ok(Body::from_stream(pieces))
}

/// Reads the range in pieces. One that ends early is an error: its length was promised.
fn copy(
    file: &mut File,
    range: &Range<u64>,
    mut send: impl FnMut(Bytes) -> io::Result<()>,
) -> io::Result<()> {
    let whole = range.end == 0;
    let mut left = if whole {
        u64::MAX
    } else {
        range.end - range.start
    };
    while left > 0 {
        let want = left.min(PIECE_BYTES);
        let mut piece = Vec::with_capacity(usize::try_from(want).unwrap_or_default());
        Read::take(&mut *file, want).read_to_end(&mut piece)?;
        match piece.len() {
            0 if whole => return Ok(()),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => left -= len as u64,
        }
        send(Bytes::from(piece))?;
    }
    Ok(())
}

fn pack(file: &mut File, range: &Range<u64>, out: &mut Pieces) -> io::Result<()> {
    let buffered = io::BufWriter::with_capacity(PIECE_BYTES as usize, out);
    let mut encoder = GzEncoder::new(buffered, Compression::fast());
    copy(file, range, |piece| encoder.write_all(&piece))?;
    encoder.finish()?.flush()
}

/// The queue to the connection.
struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Pieces {
    fn send(&mut self, piece: io::Result<Bytes>) -> io::Result<()> {
        let sent = self.0.blocking_send(piece);
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Pieces {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.send(Ok(Bytes::copy_from_slice(data)))?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: header::HeaderName, value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).expect("a value");
        HeaderMap::from_iter([(name, value)])
    }

    #[test]
    fn ranges() {
        for (range, asked) in [
            ("bytes=0-3", Asked::Part(0..4)),
            ("bytes=4-", Asked::Part(4..10)),
            ("bytes=-3", Asked::Part(7..10)),
            ("bytes=-30", Asked::Part(0..10)),
            ("bytes=8-99", Asked::Part(8..10)),
            ("bytes=9-18446744073709551615", Asked::Part(9..10)),
            ("bytes=10-", Asked::Nothing),
            ("bytes=99-100", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=3-1", Asked::All),
            ("bytes=0-1,4-5", Asked::All),
            ("bytes=-", Asked::All),
            ("bytes=x-1", Asked::All),
            ("lines=0-3", Asked::All),
        ] {
            assert_eq!(
                asked_range(&with(header::RANGE, range), 10),
                asked,
                "{range}"
            );
        }
        let mut conditional = with(header::RANGE, "bytes=0-3");
        conditional.insert(header::IF_RANGE, HeaderValue::from_static("\"x\""));
        assert_eq!(asked_range(&conditional, 10), Asked::All);
    }

    #[test]
    fn codings() {
        for (accept, chosen) in [
            ("", Some(Coding::Identity)),
            ("gzip", Some(Coding::Gzip)),
            ("GZIP;q=0.5", Some(Coding::Gzip)),
            ("gzip, deflate, br, zstd", Some(Coding::Identity)),
            ("gzip;q=0", Some(Coding::Identity)),
            ("identity;q=0, gzip", Some(Coding::Gzip)),
            ("br, *;q=0", None),
            ("identity;q=0", None),
            ("*", Some(Coding::Identity)),
            ("*, identity;q=0", Some(Coding::Gzip)),
        ] {
            let headers = with(header::ACCEPT_ENCODING, accept);
            assert_eq!(coding(&headers), chosen, "{accept:?}");
        }
        assert_eq!(coding(&HeaderMap::new()), Some(Coding::Identity));
    }

    #[test]
    fn names_of_all_kinds_are_told() {
        for (path, told) in [
            ("/a/b c.txt", "inline; filename=\"b c.txt\""),
            (
                "/a/x\"y",
                "inline; filename=\"x_y\"; filename*=UTF-8''x%22y",
            ),
            (
                "/ü\n",
                "inline; filename=\"__\"; filename*=UTF-8''%C3%BC%0A",
            ),
        ] {
            assert_eq!(disposition(Path::new(path)), told);
        }
    }
}
