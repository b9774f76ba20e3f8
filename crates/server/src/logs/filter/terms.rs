//! Terms of a CloudWatch filter pattern: all of `a "b c"`, any of `?d ?e`, none of `-f`. Upper and lower case differ.

use super::bad;
use crate::commands::Trouble;

/// Terms that are looked for in a text.
#[derive(Debug, Default)]
pub(in crate::logs) struct Terms {
    all: Vec<String>,
    any: Vec<String>,
    none: Vec<String>,
}

impl Terms {
    /// Whether a text has what it must have.
    pub(super) fn matches(&self, text: &str) -> bool {
        let has = |term: &String| text.contains(&**term);
        self.all.iter().all(has)
            && (self.any.is_empty() || self.any.iter().any(has))
            && !self.none.iter().any(has)
    }
}

/// Reads terms that are separated by spaces.
pub(super) fn parse(text: &str) -> Result<Terms, Trouble> {
    let mut terms = Terms::default();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (list, word) = match first {
            '?' => (&mut terms.any, &rest[1..]),
            '-' => (&mut terms.none, &rest[1..]),
            _ => (&mut terms.all, rest),
        };
        let (term, behind) = match word.strip_prefix('"') {
            Some(quoted) => self::quoted(quoted)?,
            None => {
                let end = word.find(char::is_whitespace).unwrap_or(word.len());
                (word[..end].to_owned(), &word[end..])
            }
        };
        if term.is_empty() {
            return Err(bad(
                "complete: behind `?` and `-` and between quotes stands a term",
            ));
        }
        list.push(term);
        rest = behind.trim_start();
    }
    Ok(terms)
}

/// Reads up to a closing quote; a backslash keeps the character behind it. Gives what was quoted, and what follows.
pub(super) fn quoted(text: &str) -> Result<(String, &str), Trouble> {
    let mut inner = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((inner, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, kept)) => inner.push(kept),
                None => break,
            },
            c => inner.push(c),
        }
    }
    Err(bad("closed: a quote `\"` that opens has to be closed"))
}
