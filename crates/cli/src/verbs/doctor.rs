//! `icebox doctor`: shows what the driver finds out about this machine. Owns the lines and the exit code; the checks and
//! their advice are the driver's.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use icebox_server::driver::container::{Check, CheckState, ContainerDriver, doctor};
use serde_json::json;

use crate::error::CliError;
use crate::printer::{self, GREEN, RED, YELLOW, styled};
use crate::settings::DEFAULT_DATA;
use crate::text::printable;

/// Check whether boxes can run here and freeze to disk
///
/// Looks at the kernel, the programs that are needed and the disk; then starts a trial box, freezes it to disk, thaws it
/// and removes it. Exit code: 0 when boxes can run, 1 when they cannot.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox doctor                           as root
  icebox doctor --json | jq -r '.checks[] | select(.state != \"ok\")'")]
pub(crate) struct Doctor {
    /// The server's folder
    #[arg(long, env = "ICEBOX_DATA", default_value = DEFAULT_DATA, hide_env_values = true)]
    data: PathBuf,
    /// Print the checks as JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let mut printed = Ok(());
        let checks = check(&self.data, &mut |check| {
            // The last one takes a while: who waits sees the others meanwhile.
            if !self.json && printed.is_ok() {
                printed = lines(check).iter().try_for_each(|line| printer::line(line));
            }
        })?;
        printed?;
        if self.json {
            printer::line(&as_json(&checks))?;
        } else {
            printer::line(&verdict(&checks))?;
        }
        let fit = checks.iter().all(|check| check.state != CheckState::Fail);
        Ok(ExitCode::from(u8::from(!fit)))
    }
}

/// Lets the driver look at this machine; each check is told as soon as it is made.
pub(super) fn check(
    data: &Path,
    tell: &mut (dyn FnMut(&Check) + Send),
) -> Result<Vec<Check>, CliError> {
    let runtime =
        tokio::runtime::Runtime::new().map_err(CliError::io("start the async runtime"))?;
    Ok(runtime.block_on(doctor(data, &ContainerDriver::find_boxd(), tell)))
}

/// One line for a check, and one for what to do about it.
pub(super) fn lines(check: &Check) -> Vec<String> {
    let (style, word) = match check.state {
        CheckState::Ok => (GREEN, "ok  "),
        CheckState::Warn => (YELLOW, "warn"),
        CheckState::Fail => (RED, "fail"),
    };
    let found = printable(&check.found);
    let mut lines = vec![format!(
        "{}  {:<16} {found}",
        styled(style, word),
        check.name
    )];
    if !check.advice.is_empty() {
        lines.push(format!("      {:<16} -> {}", "", printable(&check.advice)));
    }
    lines
}

fn verdict(checks: &[Check]) -> String {
    let has = |state: CheckState| checks.iter().any(|check| check.state == state);
    if has(CheckState::Fail) {
        "Boxes cannot run here until what failed is mended."
    } else if has(CheckState::Warn) {
        "Boxes can run here, with less than there could be: see the warnings."
    } else {
        "Boxes can run here and freeze to disk."
    }
    .to_owned()
}

fn as_json(checks: &[Check]) -> String {
    let fit = checks.iter().all(|check| check.state != CheckState::Fail);
    let checks: Vec<_> = checks
        .iter()
        .map(|check| {
            let state = match check.state {
                CheckState::Ok => "ok",
                CheckState::Warn => "warn",
                CheckState::Fail => "fail",
            };
            json!({"name": check.name, "state": state, "found": check.found, "advice": check.advice})
        })
        .collect();
    json!({"ok": fit, "checks": checks}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: CheckState, advice: &str) -> Check {
        Check {
            name: "criu",
            state,
            found: "none".to_owned(),
            advice: advice.to_owned(),
        }
    }

    #[test]
    fn advice_has_a_line_of_its_own_and_only_where_there_is_some() {
        let plain = |check: &Check| {
            let lines = lines(check).join("\n");
            anstream::adapter::strip_str(&lines).to_string()
        };
        assert_eq!(
            plain(&check(CheckState::Ok, "")),
            "ok    criu             none"
        );
        assert_eq!(
            plain(&check(CheckState::Warn, "install it")),
            "warn  criu             none\n                       -> install it"
        );
    }

    #[test]
    fn only_a_failed_check_says_no() {
        for (state, fit) in [
            (CheckState::Ok, true),
            (CheckState::Warn, true),
            (CheckState::Fail, false),
        ] {
            let json: serde_json::Value =
                serde_json::from_str(&as_json(&[check(state, "")])).unwrap();
            assert_eq!(json["ok"], fit);
            assert_eq!(verdict(&[check(state, "")]).contains("cannot"), !fit);
        }
    }
}
