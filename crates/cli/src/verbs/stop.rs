//! `icebox stop`: stops boxes for good (rule 6.6).

use std::process::ExitCode;

use clap::Args;
use icebox_wire::rest::BoxView;

use super::Many;
use crate::client::WORK_LIMIT;
use crate::error::CliError;

/// Stop boxes for good; their files go with them
///
/// A box stopped this way cannot be restored. To keep it, freeze it. A frozen box is not woken for it. Safe to repeat.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox stop web
  icebox stop $(icebox ls -q)             all of them")]
pub(crate) struct Stop {
    #[command(flatten)]
    pub(super) many: Many,
}

impl Stop {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let besides = Some(copy_goes as fn(&BoxView) -> Option<&'static str>);
        self.many.post("stop", None::<&()>, WORK_LIMIT, besides)
    }
}

/// What stopping a box takes away that the rules had stopped already and that could have come back (rule 6.6).
fn copy_goes(before: &BoxView) -> Option<&'static str> {
    before.restorable_until.map(
        |_| "it was stopped already; its copy is deleted now, so it cannot be restored any more",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn rule_6_6_only_a_box_that_could_come_back_loses_its_copy() {
        assert_eq!(copy_goes(&sample::ready()), None);
        let stopped = BoxView {
            restorable_until: Some("2026-03-05T13:00:00Z".parse().unwrap()),
            ..sample::ready()
        };
        assert!(copy_goes(&stopped).is_some_and(|text| text.contains("copy is deleted now")));
    }
}
