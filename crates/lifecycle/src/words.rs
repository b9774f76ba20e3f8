//! Lengths of time in words, for reasons. Owns no other text.

use alloc::format;
use alloc::string::String;

use crate::time::{DAY, HOUR, MIN, Ms, SEC};

/// A length of time in its largest unit that divides it, such as `10 minutes`; days only from two on, so that
/// one is still `24 hours`.
#[must_use]
pub fn duration(ms: Ms) -> String {
    let units = [
        (DAY, "day", 2),
        (HOUR, "hour", 1),
        (MIN, "minute", 1),
        (SEC, "second", 0),
    ];
    for (unit, name, least) in units {
        let count = ms / unit;
        if ms % unit == 0 && count >= least {
            let plural = if count == 1 { "" } else { "s" };
            return format!("{count} {name}{plural}");
        }
    }
    // Not even whole seconds: the rest does not matter to a reader, unless it is all there is.
    if ms >= SEC {
        duration(ms - ms % SEC)
    } else {
        format!("{ms} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_speech() {
        for (ms, words) in [
            (0, "0 seconds"),
            (1, "1 ms"),
            (SEC, "1 second"),
            (90 * SEC, "90 seconds"),
            (90 * SEC + 7, "90 seconds"),
            (MIN, "1 minute"),
            (10 * MIN, "10 minutes"),
            (HOUR, "1 hour"),
            (DAY, "24 hours"),
            (7 * DAY, "7 days"),
        ] {
            assert_eq!(duration(ms), words);
        }
    }
}
