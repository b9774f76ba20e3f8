//! Reading logs: search, errors, and waiting for what comes. Owns how much one answer may look at and hold; whoever wants
//! more goes on from its cursor.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use icebox_lifecycle::{BoxId, Time};
use icebox_wire::rest::{LogRow, LogsResponse, LogsTail};

use super::filter::Filter;
use super::projects::Project;
use super::since::{Cursor, since};
use super::{Logs, Shared, internal};
use crate::commands::{Caller, Kind, Trouble};

/// Rows in an answer when nothing is said.
const LIMIT: usize = 200;
/// The most rows in an answer.
pub const LIMIT_MAX: usize = 1_000;
/// Rows that are looked at for one answer, and what they and the answer may have, in bytes.
const LOOKED_AT: usize = 20_000;
const LOOKED_AT_BYTES: usize = 16 << 20;
const ANSWER_BYTES: usize = 2 << 20;
/// How long ago rows were logged at most when nothing is said.
const SINCE: &str = "1h";
/// How long a tail waits when nothing is said, in seconds.
const WAIT_SEC: u64 = 10;
/// How long at most.
pub const WAIT_MAX_SEC: u64 = 25;
/// The longest value of a filter, in characters.
const VALUE_LEN: usize = 200;
/// The name that stands for every event.
const EVERY: &str = "*";

/// Which rows are wanted; absent: all.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// What is looked for in them.
    pub query: Option<String>,
    /// Events of this name; `*`: of every name.
    pub name: Option<String>,
    /// Of this user.
    pub user: Option<String>,
    /// Of this visit.
    pub session: Option<String>,
    /// Of this browser or machine.
    pub device: Option<String>,
    /// Of this box.
    pub of_box: Option<String>,
}

/// What a search asks for.
#[derive(Clone, Debug, Default)]
pub struct SearchRequest {
    /// Which rows.
    pub wanted: Wanted,
    /// From when on.
    pub since: Option<String>,
    /// How many at most.
    pub limit: Option<u64>,
    /// Where an earlier page ended; then `since` is that one's.
    pub cursor: Option<String>,
}

/// What is asked for about errors.
#[derive(Clone, Debug, Default)]
pub struct ErrorsRequest {
    /// Of this box.
    pub of_box: Option<String>,
    /// From when on.
    pub since: Option<String>,
    /// How many at most.
    pub limit: Option<u64>,
    /// Where an earlier page ended; then `since` is that one's.
    pub cursor: Option<String>,
}

/// What a tail asks for.
#[derive(Clone, Debug, Default)]
pub struct TailRequest {
    /// Which rows.
    pub wanted: Wanted,
    /// Where an earlier answer ended; absent: from now on.
    pub cursor: Option<String>,
    /// How long to wait for the first row, in seconds.
    pub wait_sec: Option<u64>,
}

/// Which rows are wanted, ready to be compared.
struct Want {
    filter: Filter,
    by: Wanted,
    errors_only: bool,
}

/// Where a page begins.
#[derive(Clone, Copy)]
enum Begin {
    /// Where an earlier one ended.
    At(Cursor),
    /// With what was logged since then.
    Since(Time),
}

/// One answer's worth of rows.
struct Page {
    rows: Vec<LogRow>,
    /// Where it ended.
    cursor: Cursor,
    /// There are no more rows.
    all: bool,
}

impl Logs {
    /// The rows that fit, oldest first.
    pub async fn search(
        &self,
        caller: &Caller,
        named: &str,
        request: SearchRequest,
    ) -> Result<LogsResponse, Trouble> {
        let project = self.0.project(caller, named)?;
        let want = Want::of(request.wanted, false)?;
        let (since, cursor) = (request.since, request.cursor);
        self.pages(project, want, since, request.limit, cursor)
            .await
    }

    /// The errors, oldest first.
    pub async fn errors(
        &self,
        caller: &Caller,
        named: &str,
        request: ErrorsRequest,
    ) -> Result<LogsResponse, Trouble> {
        let project = self.0.project(caller, named)?;
        let wanted = Wanted {
            of_box: request.of_box,
            ..Wanted::default()
        };
        let want = Want::of(wanted, true)?;
        let (since, cursor) = (request.since, request.cursor);
        self.pages(project, want, since, request.limit, cursor)
            .await
    }

    async fn pages(
        &self,
        project: Arc<Project>,
        want: Want,
        from: Option<String>,
        limit: Option<u64>,
        cursor: Option<String>,
    ) -> Result<LogsResponse, Trouble> {
        let limit = match limit.map(usize::try_from) {
            None => LIMIT,
            Some(Ok(limit)) if (1..=LIMIT_MAX).contains(&limit) => limit,
            Some(_) => return Err(crate::commands::check::unfit("limit")),
        };
        let now = self.0.commands.clock().now();
        let from = since(from.as_deref().unwrap_or(SINCE), now)?;
        let cursor = cursor.as_deref().map(Cursor::parse).transpose()?;
        let begin = match cursor {
            Some(cursor) => Begin::At(cursor),
            None => Begin::Since(from),
        };
        let page = self.0.page(project.number, Arc::new(want), limit, begin);
        let page = page.await?;
        Ok(LogsResponse {
            next_cursor: page
                .as_ref()
                .filter(|page| !page.all)
                .map(|page| page.cursor.to_string()),
            rows: page.map(|page| page.rows).unwrap_or_default(),
        })
    }

    /// What came since the cursor; when that is nothing, waits for it.
    pub async fn tail(
        &self,
        caller: &Caller,
        named: &str,
        request: TailRequest,
    ) -> Result<LogsTail, Trouble> {
        let project = self.0.project(caller, named)?;
        let want = Arc::new(Want::of(request.wanted, false)?);
        let wait_sec = request.wait_sec.unwrap_or(WAIT_SEC);
        if wait_sec > WAIT_MAX_SEC {
            let takes = format!("a whole number from 0 to {WAIT_MAX_SEC} (seconds)");
            return Err(Trouble::bad("waitSec", takes));
        }
        let mut news = project.newest.subscribe();
        let mut cursor = match request.cursor.as_deref() {
            Some(cursor) => Cursor::parse(cursor)?,
            None => Cursor {
                after: *news.borrow_and_update(),
                since: Time(0),
            },
        };
        let _place = self.0.tails.try_acquire().map_err(|_| {
            let text = "too many callers wait for logs; try again in a moment";
            Trouble::new(Kind::Busy, text)
        })?;
        let mut ending = self.0.commands.ending();
        let mut wait = std::pin::pin!(tokio::time::sleep(Duration::from_secs(wait_sec)));
        loop {
            // Whatever is written from here on is news.
            let newest = *news.borrow_and_update();
            if newest > cursor.after {
                let page = self.0.page(
                    project.number,
                    Arc::clone(&want),
                    LIMIT_MAX,
                    Begin::At(cursor),
                );
                if let Some(page) = page.await? {
                    cursor = page.cursor;
                    if !page.rows.is_empty() {
                        let cursor = cursor.to_string();
                        return Ok(LogsTail {
                            rows: page.rows,
                            cursor,
                        });
                    }
                    if !page.all {
                        continue;
                    }
                    cursor.after = cursor.after.max(newest);
                }
            }
            tokio::select! {
                // The sender lives as long as the project is held.
                changed = news.changed() => drop(changed),
                () = &mut wait => break,
                ended = ending.wait_for(|ending| *ending) => {
                    drop(ended);
                    break;
                }
            }
        }
        Ok(LogsTail {
            rows: Vec::new(),
            cursor: cursor.to_string(),
        })
    }
}

impl Shared {
    /// Reads a page, if there is anything to read.
    async fn page(
        self: &Arc<Self>,
        number: i64,
        want: Arc<Want>,
        limit: usize,
        begin: Begin,
    ) -> Result<Option<Page>, Trouble> {
        let searching = self.searching.acquire().await;
        let page = self.blocking(move |shared| {
            let cursor = match begin {
                Begin::At(cursor) => Some(cursor),
                Begin::Since(from) => {
                    let since = from.max(shared.kept_from());
                    let after = shared.tables.before(number, since).map_err(internal)?;
                    after.map(|after| Cursor { after, since })
                }
            };
            let read = |cursor| shared.read(number, &want, limit, cursor);
            cursor.map(read).transpose()
        });
        let page = page.await;
        drop(searching);
        page
    }

    fn read(&self, number: i64, want: &Want, limit: usize, from: Cursor) -> Result<Page, Trouble> {
        let since = from.since.max(self.kept_from());
        let mut rows = Vec::new();
        let (mut seen, mut held) = (0, 0);
        let each = |_: i64, at: Time, body: &str| {
            seen += body.len();
            if at >= since
                && let Ok(row) = serde_json::from_str::<LogRow>(body)
                && want.fits(&row, body)
            {
                held += body.len();
                rows.push(row);
            }
            if rows.len() >= limit || held >= ANSWER_BYTES || seen >= LOOKED_AT_BYTES {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let scanned = self
            .tables
            .scan(number, from.after, want.errors_only, LOOKED_AT, each);
        let scanned = scanned.map_err(internal)?;
        Ok(Page {
            rows,
            cursor: Cursor {
                after: scanned.last.unwrap_or(from.after),
                since: from.since,
            },
            all: scanned.all,
        })
    }
}

impl Want {
    fn of(by: Wanted, errors_only: bool) -> Result<Self, Trouble> {
        for (field, value) in [
            ("name", &by.name),
            ("user", &by.user),
            ("session", &by.session),
            ("device", &by.device),
        ] {
            if value
                .as_ref()
                .is_some_and(|value| value.chars().count() > VALUE_LEN)
            {
                return Err(Trouble::bad(
                    field,
                    format!("a text of at most {VALUE_LEN} characters"),
                ));
            }
        }
        if by
            .of_box
            .as_deref()
            .is_some_and(|id| BoxId::parse(id).is_none())
        {
            return Err(Trouble::bad("boxId", "the id of a box"));
        }
        Ok(Self {
            filter: Filter::parse(by.query.as_deref())?,
            by,
            errors_only,
        })
    }

    fn fits(&self, row: &LogRow, body: &str) -> bool {
        let by = &self.by;
        let is =
            |wanted: &Option<String>, value: &Option<String>| wanted.is_none() || wanted == value;
        let named = by.name.as_deref().filter(|name| *name != EVERY);
        named.is_none_or(|name| name == row.name)
            && is(&by.user, &row.user)
            && is(&by.session, &row.session)
            && is(&by.device, &row.device)
            && is(&by.of_box, &row.of_box)
            && self.filter.matches(row, body)
    }
}
