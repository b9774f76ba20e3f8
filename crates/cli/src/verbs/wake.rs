//! `icebox wake`: wakes frozen boxes (rules, section 5).

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::{BoxView, Status, WakeRequest};

use super::Many;
use crate::error::CliError;

/// Wake frozen boxes
///
/// Seldom needed: every call that uses a box wakes it first. Waking is use, so the box stays awake for its idle time.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox wake web
  icebox wake --cold web                  its copy is damaged: start anew on its files")]
pub(crate) struct Wake {
    #[command(flatten)]
    pub(super) many: Many,
    /// Give the memory up and start the box anew on its files
    #[arg(long)]
    cold: bool,
    /// Wait this long for room on a full host, 0 to 1800 [default: 30]
    #[arg(long, alias = "wait-for-capacity", value_name = "SEC", value_parser = clap::value_parser!(u32).range(0..=1800))]
    wait_for_capacity_sec: Option<u32>,
}

impl Wake {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let body = WakeRequest {
            cold_restart: self.cold,
            wait_for_capacity_sec: self.wait_for_capacity_sec,
        };
        let limit = super::start::limit(self.wait_for_capacity_sec);
        let besides = self
            .cold
            .then_some(nothing_to_do as fn(&BoxView) -> Option<&'static str>);
        let body = (body != WakeRequest::default()).then_some(&body);
        self.many.post("wake", body, limit, besides)
    }
}

/// What a cold wake comes to when the box is not frozen.
fn nothing_to_do(before: &BoxView) -> Option<&'static str> {
    matches!(before.status, Status::Ready | Status::Takeover)
        .then_some("it was awake already: nothing was restarted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn rule_5_7_a_cold_wake_restarts_only_what_is_frozen() {
        for (status, said) in [
            (Status::Ready, true),
            (Status::Takeover, true),
            (Status::Frozen, false),
            (Status::Interrupted, false),
        ] {
            let before = BoxView {
                status,
                ..sample::ready()
            };
            assert_eq!(nothing_to_do(&before).is_some(), said, "{status}");
        }
    }
}
