//! Conditions on the fields of a row, as CloudWatch has them: `{ $.level = "error" && ($.extra.code >= 500 || …) }`. `&&`
//! binds closer than `||`. A field that is not there fulfils nothing but `NOT EXISTS`.

use regex::Regex;
use serde_json::Value;

use super::terms::quoted;
use super::{bad, regex};
use crate::commands::Trouble;

/// How deep parentheses may be nested.
const NESTED: usize = 20;
/// Regular expressions in one query.
const REGEXES: usize = 5;

/// A condition on the fields of a row.
#[derive(Debug)]
pub(in crate::logs) enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    One(Vec<Step>, Test),
}

/// One step from a value to one inside it.
#[derive(Debug)]
pub(in crate::logs) enum Step {
    Field(String),
    Item(usize),
}

/// What is asked of a value.
#[derive(Debug)]
pub(in crate::logs) enum Test {
    Is(Want),
    IsNot(Want),
    Compares(Order, f64),
    Null,
    True,
    False,
    Missing,
}

/// What a value is to be.
#[derive(Debug)]
pub(in crate::logs) enum Want {
    Number(f64),
    /// A text; between its pieces may be anything.
    Text(Vec<String>),
    Matches(Regex),
}

#[derive(Clone, Copy, Debug)]
pub(in crate::logs) enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Condition {
    /// Whether it holds for a row.
    pub(super) fn holds(&self, row: &Value) -> bool {
        match self {
            Self::All(all) => all.iter().all(|condition| condition.holds(row)),
            Self::Any(any) => any.iter().any(|condition| condition.holds(row)),
            Self::One(path, test) => {
                let found = path.iter().try_fold(row, |value, step| match step {
                    Step::Field(name) => value.get(name),
                    Step::Item(index) => value.get(index),
                });
                test.holds(found)
            }
        }
    }
}

impl Test {
    fn holds(&self, found: Option<&Value>) -> bool {
        let Some(value) = found else {
            return matches!(self, Self::Missing);
        };
        match self {
            Self::Missing => false,
            Self::Null => value.is_null(),
            Self::True => *value == Value::Bool(true),
            Self::False => *value == Value::Bool(false),
            Self::Is(want) => want.is(value),
            Self::IsNot(want) => !want.is(value),
            Self::Compares(order, than) => value.as_f64().is_some_and(|number| match order {
                Order::Less => number < *than,
                Order::LessOrEqual => number <= *than,
                Order::Greater => number > *than,
                Order::GreaterOrEqual => number >= *than,
            }),
        }
    }
}

impl Want {
    fn is(&self, value: &Value) -> bool {
        match (self, value) {
            // Whoever looks for 0.1 means the number that is written so.
            (Self::Number(want), Value::Number(number)) => number
                .as_f64()
                .is_some_and(|number| number.total_cmp(want).is_eq()),
            (Self::Text(pieces), Value::String(text)) => is_like(text, pieces),
            (Self::Matches(regex), Value::String(text)) => regex.is_match(text),
            (Self::Matches(regex), Value::Number(number)) => regex.is_match(&number.to_string()),
            (Self::Number(_) | Self::Text(_) | Self::Matches(_), _) => false,
        }
    }
}

/// Whether a text is these pieces, with anything between them.
fn is_like(text: &str, pieces: &[String]) -> bool {
    let [first, middle @ .., last] = pieces else {
        return pieces.first().is_some_and(|only| only == text);
    };
    let Some(mut rest) = text.strip_prefix(&**first) else {
        return false;
    };
    for piece in middle {
        match rest.find(&**piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(&**last)
}

/// Reads a condition between braces.
pub(super) fn parse(text: &str) -> Result<Condition, Trouble> {
    let mut reader = Reader {
        rest: text.strip_prefix('{').unwrap_or(text),
        regexes: 0,
    };
    let condition = reader.any(0)?;
    if !reader.eat("}") || !reader.rest.trim().is_empty() {
        return Err(bad(&format!(
            "conditions between `{{` and `}}`, joined by `&&` and `||`; at `{}` it is not",
            reader.shown()
        )));
    }
    Ok(condition)
}

struct Reader<'t> {
    rest: &'t str,
    regexes: usize,
}

impl Reader<'_> {
    /// Takes a token if it comes next.
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes letters if they come next, and no more of them behind.
    fn eat_word(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start();
        let end = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let is_it = rest[..end].eq_ignore_ascii_case(word);
        if is_it {
            self.rest = &rest[end..];
        }
        is_it
    }

    /// A little of what is to be read.
    fn shown(&self) -> String {
        self.rest.trim().chars().take(20).collect()
    }

    fn any(&mut self, depth: usize) -> Result<Condition, Trouble> {
        let mut any = vec![self.all(depth)?];
        while self.eat("||") {
            any.push(self.all(depth)?);
        }
        Ok(Condition::Any(any))
    }

    fn all(&mut self, depth: usize) -> Result<Condition, Trouble> {
        let mut all = vec![self.one(depth)?];
        while self.eat("&&") {
            all.push(self.one(depth)?);
        }
        Ok(Condition::All(all))
    }

    fn one(&mut self, depth: usize) -> Result<Condition, Trouble> {
        if self.eat("(") {
            if depth >= NESTED {
                return Err(bad(&format!("nested at most {NESTED} deep")));
            }
            let inner = self.any(depth + 1)?;
            if !self.eat(")") {
                let text = format!("closed: `)` is missing at `{}`", self.shown());
                return Err(bad(&text));
            }
            return Ok(inner);
        }
        let path = self.path()?;
        let test = self.test()?;
        Ok(Condition::One(path, test))
    }

    /// `$.name`, `$.name.inner`, `$.list[0]`, `$["a name"]`.
    fn path(&mut self) -> Result<Vec<Step>, Trouble> {
        let shown = self.shown();
        let wrong = || {
            bad(&format!(
                "made of selectors as in `$.extra.list[0].code`; `{shown}` is none"
            ))
        };
        if !self.eat("$") {
            return Err(wrong());
        }
        let mut path = Vec::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix('.') {
                let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
                let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                if end == 0 {
                    return Err(wrong());
                }
                path.push(Step::Field(rest[..end].to_owned()));
                self.rest = &rest[end..];
            } else if let Some(rest) = self.rest.strip_prefix('[') {
                let (inner, rest) = rest.split_once(']').ok_or_else(wrong)?;
                let quote = |quote| {
                    let inner = inner.strip_prefix(quote)?;
                    inner.strip_suffix(quote)
                };
                path.push(match (quote('"').or(quote('\'')), inner.parse()) {
                    (Some(name), _) => Step::Field(name.to_owned()),
                    (None, Ok(index)) => Step::Item(index),
                    (None, Err(_)) => return Err(wrong()),
                });
                self.rest = rest;
            } else if path.is_empty() {
                return Err(wrong());
            } else {
                return Ok(path);
            }
        }
    }

    fn test(&mut self) -> Result<Test, Trouble> {
        for (sign, order) in [
            (">=", Order::GreaterOrEqual),
            ("<=", Order::LessOrEqual),
            (">", Order::Greater),
            ("<", Order::Less),
        ] {
            if self.eat(sign) {
                return match self.want()? {
                    Want::Number(number) => Ok(Test::Compares(order, number)),
                    Want::Text(_) | Want::Matches(_) => {
                        Err(bad(&format!("such that a number stands behind `{sign}`")))
                    }
                };
            }
        }
        if self.eat("!=") {
            return self.want().map(Test::IsNot);
        }
        if self.eat("=") {
            return self.want().map(Test::Is);
        }
        if self.eat_word("IS") {
            let tests = [
                ("NULL", Test::Null),
                ("TRUE", Test::True),
                ("FALSE", Test::False),
            ];
            for (word, test) in tests {
                if self.eat_word(word) {
                    return Ok(test);
                }
            }
            return Err(bad(
                "such that `NULL`, `TRUE` or `FALSE` stands behind `IS`",
            ));
        }
        if self.eat_word("NOT") {
            if self.eat_word("EXISTS") {
                return Ok(Test::Missing);
            }
            return Err(bad("such that `EXISTS` stands behind `NOT`"));
        }
        Err(bad(&format!(
            "conditions that compare, by = != > < >= <=, `IS NULL`, `IS TRUE`, `IS FALSE` or `NOT EXISTS`; `{}` does not",
            self.shown()
        )))
    }

    fn want(&mut self) -> Result<Want, Trouble> {
        let text = self.rest.trim_start();
        if let Some(inner) = text.strip_prefix('"') {
            let (inner, rest) = quoted(inner)?;
            self.rest = rest;
            return Ok(Want::Text(pieces(&inner)));
        }
        if let Some(inner) = text.strip_prefix('%') {
            let (inner, rest) = inner
                .split_once('%')
                .ok_or_else(|| bad("closed: a `%` that opens has to be closed"))?;
            self.regexes += 1;
            if self.regexes > REGEXES {
                return Err(bad(&format!("with at most {REGEXES} regular expressions")));
            }
            self.rest = rest;
            return regex(inner).map(Want::Matches);
        }
        let ends = |c: char| c.is_whitespace() || "()&|}\"".contains(c);
        let end = text.find(ends).unwrap_or(text.len());
        let word = &text[..end];
        if word.is_empty() {
            return Err(bad("such that a value stands behind each comparison"));
        }
        self.rest = &text[end..];
        match word.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Want::Number(number)),
            Ok(_) | Err(_) => Ok(Want::Text(pieces(word))),
        }
    }
}

/// A text between its wildcards.
fn pieces(text: &str) -> Vec<String> {
    text.split('*').map(str::to_owned).collect()
}
