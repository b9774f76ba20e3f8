//! What the steps of the demo are made of: calls to its server, commands in its box, waits with a limit, and lines of
//! progress. Knows no order.

use std::time::Duration;

use icebox_wire::rest::{BoxView, ExecRequest, ExecResponse};
use serde::Serialize;

use super::counter::{self, Count};
use super::host;
use super::run::Run;
use super::server::Server;
use crate::client::Stream;
use crate::error::CliError;
use crate::printer::{self, note};
use crate::stopwatch::Stopwatch;
use crate::text::printable;

/// How long one call may take. Nothing in a demo needs nearly as long.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(120);
/// How long something that comes about by itself may take.
const WAIT_LIMIT: Duration = Duration::from_secs(20);
/// How often is looked whether it has.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

impl Run {
    pub(super) fn server(&self) -> Result<&Server, CliError> {
        self.server
            .as_ref()
            .ok_or_else(|| wrong("the server is gone".to_owned()))
    }

    /// The ids of the boxes there are.
    pub(super) fn boxes(&self) -> Result<Vec<String>, CliError> {
        let boxes = self.server()?.client.every_box(false)?.unwrap_or_default();
        Ok(boxes.into_iter().map(|view| view.id).collect())
    }

    pub(super) fn view(&self) -> Result<BoxView, CliError> {
        Ok(self.server()?.client.get_box(&self.id)?.0)
    }

    pub(super) fn post(
        &self,
        id: &str,
        action: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(), CliError> {
        let path = format!("/v1/boxes/{id}/{action}");
        self.server()?
            .client
            .post(&path, body, CALL_LIMIT)
            .map(drop)
    }

    /// Runs a command in the box, which must succeed, and answers its standard output.
    pub(super) fn exec(&self, cmd: &str, background: bool) -> Result<String, CliError> {
        self.exec_with(cmd, background, None)
    }

    pub(super) fn exec_with(
        &self,
        cmd: &str,
        background: bool,
        stdin: Option<&str>,
    ) -> Result<String, CliError> {
        let request = ExecRequest {
            cmd: cmd.to_owned(),
            background,
            stdin: stdin.map(str::to_owned),
            ..ExecRequest::default()
        };
        let path = format!("/v1/boxes/{}/exec", self.id);
        let client = &self.server()?.client;
        let ended: ExecResponse = client.post(&path, Some(&request), CALL_LIMIT)?.read()?;
        must(background || ended.exit_code == Some(0), || {
            let stderr = ended.stderr.as_deref().unwrap_or_default().trim();
            format!(
                "`{}` in the box ended with {:?}: {stderr}",
                printable(cmd),
                ended.exit_code
            )
        })?;
        match (ended.truncated, &ended.output_url) {
            (Some(true), Some(url)) => {
                let mut whole = client.output(url, Stream::Stdout, 0, false)?;
                let mut out = Vec::new();
                let (_, end) = printer::copy(&mut whole.bytes, &mut out)?;
                match end {
                    Some(error) => Err(client.lost(error)),
                    None => Ok(String::from_utf8_lossy(&out).into_owned()),
                }
            }
            (Some(_) | None, _) => Ok(ended.stdout.unwrap_or_default()),
        }
    }

    /// Zero, once it is zero.
    pub(super) fn no_processes(&self) -> Result<Option<usize>, CliError> {
        Ok(Some(host::processes(&self.id)).filter(|left| *left == 0))
    }

    /// What the program has counted, or what is wrong with it.
    pub(super) fn count(&self, since: u64) -> Result<Count, String> {
        let text = self
            .exec("cat count", false)
            .map_err(|error| error.line())?;
        counter::judge(&text, since)
    }

    /// Waits until there is an answer.
    pub(super) fn wait_for<T>(
        &self,
        what: &str,
        mut ask: impl FnMut(&Self) -> Result<Option<T>, CliError>,
    ) -> Result<T, CliError> {
        let watch = Stopwatch::start();
        loop {
            self.interrupt.check()?;
            if let Some(answer) = ask(self)? {
                return Ok(answer);
            }
            let limit_s = WAIT_LIMIT.as_secs();
            must(watch.elapsed() < WAIT_LIMIT, || {
                format!("after {limit_s} s it is still not so that {what}")
            })?;
            std::thread::sleep(PAUSE);
        }
    }
}

/// A line under the step.
pub(super) fn tell(text: &str) {
    note(&format!("      {text}"));
}

pub(super) fn wrong(why: String) -> CliError {
    CliError::Host(why)
}

/// Errors when something is not as it should be.
pub(super) fn must(so: bool, why: impl FnOnce() -> String) -> Result<(), CliError> {
    if so { Ok(()) } else { Err(wrong(why())) }
}
