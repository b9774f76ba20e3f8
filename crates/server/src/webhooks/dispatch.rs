//! The loop that delivers: puts new events in line, tries the first of each line, and notes what came of it. Owns how many
//! tries are under way and whose turn it is. What it has to remember is in the database; here is only what a restart may
//! forget.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use icebox_lifecycle::Time;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use super::attempt::{self, Outcome};
use super::{Shared, backoff, message};
use crate::random;
use crate::record::AccountId;
use crate::store::{Due, ERROR_LEN, Fill, Hook, StoreError, Then, Tried, cut};

/// Tries under way at a time.
pub(super) const ALL: usize = 64;
/// Those of webhooks whose last try failed, all together: they wait for answers that do not come.
const OF_FAILING: usize = ALL / 2;
/// Those of one webhook, and of one whose last try failed.
const OF_ONE: usize = 8;
const OF_ONE_FAILING: usize = 1;
/// How long to wait after the database failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Delivers until the server ends. Tries that are cut off then are repeated by the next one.
pub(super) async fn run(shared: Arc<Shared>) {
    let commands = &shared.commands;
    let mut news = Signals {
        told: commands.engine().views().told(),
        changed: shared.changed.subscribe(),
        ending: commands.ending(),
    };
    let mut dispatcher = Dispatcher::new(Arc::clone(&shared));
    while news.go_on() {
        let next = match dispatcher.work().await {
            Ok(next) => next,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "webhooks cannot go on for now"
                );
                tokio::time::sleep(AFTER_FAILURE).await;
                dispatcher.look_at_everything();
                continue;
            }
        };
        let due = async {
            match next {
                Some(at) => commands.clock().reached(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = dispatcher.tries.join_next_with_id() => dispatcher.ended(ended),
            told = news.told.changed() => {
                dispatcher.news = true;
                if told.is_err() {
                    return;
                }
            }
            // The sender is `shared`'s.
            _ = news.changed.changed() => dispatcher.reload = true,
            _ = news.ending.wait_for(|ending| *ending) => return,
            () = due => {}
        }
    }
}

struct Signals {
    told: watch::Receiver<u64>,
    changed: watch::Receiver<u64>,
    ending: watch::Receiver<bool>,
}

impl Signals {
    fn go_on(&self) -> bool {
        !*self.ending.borrow()
    }
}

/// One webhook and where it stands.
struct Line {
    hook: Arc<Hook>,
    /// There may be events that are not in line yet.
    fill: bool,
    /// There is no room for them until something is over.
    full: bool,
    /// The first events in line may be others than they were.
    look: bool,
    /// Otherwise: when the first of those that are not under way is due.
    next: Option<Time>,
    /// The events that are being tried.
    busy: HashSet<i64>,
    /// The endpoint wants to be left alone until then.
    not_before: Time,
    /// The last try failed.
    failing: bool,
}

impl Line {
    fn new(hook: Arc<Hook>) -> Self {
        Self {
            hook,
            fill: true,
            full: false,
            look: true,
            next: None,
            busy: HashSet::new(),
            not_before: Time(0),
            failing: false,
        }
    }

    fn places(&self) -> usize {
        let most = if self.failing { OF_ONE_FAILING } else { OF_ONE };
        most.saturating_sub(self.busy.len())
    }

    /// When there is something to do for it, if it gets a place.
    fn due_at(&self) -> Option<Time> {
        let at = if self.look { Some(Time(0)) } else { self.next };
        at.filter(|_| self.hook.enabled)
            .map(|at| at.max(self.not_before))
    }
}

/// One try under way.
#[derive(Clone)]
struct Try {
    hook: String,
    seq: i64,
    tries: u32,
    event_at: Time,
}

struct Dispatcher {
    shared: Arc<Shared>,
    lines: BTreeMap<String, Line>,
    tries: JoinSet<Outcome>,
    under_way: HashMap<Id, Try>,
    /// Tries that ended and are not noted yet.
    ended: Vec<(Try, Outcome)>,
    /// Webhooks may have changed.
    reload: bool,
    /// There may be new events.
    news: bool,
    /// The newest event whose account was looked at; `None` before the first look.
    seen: Option<i64>,
    /// The webhook that was served last.
    last_served: String,
}

impl Dispatcher {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            lines: BTreeMap::new(),
            tries: JoinSet::new(),
            under_way: HashMap::new(),
            ended: Vec::new(),
            reload: true,
            news: true,
            seen: None,
            last_served: String::new(),
        }
    }

    /// After a failure nobody knows how far the work came.
    fn look_at_everything(&mut self) {
        self.reload = true;
        for line in self.lines.values_mut() {
            line.fill = true;
            line.look = true;
        }
    }

    /// Does what there is to do now, and says when there is more.
    async fn work(&mut self) -> Result<Option<Time>, StoreError> {
        while let Some(ended) = self.tries.try_join_next_with_id() {
            self.ended(ended);
        }
        self.note().await?;
        if self.reload {
            self.load().await?;
        }
        if self.news {
            self.hear().await?;
        }
        let more = self.fill().await?;
        self.launch().await?;
        Ok(if more { Some(Time(0)) } else { self.next() })
    }

    fn ended(&mut self, ended: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "a delivery broke off");
                let failed = Outcome::Failed {
                    status: None,
                    why: "something went wrong on this server".to_owned(),
                    retry_after_ms: None,
                };
                (error.id(), failed)
            }
        };
        self.ended
            .extend(self.under_way.remove(&id).map(|tried| (tried, outcome)));
    }

    /// Writes down what came of tries.
    async fn note(&mut self) -> Result<(), StoreError> {
        while let Some((tried, outcome)) = self.ended.last() {
            let now = self.shared.commands.clock().now();
            let (hook, seq) = (tried.hook.clone(), tried.seq);
            let came = came_to(tried, outcome, now);
            if came.then == Then::Disable {
                tracing::warn!(
                    hook,
                    "a webhook's endpoint is gone; the webhook is disabled"
                );
                self.reload = true;
            }
            let (noted, id) = (came.clone(), hook.clone());
            let note = move |hooks: &crate::store::Hooks| hooks.tried(&id, seq, now, &noted);
            self.shared.with(note).await?;
            let asked_ms = match outcome {
                Outcome::Failed { retry_after_ms, .. } => *retry_after_ms,
                Outcome::Taken { .. } | Outcome::Gone => None,
            };
            if let Some(line) = self.lines.get_mut(&hook) {
                line.busy.remove(&seq);
                line.look = true;
                line.fill |= std::mem::take(&mut line.full);
                line.failing = came.then != Then::Delivered;
                if let (Some(_), Then::Again(at)) = (asked_ms, came.then) {
                    line.not_before = at;
                }
            }
            self.ended.pop();
        }
        Ok(())
    }

    /// Takes notice of webhooks that are new, changed or gone.
    async fn load(&mut self) -> Result<(), StoreError> {
        let hooks = self.shared.with(|hooks| hooks.list(None)).await?;
        let mut before = std::mem::take(&mut self.lines);
        for mut hook in hooks {
            // It changes all the time and does not matter here.
            hook.waiting = 0;
            let line = match before.remove(&hook.id) {
                Some(line) if *line.hook == hook => line,
                // What another address owed or asked for does not matter any more.
                Some(line) => Line {
                    busy: line.busy,
                    ..Line::new(Arc::new(hook))
                },
                None => Line::new(Arc::new(hook)),
            };
            self.lines.insert(line.hook.id.clone(), line);
        }
        self.reload = false;
        Ok(())
    }

    /// Finds out whose webhooks there is news for.
    async fn hear(&mut self) -> Result<(), StoreError> {
        // Webhooks that were just loaded are filled anyway, so the first time nothing has to be read.
        let seen = self.seen.unwrap_or(i64::MAX);
        let news = self.shared.with(move |hooks| hooks.news(seen)).await?;
        let (accounts, newest): (Vec<AccountId>, i64) = news;
        for line in self.lines.values_mut() {
            line.fill |= accounts.contains(&line.hook.account);
        }
        self.seen = Some(newest);
        self.news = false;
        Ok(())
    }

    /// Puts events in line, some for each webhook; whether there are more.
    async fn fill(&mut self) -> Result<bool, StoreError> {
        let mut more = false;
        let now = self.shared.commands.clock().now();
        let wants = |line: &&mut Line| line.fill && !line.full && line.hook.enabled;
        for line in self.lines.values_mut().filter(wants) {
            let id = line.hook.id.clone();
            let filled = self.shared.with(move |hooks| hooks.fill(&id, now)).await?;
            line.look = true;
            line.fill = filled != Fill::Done;
            line.full = filled == Fill::Full;
            more |= filled == Fill::More;
        }
        Ok(more)
    }

    /// Tries under way for webhooks whose last try failed.
    fn failing(&self) -> usize {
        let failing = self.lines.values().filter(|line| line.failing);
        failing.map(|line| line.busy.len()).sum()
    }

    /// How many more tries a line may have under way.
    fn places(&self, line: &Line) -> usize {
        let all = ALL.saturating_sub(self.under_way.len());
        let shared = if line.failing {
            all.min(OF_FAILING.saturating_sub(self.failing()))
        } else {
            all
        };
        line.places().min(shared)
    }

    /// Begins what is due, one webhook after the other, from the one behind that which was served last.
    async fn launch(&mut self) -> Result<(), StoreError> {
        let now = self.shared.commands.clock().now();
        let is_due = |line: &Line| line.due_at().is_some_and(|at| at <= now);
        let due = self.lines.iter().filter(|(_, line)| is_due(line));
        let (mut first, mut rest): (Vec<_>, Vec<_>) = due
            .map(|(id, _)| id.clone())
            .partition(|id| *id > self.last_served);
        first.append(&mut rest);
        for id in first {
            let places = self.lines.get(&id).map_or(0, |line| self.places(line));
            if places > 0 {
                self.launch_of(id, places, now).await?;
            }
        }
        Ok(())
    }

    async fn launch_of(&mut self, id: String, places: usize, now: Time) -> Result<(), StoreError> {
        // Besides those under way as many as may be begun, and one to know when to come back.
        let (limit, wanted) = (2 * OF_ONE + 1, id.clone());
        let due = self
            .shared
            .with(move |hooks| hooks.due(&wanted, limit))
            .await?;
        let Some(line) = self.lines.get_mut(&id) else {
            return Ok(());
        };
        let waiting = due.into_iter().filter(|due| !line.busy.contains(&due.seq));
        let mut waiting: Vec<Due> = waiting.collect();
        let ready = waiting.iter().take_while(|due| due.at <= now).count();
        let later = waiting.split_off(ready.min(places));
        line.look = false;
        line.next = later.first().map(|due| due.at);
        let hook = Arc::clone(&line.hook);
        for due in waiting {
            match due.event {
                Some(event) => {
                    line.busy.insert(due.seq);
                    let tried = Try {
                        hook: id.clone(),
                        seq: due.seq,
                        tries: due.tries,
                        event_at: event.at,
                    };
                    let (shared, hook) = (Arc::clone(&self.shared), Arc::clone(&hook));
                    let post = async move {
                        let private_too = shared.private_too(hook.account);
                        let message = message::of_event(&hook.id, event);
                        let (dialer, secret) = (&shared.dialer, &hook.secret);
                        attempt::post(dialer, &hook.url, private_too, secret, message).await
                    };
                    let task = self.tries.spawn(post);
                    self.under_way.insert(task.id(), tried);
                }
                None => {
                    line.look = true;
                    let (hook, seq) = (id.clone(), due.seq);
                    let note = move |hooks: &crate::store::Hooks| hooks.not_kept(&hook, seq, now);
                    self.shared.with(note).await?;
                }
            }
        }
        self.last_served = id;
        Ok(())
    }

    /// When there is something to do for a webhook that has a place for it.
    fn next(&self) -> Option<Time> {
        let lines = self.lines.values();
        let with_place = lines.filter(|line| self.places(line) > 0);
        with_place.filter_map(Line::due_at).min()
    }
}

/// What is to be noted of a try.
fn came_to(tried: &Try, outcome: &Outcome, now: Time) -> Tried {
    match outcome {
        Outcome::Taken { status } => Tried {
            status: Some(*status),
            error: None,
            then: Then::Delivered,
        },
        Outcome::Gone => Tried {
            status: Some(attempt::GONE),
            error: Some(attempt::GONE_WHY.to_owned()),
            then: Then::Disable,
        },
        Outcome::Failed {
            status,
            why,
            retry_after_ms,
        } => {
            let chance = u64::from_ne_bytes(random::bytes());
            let tries = tried.tries.saturating_add(1);
            let again = backoff::next(now, tried.event_at, tries, *retry_after_ms, chance);
            Tried {
                status: *status,
                error: Some(cut(why, ERROR_LEN)),
                then: again.map_or(Then::GiveUp, Then::Again),
            }
        }
    }
}
