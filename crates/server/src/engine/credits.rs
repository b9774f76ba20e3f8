//! Accounts within a turn: charges what the turn's boxes were up, tells boxes whether their account has credits, and knows
//! the moment at which each account runs out (rules 4.12, 5.3, 14.5). The sums are [`icebox_lifecycle::credits`]'s; what a
//! box does when it is told is the rules'.
//!
//! A box is told when the turn first touches it, before whatever came to it, so that a million frozen boxes need not be
//! written when an account runs out. Those that are up are looked at in that moment.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use icebox_lifecycle::credits::{Credits, Ledger, MicroCredits, Prices};
use icebox_lifecycle::sandbox::Meter;
use icebox_lifecycle::{BoxId, Event, Time};
use tokio::sync::oneshot;

use super::accounts::{Account, Accounts};
use super::inbox::AskError;
use super::turn::{Core, Turn};
use super::views::View;
use crate::record::{AccountId, Record};
use crate::store::{Batch, KeyHash, PutAccount};

/// The most credits an account may have, in millionths.
pub(crate) const MOST_CREDITS: MicroCredits = 1_000_000_000 * 1_000_000;
/// The most accounts there may be.
const MOST_ACCOUNTS: usize = 10_000;

/// What is to become of an account.
#[derive(Clone, Debug)]
pub struct AccountChange {
    /// Its name.
    pub name: Arc<str>,
    /// Make it if there is none of that name.
    pub make: bool,
    /// What becomes of its credits.
    pub credits: Option<CreditsChange>,
    /// A key that it gets.
    pub key: Option<KeyHash>,
    /// A key that it loses, with every session that came of it.
    pub revoked: Option<KeyHash>,
}

/// What is to become of the credits of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditsChange {
    /// It gets so many more. One that never ran out has just these.
    Add(MicroCredits),
    /// It has so many.
    Set(MicroCredits),
    /// It never runs out.
    Unlimited,
}

/// Where an answer about an account goes.
pub(super) type AccountReply = oneshot::Sender<Result<Account, AskError>>;

/// What the engine knows of accounts besides their ledgers.
pub(super) struct Billing {
    pub(super) accounts: Arc<Accounts>,
    prices: Prices,
    /// The boxes of each account that are billed at the moment.
    up: HashMap<AccountId, BTreeSet<BoxId>>,
    /// When accounts run out, and the same by account.
    due: BTreeSet<(Time, AccountId)>,
    due_of: HashMap<AccountId, Time>,
    /// Accounts that have run out and whose boxes know.
    out: HashSet<AccountId>,
}

/// The accounts of a turn: each as it will be once the turn is committed.
#[derive(Default)]
pub(super) struct Books {
    open: BTreeMap<AccountId, Page>,
    replies: Vec<(AccountReply, AccountId)>,
}

struct Page {
    account: Account,
    keys: Vec<KeyHash>,
    revoked: Vec<KeyHash>,
    /// Somebody asked for it, so that it must survive a power cut.
    asked: bool,
}

impl Page {
    fn of(account: Account) -> Self {
        Self {
            account,
            keys: Vec::new(),
            revoked: Vec::new(),
            asked: false,
        }
    }
}

impl Billing {
    pub(super) fn new(accounts: Arc<Accounts>, prices: Prices) -> Self {
        Self {
            accounts,
            prices,
            up: HashMap::new(),
            due: BTreeSet::new(),
            due_of: HashMap::new(),
            out: HashSet::new(),
        }
    }

    /// When the next account runs out.
    pub(super) fn next(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes in a box that was loaded.
    pub(super) fn load(&mut self, view: &View) {
        let id = view.record.account;
        if view.sandbox.billed()
            && let Some(mut account) = self.accounts.get(id)
        {
            let per_hour = self.per_hour(&view.record);
            account.ledger.follow(per_hour, &view.sandbox.meter);
            self.accounts.put(account);
        }
        self.show(view);
    }

    /// Works out when each account runs out, once all boxes are known.
    pub(super) fn loaded(&mut self, now: Time) {
        for account in self.accounts.all() {
            self.follow(account.id, &account.ledger, now);
        }
    }

    /// Follows whether a box is billed.
    pub(super) fn show(&mut self, view: &View) {
        let id = view.record.account;
        if view.sandbox.billed() {
            self.up.entry(id).or_default().insert(view.id());
        } else if let Some(up) = self.up.get_mut(&id)
            && up.remove(&view.id())
            && up.is_empty()
        {
            self.up.remove(&id);
        }
    }

    fn per_hour(&self, record: &Record) -> MicroCredits {
        let size = record.size;
        self.prices.per_hour(size.milli_cpus, size.memory_mb)
    }

    /// The boxes of all accounts that are billed at the moment.
    pub(super) fn all_up(&self) -> Vec<BoxId> {
        self.up.values().flatten().copied().collect()
    }

    fn boxes_up(&self, id: AccountId) -> Vec<BoxId> {
        let up = self.up.get(&id).into_iter().flatten();
        up.copied().collect()
    }

    /// Sets the moment at which an account has to be looked at.
    fn follow(&mut self, id: AccountId, ledger: &Ledger, now: Time) {
        if ledger.any(now) {
            self.out.remove(&id);
        }
        let quiet = ledger.per_hour() <= 0 || self.out.contains(&id);
        let at = ledger.runs_out_at(now).filter(|_| !quiet);
        if let Some(before) = self.due_of.remove(&id) {
            self.due.remove(&(before, id));
        }
        if let Some(at) = at {
            self.due_of.insert(id, at);
            self.due.insert((at, id));
        }
    }
}

impl Core {
    /// Whether the account may have boxes up at this moment (rule 5.3).
    pub(super) fn has_credits(&self, turn: &Turn, id: AccountId) -> bool {
        self.ledger(turn, id).any(turn.billed_to())
    }

    fn ledger(&self, turn: &Turn, id: AccountId) -> Ledger {
        let page = turn.books.open.get(&id);
        page.map_or_else(|| self.billing.accounts.ledger(id), |it| it.account.ledger)
    }

    /// Tells a box whether its account has credits, if that is news. Before anything else comes to it; but what was seen of
    /// it goes first, for nothing may be decided before.
    pub(super) fn tell_credits(&self, turn: &mut Turn, id: BoxId, before: &Event) {
        if matches!(
            before,
            Event::Gap { .. } | Event::Observed(_) | Event::Warm { .. }
        ) {
            return;
        }
        let Some(account) = self.work(turn, id).map(|work| work.record.account) else {
            return;
        };
        let any = self.has_credits(turn, account);
        let now = turn.now;
        if let Some(work) = turn.work.get_mut(&id)
            && work.sandbox.credits != any
        {
            work.handle(now, Event::Credits { any });
        }
    }

    /// Has the boxes looked at that are up in accounts which run out now.
    pub(super) fn tick_accounts(&mut self, turn: &Turn) {
        let due = self.billing.due.iter();
        let due: Vec<AccountId> = due
            .take_while(|(at, _)| *at <= turn.now)
            .map(|(_, id)| *id)
            .collect();
        for id in due {
            let (ledger, billed_to) = (self.ledger(turn, id), turn.billed_to());
            if !ledger.any(billed_to) {
                self.billing.out.insert(id);
                self.look_at_boxes_of(id, turn.now);
            }
            // It may have been given some in this very turn, or the host slept.
            self.billing.follow(id, &ledger, billed_to);
        }
    }

    fn look_at_boxes_of(&mut self, id: AccountId, now: Time) {
        for up in self.billing.boxes_up(id) {
            self.deadlines.set(up, Some(now));
        }
    }

    /// Changes an account; the asker is answered when that is committed.
    pub(super) fn change_account(
        &mut self,
        turn: &mut Turn,
        change: AccountChange,
        reply: AccountReply,
    ) {
        match self.changed_account(turn, change) {
            Ok(id) => turn.books.replies.push((reply, id)),
            // The asker may have gone away.
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    fn changed_account(
        &mut self,
        turn: &mut Turn,
        change: AccountChange,
    ) -> Result<AccountId, AskError> {
        let at = turn.billed_to();
        let mut account = self.account_named(turn, &change)?;
        match change.credits {
            Some(CreditsChange::Add(micro)) => account.ledger.give(at, micro),
            Some(CreditsChange::Set(micro)) => {
                account.ledger.set(at, Some(Credits::from_micro(micro)));
            }
            Some(CreditsChange::Unlimited) => account.ledger.set(at, None),
            None => {}
        }
        let most = Credits::from_micro(MOST_CREDITS);
        if account.ledger.left(at).is_some_and(|left| left > most) {
            return Err(AskError::TooManyCredits);
        }
        let id = account.id;
        let page = turn.books.open.entry(id);
        let page = page.or_insert_with(|| Page::of(account.clone()));
        page.account = account;
        page.keys.extend(change.key);
        page.revoked.extend(change.revoked);
        page.asked = true;
        // Boxes whose freeze failed run on; they have to know that it is not wanted any more.
        self.look_at_boxes_of(id, turn.now);
        Ok(id)
    }

    fn account_named(&self, turn: &Turn, change: &AccountChange) -> Result<Account, AskError> {
        let mut open = turn.books.open.values().map(|page| &page.account);
        if let Some(account) = open.find(|it| it.name == change.name) {
            return Ok(account.clone());
        }
        if let Some(account) = self.billing.accounts.find(&change.name) {
            return Ok(account);
        }
        if !change.make {
            return Err(AskError::NotFound);
        }
        let known = self.billing.accounts.all();
        if known.len() >= MOST_ACCOUNTS {
            return Err(AskError::TooManyAccounts);
        }
        let known = known.iter().map(|it| it.id.0);
        let open = turn.books.open.keys().map(|id| id.0);
        Ok(Account {
            id: AccountId(known.chain(open).max().unwrap_or(0) + 1),
            name: Arc::clone(&change.name),
            ledger: Ledger::default(),
        })
    }

    /// Charges what the boxes of this turn were up since they were recorded last.
    pub(super) fn charge(&self, turn: &mut Turn) {
        for work in turn.work.values() {
            let before = work.before.as_deref();
            let before = before.map_or_else(Meter::default, |before| before.sandbox.meter);
            let (after, id) = (&work.sandbox.meter, work.record.account);
            if before == *after {
                continue;
            }
            if let Entry::Vacant(page) = turn.books.open.entry(id)
                && let Some(account) = self.billing.accounts.get(id)
            {
                page.insert(Page::of(account));
            }
            if let Some(page) = turn.books.open.get_mut(&id) {
                let per_hour = self.billing.per_hour(&work.record);
                page.account.ledger.charge(per_hour, &before, after);
            }
        }
    }

    /// Puts the accounts of a turn into its transaction.
    pub(super) fn put_accounts(&self, turn: &Turn, batch: &mut Batch<'_>) {
        for (id, page) in &turn.books.open {
            let ledger = page.account.ledger;
            if !page.asked && ledger.recorded() == self.billing.accounts.ledger(*id).recorded() {
                continue;
            }
            batch.durable |= page.asked;
            batch.accounts.push(PutAccount {
                id: *id,
                name: Arc::clone(&page.account.name),
                at: turn.now,
                ledger,
                keys: page.keys.clone(),
                revoked: page.revoked.clone(),
            });
        }
    }

    /// Shows the accounts of a turn that was committed.
    pub(super) fn show_accounts(&mut self, books: Books, now: Time) {
        for (id, page) in books.open {
            self.billing.follow(id, &page.account.ledger, now);
            self.billing.accounts.put(page.account);
        }
        for (reply, id) in books.replies {
            let account = self.billing.accounts.get(id);
            // The asker may have gone away.
            drop(reply.send(account.ok_or(AskError::NotFound)));
        }
    }

    /// Forgets the accounts of a turn that could not be committed.
    pub(super) fn give_up_accounts(&mut self, books: Books, now: Time) {
        for id in books.open.into_keys() {
            let ledger = self.billing.accounts.ledger(id);
            self.billing.follow(id, &ledger, now);
        }
        for (reply, _) in books.replies {
            drop(reply.send(Err(AskError::Store)));
        }
    }
}

#[cfg(test)]
mod tests {
    use icebox_lifecycle::time::{HOUR, MIN};
    use icebox_lifecycle::{Outcome, Policy, State};

    use super::super::inbox::{self, Message, NewBox};
    use super::super::{Parts, Shown};
    use super::*;
    use crate::boxd::Boxds;
    use crate::clock::Clock;
    use crate::driver::fake::Fake;
    use crate::record::Size;
    use crate::store::Store;

    const START: Time = Time(1_700_000_000_000);

    /// A core with one box of two credits an hour that is ready, and an account with so many credits.
    async fn core_with_a_box(dir: &std::path::Path, micro: MicroCredits) -> (Core, BoxId) {
        let clock = Clock::test(START);
        let mut store = Store::open(dir).unwrap();
        store.keys(dir, START).unwrap();
        let driver = Arc::new(Fake::new());
        let (sender, mut receiver) = inbox::channel();
        let parts = Parts {
            store,
            clock,
            boxds: Arc::new(Boxds::new(Arc::clone(&driver) as _)),
            driver,
            limits: Default::default(),
            prices: Prices::default(),
        };
        let mut core = Core::new(
            parts,
            tokio::runtime::Handle::current(),
            sender,
            Shown::default(),
        );
        for account in core.store.accounts().unwrap() {
            core.billing.accounts.put(account.into());
        }
        let id = crate::random::box_id();
        let record = Record {
            account: AccountId(1),
            name: None,
            goal: None,
            image: "host".into(),
            size: Size {
                milli_cpus: 4_000,
                memory_mb: 4_096,
                disk_gb: 1,
            },
            env: Default::default(),
            metadata: Default::default(),
            services: Vec::new(),
            private: false,
            egress: crate::driver::Egress::default(),
            link_secret: None,
            e2b: None,
            origin: None,
            scene: None,
            runs: None,
        };
        let policy = Policy {
            freeze_after_ms: None,
            ..Policy::AGENT
        };
        let agent = None;
        let new = NewBox {
            id,
            record,
            policy,
            agent,
        };
        let (reply, _) = oneshot::channel();
        let mut turn = core.begin();
        let asker = inbox::Asker {
            ticket: 1,
            wait_ms: None,
        };
        core.take(&mut turn, Message::Create(Box::new(new), asker, reply));
        let (reply, _) = oneshot::channel();
        core.take(&mut turn, set_to(micro, reply));
        assert!(core.finish(turn).is_ok());
        let mut turn = core.begin();
        loop {
            let booted = receiver.recv().await.unwrap();
            let done = matches!(&booted, Message::Done(_, _, Outcome::Done));
            assert!(done || matches!(&booted, Message::WayOut(_, None, _)));
            core.take(&mut turn, booted);
            if done {
                break;
            }
        }
        assert!(core.finish(turn).is_ok());
        assert_eq!(state(&core, id), State::Ready);
        (core, id)
    }

    fn set_to(micro: MicroCredits, reply: AccountReply) -> Message {
        let change = AccountChange {
            name: "default".into(),
            make: false,
            credits: Some(CreditsChange::Set(micro)),
            key: None,
            revoked: None,
        };
        Message::Account(Box::new(change), reply)
    }

    fn state(core: &Core, id: BoxId) -> State {
        core.views.get(id).unwrap().sandbox.state.clone()
    }

    fn left(core: &Core) -> Option<MicroCredits> {
        let ledger = core.billing.accounts.ledger(AccountId(1));
        ledger.left(core.clock.now()).map(Credits::micro)
    }

    #[tokio::test]
    async fn a_host_that_slept_is_not_charged_and_nothing_runs_out_by_that() {
        let dir = tempfile::tempdir().unwrap();
        let (mut core, id) = core_with_a_box(dir.path(), 1_000_000).await;
        assert_eq!(core.next_deadline(), Some(START + 30 * MIN));
        core.clock.move_to(START + 5 * HOUR);
        let mut turn = core.begin();
        core.slept(&mut turn, 5 * HOUR - 6 * MIN);
        let (reply, _) = oneshot::channel();
        core.take(&mut turn, set_to(2_000_000, reply));
        core.tick(&mut turn);
        assert!(core.finish(turn).is_ok());
        assert_eq!(state(&core, id), State::Ready);
        assert_eq!(left(&core), Some(2_000_000), "what was set, exactly");
        let runs_out = START + 6 * HOUR;
        assert_eq!(core.next_deadline(), Some(runs_out));
        let used = core.billing.accounts.ledger(AccountId(1));
        let used = used.used(START + 5 * HOUR).micro();
        assert_eq!(used, 200_000, "six minutes");
        core.clock.move_to(runs_out);
        let mut turn = core.begin();
        core.tick(&mut turn);
        assert!(core.finish(turn).is_ok());
        assert!(matches!(state(&core, id), State::Freezing { .. }));
        assert_eq!(left(&core), Some(0));
        let (micro, rest) = core.store.accounts().unwrap()[0]
            .ledger
            .recorded()
            .0
            .unwrap()
            .parts();
        assert_eq!((micro, rest), (2_000_000, 0), "charged when it is frozen");
    }
}
