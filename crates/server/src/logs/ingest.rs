//! Taking in what apps send. Owns who may: a write key, from a page only of the project's origins, within the project's rate.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use icebox_wire::rest::{LogBatch, LogsTaken};

use super::origin::Origin;
use super::projects::Project;
use super::resolve::Resolver;
use super::{Logs, Shared, event, internal, rate};
use crate::commands::{Kind, Trouble};

/// The largest batch, in bytes.
pub const BODY_LIMIT: usize = 256 * 1024;

/// Who sends, as far as it is known before the batch is read.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// The write key, if it came beside the batch.
    pub key: Option<String>,
    /// The origin of the page, if a page sends.
    pub origin: Option<String>,
}

impl Sender {
    /// Whether its page may see answers about this project.
    fn may(&self, shared: &Shared, project: &Project) -> bool {
        match &self.origin {
            None => true,
            Some(page) => {
                let page = Origin::parse(page);
                page.is_some_and(|page| shared.origins(project).any(|origin| origin.fits(&page)))
            }
        }
    }
}

impl Logs {
    /// Whether a page may see the answer to what it sends: always said for its project, and before that is known if it is one
    /// of any project's origins.
    #[must_use]
    pub fn may_see(&self, sender: &Sender) -> bool {
        let shared = &self.0;
        match &sender.key {
            Some(key) => {
                let project = shared.projects.of_key(key);
                project.is_some_and(|project| sender.may(shared, &project))
            }
            None => {
                let mut all = shared.projects.all().into_iter();
                all.any(|project| sender.may(shared, &project))
            }
        }
    }

    /// Takes a batch in: all of it, or nothing. It can be found when this returns.
    pub async fn take(
        &self,
        sender: &Sender,
        batch: LogBatch,
        size: usize,
    ) -> Result<LogsTaken, Trouble> {
        let shared = &self.0;
        let key = sender.key.as_deref().or(batch.key.as_deref());
        let project = key.and_then(|key| shared.projects.of_key(key));
        let project = project.ok_or_else(|| {
            Trouble::new(
                Kind::Unauthorized,
                "no valid write key: send it as `key` in the body or the query, or as `Authorization: Bearer psw_…`",
            )
        })?;
        if !sender.may(shared, &project) {
            let text =
                "pages of this origin may not send to the project; it names the origins that may";
            return Err(Trouble::new(Kind::Forbidden, text));
        }
        event::check(&batch)?;
        let count = batch.events.len();
        shared.charge(&project, count, size)?;
        let _waiting = shared.waiting.try_acquire().map_err(|_| {
            Trouble::new(
                Kind::Busy,
                "too many apps are logging; try again in a moment",
            )
        })?;
        let taking = shared.taking.acquire().await;
        let of_box = sender.origin.as_deref().and_then(Origin::parse);
        let of_box = of_box.and_then(|page| page.of_box(&shared.commands.config().domain));
        let kept = shared.blocking(move |shared| {
            let now = shared.commands.clock().now();
            let mut resolver = Resolver::new(shared, project.number);
            let rows = event::rows(batch, of_box, now, &mut resolver);
            let added = shared.tables.add(project.number, now, &rows);
            let added = added.map_err(internal)?;
            let added =
                added.ok_or_else(|| Trouble::new(Kind::NotFound, "the project was removed"))?;
            shared.added(&project, added.bytes, added.newest);
            Ok(LogsTaken { accepted: count })
        });
        let kept = kept.await;
        drop(taking);
        kept
    }
}

impl Shared {
    /// Uses some of the project's allowance.
    fn charge(&self, project: &Project, events: usize, bytes: usize) -> Result<(), Trouble> {
        let whole = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let now = self.commands.clock().now();
        let mut used = project.rate.lock().unwrap_or_else(PoisonError::into_inner);
        used.take(now, whole(events), whole(bytes)).map_err(|sec| {
            let text = format!(
                "this project logs too much: {} events or {} MiB at once, and no more than come back with time; \
                 try again in {sec} s",
                rate::EVENTS,
                rate::BYTES >> 20
            );
            let mut trouble = Trouble::new(Kind::Busy, text);
            trouble.retry_after_sec = Some(sec);
            trouble
        })
    }

    /// Tells who waits for rows, and whoever keeps house if there are too many by now.
    fn added(&self, project: &Arc<Project>, bytes: u64, newest: i64) {
        project.bytes.store(bytes, Ordering::Relaxed);
        // Two batches may end in another order than they were written in.
        project
            .newest
            .send_modify(|known| *known = newest.max(*known));
        let most = self.most_bytes();
        if bytes > most + most / 20 {
            self.too_much.notify_one();
        }
    }
}
