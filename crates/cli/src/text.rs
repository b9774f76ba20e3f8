//! Strings between people, shells and terminals: quoting a command for bash, `K=V` arguments, and making what others
//! wrote harmless to print. Knows nothing of boxes.

use std::borrow::Cow;

/// The command line for bash: one argument is bash already, several are quoted so that bash sees them unchanged.
pub(crate) fn command_line(args: &[String]) -> String {
    match args {
        [one] => one.clone(),
        several => {
            let quoted: Vec<_> = several.iter().map(|arg| quoted(arg)).collect();
            quoted.join(" ")
        }
    }
}

/// An argument as bash must read it to get it unchanged.
fn quoted(arg: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    // A first word with `=` would be an assignment.
    if !arg.is_empty() && arg.chars().all(plain) && !arg.contains('=') {
        return Cow::Borrowed(arg);
    }
    Cow::Owned(format!("'{}'", arg.replace('\'', r"'\''")))
}

/// Reads `K=V`. The value may be empty and may contain `=`.
pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("give it as NAME=VALUE".to_owned()),
    }
}

/// The text with control characters shown as such: names and reasons come from others, and a terminal obeys them.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// A size in bytes for people.
pub(crate) fn bytes(n: u64) -> String {
    const STEP: u64 = 1024;
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < STEP {
        return format!("{n} B");
    }
    let (mut whole, mut rest, mut unit) = (n / STEP, n % STEP, UNITS[0]);
    for next in &UNITS[1..] {
        if whole < STEP {
            break;
        }
        (whole, rest, unit) = (whole / STEP, whole % STEP, next);
    }
    if whole < 10 {
        return format!("{whole}.{} {unit}", rest * 10 / STEP);
    }
    format!("{whole} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(args: &[&str]) -> String {
        let args: Vec<_> = args.iter().map(|&a| a.to_owned()).collect();
        command_line(&args)
    }

    #[test]
    fn one_argument_is_bash_and_several_reach_the_program_unchanged() {
        let table: &[(&[&str], &str)] = &[
            (&["echo $HOME | wc -c"], "echo $HOME | wc -c"),
            (&["ls", "-la", "/work"], "ls -la /work"),
            (&["echo", "a b", ""], "echo 'a b' ''"),
            (&["echo", "$HOME", "`id`", "*"], "echo '$HOME' '`id`' '*'"),
            (&["echo", "it's"], r"echo 'it'\''s'"),
            (&["printf", "a\nb"], "printf 'a\nb'"),
            (&["A=1", "true"], "'A=1' true"),
            (&["grep", "~x", "é"], "grep '~x' 'é'"),
        ];
        for (args, expected) in table {
            assert_eq!(line(args), *expected, "{args:?}");
        }
    }

    #[test]
    fn bash_reads_back_what_was_quoted() {
        let words = [
            "a b", "it's", "$x", "", "\\", "\"", "a=b", "!!", "{1,2}", "#c", "~",
        ];
        let mut args = vec!["printf", r"%s\n"];
        args.extend(words);
        let shell = std::process::Command::new("bash")
            .args(["-c", &line(&args)])
            .output();
        let shell = shell.expect("bash runs");
        assert_eq!(
            String::from_utf8_lossy(&shell.stdout),
            words.join("\n") + "\n"
        );
    }

    #[test]
    fn key_value_wants_a_name() {
        assert_eq!(key_value("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(key_value("A="), Ok(("A".to_owned(), String::new())));
        assert!(key_value("A").is_err());
        assert!(key_value("=b").is_err());
    }

    #[test]
    fn what_others_wrote_cannot_drive_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb c");
        assert_eq!(printable("箱 é"), "箱 é");
    }

    #[test]
    fn sizes_have_two_or_three_digits() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (10 << 10, "10 KiB"),
            ((1 << 20) + (1 << 19), "1.5 MiB"),
            (64 << 20, "64 MiB"),
            (3 << 30, "3.0 GiB"),
            (5 << 50, "5120 TiB"),
        ];
        for (n, expected) in table {
            assert_eq!(bytes(n), expected, "{n}");
        }
    }
}
