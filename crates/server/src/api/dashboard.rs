//! The dashboard, as browsers get it: the page and its parts, which `make build` puts into the program. Owns how they are
//! found, cached and packed. The page itself is a client of the boxes dialect like any other and knows no path but its.

use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::{IntoResponse, Response};
use rust_embed::{Embed, EmbeddedFile};

use super::error;

/// What Vite made of `web/`. Nothing but its placeholder where that was not built.
#[derive(Embed)]
#[folder = "../../web/dist"]
#[allow_missing = true]
struct Built;

/// The page for every view; the views' addresses are the page's own.
const PAGE: &str = "index.html";
/// Parts whose names change with what is in them.
const HASHED: &str = "assets/";

/// Scripts and styles are files of ours, and nobody may show the page inside theirs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

const MISSING: &str = "<!doctype html><html lang=en><meta charset=utf-8><title>Icebox</title>\
     <h1>Icebox runs, without its dashboard</h1>\
     <p>This program was built by <code>cargo build</code> alone. In its source folder, <code>make build</code> builds \
     the dashboard, too (it needs Node.js); then restart the server.\
     <p>The API and the command line work all the same: try <code>icebox ls</code>.\n";

/// The page.
pub(super) async fn page(headers: HeaderMap) -> Response {
    match Built::get(PAGE) {
        Some(page) => send(PAGE, &page, &headers),
        None => {
            let kind = [(CONTENT_TYPE, "text/html; charset=utf-8")];
            guarded((error::NOT_READY, kind, MISSING).into_response())
        }
    }
}

/// A part of the page, or the page for a view's address.
pub(super) async fn part(
    method: Method,
    uri: Uri,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Response {
    // Packed copies are for who asks for what they are copies of.
    let own = !path.starts_with('.') && !PACKINGS.iter().any(|packing| path.ends_with(packing.end));
    match Built::get(&path).filter(|_| own) {
        Some(file) => send(&path, &file, &headers),
        None if path.starts_with(HASHED) => error::no_such_path(method, uri).await,
        None => page(headers).await,
    }
}

/// A way to pack a file, best first.
struct Packing {
    name: &'static str,
    end: &'static str,
}

const PACKINGS: [Packing; 2] = [
    Packing {
        name: "br",
        end: ".br",
    },
    Packing {
        name: "gzip",
        end: ".gz",
    },
];

fn send(path: &str, file: &EmbeddedFile, asked: &HeaderMap) -> Response {
    let packed = PACKINGS.iter().find_map(|packing| {
        let takes = accepts(asked, packing.name);
        let packed = takes.then(|| Built::get(&format!("{path}{}", packing.end)));
        Some((packing.name, packed.flatten()?))
    });
    // The same bytes have the same mark, packed in the same way.
    let hash = file.metadata.sha256_hash();
    let how = packed.as_ref().map_or("plain", |(name, _)| name);
    let tag = format!("\"{}-{how}\"", hex(&hash[..12]));
    let known = asked.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|tags| {
        let mut tags = tags
            .split(',')
            .map(|tag| tag.trim().trim_start_matches("W/"));
        tags.any(|known| known == tag || known == "*")
    });
    let cached = if path.starts_with(HASHED) {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let mut response = if is_known {
        error::NOT_MODIFIED.into_response()
    } else {
        let data = packed.as_ref().map_or(&file.data, |(_, file)| &file.data);
        let mut response = Body::from(data.clone().into_owned()).into_response();
        let kind = HeaderValue::from_static(kind_of(path));
        response.headers_mut().insert(CONTENT_TYPE, kind);
        if let Some((name, _)) = packed {
            let name = HeaderValue::from_static(name);
            response.headers_mut().insert(CONTENT_ENCODING, name);
        }
        response
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cached));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    guarded(response)
}

/// What every answer carries, so that nothing else can run in the page or around it.
fn guarded(mut response: Response) -> Response {
    let set = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in set {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Whether a client takes files that are packed like this.
fn accepts(asked: &HeaderMap, packing: &str) -> bool {
    let lists = asked.get_all(ACCEPT_ENCODING).into_iter();
    let mut ways = lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','));
    ways.any(|way| {
        let (name, weight) = way.split_once(';').unwrap_or((way, ""));
        let weight = weight.trim().trim_start_matches("q=");
        let refused = !weight.is_empty() && weight.parse().is_ok_and(|weight: f32| weight == 0.0);
        name.trim().eq_ignore_ascii_case(packing) && !refused
    })
}

fn kind_of(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("webmanifest") => "application/manifest+json",
        Some(_) | None => "application/octet-stream",
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packing_is_used_for_who_takes_it() {
        let table = [
            ("gzip, deflate, br", "br", true),
            ("gzip, deflate, br", "gzip", true),
            ("BR;q=0.5", "br", true),
            ("br;q=0", "br", false),
            ("br; q=0.0", "br", false),
            ("brotli", "br", false),
            ("", "gzip", false),
        ];
        for (list, packing, expected) in table {
            let mut asked = HeaderMap::new();
            asked.insert(ACCEPT_ENCODING, HeaderValue::from_static(list));
            assert_eq!(accepts(&asked, packing), expected, "{list}: {packing}");
        }
    }
}
