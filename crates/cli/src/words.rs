//! What a box is doing, and what the rules will do with it, in words: why it is awake, when it freezes, when it stops
//! for good. Owns the sentences and how moments and spans are said. Knows no rule: the server's forecasts say it all.

use icebox_wire::rest::{BlockView, BoxView, FreezeView, Keeps, SlotsView, Status, Tier, WaitView};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};

use crate::text::printable;

/// The moment the words are said, in the reader's time zone.
#[derive(Clone, Debug)]
pub(crate) struct Now(ZonedDateTime);

impl Now {
    /// This moment on this machine.
    pub(crate) fn here() -> Self {
        Self(Timestamp::now().to_zoned_datetime(TimeZone::system()))
    }

    /// A moment as a person says it: `15:40`, `tomorrow at 15:40`, `on 2026-03-09 at 15:40`.
    pub(crate) fn moment(&self, at: Timestamp) -> String {
        let at = at.to_zoned_datetime(self.0.time_zone().clone());
        let clock = at.strftime("%H:%M");
        let today = self.0.date();
        if at.date() == today {
            clock.to_string()
        } else if today.tomorrow().is_ok_and(|day| day == at.date()) {
            format!("tomorrow at {clock}")
        } else if today.yesterday().is_ok_and(|day| day == at.date()) {
            format!("yesterday at {clock}")
        } else {
            format!("on {} at {clock}", at.date())
        }
    }

    /// The same in a sentence: `at 15:40`.
    pub(crate) fn at(&self, at: Timestamp) -> String {
        let moment = self.moment(at);
        if moment.starts_with(|c: char| c.is_ascii_digit()) {
            format!("at {moment}")
        } else {
            moment
        }
    }

    /// The same behind `until`: `15:40`, `2026-03-09 at 15:40`.
    pub(crate) fn until(&self, at: Timestamp) -> String {
        let moment = self.moment(at);
        moment
            .strip_prefix("on ")
            .map(str::to_owned)
            .unwrap_or(moment)
    }

    /// How far off a moment is: `in 12 min`, `12 min ago`.
    fn distance(&self, at: Timestamp) -> String {
        let seconds = self.seconds_until(at);
        if seconds >= 0 {
            format!("in {}", span(seconds.unsigned_abs()))
        } else {
            self.ago(at)
        }
    }

    /// How long ago a moment was: `12 min ago`, `just now`.
    pub(crate) fn ago(&self, at: Timestamp) -> String {
        let seconds = -self.seconds_until(at);
        if seconds < 5 {
            return "just now".to_owned();
        }
        format!("{} ago", span(seconds.unsigned_abs()))
    }

    fn seconds_until(&self, at: Timestamp) -> i64 {
        at.as_second() - self.0.timestamp().as_second()
    }

    /// The hour, to the second, for lists of what happened.
    pub(crate) fn exact(&self, at: Timestamp) -> String {
        let at = at.to_zoned_datetime(self.0.time_zone().clone());
        if at.date() == self.0.date() {
            at.strftime("%H:%M:%S").to_string()
        } else {
            at.strftime("%Y-%m-%d %H:%M:%S").to_string()
        }
    }
}

/// A length of time: `45 s`, `12 min`, `3 h`, `2 h 30 min`, `4 days`.
pub(crate) fn span(seconds: u64) -> String {
    const MIN: u64 = 60;
    const HOUR: u64 = 60 * MIN;
    const DAY: u64 = 24 * HOUR;
    if seconds < 90 {
        return format!("{seconds} s");
    }
    // Rounded, so that a moment after the start of ten minutes it says ten and not nine.
    let minutes = (seconds + MIN / 2) / MIN;
    if minutes < 90 {
        return format!("{minutes} min");
    }
    if seconds < 2 * DAY {
        return match (minutes / 60, minutes % 60) {
            (hours, 0) => format!("{hours} h"),
            (hours, rest) if hours < 10 => format!("{hours} h {rest} min"),
            (hours, rest) => format!("{} h", hours + u64::from(rest >= 30)),
        };
    }
    format!("{} days", (seconds + DAY / 2) / DAY)
}

/// One line about a box: what it is doing and why, when it freezes, when it stops.
pub(crate) fn about(view: &BoxView, now: &Now) -> String {
    let mut parts = vec![doing(view, now)];
    parts.extend(freezing(view, now));
    parts.extend(stopping(view, now));
    printable(&parts.join("; "))
}

/// What it is doing, and why.
fn doing(view: &BoxView, now: &Now) -> String {
    let reason = view.status_reason.as_deref();
    match view.status {
        Status::Claimed | Status::Starting => "starting".to_owned(),
        Status::Ready | Status::Takeover => awake(view, now),
        Status::Freezing => "being frozen; a call for it waits and then wakes it".to_owned(),
        Status::Thawing => "waking".to_owned(),
        Status::Frozen => frozen(view),
        Status::Stopping => because("being stopped", reason),
        Status::Terminated => match &view.waits_for_room {
            Some(place) => format!("stopped, and to come back: {}", queued(place)),
            None => because("stopped", reason),
        },
        Status::Interrupted => because("interrupted", reason),
        Status::Error => because("in trouble", reason),
        Status::Unknown => because("in a state this version of icebox does not know", reason),
    }
}

fn because(what: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{what} ({reason})"),
        None => what.to_owned(),
    }
}

fn awake(view: &BoxView, now: &Now) -> String {
    let holds = view.freeze.as_ref().map_or(&[][..], |f| &f.blocked_by);
    let mut reasons = reasons(holds);
    if view.status == Status::Takeover && !holds.iter().any(|h| h.kind == "takeover") {
        reasons.insert(0, "a person has its screen".to_owned());
    }
    if reasons.is_empty() {
        return format!("awake, last used {}", now.ago(view.last_used_at));
    }
    format!("awake because {}", reasons.join(", and "))
}

/// What holds a box, a sentence each; commands in the background share one.
fn reasons(holds: &[BlockView]) -> Vec<String> {
    let background = |block: &&BlockView| block.kind == "background";
    let mut more = holds.iter().filter(background).count().saturating_sub(1);
    let mut first = true;
    let told = holds.iter().filter(|block| {
        let in_background = background(block);
        !in_background || std::mem::take(&mut first)
    });
    told.map(|block| {
        let others = if background(&block) {
            std::mem::take(&mut more)
        } else {
            0
        };
        hold(block, others)
    })
    .collect()
}

/// What one hold is, as a sentence, with so many others like it.
fn hold(block: &BlockView, others: usize) -> String {
    let what = match block.kind.as_str() {
        "background" => {
            let (label, more) = and_more(block.label.as_deref());
            let command = match label {
                Some(command) => format!("`{}`", one_line(command)),
                None => "a command".to_owned(),
            };
            let others = others + more;
            return match others {
                0 => format!("{command} runs in the background"),
                others => format!("{command} and {others} more run in the background"),
            };
        }
        "foreground" => "a call is under way",
        "url" => "its URLs were visited",
        "recording" => "its screen is being recorded",
        "takeover" => "a person has its screen",
        "link" => "another box is connected to it",
        "phone" => "its phones are being frozen first",
        other => return because("something holds it", Some(other)),
    };
    because(what, block.label.as_deref())
}

/// A label without the number of others that it stands for, and that number.
fn and_more(label: Option<&str>) -> (Option<&str>, usize) {
    let split = label.and_then(|label| {
        let (first, rest) = label.rsplit_once(" and ")?;
        Some((first, rest.strip_suffix(" more")?.parse().ok()?))
    });
    split.map_or((label, 0), |(first, more)| (Some(first), more))
}

/// The first line of a text, cut to what a list has room for.
fn one_line(text: &str) -> String {
    const SHOWN: usize = 60;
    let line = text.trim().lines().next().unwrap_or_default();
    let cut: String = line.chars().take(SHOWN).collect();
    if cut.len() < text.trim().len() {
        return format!("{}…", cut.trim_end_matches(['…', ' ']));
    }
    cut
}

/// Why it is frozen, where it is, and what it kept.
fn frozen(view: &BoxView) -> String {
    if let Some(place) = &view.waits_for_room {
        return format!("frozen, and {}", queued(place));
    }
    let (what, joint) = match view.status_reason.as_deref() {
        Some(reason) if reason.starts_with("frozen") => (reason.to_owned(), ","),
        reason => (because("frozen", reason), ""),
    };
    let place = match view.tier {
        Some(Tier::Disk) => format!("{joint} on disk"),
        Some(Tier::Ram) => format!("{joint} in RAM"),
        None => String::new(),
    };
    let (kept, next) = match view.keeps {
        Some(Keeps::FilesAndMemory) => (", memory and all", "the next call wakes it"),
        Some(Keeps::Files) => (", files only", "the next call starts it anew on them"),
        None => ("", "the next call wakes it"),
    };
    let lacks = match view.snapshot_error {
        Some(_) => ", without a copy on disk",
        None => "",
    };
    // Nothing wakes without them (rule 5.3).
    let first = match view.status_reason.as_deref() {
        Some(reason) if reason.ends_with("out of credits") => "once there are credits, ",
        _ => "",
    };
    format!("{what}{place}{kept}{lacks}: {first}{next}")
}

/// That a box waits for room, and its place.
fn queued(place: &WaitView) -> String {
    format!("waits for room on the host, {}", before(place.before))
}

/// How many are before somebody in a queue.
fn before(boxes: u64) -> String {
    match boxes {
        0 => "next in the queue".to_owned(),
        boxes => format!("{boxes} before it"),
    }
}

/// The host's places for boxes that are up (rule 13.6).
pub(crate) fn slots(slots: &SlotsView) -> String {
    let (running, maximum) = (slots.running, slots.maximum);
    let waiting = match slots.waiting {
        0 => String::new(),
        waiting => format!(", {waiting} waiting for room"),
    };
    format!("Slots: {running} of {maximum} taken{waiting}")
}

/// When an awake box freezes.
fn freezing(view: &BoxView, now: &Now) -> Option<String> {
    if !matches!(view.status, Status::Ready | Status::Takeover) {
        return None;
    }
    let held =
        |freeze: &FreezeView| !freeze.blocked_by.is_empty() || view.status == Status::Takeover;
    Some(match &view.freeze {
        Some(FreezeView { at: Some(at), .. })
            if view.stops_at.is_some_and(|stops| stops <= *at) =>
        {
            "will be stopped before it would freeze".to_owned()
        }
        Some(freeze @ FreezeView { at: None, .. }) if held(freeze) => {
            "does not freeze before that ends".to_owned()
        }
        Some(FreezeView { at: None, .. }) if view.stops_at.is_some() => {
            "will be stopped before it would freeze".to_owned()
        }
        None | Some(FreezeView { at: None, .. }) => "does not freeze by itself".to_owned(),
        Some(FreezeView { at: Some(at), .. }) if now.seconds_until(*at) <= 0 => {
            "freezes any moment".to_owned()
        }
        Some(FreezeView { at: Some(at), .. }) => {
            format!(
                "freezes {} ({}) unless used",
                now.at(*at),
                now.distance(*at)
            )
        }
    })
}

/// When the rules stop it for good, or until when it can be brought back.
fn stopping(view: &BoxView, now: &Now) -> Option<String> {
    if let Some(until) = view.restorable_until {
        return Some(format!("can be restored until {}", now.until(until)));
    }
    let at = view.stops_at.filter(|_| view.status.is_live())?;
    if now.seconds_until(at) <= 0 {
        return Some("stops for good any moment".to_owned());
    }
    // Far off, the day says enough.
    let near = now.seconds_until(at) < 6 * 3_600;
    let distance = if near {
        format!(" ({})", now.distance(at))
    } else {
        String::new()
    };
    Some(format!("stops for good {}{distance}", now.at(at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    /// Wednesday, 2026-03-04, 15:00 two hours east of UTC, when the sample box was used two hours before.
    fn now() -> Now {
        let at: Timestamp = "2026-03-04T13:00:00Z".parse().unwrap();
        Now(at.to_zoned_datetime(TimeZone::fixed(jiff::tz::offset(2))))
    }

    fn at(minutes: i64) -> Timestamp {
        now().0.timestamp() + jiff::SignedDuration::from_mins(minutes)
    }

    fn freeze(minutes: Option<i64>, kinds: &[&str]) -> Option<FreezeView> {
        let block = |kind: &&str| BlockView {
            kind: (*kind).to_owned(),
            label: None,
            until: None,
        };
        Some(FreezeView {
            at: minutes.map(at),
            blocked_by: kinds.iter().map(block).collect(),
        })
    }

    fn frozen_box(tier: Option<Tier>, keeps: Option<Keeps>) -> BoxView {
        BoxView {
            status: Status::Frozen,
            tier,
            keeps,
            ..sample::ready()
        }
    }

    fn ended(status: Status, reason: Option<&str>) -> BoxView {
        BoxView {
            status,
            status_reason: reason.map(str::to_owned),
            ..sample::ready()
        }
    }

    #[test]
    fn rule_5_9_a_box_that_waits_for_room_says_its_place() {
        let waiting = |before| BoxView {
            waits_for_room: Some(WaitView {
                before,
                since: at(-1),
                until: at(1),
            }),
            status_reason: Some("waits for room on the host, 1 before it".to_owned()),
            ..frozen_box(Some(Tier::Disk), Some(Keeps::FilesAndMemory))
        };
        assert_eq!(
            about(&waiting(1), &now()),
            "frozen, and waits for room on the host, 1 before it"
        );
        assert_eq!(
            about(&waiting(0), &now()),
            "frozen, and waits for room on the host, next in the queue"
        );
    }

    #[test]
    fn rule_13_6_capacity_is_told_as_slots() {
        let told = |running, waiting| {
            slots(&SlotsView {
                running,
                maximum: 4,
                waiting,
            })
        };
        assert_eq!(told(3, 0), "Slots: 3 of 4 taken");
        assert_eq!(told(4, 2), "Slots: 4 of 4 taken, 2 waiting for room");
    }

    #[test]
    fn rule_4_6_why_a_box_is_awake_and_when_it_freezes() {
        let used = |minutes_ago: i64| BoxView {
            last_used_at: at(-minutes_ago),
            ..sample::ready()
        };
        let table = [
            (
                used(2),
                freeze(Some(8), &[]),
                "awake, last used 2 min ago; freezes at 15:08 (in 8 min) unless used",
            ),
            (
                used(0),
                freeze(Some(10), &[]),
                "awake, last used just now; freezes at 15:10 (in 10 min) unless used",
            ),
            (
                used(48),
                freeze(Some(12), &["background"]),
                "awake because a command runs in the background; freezes at 15:12 (in 12 min) unless used",
            ),
            (
                used(3),
                freeze(None, &["foreground"]),
                "awake because a call is under way; does not freeze before that ends",
            ),
            (
                used(3),
                freeze(Some(90), &["background", "url"]),
                "awake because a command runs in the background, and its URLs were visited; \
                 freezes at 16:30 (in 1 h 30 min) unless used",
            ),
            (
                used(30),
                freeze(Some(-1), &["phone"]),
                "awake because its phones are being frozen first; freezes any moment",
            ),
            (
                used(3),
                freeze(None, &["wormhole"]),
                "awake because something holds it (wormhole); does not freeze before that ends",
            ),
            (
                used(3),
                None,
                "awake, last used 3 min ago; does not freeze by itself",
            ),
        ];
        for (view, freeze, expected) in table {
            let view = BoxView { freeze, ..view };
            assert_eq!(about(&view, &now()), expected);
        }
    }

    #[test]
    fn rule_4_6_a_hold_is_named_where_the_server_names_it() {
        let table = [
            (
                "background",
                Some("npm run dev"),
                "`npm run dev` runs in the background",
            ),
            ("background", None, "a command runs in the background"),
            (
                "foreground",
                Some("make test"),
                "a call is under way (make test)",
            ),
            (
                "link",
                Some("from abcd"),
                "another box is connected to it (from abcd)",
            ),
            ("wormhole", None, "something holds it (wormhole)"),
        ];
        for (kind, label, expected) in table {
            let block = BlockView {
                kind: kind.to_owned(),
                label: label.map(str::to_owned),
                until: None,
            };
            assert_eq!(hold(&block, 0), expected);
        }
    }

    #[test]
    fn rule_4_6_several_commands_share_a_sentence_and_long_ones_are_cut() {
        let block = |kind: &str, label: &str| BlockView {
            kind: kind.to_owned(),
            label: (!label.is_empty()).then(|| label.to_owned()),
            until: None,
        };
        let holds = [
            block("background", "npm run dev"),
            block("url", ""),
            block("background", "make"),
            block("background", "sleep 9"),
        ];
        assert_eq!(
            reasons(&holds),
            [
                "`npm run dev` and 2 more run in the background",
                "its URLs were visited"
            ]
        );
        assert_eq!(
            reasons(&[block("background", "npm run dev and 2 more")]),
            ["`npm run dev` and 2 more run in the background"]
        );
        let long = "x".repeat(61);
        for (label, shown) in [
            ("cat <<EOF\nhello\nEOF", "cat <<EOF…".to_owned()),
            ("make…", "make…".to_owned()),
            (&long, format!("{}…", "x".repeat(60))),
        ] {
            let said = reasons(&[block("background", label)]);
            assert_eq!(said, [format!("`{shown}` runs in the background")]);
        }
    }

    #[test]
    fn rule_6_2_a_stop_that_comes_first_is_said() {
        let first = "awake, last used just now; will be stopped before it would freeze; \
                     stops for good at 15:05 (in 5 min)";
        let table = [
            (freeze(None, &[]), first),
            (freeze(Some(10), &[]), first),
            (
                freeze(None, &["foreground"]),
                "awake because a call is under way; does not freeze before that ends; \
                 stops for good at 15:05 (in 5 min)",
            ),
        ];
        for (freeze, expected) in table {
            let view = BoxView {
                freeze,
                last_used_at: at(0),
                stops_at: Some(at(5)),
                ..sample::ready()
            };
            assert_eq!(about(&view, &now()), expected);
        }
    }

    #[test]
    fn rule_9_1_a_person_at_the_screen_is_said_once() {
        for kinds in [&[][..], &["takeover"]] {
            let view = BoxView {
                status: Status::Takeover,
                freeze: freeze(None, kinds),
                ..sample::ready()
            };
            assert_eq!(
                about(&view, &now()),
                "awake because a person has its screen; does not freeze before that ends"
            );
        }
    }

    #[test]
    fn rule_4_10_where_a_frozen_box_is_and_what_it_kept() {
        let memory = Some(Keeps::FilesAndMemory);
        let table = [
            (
                frozen_box(Some(Tier::Disk), memory),
                "frozen on disk, memory and all: the next call wakes it",
            ),
            (
                frozen_box(Some(Tier::Ram), memory),
                "frozen in RAM, memory and all: the next call wakes it",
            ),
            (
                BoxView {
                    snapshot_error: Some("refused".to_owned()),
                    ..frozen_box(Some(Tier::Ram), memory)
                },
                "frozen in RAM, memory and all, without a copy on disk: the next call wakes it",
            ),
            (
                frozen_box(Some(Tier::Disk), Some(Keeps::Files)),
                "frozen on disk, files only: the next call starts it anew on them",
            ),
            (
                BoxView {
                    status_reason: Some("frozen by a call".to_owned()),
                    ..frozen_box(Some(Tier::Disk), memory)
                },
                "frozen by a call, on disk, memory and all: the next call wakes it",
            ),
            (
                BoxView {
                    status_reason: Some("too cold".to_owned()),
                    ..frozen_box(Some(Tier::Ram), memory)
                },
                "frozen (too cold) in RAM, memory and all: the next call wakes it",
            ),
            (
                BoxView {
                    status_reason: Some("frozen because the account is out of credits".to_owned()),
                    ..frozen_box(Some(Tier::Disk), memory)
                },
                "frozen because the account is out of credits, on disk, memory and all: once there are credits, the next \
                 call wakes it",
            ),
            (frozen_box(None, None), "frozen: the next call wakes it"),
        ];
        for (view, expected) in table {
            assert_eq!(about(&view, &now()), expected);
        }
    }

    #[test]
    fn rule_6_3_when_a_box_stops_for_good() {
        let table = [
            (40, "stops for good at 15:40 (in 40 min)"),
            (24 * 60 + 40, "stops for good tomorrow at 15:40"),
            (7 * 24 * 60, "stops for good on 2026-03-11 at 15:00"),
            (0, "stops for good any moment"),
        ];
        for (minutes, expected) in table {
            let view = BoxView {
                stops_at: Some(at(minutes)),
                ..frozen_box(None, None)
            };
            let said = about(&view, &now());
            assert_eq!(said, format!("frozen: the next call wakes it; {expected}"));
        }
    }

    #[test]
    fn rule_2_8_the_other_states_give_their_reason() {
        let table = [
            (ended(Status::Claimed, None), "starting"),
            (ended(Status::Starting, None), "starting"),
            (
                ended(Status::Freezing, None),
                "being frozen; a call for it waits and then wakes it",
            ),
            (ended(Status::Thawing, None), "waking"),
            (ended(Status::Stopping, None), "being stopped"),
            (
                ended(Status::Terminated, Some("frozen and unused for 24 h")),
                "stopped (frozen and unused for 24 h)",
            ),
            (
                ended(Status::Interrupted, Some("boxd ended")),
                "interrupted (boxd ended)",
            ),
            (
                ended(Status::Error, Some("x\u{1b}[2J")),
                "in trouble (x\\u{1b}[2J)",
            ),
            (
                ended(Status::Unknown, None),
                "in a state this version of icebox does not know",
            ),
        ];
        for (view, expected) in table {
            assert_eq!(about(&view, &now()), expected);
        }
        let restorable = BoxView {
            restorable_until: Some(at(24 * 60)),
            stops_at: Some(at(1)),
            ..ended(Status::Terminated, None)
        };
        assert_eq!(
            about(&restorable, &now()),
            "stopped; can be restored until tomorrow at 15:00"
        );
        let later = BoxView {
            restorable_until: Some(at(5 * 24 * 60)),
            ..restorable
        };
        assert_eq!(
            about(&later, &now()),
            "stopped; can be restored until 2026-03-09 at 15:00"
        );
    }

    #[test]
    fn spans_are_said_in_one_or_two_units() {
        let table = [
            (0, "0 s"),
            (89, "89 s"),
            (90, "2 min"),
            (9 * 60 + 58, "10 min"),
            (89 * 60, "89 min"),
            (2 * 3_600, "2 h"),
            (9_000, "2 h 30 min"),
            (86_390, "24 h"),
            (13 * 3_600 + 1_900, "14 h"),
            (4 * 86_400, "4 days"),
        ];
        for (seconds, expected) in table {
            assert_eq!(span(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn moments_are_said_by_their_day_in_the_readers_zone() {
        let table = [
            (40, "15:40"),
            (-24 * 60, "yesterday at 15:00"),
            (9 * 60, "tomorrow at 00:00"),
            (5 * 24 * 60, "on 2026-03-09 at 15:00"),
        ];
        for (minutes, expected) in table {
            assert_eq!(now().moment(at(minutes)), expected, "{minutes}");
        }
    }
}
