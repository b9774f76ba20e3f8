//! `icebox egress`: what a box may reach outside; and the flags that say so, which `start` has, too.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use icebox_wire::rest::{BoxView, EgressMode, EgressRequest, EgressView, PatchRequest};
use ureq::http::Method;

use crate::error::CliError;
use crate::printer;
use crate::select::box_id;
use crate::settings::Remote;
use crate::text::printable;

/// Show or change what a box may reach outside
///
/// A change takes the place of the whole setting. It holds at once, for connections that are open, too; a frozen box is not
/// woken and has it when it wakes. The server's own services, other boxes and cloud metadata are never reached, and private
/// networks only where --allow-out names a range within them. Boxes have no IPv6.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox egress web                                          what it may reach
  icebox egress web --egress none
  icebox egress web --egress open --deny-out 198.51.100.0/24
  icebox egress web --allow-out 192.0.2.7 --allow-out 10.1.0.0/16    nothing but these")]
pub(crate) struct Egress {
    /// Name, id, or beginning of an id
    #[arg(value_name = "BOX")]
    of: String,
    #[command(flatten)]
    flags: EgressFlags,
    #[command(flatten)]
    pub(super) remote: Remote,
}

/// What may be reached.
#[derive(Args)]
pub(super) struct EgressFlags {
    /// What it reaches outside that no list names [default: none with --allow-out alone; else what the server says, which
    /// is open unless it is set otherwise]
    #[arg(long, value_name = "MODE")]
    egress: Option<Mode>,
    /// An IPv4 address or CIDR range that it reaches in any case; may be repeated
    #[arg(long, value_name = "CIDR")]
    allow_out: Vec<String>,
    /// One that it does not reach, unless it is allowed; may be repeated
    #[arg(long, value_name = "CIDR")]
    deny_out: Vec<String>,
}

/// What is reached that no list names.
#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// Nothing
    None,
    /// The internet
    Open,
}

impl EgressFlags {
    /// What was said, if anything was.
    pub(super) fn request(self) -> Option<EgressRequest> {
        let request = EgressRequest {
            mode: self.egress.map(|mode| match mode {
                Mode::None => EgressMode::None,
                Mode::Open => EgressMode::Open,
            }),
            allow_out: self.allow_out,
            deny_out: self.deny_out,
        };
        (request != EgressRequest::default()).then_some(request)
    }
}

impl Egress {
    pub(crate) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        let id = box_id(&client, &self.of)?;
        let path = format!("/v1/boxes/{id}");
        let answer = match self.flags.request() {
            Some(egress) => {
                let patch = PatchRequest {
                    egress: Some(egress),
                    ..PatchRequest::default()
                };
                client.change(Method::PATCH, &path, Some(&patch))?
            }
            None => client.get(&path)?,
        };
        if self.remote.json {
            printer::line(&answer.text)?;
            return Ok(ExitCode::SUCCESS);
        }
        let view: BoxView = answer.read()?;
        let name = view.name.as_deref().unwrap_or(&view.id);
        let reach = view.egress.as_ref().map(in_words);
        let reach = reach.unwrap_or_else(|| "the server does not say".to_owned());
        printer::line(&format!("{}: {}", printable(name), printable(&reach)))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What a box reaches, and what it may where that is not the same.
pub(super) fn in_words(egress: &EgressView) -> String {
    let may = setting_in_words(egress);
    match &egress.failure {
        Some(failure) => format!(
            "nothing outside for now, although it may reach {may}: {}",
            failure.error
        ),
        None => may,
    }
}

fn setting_in_words(egress: &EgressView) -> String {
    let allowed = egress.allow_out.join(", ");
    let denied = egress.deny_out.join(", ");
    match (egress.mode, allowed.is_empty(), denied.is_empty()) {
        (EgressMode::None, true, _) => "nothing outside".to_owned(),
        (EgressMode::None, false, _) => format!("nothing outside but {allowed}"),
        (EgressMode::Open, true, true) => "the internet".to_owned(),
        (EgressMode::Open, true, false) => format!("the internet but {denied}"),
        (EgressMode::Open, false, true) => format!("the internet, and {allowed}"),
        (EgressMode::Open, false, false) => {
            format!("the internet but {denied}, and in any case {allowed}")
        }
    }
}

#[cfg(test)]
mod tests {
    use icebox_wire::rest::EgressFailureView;

    use super::*;

    #[test]
    fn what_it_may_reach_in_words() {
        for (mode, allow, deny, words) in [
            (EgressMode::None, "", "", "nothing outside"),
            (
                EgressMode::None,
                "10.0.0.1",
                "",
                "nothing outside but 10.0.0.1",
            ),
            (EgressMode::Open, "", "", "the internet"),
            (EgressMode::Open, "", "1.1.1.1", "the internet but 1.1.1.1"),
            (
                EgressMode::Open,
                "10.0.0.1",
                "",
                "the internet, and 10.0.0.1",
            ),
        ] {
            let list = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let view = EgressView {
                mode,
                allow_out: list(allow).into_iter().collect(),
                deny_out: list(deny).into_iter().collect(),
                failure: None,
            };
            assert_eq!(in_words(&view), words);
        }
        let broken = EgressView {
            mode: EgressMode::Open,
            allow_out: Vec::new(),
            deny_out: Vec::new(),
            failure: Some(EgressFailureView {
                error: "cannot run nft".to_owned(),
                retry_at: None,
            }),
        };
        assert_eq!(
            in_words(&broken),
            "nothing outside for now, although it may reach the internet: cannot run nft"
        );
    }
}
