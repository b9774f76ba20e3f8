//! From when on rows are wanted: so long ago, a moment, or where an earlier page ended. Owns the forms of both.

use icebox_lifecycle::time::{DAY, HOUR, MIN, SEC};
use icebox_lifecycle::{Ms, Time};

use crate::commands::Trouble;

/// What `since` takes.
const TAKES: &str = "so long ago as in `90s`, `15m`, `1h`, `1h30m`, `2d` or `1w`, a moment as in `2026-01-31T09:00:00Z`, or \
    the seconds or milliseconds since 1970";
/// Whole numbers from here on are milliseconds: as seconds they would be more than 3000 years off.
const MILLISECONDS_FROM: i64 = 100_000_000_000;

/// Reads `since`.
pub(super) fn since(text: &str, now: Time) -> Result<Time, Trouble> {
    let text = text.trim();
    ago(text)
        .and_then(|ms| now.0.checked_sub(ms).map(Time))
        .or_else(|| unix(text))
        .or_else(|| {
            let moment: jiff::Timestamp = text.parse().ok()?;
            Some(Time(moment.as_millisecond()))
        })
        .ok_or_else(|| Trouble::bad("since", TAKES))
}

/// One or more numbers with a unit each.
fn ago(text: &str) -> Option<Ms> {
    let mut rest = text;
    let mut all: Ms = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: Ms = rest[..digits].parse().ok()?;
        let unit = match rest[digits..].chars().next()? {
            's' => SEC,
            'm' => MIN,
            'h' => HOUR,
            'd' => DAY,
            'w' => 7 * DAY,
            _ => return None,
        };
        all = all.checked_add(count.checked_mul(unit)?)?;
        rest = &rest[digits + 1..];
    }
    (!text.is_empty()).then_some(all)
}

fn unix(text: &str) -> Option<Time> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = text.parse().ok().filter(|_| is_number)?;
    if number >= MILLISECONDS_FROM {
        return Some(Time(number));
    }
    Some(Time(number * SEC))
}

/// A place between two rows, and from when on rows count after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The number of the last row before it.
    pub(super) after: i64,
    /// Rows that were logged before do not count.
    pub(super) since: Time,
}

impl Cursor {
    /// Reads one that an earlier answer gave.
    pub(super) fn parse(text: &str) -> Result<Self, Trouble> {
        let read = || {
            let (after, since) = text.split_once('.')?;
            let whole = |text: &str| {
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse::<i64>().ok().filter(|_| digits)
            };
            Some(Self {
                after: whole(after)?,
                since: Time(whole(since)?),
            })
        };
        read().ok_or_else(|| Trouble::bad("cursor", "as an earlier answer gave it"))
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.after, self.since.0.max(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_800_000_000_000);

    #[test]
    fn moments_are_read() {
        let table = [
            ("90s", NOW - 90 * SEC),
            ("15m", NOW - 15 * MIN),
            (" 1h ", NOW - HOUR),
            ("1h30m", NOW - 90 * MIN),
            ("2d", NOW - 2 * DAY),
            ("1w", NOW - 7 * DAY),
            ("0s", NOW),
            ("1799999999", Time(1_799_999_999_000)),
            ("1799999999123", Time(1_799_999_999_123)),
            ("2027-01-15T08:00:00Z", NOW),
            ("2027-01-15T10:00:00+02:00", NOW),
        ];
        for (text, expected) in table {
            assert_eq!(since(text, NOW).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "h",
            "1x",
            "-1h",
            "1.5h",
            "99999999999999999999s",
            "9999999999999w",
            "yesterday",
            "+5",
        ] {
            assert!(since(text, NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn a_cursor_is_what_it_was() {
        let cursor = Cursor {
            after: 17,
            since: NOW,
        };
        assert_eq!(Cursor::parse(&cursor.to_string()).unwrap(), cursor);
        for text in [
            "",
            "17",
            "17.",
            ".5",
            "a.b",
            "-1.5",
            "1.+5",
            "1.2.3",
            "99999999999999999999.1",
        ] {
            assert!(Cursor::parse(text).is_err(), "{text}");
        }
    }
}
