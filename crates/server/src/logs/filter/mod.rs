//! What a search looks for. A query is one plain term, unless it begins with one of `{ ? - " % [`: then it is a CloudWatch
//! filter pattern, of which terms, regular expressions and conditions on fields are understood. Owns what a query means; the
//! forms are read in [`terms`] and [`fields`].

mod fields;
mod terms;

use icebox_wire::rest::LogRow;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::commands::Trouble;
use fields::Condition;
use terms::Terms;

/// The longest query, in bytes.
const QUERY_LEN: usize = 2_000;
/// How large one regular expression may become, in bytes.
const REGEX_SIZE: usize = 256 * 1024;
/// What is understood, for messages.
const SUPPORTED: &str = "supported are a plain term, terms (`\"a phrase\" b`, `?a ?b` for any of them, `-a` for without), \
    a regular expression (`%a.c%`) and conditions on fields (`{ $.level = \"error\" && $.extra.code >= 500 }`)";

/// What a search looks for.
#[derive(Debug)]
pub(super) enum Filter {
    /// Everything.
    All,
    /// A text that matches.
    Text(Regex),
    /// Terms in the text.
    Terms(Terms),
    /// Conditions on the fields.
    Fields(Condition),
}

impl Filter {
    /// Reads a query.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, Trouble> {
        let query = query.unwrap_or_default();
        if query.len() > QUERY_LEN {
            return Err(bad(&format!("at most {QUERY_LEN} bytes long")));
        }
        let trimmed = query.trim();
        match trimmed.chars().next() {
            None => Ok(Self::All),
            Some('{') => fields::parse(trimmed).map(Self::Fields),
            Some('?' | '-' | '"') => terms::parse(trimmed).map(Self::Terms),
            Some('%') => {
                let inner = trimmed
                    .strip_prefix('%')
                    .and_then(|rest| rest.strip_suffix('%'));
                let inner = inner.filter(|inner| !inner.is_empty());
                let inner =
                    inner.ok_or_else(|| bad("closed with a `%` when it begins with one"))?;
                regex(inner).map(Self::Text)
            }
            Some('[') => Err(bad(&format!(
                "of another form: patterns of fields separated by spaces are not supported; {SUPPORTED}"
            ))),
            Some(_) => {
                let plain = RegexBuilder::new(&regex::escape(trimmed))
                    .case_insensitive(true)
                    .build();
                let plain = plain.map_err(|_| bad("shorter"))?;
                Ok(Self::Text(plain))
            }
        }
    }

    /// Whether a row is looked for; `body` is all of it as JSON.
    pub(super) fn matches(&self, row: &LogRow, body: &str) -> bool {
        match self {
            Self::All => true,
            Self::Text(regex) => regex.is_match(&text_of(row)),
            Self::Terms(terms) => terms.matches(&text_of(row)),
            Self::Fields(condition) => {
                let fields: Value = serde_json::from_str(body).unwrap_or_default();
                condition.holds(&fields)
            }
        }
    }
}

/// What terms are looked for in.
fn text_of(row: &LogRow) -> String {
    let level = match row.level {
        icebox_wire::rest::LogLevel::Debug => "debug",
        icebox_wire::rest::LogLevel::Info => "info",
        icebox_wire::rest::LogLevel::Warn => "warn",
        icebox_wire::rest::LogLevel::Error => "error",
    };
    let mut text = format!("{level} {}\n{}", row.name, row.msg);
    for more in [&row.url, &row.stack, &row.stack_resolved]
        .into_iter()
        .flatten()
    {
        text.push('\n');
        text.push_str(more);
    }
    if let Some(extra) = &row.extra {
        text.push('\n');
        text.push_str(&extra.to_string());
    }
    text
}

fn regex(pattern: &str) -> Result<Regex, Trouble> {
    RegexBuilder::new(pattern)
        .size_limit(REGEX_SIZE)
        .dfa_size_limit(REGEX_SIZE)
        .build()
        .map_err(|error| {
            if matches!(error, regex::Error::CompiledTooBig(_)) {
                return bad("simpler: its regular expression grows too large");
            }
            bad(&format!("right: its regular expression is not: {error}"))
        })
}

fn bad(what: &str) -> Trouble {
    Trouble::bad("query", what)
}

#[cfg(test)]
mod tests {
    use icebox_wire::rest::LogLevel;
    use serde_json::json;

    use super::*;

    fn row() -> LogRow {
        LogRow {
            time: jiff::Timestamp::UNIX_EPOCH,
            level: LogLevel::Error,
            name: "checkout".to_owned(),
            msg: "[ERROR 419] MISSING ARGUMENTS of \"pay\"".to_owned(),
            release: Some("1.2".to_owned()),
            of_box: None,
            user: Some("ann".to_owned()),
            session: None,
            device: None,
            url: Some("https://app.example/cart".to_owned()),
            stack: Some("at a (https://app.example/a.js:1:2)".to_owned()),
            stack_resolved: Some("at a (src/pay.ts:7:3)".to_owned()),
            extra: Some(json!({
                "code": 419, "ratio": 0.5, "ok": false, "nothing": null, "ip": "192.168.1.7",
                "list": [{"id": "x"}], "a b": 1,
            })),
        }
    }

    fn matches(query: &str) -> bool {
        let row = row();
        let body = serde_json::to_string(&row).unwrap();
        Filter::parse(Some(query)).unwrap().matches(&row, &body)
    }

    #[test]
    fn queries_find_what_they_should() {
        let table = [
            ("", true),
            ("missing arguments", true),
            ("MISSING  ARGUMENTS", false),
            ("419] missing", true),
            ("a.js:1", true),
            ("aXjs:1", false),
            ("pay.ts", true),
            ("?WARN ?ERROR", true),
            ("?WARN ?INFO", false),
            ("?WARN \"ERROR 419\"", false),
            ("?ERROR \"ERROR 419\"", true),
            ("\"ERROR 419\" ARGUMENTS", true),
            ("\"error 419\"", false),
            ("\"of \\\"pay\\\"\"", true),
            ("-WARN", true),
            ("-ARGUMENTS", false),
            ("-WARN ERROR", true),
            ("-\"ERROR 419\"", false),
            ("%ERR.R\\s4\\d+%", true),
            ("%^ERROR%", false),
            ("%(?i)missing%", true),
            ("{ $.level = \"error\" }", true),
            ("{ $.level = error }", true),
            ("{ $.level != \"error\" }", false),
            ("{ $.user = \"an*\" }", true),
            ("{ $.user = \"*b*\" }", false),
            ("{ $.extra.ip = 192.168.* }", true),
            ("{ $.extra.code = 419 }", true),
            ("{ $.extra.code = \"419\" }", false),
            ("{ $.extra.code >= 4.19e2 && $.extra.code < 420 }", true),
            ("{ $.extra.code > 419 || $.extra.ratio <= 0.5 }", true),
            (
                "{ ($.extra.code > 419 || $.level = error) && ($.user = \"bob\") }",
                false,
            ),
            (
                "{ $.user = \"bob\" && $.level = error || $.release = \"1.2\" }",
                true,
            ),
            ("{ $.extra.ok IS FALSE }", true),
            ("{ $.extra.ok is true }", false),
            ("{ $.extra.nothing IS NULL }", true),
            ("{ $.session IS NULL }", false),
            ("{ $.session NOT EXISTS }", true),
            ("{ $.user NOT EXISTS }", false),
            ("{ $.session != \"x\" }", false),
            ("{ $.extra.list[0].id = x }", true),
            ("{ $.extra.list[1].id NOT EXISTS }", true),
            ("{ $.extra[\"a b\"] = 1 }", true),
            ("{ $['user'] = ann }", true),
            ("{ $.msg = %ERROR \\d{3}% }", true),
            ("{ $.msg != %ERROR \\d{3}% }", false),
            ("{ $.extra.ok = \"*\" }", false),
        ];
        for (query, expected) in table {
            assert_eq!(matches(query), expected, "{query}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let long = format!("\"{}\"", "a".repeat(QUERY_LEN));
        let deep = format!("{{ {} $.a = 1 {} }}", "(".repeat(50), ")".repeat(50));
        let many = format!("{{ $.a = %a%{} }}", " || $.a = %a%".repeat(5));
        let table: &[(&str, &str)] = &[
            ("[a, b]", "conditions on fields"),
            (&long, "2000"),
            (&deep, "nested"),
            (&many, "5 regular"),
            ("%", "closed"),
            ("%%", "closed"),
            ("%a", "closed"),
            ("%(%", "regular expression"),
            ("%(a{1000}){1000}%", "too large"),
            ("\"open", "closed"),
            ("?", "term"),
            ("-", "term"),
            ("\"\"", "term"),
            ("{", "selector"),
            ("{ }", "selector"),
            ("{ level = 1 }", "selector"),
            ("{ $ = 1 }", "selector"),
            ("{ $. = 1 }", "selector"),
            ("{ $.a }", "compare"),
            ("{ $.a = }", "value"),
            ("{ $.a ~ 1 }", "compare"),
            ("{ $.a > \"x\" }", "number"),
            ("{ $.a IS 7 }", "NULL"),
            ("{ $.a NOT 7 }", "EXISTS"),
            ("{ $.a = 1 ", "`}`"),
            ("{ $.a = 1 } more", "`}`"),
            ("{ ($.a = 1 }", "`)`"),
            ("{ $.a = 1 & $.b = 2 }", "`}`"),
            ("{ $.a[x] = 1 }", "selector"),
            ("{ $.a[*] = 1 }", "selector"),
            ("{ $.a = \"open }", "closed"),
            ("{ $.a = %open }", "closed"),
        ];
        for (query, expected) in table {
            let trouble = Filter::parse(Some(query)).unwrap_err();
            assert_eq!(trouble.more["field"], "query", "{query}");
            assert!(trouble.text.contains(expected), "{query}: {}", trouble.text);
        }
    }

    #[test]
    fn nothing_that_is_typed_panics() {
        let pieces = [
            "{", "}", "$.a", "=", "\"", "%", "(", ")", "&&", "é", "?", "-", "[", "0", " ", "*",
            "\\",
        ];
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    let query = format!("{first}{second}{third}");
                    if let Ok(filter) = Filter::parse(Some(&query)) {
                        let row = row();
                        filter.matches(&row, "not json");
                    }
                }
            }
        }
    }
}
