//! boxd's own arguments.

use std::ffi::OsString;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;

/// How boxd is called.
pub(crate) const USAGE: &str =
    "usage: boxd [--listen ADDR:PORT] [--state-dir DIR] [--work-dir DIR] [--version]
  --listen     where to serve (default 0.0.0.0:49983)
  --state-dir  where larger output is kept (default /var/lib/boxd)
  --work-dir   where commands start and relative directories begin (default /work)
boxd's own variables, but for HOME, are those of every process in the box.";

/// Says which descriptor leads to what the boxd before left.
pub(crate) const TAKE_OVER: &str = "--take-over";

/// What boxd is to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) listen: SocketAddr,
    pub(crate) state_dir: PathBuf,
    pub(crate) work_dir: PathBuf,
    /// How much output is kept of one stream; half at each end. Only tests change it.
    pub(crate) output_cap_bytes: u64,
    /// Where the boxd before this one left what it had; only that one says so.
    pub(crate) take_over: Option<TakeOver>,
}

/// The descriptors that came over a restart and are not named elsewhere. As text: both numbers, with a colon between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakeOver {
    /// Of the file in which everything is written.
    pub(crate) left_fd: i32,
    /// Of the listening socket.
    pub(crate) listener_fd: i32,
}

impl fmt::Display for TakeOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.left_fd, self.listener_fd)
    }
}

impl FromStr for TakeOver {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (left, listener) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self {
            left_fd: left.parse()?,
            listener_fd: listener.parse()?,
        })
    }
}

impl Default for Args {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, icebox_wire::boxd::PORT)),
            state_dir: PathBuf::from("/var/lib/boxd"),
            work_dir: PathBuf::from("/work"),
            output_cap_bytes: 64 << 20,
            take_over: None,
        }
    }
}

/// Reads arguments; an error is a sentence for the caller.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Args, String> {
    let mut parsed = Args::default();
    let mut args = args.into_iter();
    while let Some(name) = args.next() {
        let name = name.to_string_lossy().into_owned();
        let mut value = || args.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--listen" => parsed.listen = number(&name, &value()?)?,
            "--state-dir" => parsed.state_dir = value()?.into(),
            "--work-dir" => parsed.work_dir = value()?.into(),
            TAKE_OVER => parsed.take_over = Some(number(&name, &value()?)?),
            "--output-cap-bytes" => parsed.output_cap_bytes = number(&name, &value()?)?,
            _ => return Err(format!("unknown argument {name:?}")),
        }
    }
    Ok(parsed)
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(
    name: &str,
    text: &OsString,
) -> Result<T, String> {
    let text = text.to_string_lossy();
    text.parse()
        .map_err(|error| format!("{name} {text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_all(args: &[&str]) -> Result<Args, String> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn arguments_replace_the_defaults() {
        assert_eq!(parse_all(&[]), Ok(Args::default()));
        let args = parse_all(&["--listen", "127.0.0.1:0", "--state-dir", "/s"]).expect("valid");
        assert_eq!(args.listen.to_string(), "127.0.0.1:0");
        assert_eq!(args.state_dir, PathBuf::from("/s"));
        let from = TakeOver {
            left_fd: 12,
            listener_fd: 9,
        };
        let args = parse_all(&[TAKE_OVER, &from.to_string()]).expect("valid");
        assert_eq!(args.take_over, Some(from));
    }

    #[test]
    fn mistakes_are_named() {
        for (args, word) in [
            (&["--listen"][..], "--listen"),
            (&["--listen", "x"], "x"),
            (&["--nope"], "--nope"),
            (&[TAKE_OVER, "12"], TAKE_OVER),
        ] {
            let error = parse_all(args).expect_err("must be refused");
            assert!(error.contains(word), "{error}");
        }
    }
}
