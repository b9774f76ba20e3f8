//! Output: tables and lines for people on standard output, notes on standard error. Owns colours (only on a terminal
//! and without NO_COLOR, which is anstream's doing) and column widths. Knows no box.

use std::io::{self, Read, Write};

use clap::builder::styling::{AnsiColor, Style};
use icebox_wire::rest::Status;

use crate::error::CliError;
use crate::text::printable;

/// A heading.
pub(crate) const BOLD: Style = Style::new().bold();
/// What matters less.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Good.
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
/// Worth a look.
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();
/// Bad.
pub(crate) const RED: Style = AnsiColor::Red.on_default();
/// At rest.
pub(crate) const BLUE: Style = AnsiColor::Cyan.on_default();

/// Bytes that are copied at a time.
const CHUNK: usize = 64 << 10;

/// A text in a style.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// One line on standard output.
pub(crate) fn line(text: &str) -> Result<(), CliError> {
    writeln!(anstream::stdout(), "{text}").map_err(CliError::io("write to standard output"))
}

/// One line on standard error: progress, and what a person may want to know besides.
pub(crate) fn note(text: &str) {
    // Nobody is left to be told when this fails.
    drop(writeln!(anstream::stderr(), "{text}"));
}

/// What the server says under a result (rule 6.4), a line each on standard error.
pub(crate) fn notices(lines: &[String]) {
    for line in lines {
        note(&format!("icebox: {}", printable(line)));
    }
}

/// Says that the bytes of an output between two offsets are missing, if any are.
pub(crate) fn not_kept(from: u64, to: u64) {
    if to > from {
        note(&format!(
            "icebox: {} bytes are not kept any more",
            to - from
        ));
    }
}

/// The style of a status.
pub(crate) fn status_style(status: Status) -> Style {
    match status {
        Status::Ready | Status::Takeover => GREEN,
        Status::Frozen | Status::Freezing | Status::Thawing => BLUE,
        Status::Claimed | Status::Starting | Status::Stopping => YELLOW,
        Status::Interrupted | Status::Error | Status::Unknown => RED,
        Status::Terminated => DIM,
    }
}

/// A cell of a table.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell in the terminal's own colours.
    pub(crate) fn plain(text: &str) -> Self {
        Self::styled(Style::new(), text)
    }

    /// A cell in a style.
    pub(crate) fn styled(style: Style, text: &str) -> Self {
        Self {
            text: printable(text),
            style,
        }
    }
}

/// A table whose last column is as wide as it likes.
pub(crate) fn table<const N: usize>(heads: [&str; N], rows: &[[Cell; N]]) -> Result<(), CliError> {
    let mut widths = heads.map(|head| head.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    let heads = heads.map(|head| Cell::styled(BOLD, head));
    for row in std::iter::once(&heads).chain(rows) {
        line(&row_text(row, &widths))?;
    }
    Ok(())
}

fn row_text(row: &[Cell], widths: &[usize]) -> String {
    let mut out = String::new();
    for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
        out.push_str(&styled(cell.style, &cell.text));
        if index + 1 < row.len() {
            let pad = width - cell.text.chars().count() + 2;
            out.extend(std::iter::repeat_n(' ', pad));
        }
    }
    out
}

/// Passes bytes on as they come, each as soon as it is there. Answers how many there were, and what ended them if it
/// was not their end.
pub(crate) fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
) -> Result<(u64, Option<io::Error>), CliError> {
    let mut buffer = vec![0; CHUNK];
    let mut total = 0;
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => return Ok((total, None)),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Ok((total, Some(error))),
        };
        let written = to.write_all(&buffer[..n]).and_then(|()| to.flush());
        written.map_err(CliError::io("pass the output on"))?;
        total += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_their_style() {
        let row = [Cell::styled(GREEN, "é"), Cell::plain("x")];
        let out = row_text(&row, &[3, 1]);
        assert_eq!(anstream::adapter::strip_str(&out).to_string(), "é    x");
    }

    #[test]
    fn a_broken_stream_says_how_far_it_came() {
        struct Broken(bool);
        impl Read for Broken {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
                buffer[..3].copy_from_slice(b"abc");
                Ok(3)
            }
        }
        let mut out = Vec::new();
        let (total, end) = copy(&mut Broken(false), &mut out).unwrap();
        assert_eq!((total, out.as_slice()), (3, &b"abc"[..]));
        assert_eq!(end.unwrap().kind(), io::ErrorKind::ConnectionReset);
    }
}
