//! Stacks as browsers write them: Chromium's `at name (url:line:column)` and the others' `name@url:line:column`. Owns finding
//! the place in a line, and what stands around it; what is at a place is not its business.

/// The longest line in which a place is looked for, in bytes.
const LINE_LEN: usize = 4_096;

/// A line of a stack that names a place in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'l> {
    /// The function, as the script calls it; empty when it has no name.
    pub(super) function: &'l str,
    /// The script.
    pub(super) url: &'l str,
    /// From 1.
    pub(super) line: u32,
    /// From 1.
    pub(super) column: u32,
}

impl<'l> Frame<'l> {
    /// Reads a line, if it names a place.
    pub(super) fn parse(line: &'l str) -> Option<Self> {
        if line.len() > LINE_LEN {
            return None;
        }
        let line = line.trim();
        let (function, place) = match line.strip_prefix("at ") {
            Some(rest) => match rest.strip_suffix(')') {
                // A function's name may have parentheses, as in `[as x]`; a place in `eval` has more of them.
                Some(inner) => inner.rsplit_once(" (").unwrap_or(("", inner)),
                None => match rest.strip_prefix("async ") {
                    Some(place) => ("async", place),
                    None => ("", rest),
                },
            },
            None => line.split_once('@')?,
        };
        let (place, column) = place.rsplit_once(':')?;
        let (url, line) = place.rsplit_once(':')?;
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
        let frame = Self {
            function,
            url,
            line: number(line)?,
            column: number(column)?,
        };
        (!url.is_empty() && !url.contains(char::is_whitespace)).then_some(frame)
    }

    /// The path at which the script is served.
    pub(super) fn path(&self) -> Option<&'l str> {
        path_of(self.url)
    }
}

/// The path in a URL, without its query.
pub(super) fn path_of(url: &str) -> Option<&str> {
    let rest = match url.split_once("://") {
        Some((_, rest)) => &rest[rest.find('/')?..],
        None => url,
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let path = &rest[..end];
    (path.starts_with('/') && path.len() > 1).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found() {
        let url = "https://app.example/a.js";
        let table = [
            ("    at pay (https://app.example/a.js:1:20)", "pay"),
            (
                "    at Object.pay [as x] (https://app.example/a.js:1:20)",
                "Object.pay [as x]",
            ),
            (
                "    at async pay (https://app.example/a.js:1:20)",
                "async pay",
            ),
            ("    at async https://app.example/a.js:1:20", "async"),
            ("    at https://app.example/a.js:1:20", ""),
            ("pay@https://app.example/a.js:1:20", "pay"),
            ("@https://app.example/a.js:1:20", ""),
        ];
        for (line, function) in table {
            let expected = Frame {
                function,
                url,
                line: 1,
                column: 20,
            };
            assert_eq!(Frame::parse(line), Some(expected), "{line}");
        }
        let long = format!("at a (https://x/{}.js:1:1)", "a".repeat(LINE_LEN));
        for line in [
            "",
            "Error: at the end",
            "at Array.map (<anonymous>)",
            "at a (native)",
            "a@b",
            "at x:0:1",
            "at x:1:-1",
            "at x:1:99999999999",
            "at :1:1",
            "at (a b:1:1)",
            "Error: mail me@example.org",
            &long,
        ] {
            assert_eq!(Frame::parse(line), None, "{line}");
        }
    }

    #[test]
    fn paths_are_those_that_are_served() {
        let table = [
            ("https://app.example/a/b.js?v=1#x", Some("/a/b.js")),
            ("https://app.example", None),
            ("https://app.example/", None),
            ("/a.js", Some("/a.js")),
            ("a.js", None),
            ("webpack-internal:///./a.js", Some("/./a.js")),
            ("https://app.example?x=/a.js", Some("/a.js")),
        ];
        for (url, expected) in table {
            assert_eq!(path_of(url), expected, "{url}");
        }
    }
}
