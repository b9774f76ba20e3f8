//! What happened to an account's boxes, from the outbox of the store: in order, from any event that is still kept, and on
//! as it happens. A reader holds nothing between two pages: it is told that there is news and reads on from its last
//! number, so that a slow one costs no memory. Owns how many may read; knows no form of the answer.

use std::sync::Arc;

use icebox_wire::rest::EventView;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::trouble::{Kind, Trouble, timestamp};
use super::{Caller, Commands};
use crate::record::AccountId;
use crate::store::{EventPage, Reader, Told};

/// Events in one page.
const PAGE: usize = 200;
/// Readers at a time, of all accounts together.
const READERS: usize = 256;

/// The outbox, for readers.
pub(super) struct Outbox {
    /// A connection of its own, so that readers of events do not hold up status.
    reader: Arc<Reader>,
    /// One page is read at a time, in the order in which they were asked for.
    reading: Semaphore,
    /// Free places for readers.
    places: Arc<Semaphore>,
    /// Becomes true when the server ends.
    ending: watch::Sender<bool>,
}

impl Outbox {
    pub(super) fn new(reader: Reader) -> Self {
        Self {
            reader: Arc::new(reader),
            reading: Semaphore::new(1),
            places: Arc::new(Semaphore::new(READERS)),
            ending: watch::Sender::new(false),
        }
    }

    async fn page(
        &self,
        account: AccountId,
        after: i64,
        limit: usize,
    ) -> Result<EventPage, Trouble> {
        let turn = self.reading.acquire().await;
        let reader = Arc::clone(&self.reader);
        let page = tokio::task::spawn_blocking(move || reader.events(account, after, limit)).await;
        drop(turn);
        page.map_err(|error| Trouble::internal(&error))?
            .map_err(|error| Trouble::internal(&error))
    }

    async fn before_last(&self, account: AccountId, last: usize) -> Result<Option<i64>, Trouble> {
        let reader = Arc::clone(&self.reader);
        let find = move || reader.before_last(account, last);
        let found = tokio::task::spawn_blocking(find).await;
        found
            .map_err(|error| Trouble::internal(&error))?
            .map_err(|error| Trouble::internal(&error))
    }
}

/// Which events to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventsRequest {
    /// After the one with this number; absent: from the oldest that is kept.
    pub since: Option<i64>,
    /// Where `since` is absent: from so many before the newest on.
    pub last: Option<usize>,
    /// At most so many.
    pub limit: Option<usize>,
    /// Go on with what happens, instead of ending at the newest.
    pub follow: bool,
}

/// Events being read.
pub struct EventReader {
    commands: Commands,
    account: AccountId,
    /// The number that was read last, or passed over because it is another account's.
    position: i64,
    /// How many more are wanted.
    left: Option<usize>,
    /// Where reading ends if it does not follow.
    end: Option<i64>,
    /// The first page, which was read to see whether there is one.
    first: Option<EventPage>,
    news: watch::Receiver<u64>,
    ending: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
}

impl Commands {
    /// Begins to read an account's events. Trouble when some of those that are asked for are not kept any more.
    pub async fn events(
        &self,
        caller: &Caller,
        request: EventsRequest,
    ) -> Result<EventReader, Trouble> {
        let outbox = &self.0.outbox;
        let place = Arc::clone(&outbox.places)
            .try_acquire_owned()
            .map_err(|_| {
                let text = format!("{READERS} readers of events are connected; close one of yours");
                Trouble::new(Kind::Busy, text)
            })?;
        let news = self.0.engine.views().told();
        let page = PAGE.min(request.limit.unwrap_or(PAGE));
        let from = match (request.since, request.last) {
            (None, Some(last)) => outbox.before_last(caller.account, last).await?,
            (since, _) => since,
        };
        let first = outbox.page(caller.account, from.unwrap_or(0), page).await?;
        let position = from.unwrap_or(first.oldest - 1);
        if position > first.newest {
            let most = format!("at most {}, the number of the newest event", first.newest);
            return Err(Trouble::bad("since", most));
        }
        still_kept(position, &first)?;
        Ok(EventReader {
            commands: self.clone(),
            account: caller.account,
            position,
            left: request.limit,
            end: (!request.follow).then_some(first.newest),
            first: Some(first),
            news,
            ending: outbox.ending.subscribe(),
            _place: place,
        })
    }

    /// Ends every answer that would go on for ever; the server is about to.
    pub fn end_streams(&self) {
        self.0.outbox.ending.send_replace(true);
    }

    /// Becomes true when the server is about to end.
    #[must_use]
    pub fn ending(&self) -> watch::Receiver<bool> {
        self.0.outbox.ending.subscribe()
    }
}

impl EventReader {
    /// The next events, at least one; waits for them if the reader follows. `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Told>>, Trouble> {
        while self.left != Some(0) && self.end.is_none_or(|end| self.position < end) {
            let limit = PAGE.min(self.left.unwrap_or(PAGE));
            self.news.mark_unchanged();
            let page = match self.first.take() {
                Some(page) => page,
                None => {
                    let outbox = &self.commands.0.outbox;
                    outbox.page(self.account, self.position, limit).await?
                }
            };
            still_kept(self.position, &page)?;
            let events = self.up_to_the_end(page, limit);
            if !events.is_empty() {
                return Ok(Some(events));
            }
            if self.end.is_none() && !self.has_news().await {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Moves on over a page, and gives what of it is wanted.
    fn up_to_the_end(&mut self, page: EventPage, limit: usize) -> Vec<Told> {
        let whole = page.events.len() == limit;
        let wanted = |event: &Told| self.end.is_none_or(|end| event.seq <= end);
        let events: Vec<Told> = page.events.into_iter().filter(wanted).collect();
        self.position = match events.last() {
            Some(last) if whole => last.seq,
            // The others up to here are other accounts'.
            Some(_) | None => page.newest,
        };
        self.left = self.left.map(|left| left.saturating_sub(events.len()));
        events
    }

    /// Waits until there may be more; `false` when the server ends.
    async fn has_news(&mut self) -> bool {
        tokio::select! {
            changed = self.news.changed() => changed.is_ok(),
            _ = self.ending.wait_for(|ending| *ending) => false,
        }
    }
}

/// What the store keeps of an event beside its columns.
#[derive(Default, Deserialize)]
struct More {
    from: Option<String>,
    text: Option<String>,
}

/// An event as outsiders see it, however they hear of it.
#[must_use]
pub fn event_view(told: Told) -> EventView {
    let more: More = serde_json::from_str(&told.body).unwrap_or_default();
    EventView {
        seq: told.seq,
        at: timestamp(told.at),
        id: told.id,
        kind: told.kind,
        from: more.from,
        rule: told.rule,
        text: more.text,
    }
}

/// Whether everything after `position` is still kept.
fn still_kept(position: i64, page: &EventPage) -> Result<(), Trouble> {
    if position + 1 >= page.oldest {
        return Ok(());
    }
    let oldest = page.oldest;
    let text = format!(
        "the events after {position} are not all kept any more (they are for 7 days); \
         the oldest one left is {oldest}: read on with `since={}`, and look at the boxes themselves for what came before",
        oldest - 1
    );
    Err(Trouble::new(Kind::EventsGone, text).with("oldest", oldest))
}
