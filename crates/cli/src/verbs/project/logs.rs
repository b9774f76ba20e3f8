//! `icebox project logs`: searching what was logged, and following it. Owns how a row looks to a person.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use form_urlencoded::Serializer;
use icebox_wire::rest::{LogLevel, LogRow, LogsResponse, LogsTail};

use super::path;
use crate::client::{Client, READ_LIMIT};
use crate::error::CliError;
use crate::printer;
use crate::settings::Remote;
use crate::text::printable;
use crate::words::Now;

/// How long one question of a follower waits for rows, in seconds.
const WAIT_SEC: u64 = 25;
/// The longest wait after a question that failed while following.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Questions of a follower that may fail one after the other.
const TRIES: u32 = 30;
/// Rows on one page.
const PAGE: usize = 1_000;

/// Search what was logged, oldest first, or follow it
///
/// QUERY is a plain term, in upper or lower case. When it begins with one of `{ ? - " % [` it is a CloudWatch filter pattern:
/// `"a phrase" b` (both), `?a ?b` (any), `-a` (without), `%regex%`, or conditions as in
/// `{ $.level = "error" && $.extra.code >= 500 }`.
///
/// With --json each row is a line of JSON.
#[derive(Args)]
#[command(after_help = "\
Examples:
  icebox project logs shop                                   the last hour
  icebox project logs shop timeout --since 2d
  icebox project logs shop --errors
  icebox project logs shop --follow
  icebox project logs shop '{ $.level = \"error\" && $.url = \"*/cart\" }'")]
pub(super) struct Logs {
    /// The project's name or id
    project: String,
    /// What to look for
    #[arg(allow_hyphen_values = true)]
    query: Option<String>,
    /// Only errors
    #[arg(long, conflicts_with_all = ["query", "name", "user", "session", "device", "follow"])]
    errors: bool,
    /// Only events of this name
    #[arg(long)]
    name: Option<String>,
    /// Only of this user
    #[arg(long)]
    user: Option<String>,
    /// Only of this visit
    #[arg(long)]
    session: Option<String>,
    /// Only of this browser
    #[arg(long)]
    device: Option<String>,
    /// Only of pages of the box with this id
    #[arg(long = "box", value_name = "BOX")]
    of_box: Option<String>,
    /// From when on: `15m`, `1h`, `2d`, a moment (RFC 3339), or seconds since 1970
    #[arg(long, default_value = "1h", conflicts_with = "follow")]
    since: String,
    /// At most so many rows
    #[arg(long, default_value_t = 200, conflicts_with = "follow")]
    limit: usize,
    /// Show what is logged from now on, until you end it
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    pub(super) remote: Remote,
}

impl Logs {
    pub(super) fn run(self) -> Result<ExitCode, CliError> {
        let client = self.remote.client()?;
        if self.follow {
            return self.follow(&client);
        }
        let (mut left, mut cursor) = (self.limit, None);
        let below = if self.errors { "/logs/errors" } else { "/logs" };
        while left > 0 {
            let limit = left.min(PAGE).to_string();
            let more = [
                ("since", Some(self.since.clone())),
                ("limit", Some(limit)),
                ("cursor", cursor),
            ];
            let answer = client.get(&self.path(below, more)?)?;
            let page: LogsResponse = answer.read()?;
            self.show(&page.rows)?;
            left = left.saturating_sub(page.rows.len());
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(ExitCode::SUCCESS),
            }
        }
        printer::note(&format!(
            "There may be more: these are the oldest {}; see --limit.",
            self.limit
        ));
        Ok(ExitCode::SUCCESS)
    }

    /// Asks on and on. A server that restarts meanwhile costs nothing but time.
    fn follow(&self, client: &Client) -> Result<ExitCode, CliError> {
        let limit = READ_LIMIT + Duration::from_secs(WAIT_SEC);
        let (mut cursor, mut failed) = (None::<String>, 0);
        loop {
            // The first question only says where it begins.
            let wait = if cursor.is_some() { WAIT_SEC } else { 0 };
            let more = [
                ("cursor", cursor.clone()),
                ("waitSec", Some(wait.to_string())),
            ];
            match client.get_within(&self.path("/logs/tail", more)?, limit) {
                Ok(answer) => {
                    let came: LogsTail = answer.read()?;
                    self.show(&came.rows)?;
                    (cursor, failed) = (Some(came.cursor), 0);
                }
                Err(error) if cursor.is_none() || !error.is_passing() || failed == TRIES => {
                    return Err(error);
                }
                Err(_) => {
                    failed += 1;
                    std::thread::sleep(TRY_AGAIN);
                }
            }
        }
    }

    fn path<const N: usize>(
        &self,
        below: &str,
        more: [(&str, Option<String>); N],
    ) -> Result<String, CliError> {
        let mut query = Serializer::new(String::new());
        let own = [
            ("query", &self.query),
            ("name", &self.name),
            ("user", &self.user),
            ("session", &self.session),
            ("device", &self.device),
            ("boxId", &self.of_box),
        ];
        for (name, value) in own {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        for (name, value) in &more {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        path(&self.project, &format!("{below}?{}", query.finish()))
    }

    fn show(&self, rows: &[LogRow]) -> Result<(), CliError> {
        let now = Now::here();
        for row in rows {
            if self.remote.json {
                printer::line(&serde_json::to_string(row).unwrap_or_default())?;
            } else {
                told(row, &now)?;
            }
        }
        Ok(())
    }
}

fn told(row: &LogRow, now: &Now) -> Result<(), CliError> {
    let (style, level) = match row.level {
        LogLevel::Debug => (printer::DIM, "debug"),
        LogLevel::Info => (printer::GREEN, "info "),
        LogLevel::Warn => (printer::YELLOW, "warn "),
        LogLevel::Error => (printer::RED, "error"),
    };
    let at = printer::styled(printer::DIM, &now.exact(row.time));
    let level = printer::styled(style, level);
    printer::line(&format!(
        "{at} {level} {}: {}",
        printable(&row.name),
        printable(&row.msg)
    ))?;
    let stack = row.stack_resolved.as_ref().or(row.stack.as_ref());
    for line in stack.into_iter().flat_map(|stack| stack.lines()) {
        printer::line(&format!("    {}", printable(line.trim())))?;
    }
    if let Some(extra) = &row.extra {
        printer::line(&format!("    {}", printable(&extra.to_string())))?;
    }
    Ok(())
}
