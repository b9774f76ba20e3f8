//! Origins of pages: which may send to a project. Owns their form, with `*.` for every name below a host.

use icebox_lifecycle::BoxId;

use crate::edge::box_at;

/// An origin, or all below a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    https: bool,
    host: String,
    /// Names below the host instead of the host itself.
    below: bool,
    port: u16,
}

impl Origin {
    /// Reads `https://host`, `https://host:port` or `https://*.host`; nothing else may follow.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (scheme, rest) = text.split_once("://")?;
        let https = match scheme {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let (below, rest) = match rest.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        // The last colon of an IPv6 address alone is inside its brackets.
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            Some(_) | None => (rest, None),
        };
        let port = match port {
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok()?,
            Some(_) => return None,
            None if https => 443,
            None => 80,
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_v6 = |host: &str| {
            let inner = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'));
            inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
        };
        let named = !host.is_empty() && !host.starts_with('.') && host.chars().all(is_name);
        ((named && host.len() <= 253) || is_v6(host)).then(|| Self {
            https,
            host: host.to_owned(),
            below,
            port,
        })
    }

    /// Every name below this one's host.
    pub(super) fn all_below(mut self) -> Self {
        self.below = true;
        self
    }

    /// Whether the page of that origin may send.
    pub(super) fn fits(&self, page: &Self) -> bool {
        let host = if self.below {
            let above = page.host.strip_suffix(&self.host);
            above.is_some_and(|above| above.len() > 1 && above.ends_with('.'))
        } else {
            page.host == self.host
        };
        host && !page.below && (page.https, page.port) == (self.https, self.port)
    }

    /// The box whose page it is.
    pub(super) fn of_box(&self, domain: &str) -> Option<BoxId> {
        box_at(&self.host, domain)
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scheme, usual) = if self.https {
            ("https", 443)
        } else {
            ("http", 80)
        };
        let below = if self.below { "*." } else { "" };
        write!(f, "{scheme}://{below}{}", self.host)?;
        if self.port != usual {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_fit_as_they_should() {
        let table = [
            ("https://app.example", "https://app.example", true),
            ("https://app.example", "https://APP.example:443", true),
            ("https://app.example", "http://app.example", false),
            ("https://app.example", "https://app.example:8443", false),
            ("https://app.example", "https://x.app.example", false),
            ("https://*.app.example", "https://x.app.example", true),
            ("https://*.app.example", "https://y.x.app.example", true),
            ("https://*.app.example", "https://app.example", false),
            ("https://*.app.example", "https://evilapp.example", false),
            ("https://*.app.example", "https://.app.example", false),
            ("https://*.app.example", "https://*.app.example", false),
            (
                "http://*.localhost:7070",
                "http://web-a.localhost:7070",
                true,
            ),
            (
                "http://*.localhost:7070",
                "http://web-a.localhost:7071",
                false,
            ),
            ("http://[::1]:3000", "http://[::1]:3000", true),
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000", true),
        ];
        for (origin, page, expected) in table {
            let fits =
                Origin::parse(page).is_some_and(|page| Origin::parse(origin).unwrap().fits(&page));
            assert_eq!(fits, expected, "{origin} {page}");
        }
    }

    #[test]
    fn what_is_no_origin_is_none() {
        let table = [
            "",
            "*",
            "null",
            "app.example",
            "ftp://app.example",
            "https://",
            "https://*",
            "https://app.example/",
            "https://app.example/path",
            "https://user@app.example",
            "https://app.example:",
            "https://app.example:99999",
            "https://a b",
            "https://*.*.example",
            "https://[::1",
            "https://app.example:+80",
        ];
        for text in table {
            assert_eq!(Origin::parse(text), None, "{text}");
        }
        for text in [
            "https://*.app.example:8443",
            "http://localhost:3000",
            "https://app.example",
        ] {
            assert_eq!(Origin::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_boxs_page_says_which_box() {
        let of = |text: &str| Origin::parse(text).unwrap().of_box("boxes.example");
        let id = "abcdefghij0123456789";
        let expected = BoxId::parse(id);
        assert_eq!(of(&format!("https://web-{id}.boxes.example")), expected);
        assert_eq!(of(&format!("https://web-{id}.other.example")), None);
        assert_eq!(of("https://app.boxes.example"), None);
    }
}
