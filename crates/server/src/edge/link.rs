//! Signed links to private boxes (rule 8.8). Owns what a token says: a box, a port and an end, under the box's own secret.
//! A new secret makes every earlier token worthless. The cookie that takes a token's place belongs to one host alone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::HeaderMap;
use icebox_lifecycle::time::SEC;
use icebox_lifecycle::{BoxId, Time};
use sha2::Sha256;

use crate::cookies;

/// Where a link leads first.
pub(super) const ENTER_PATH: &str = "/.icebox/enter";
/// The longest token that is looked at, in bytes.
const LONGEST: usize = 128;
const END_LEN: usize = 8;

/// The cookie's name. Browsers let nobody but this very host set one that begins with `__Host-`, where they know that the
/// connection is safe.
fn cookie_name(scheme: &str) -> &'static str {
    if scheme == "https" {
        "__Host-icebox"
    } else {
        "icebox-link"
    }
}

/// A token that lets its holder look at a port of a box until `end`.
#[must_use]
pub fn token(secret: &str, id: BoxId, port: u16, end: Time) -> String {
    let mut bytes = end.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&sign(secret, id, port, end).finalize().into_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// When a token ends; `None` for one that is no good.
pub(super) fn good_until(
    token: &str,
    secret: &str,
    id: BoxId,
    port: u16,
    now: Time,
) -> Option<Time> {
    if token.len() > LONGEST {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (end, tag) = bytes.split_first_chunk::<END_LEN>()?;
    let end = Time(i64::from_be_bytes(*end));
    sign(secret, id, port, end).verify_slice(tag).ok()?;
    (now < end).then_some(end)
}

fn sign(secret: &str, id: BoxId, port: u16, end: Time) -> Hmac<Sha256> {
    let signed = format!("icebox-link {id} {port} {}", end.0);
    let mut mac = match Hmac::<Sha256>::new_from_slice(secret.as_bytes()) {
        Ok(mac) => mac,
        Err(_) => unreachable!("a key of any length will do"),
    };
    mac.update(signed.as_bytes());
    mac
}

/// The token in the query of a link.
pub(super) fn token_of(query: Option<&str>) -> Option<&str> {
    let mut fields = query?.split('&');
    fields.find_map(|field| field.strip_prefix("token="))
}

/// The cookie in place of a link.
pub(super) fn cookie(scheme: &str, token: &str, now: Time, end: Time) -> String {
    let name = cookie_name(scheme);
    let secure = if scheme == "https" { "; Secure" } else { "" };
    let sec = end.since(now) / SEC;
    format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age={sec}{secure}")
}

/// Takes our cookie out of a request: it is nothing for the program. Gives the tokens in it.
pub(super) fn take_cookies(headers: &mut HeaderMap, scheme: &str) -> Vec<String> {
    cookies::take(headers, cookie_name(scheme))
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;

    use super::*;

    #[test]
    fn a_token_is_for_one_box_one_port_one_secret_and_a_time() {
        let id = BoxId::from_random([7; 20]);
        let other = BoxId::from_random([8; 20]);
        let (now, end) = (Time(1_000), Time(2_000));
        let token = token("secret", id, 80, end);
        let good = |token: &str, secret, id, port, now| good_until(token, secret, id, port, now);
        assert_eq!(good(&token, "secret", id, 80, now), Some(end));
        assert_eq!(good(&token, "secret", id, 80, Time(1_999)), Some(end));
        assert_eq!(good(&token, "secret", id, 80, end), None);
        assert_eq!(good(&token, "rotated", id, 80, now), None);
        assert_eq!(good(&token, "secret", other, 80, now), None);
        assert_eq!(good(&token, "secret", id, 81, now), None);
        assert_eq!(good("", "secret", id, 80, now), None);
        assert_eq!(good(&token[..token.len() - 2], "secret", id, 80, now), None);
        let mut longer = URL_SAFE_NO_PAD.decode(&token).unwrap();
        longer[7] ^= 1;
        let longer = URL_SAFE_NO_PAD.encode(longer);
        assert_eq!(good(&longer, "secret", id, 80, now), None, "another end");
        assert_eq!(good(&"A".repeat(1_000), "secret", id, 80, now), None);
    }

    #[test]
    fn our_cookie_does_not_reach_the_program() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; icebox-link=T; b=2".parse().unwrap());
        headers.append(COOKIE, "__Host-icebox=U".parse().unwrap());
        assert_eq!(take_cookies(&mut headers, "http"), ["T"]);
        assert_eq!(headers[COOKIE], "a=1; b=2; __Host-icebox=U");
        assert_eq!(take_cookies(&mut headers, "https"), ["U"]);
        assert_eq!(headers[COOKIE], "a=1; b=2");
        assert!(take_cookies(&mut headers, "http").is_empty());
        headers.insert(COOKIE, "icebox-link=T".parse().unwrap());
        take_cookies(&mut headers, "http");
        assert!(!headers.contains_key(COOKIE));
    }
}
