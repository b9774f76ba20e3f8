//! Which box a word on the command line means: a whole id, a name, or the beginning of an id. Owns that choice and how
//! candidates are shown. Changes nothing.

use icebox_wire::rest::{BoxView, Status};

use crate::client::Client;
use crate::error::CliError;

/// How long an id is; such a word needs no list.
const ID_LEN: usize = 20;
/// Candidates that are shown.
const MAX_SHOWN: usize = 8;

/// The id of the box that `word` means. Live boxes come first; a stopped one is meant only when no live one is.
pub(crate) fn box_id(client: &Client, word: &str) -> Result<String, CliError> {
    if is_id(word) {
        return Ok(word.to_owned());
    }
    for all in [false, true] {
        let Some(boxes) = client.every_box(all)? else {
            return Err(CliError::TooManyBoxes(word.to_owned()));
        };
        if let Some(found) = choose(&boxes, word)? {
            return Ok(found.id.clone());
        }
    }
    Err(CliError::NoBox(word.to_owned()))
}

/// The id of the stopped box that `word` means: the only one of that name that can come back, if there is one.
pub(crate) fn restorable_id(client: &Client, word: &str) -> Result<String, CliError> {
    if is_id(word) {
        return Ok(word.to_owned());
    }
    let boxes = client.every_box(true)?.unwrap_or_default();
    let can_return =
        |view: &&BoxView| view.restorable_until.is_some() && view.name.as_deref() == Some(word);
    let mut found = boxes.iter().filter(can_return);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.id.clone()),
        (None | Some(_), _) => box_id(client, word),
    }
}

fn is_id(word: &str) -> bool {
    word.len() == ID_LEN
        && word
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// The one box that is meant: by its name, or else by the beginning of its id.
fn choose<'a>(boxes: &'a [BoxView], word: &str) -> Result<Option<&'a BoxView>, CliError> {
    let named = boxes.iter().filter(|b| b.name.as_deref() == Some(word));
    let named: Vec<_> = named.collect();
    let found = if named.is_empty() && !word.is_empty() {
        boxes.iter().filter(|b| b.id.starts_with(word)).collect()
    } else {
        named
    };
    // Only those that are over lose: the files of an interrupted one are kept.
    let over = |view: &&&BoxView| matches!(view.status, Status::Stopping | Status::Terminated);
    let mut there = found.iter().filter(|view| !over(view));
    if let (Some(one), None) = (there.next(), there.next()) {
        return Ok(Some(one));
    }
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        // Namesakes that were stopped for good: nothing can happen to any of them, so that the latest says what did.
        [newest, ..] if all_gone(&found, word) => Ok(Some(newest)),
        several => Err(CliError::Ambiguous {
            word: word.to_owned(),
            candidates: several
                .iter()
                .take(MAX_SHOWN)
                .map(|b| candidate(b))
                .collect(),
        }),
    }
}

/// Whether these are all stopped, of that very name, and the latest of them cannot be brought back.
fn all_gone(found: &[&BoxView], word: &str) -> bool {
    let gone =
        |view: &&BoxView| view.status == Status::Terminated && view.name.as_deref() == Some(word);
    found.iter().all(gone)
        && found
            .first()
            .is_some_and(|newest| newest.restorable_until.is_none())
}

fn candidate(view: &BoxView) -> String {
    match &view.name {
        Some(name) => format!("{} ({name}, {})", view.id, view.status),
        None => format!("{} ({})", view.id, view.status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn boxes() -> Vec<BoxView> {
        [
            ("aaaa0000000000000001", Some("web")),
            ("aaaa0000000000000002", Some("api")),
            ("bbbb0000000000000003", Some("web")),
            ("cccc0000000000000004", Some("aaaa")),
            ("dddd0000000000000005", None),
        ]
        .into_iter()
        .map(|(id, name)| BoxView {
            id: id.to_owned(),
            name: name.map(str::to_owned),
            ..sample::ready()
        })
        .collect()
    }

    #[test]
    fn a_word_means_a_name_first_and_then_the_beginning_of_an_id() {
        let boxes = boxes();
        for (word, expected) in [
            ("api", Some("aaaa0000000000000002")),
            ("aaaa", Some("cccc0000000000000004")),
            ("aaaa0000000000000001", Some("aaaa0000000000000001")),
            ("d", Some("dddd0000000000000005")),
            ("zzz", None),
            ("", None),
        ] {
            let found = choose(&boxes, word).unwrap();
            assert_eq!(found.map(|b| b.id.as_str()), expected, "{word:?}");
        }
    }

    #[test]
    fn several_candidates_are_named() {
        let boxes = boxes();
        let twice = choose(&boxes, "web").unwrap_err().line();
        assert!(
            twice.contains("aaaa0000000000000001 (web, ready)"),
            "{twice}"
        );
        assert!(twice.contains("bbbb0000000000000003"), "{twice}");
        let prefix = choose(&boxes, "aaa").unwrap_err().line();
        assert!(
            prefix.contains("aaaa0000000000000002 (api, ready)"),
            "{prefix}"
        );
        assert!(!prefix.contains("bbbb"), "{prefix}");
    }

    #[test]
    fn live_ones_win_over_stopped_ones_and_the_latest_says_what_became_of_all() {
        let view = |id: &str, status, kept: bool| BoxView {
            id: id.to_owned(),
            name: Some("web".to_owned()),
            status,
            restorable_until: kept.then(|| "2026-03-05T13:00:00Z".parse().unwrap()),
            ..sample::ready()
        };
        let gone = view("aa", Status::Terminated, false);
        let kept = view("bb", Status::Terminated, true);
        let live = view("cc", Status::Frozen, false);
        let cut = view("dd", Status::Interrupted, false);
        let ending = view("ee", Status::Stopping, false);
        let table = [
            (vec![gone.clone(), kept.clone(), live.clone()], Some("cc")),
            (vec![gone.clone(), kept.clone()], Some("aa")),
            // To stop it would delete its copy: that is not for a guess.
            (vec![kept, gone], None),
            (vec![live.clone(), live.clone()], None),
            // Its files are kept, and it is listed: to stop either would be a guess.
            (vec![live.clone(), cut], None),
            (vec![ending, live], Some("cc")),
        ];
        for (boxes, expected) in table {
            let found = choose(&boxes, "web").ok().flatten();
            assert_eq!(found.map(|view| view.id.as_str()), expected, "{boxes:?}");
        }
    }

    #[test]
    fn only_a_whole_id_is_taken_unseen() {
        assert!(is_id("aaaa0000000000000001"));
        assert!(!is_id("aaaa000000000000000"));
        assert!(!is_id("AAAA0000000000000001"));
    }
}
