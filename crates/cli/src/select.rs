//! Which box a word on the command line means: a whole id, a name, or the beginning of an id. Owns that choice and how
//! candidates are shown. Changes nothing.

use icebox_wire::rest::BoxView;

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
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
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
    fn only_a_whole_id_is_taken_unseen() {
        assert!(is_id("aaaa0000000000000001"));
        assert!(!is_id("aaaa000000000000000"));
        assert!(!is_id("AAAA0000000000000001"));
    }
}
