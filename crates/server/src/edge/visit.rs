//! Whether somebody loads a page (rules 8.2 and 8.4), or something else comes. Owns which page loads nobody looks at: those
//! that browsers make ahead of time, and those of programs that unfurl links.

use http::header::{ACCEPT, HeaderMap, USER_AGENT};
use http::{Method, Request};

/// Fields in which browsers say that nobody looks at the page yet.
const AHEAD: [&str; 4] = ["sec-purpose", "purpose", "x-purpose", "x-moz"];
/// What they say there.
const AHEAD_WORDS: [&str; 3] = ["prefetch", "prerender", "preview"];

/// Programs that fetch a link because it was posted somewhere, and crawlers; part of their `User-Agent`, in lower case.
/// Most people post a link long before somebody opens it.
const UNFURLERS: [&str; 22] = [
    "slackbot",
    "slack-imgproxy",
    "twitterbot",
    "facebookexternalhit",
    "facebot",
    "linkedinbot",
    "discordbot",
    "telegrambot",
    "whatsapp",
    "skypeuripreview",
    "mattermost",
    "redditbot",
    "pinterestbot",
    "bluesky cardyb",
    "mastodon",
    "google-inspectiontool",
    "googlebot",
    "bingbot",
    "bingpreview",
    "duckduckbot",
    "applebot",
    "yandexbot",
];

/// Whether somebody loads a page with this request: it wakes a frozen box, and its answer is for people.
pub(super) fn loads_page<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let navigates = match headers.get("sec-fetch-mode") {
        Some(mode) => mode.as_bytes() == b"navigate",
        None => says(headers, ACCEPT.as_str(), &["text/html"]),
    };
    let somebody_looks = || {
        !AHEAD.iter().any(|name| says(headers, name, &AHEAD_WORDS))
            && !says(headers, USER_AGENT.as_str(), &UNFURLERS)
    };
    reads && navigates && somebody_looks()
}

/// Whether a field contains one of these words.
fn says(headers: &HeaderMap, name: &str, words: &[&str]) -> bool {
    headers.get_all(name).iter().any(|value| {
        let value = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        words.iter().any(|word| value.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_wake_and_nothing_else_does() {
        const HTML: &str = "text/html,application/xhtml+xml,*/*;q=0.8";
        const CHROME: &str = "Mozilla/5.0 (X11; Linux x86_64) Chrome/148.0.0.0 Safari/537.36";
        type Row = (&'static str, &'static [(&'static str, &'static str)], bool);
        let table: &[Row] = &[
            (
                "GET",
                &[("sec-fetch-mode", "navigate"), ("accept", HTML)],
                true,
            ),
            ("HEAD", &[("sec-fetch-mode", "navigate")], true),
            (
                "GET",
                &[("sec-fetch-mode", "navigate"), ("user-agent", CHROME)],
                true,
            ),
            ("GET", &[("accept", HTML)], true),
            ("HEAD", &[("accept", "TEXT/HTML")], true),
            (
                "GET",
                &[("accept", "application/json"), ("accept", "text/html")],
                true,
            ),
            (
                "POST",
                &[("sec-fetch-mode", "navigate"), ("accept", HTML)],
                false,
            ),
            (
                "GET",
                &[("sec-fetch-mode", "cors"), ("accept", HTML)],
                false,
            ),
            (
                "GET",
                &[("sec-fetch-mode", "no-cors"), ("accept", "image/*")],
                false,
            ),
            ("GET", &[("sec-fetch-mode", "websocket")], false),
            ("GET", &[("accept", "*/*")], false),
            ("GET", &[], false),
            ("PUT", &[("accept", HTML)], false),
            ("OPTIONS", &[("accept", HTML)], false),
            (
                "GET",
                &[("sec-fetch-mode", "navigate"), ("sec-purpose", "prefetch")],
                false,
            ),
            (
                "GET",
                &[
                    ("sec-fetch-mode", "navigate"),
                    ("sec-purpose", "prefetch;prerender"),
                ],
                false,
            ),
            ("GET", &[("accept", HTML), ("purpose", "prefetch")], false),
            ("GET", &[("accept", HTML), ("x-purpose", "preview")], false),
            ("GET", &[("accept", HTML), ("x-moz", "prefetch")], false),
            (
                "GET",
                &[
                    ("accept", HTML),
                    (
                        "user-agent",
                        "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
                    ),
                ],
                false,
            ),
            (
                "GET",
                &[("accept", HTML), ("user-agent", "WhatsApp/2.23.20.0")],
                false,
            ),
        ];
        for (method, fields, wakes) in table {
            let mut request = Request::builder().method(*method);
            for (name, value) in *fields {
                request = request.header(*name, *value);
            }
            let loads = loads_page(&request.body(()).unwrap());
            assert_eq!(loads, *wakes, "{method} {fields:?}");
        }
    }
}
