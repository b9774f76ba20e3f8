//! The pages people see while the app is not there: small, without a file from elsewhere, in light and dark, in English and
//! Japanese, readable without scripts. Owns their words; when which page is shown is decided elsewhere.

use std::fmt::Write as _;

use http::header::{ACCEPT_LANGUAGE, HeaderMap};

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The box wakes (rule 8.2).
    Waking {
        /// When the page reloads itself, in seconds.
        reload_sec: Option<u32>,
    },
    /// The account is out of credits (rule 8.5).
    Paused,
    /// The box does not wake by a page load.
    StaysFrozen,
    /// The box has ended, or was lost (rule 8.6).
    Ended,
    /// Nothing listens on the port (rule 8.7).
    NothingListens {
        /// Which port.
        port: u16,
    },
    /// The program or the box broke off (rule 8.7).
    Unreachable,
    /// Only who has a link may look (rule 8.8).
    Private,
    /// There is no such box, or it has no such service.
    Nothing,
}

/// A language that pages are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    English,
    Japanese,
}

impl Language {
    /// The one the reader likes better.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accepted = headers.get(ACCEPT_LANGUAGE);
        let accepted = accepted.and_then(|value| value.to_str().ok());
        let (mut japanese, mut others) = (0.0_f32, 0.0_f32);
        for choice in accepted.unwrap_or_default().split(',') {
            let (tag, rest) = choice.split_once(';').unwrap_or((choice, ""));
            let weight = rest.trim().strip_prefix("q=");
            let weight = weight.map_or(1.0, |weight| weight.trim().parse().unwrap_or(0.0));
            let tag = tag.trim().to_ascii_lowercase();
            if tag == "ja" || tag.starts_with("ja-") {
                // Of two that are liked equally well, the first.
                if weight > others {
                    japanese = japanese.max(weight);
                }
            } else if !tag.is_empty() {
                others = others.max(weight);
            }
        }
        if japanese > 0.0 && japanese >= others {
            Self::Japanese
        } else {
            Self::English
        }
    }

    fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Japanese => "ja",
        }
    }
}

/// Lets the page come back as soon as the box is awake, and only while somebody looks at it.
const SCRIPT: &str = "(async()=>{for(let n=0;n<20;n++){try{\
if((await fetch('/.icebox/awake',{cache:'no-store'})).status===204){\
while(document.hidden)await new Promise(r=>document.addEventListener('visibilitychange',r,{once:true}));\
location.reload();return}}catch{}\
await new Promise(r=>setTimeout(r,500*2**Math.min(n,6)))}})()";

const STYLE: &str = ":root{color-scheme:light dark}\
body{font:1.1rem/1.6 system-ui,sans-serif;display:grid;place-items:center;min-height:90vh;margin:0 1.5rem;\
background:Canvas;color:CanvasText}main{max-width:32rem}h1{font-size:1.5rem;margin:0 0 .5rem}\
small{opacity:.65}i{display:inline-block;width:.8em;height:.8em;margin-right:.5em;border-radius:50%;\
border:.15em solid;border-right-color:transparent;animation:t 1s linear infinite}\
@keyframes t{to{transform:rotate(1turn)}}@media(prefers-reduced-motion:reduce){i{animation:none}}";

impl Page {
    /// The page as HTML. `says` is what programs are told instead; `nonce` lets style and script through.
    pub(super) fn html(self, language: Language, says: &str, nonce: &str) -> String {
        let (title, text) = self.words(language);
        let from = match language {
            Language::English => "From Icebox, in front of the box",
            Language::Japanese => "Icebox からの表示です",
        };
        let mut html = String::with_capacity(2_048);
        // Writing to a string cannot fail.
        let _ = write!(
            html,
            "<!doctype html><html lang=\"{}\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"robots\" content=\"noindex\">",
            language.tag()
        );
        let reload_sec = self.reload_sec();
        if let Some(sec) = reload_sec {
            let _ = write!(html, "<meta http-equiv=\"refresh\" content=\"{sec}\">");
        }
        let spinner = if reload_sec.is_some() { "<i></i>" } else { "" };
        let _ = write!(
            html,
            "<title>{title}</title><style nonce=\"{nonce}\">{STYLE}</style></head>\
             <body><main><h1>{spinner}{title}</h1><p>{text}</p><small>{from} · {}</small></main>",
            escape(says)
        );
        if reload_sec.is_some() {
            let _ = write!(html, "<script nonce=\"{nonce}\">{SCRIPT}</script>");
        }
        html.push_str("</body></html>\n");
        html
    }

    /// When the page reloads itself.
    pub(super) fn reload_sec(self) -> Option<u32> {
        match self {
            Self::Waking { reload_sec } => reload_sec,
            Self::Paused
            | Self::StaysFrozen
            | Self::Ended
            | Self::NothingListens { .. }
            | Self::Unreachable
            | Self::Private
            | Self::Nothing => None,
        }
    }

    fn words(self, language: Language) -> (&'static str, String) {
        match language {
            Language::English => self.english(),
            Language::Japanese => self.japanese(),
        }
    }

    fn english(self) -> (&'static str, String) {
        let (title, text) = match self {
            Self::Waking {
                reload_sec: Some(_),
            } => (
                "Waking this box…",
                "This page reloads by itself in a few seconds.",
            ),
            Self::Waking { reload_sec: None } => (
                "This box takes long to wake",
                "Reload this page to try again.",
            ),
            Self::Paused => (
                "This box is paused",
                "Its account is out of credits. Nothing is lost: add credits, then reload this page.",
            ),
            Self::StaysFrozen => (
                "This box stays frozen",
                "Its time is used up. Whoever it belongs to can give it more; then reload this page.",
            ),
            Self::Ended => (
                "This box has ended",
                "What it showed is gone from here. Ask whoever gave you the link for a new one.",
            ),
            Self::NothingListens { port } => {
                let text = format!(
                    "The box is awake, but no program in it answers on port {port}. It may have stopped, or not \
                     have started yet. Reload this page in a moment."
                );
                return ("The app is not running", text);
            }
            Self::Unreachable => (
                "The app did not answer",
                "The connection to it broke off. Reload this page in a moment.",
            ),
            Self::Private => (
                "This box is private",
                "Open it with the link you were given. If that is what you did, the link is no longer good: ask for \
                 a new one.",
            ),
            Self::Nothing => (
                "There is nothing here",
                "No box has this address. Is the link complete?",
            ),
        };
        (title, text.to_owned())
    }

    fn japanese(self) -> (&'static str, String) {
        let (title, text) = match self {
            Self::Waking {
                reload_sec: Some(_),
            } => (
                "ボックスを起こしています…",
                "数秒後にこのページは自動で再読み込みされます。",
            ),
            Self::Waking { reload_sec: None } => (
                "ボックスの起動に時間がかかっています",
                "再読み込みして、もう一度お試しください。",
            ),
            Self::Paused => (
                "このボックスは一時停止中です",
                "アカウントのクレジットがありません。データは失われていません。クレジットを追加してから再読み込みしてください。",
            ),
            Self::StaysFrozen => (
                "このボックスは凍結されたままです",
                "利用時間を使い切りました。所有者が延長した後に再読み込みしてください。",
            ),
            Self::Ended => (
                "このボックスは終了しました",
                "表示できる内容は残っていません。リンクの送り主に新しいリンクを依頼してください。",
            ),
            Self::NothingListens { port } => {
                let text = format!(
                    "ボックスは動いていますが、ポート {port} で応答するプログラムがありません。停止したか、まだ起動していない\
                     可能性があります。少し待ってから再読み込みしてください。"
                );
                return ("アプリが動いていません", text);
            }
            Self::Unreachable => (
                "アプリが応答しませんでした",
                "接続が切れました。少し待ってから再読み込みしてください。",
            ),
            Self::Private => (
                "このボックスは非公開です",
                "受け取ったリンクから開いてください。それでも表示されない場合はリンクが無効になっています。新しいリンクを依頼してください。",
            ),
            Self::Nothing => (
                "ここには何もありません",
                "このアドレスのボックスはありません。リンクが途中で切れていないか確認してください。",
            ),
        };
        (title, text.to_owned())
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_the_readers() {
        let table = [
            ("", Language::English),
            ("ja", Language::Japanese),
            ("ja-JP,ja;q=0.9,en;q=0.8", Language::Japanese),
            ("en-US,en;q=0.9,ja;q=0.8", Language::English),
            ("de,ja;q=0.5", Language::English),
            ("en;q=0.3, ja;q=0.7", Language::Japanese),
            ("ja;q=0", Language::English),
            ("jav", Language::English),
            ("ja;q=nonsense", Language::English),
        ];
        for (accepted, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_LANGUAGE, accepted.parse().unwrap());
            assert_eq!(Language::of(&headers), expected, "{accepted}");
        }
    }

    #[test]
    fn only_the_waiting_page_reloads_and_none_has_files_from_elsewhere() {
        let pages = [
            Page::Waking {
                reload_sec: Some(3),
            },
            Page::Waking { reload_sec: None },
            Page::Paused,
            Page::StaysFrozen,
            Page::Ended,
            Page::NothingListens { port: 3000 },
            Page::Unreachable,
            Page::Private,
            Page::Nothing,
        ];
        for page in pages {
            for language in [Language::English, Language::Japanese] {
                let html = page.html(language, "box is <frozen>", "abc");
                let reloads = page
                    == Page::Waking {
                        reload_sec: Some(3),
                    };
                assert_eq!(html.contains("http-equiv=\"refresh\""), reloads, "{html}");
                assert_eq!(html.contains("<script"), reloads, "{html}");
                assert!(!html.contains("://") && !html.contains("src="), "{html}");
                assert!(html.contains("box is &lt;frozen&gt;"), "{html}");
                assert!(html.len() < 3_000, "{}", html.len());
            }
        }
        let english = pages[0].html(Language::English, "", "");
        assert!(english.contains("Waking this box…"), "{english}");
        assert!(english.contains("This page reloads by itself in a few seconds."));
        assert!(
            pages[2]
                .html(Language::English, "", "")
                .contains("This box is paused")
        );
    }
}
