//! boxd's own arguments.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

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
    pub(crate) take_over: Option<i32>,
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
    }

    #[test]
    fn mistakes_are_named() {
        for (args, word) in [
            (&["--listen"][..], "--listen"),
            (&["--listen", "x"], "x"),
            (&["--nope"], "--nope"),
        ] {
            let error = parse_all(args).expect_err("must be refused");
            assert!(error.contains(word), "{error}");
        }
    }
}
