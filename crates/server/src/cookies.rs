//! The cookies of requests. Owns finding and taking out single ones; what they mean is their owners'.

use http::header::{COOKIE, HeaderMap, HeaderValue};

/// The values of a cookie: all of them, should there be several.
#[must_use]
pub fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    pairs(headers)
        .filter_map(|pair| value(pair, name))
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .collect()
}

/// Takes a cookie out, and gives its values. Everything else stays as it is.
pub fn take(headers: &mut HeaderMap, name: &str) -> Vec<String> {
    let values = values(headers, name);
    if values.is_empty() {
        return values;
    }
    let left: Vec<&[u8]> = pairs(headers)
        .filter(|pair| value(pair, name).is_none())
        .collect();
    let left = left.join(&b"; "[..]);
    headers.remove(COOKIE);
    if !left.is_empty()
        && let Ok(left) = HeaderValue::from_bytes(&left)
    {
        headers.insert(COOKIE, left);
    }
    values
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(COOKIE).iter();
    lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .map(<[u8]>::trim_ascii)
}

fn value<'p>(pair: &'p [u8], name: &str) -> Option<&'p [u8]> {
    let rest = pair.strip_prefix(name.as_bytes())?;
    rest.trim_ascii_start().strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_taken_and_the_others_stay() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; ours=T; b=2".parse().unwrap());
        let odd = HeaderValue::from_bytes(b"xours=U; \xff=1;ours =V").unwrap();
        headers.append(COOKIE, odd);
        assert_eq!(values(&headers, "ours"), ["T", "V"]);
        assert!(take(&mut headers, "none").is_empty());
        assert_eq!(headers.get_all(COOKIE).iter().count(), 2);
        assert_eq!(take(&mut headers, "ours"), ["T", "V"]);
        assert_eq!(headers[COOKIE].as_bytes(), b"a=1; b=2; xours=U; \xff=1");
        headers.insert(COOKIE, "ours=T".parse().unwrap());
        take(&mut headers, "ours");
        assert!(!headers.contains_key(COOKIE));
    }
}
