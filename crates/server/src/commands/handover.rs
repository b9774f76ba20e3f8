//! How a message of a person arrives once at the conversation that holds a box. It waits in its table until it is known to
//! have arrived; a crash or a connection that breaks before leaves it waiting, and it comes again under the same number.
//!
//! Clients that confirm (`icebox mcp`) get everything that waits with every result, drop what they know, and say what
//! arrived. For all others a message has arrived when their connection has taken the whole answer; until then it is on its
//! way, and no other answer has it. Owns what is on its way, which is forgotten in a crash.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use icebox_lifecycle::{BoxId, Time};
use icebox_wire::rest::MessageView;

use super::check::unfit;
use super::messages::message;
use super::{Caller, Commands, Trouble};
use crate::store::MessageRow;

/// The most messages that one call confirms.
const CONFIRMED: usize = 100;

/// Messages that wait at boxes, or are on their way from there.
pub(super) struct Messages {
    post: Mutex<Post>,
    /// One at a time reads what waits, or marks it: nobody hands out what is marked meanwhile.
    turn: tokio::sync::Mutex<()>,
}

struct Post {
    /// Boxes at which some may wait.
    waiting: HashSet<BoxId>,
    on_the_way: HashMap<i64, OnTheWay>,
}

/// How far a message is that is not marked in its table yet.
#[derive(Clone)]
enum OnTheWay {
    /// An answer has it.
    Sent,
    /// It arrived then, at that conversation.
    Arrived(Time, Option<Box<str>>),
}

impl Messages {
    pub(super) fn waiting_at(boxes: Vec<BoxId>) -> Self {
        Self {
            post: Mutex::new(Post {
                waiting: boxes.into_iter().collect(),
                on_the_way: HashMap::new(),
            }),
            turn: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn left_at(&self, id: BoxId) {
        self.post().waiting.insert(id);
    }

    /// What arrived and is not marked yet.
    pub(super) fn arrived(&self) -> Arrived {
        Arrived(self.post().on_the_way.clone())
    }

    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, seqs: &[i64]) {
        let mut post = self.post();
        for seq in seqs {
            post.on_the_way.remove(seq);
        }
    }
}

/// See [`Messages::arrived`].
pub(super) struct Arrived(HashMap<i64, OnTheWay>);

impl Arrived {
    /// The row as it will be.
    pub(super) fn mark(&self, mut row: MessageRow) -> MessageRow {
        if row.delivered_at.is_none()
            && let Some(OnTheWay::Arrived(at, agent)) = self.0.get(&row.seq)
        {
            row.delivered_at = Some(*at);
            row.agent = agent.as_deref().map(str::to_owned);
        }
        row
    }
}

/// Messages that an answer has for a client that does not confirm. Dropping it leaves them waiting.
pub struct Receipt {
    commands: Commands,
    id: BoxId,
    agent: Option<Box<str>>,
    seqs: Vec<i64>,
}

impl Receipt {
    /// The client's connection has taken the answer.
    pub fn arrived(mut self) {
        let (commands, id, agent) = (self.commands.clone(), self.id, self.agent.take());
        let (seqs, now) = (std::mem::take(&mut self.seqs), commands.0.clock.now());
        let mut post = commands.0.keep.messages.post();
        let state = OnTheWay::Arrived(now, agent.clone());
        let states = seqs.iter().map(|seq| (*seq, state.clone()));
        post.on_the_way.extend(states);
        drop(post);
        tokio::spawn(async move {
            // When that fails they stay on their way, so that they come again after a restart at the earliest.
            if let Err(trouble) = commands.mark_arrived(id, seqs, agent, now).await {
                tracing::error!(%id, error = %trouble.text, "cannot mark messages as arrived");
            }
        });
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.commands.0.keep.messages.forget(&self.seqs);
    }
}

impl Commands {
    /// What waits at a box, if the caller's conversation holds it. With a receipt unless the caller confirms by itself.
    pub async fn from_human(
        &self,
        caller: &Caller,
        id: BoxId,
        confirms: bool,
    ) -> Result<(Vec<MessageView>, Option<Receipt>), Trouble> {
        let nothing = (Vec::new(), None);
        let messages = &self.0.keep.messages;
        if !messages.post().waiting.contains(&id) {
            return Ok(nothing);
        }
        let view = self.0.engine.views().get(id);
        let holds = view.is_some_and(|view| {
            view.record.account == caller.account && view.sandbox.agent.id == caller.agent
        });
        if !holds {
            return Ok(nothing);
        }
        let _turn = messages.turn.lock().await;
        // First, so that one that is left meanwhile is noticed again.
        messages.post().waiting.remove(&id);
        let waiting = self.beside(move |beside| beside.waiting_messages(id)).await;
        let mut post = messages.post();
        if waiting.as_ref().map_or(true, |rows| !rows.is_empty()) {
            post.waiting.insert(id);
        }
        let mut rows = waiting?;
        rows.retain(|row| !post.on_the_way.contains_key(&row.seq));
        let receipt = if confirms || rows.is_empty() {
            None
        } else {
            let seqs: Vec<i64> = rows.iter().map(|row| row.seq).collect();
            let states = seqs.iter().map(|seq| (*seq, OnTheWay::Sent));
            post.on_the_way.extend(states);
            Some(Receipt {
                commands: self.clone(),
                id,
                agent: caller.agent.clone(),
                seqs,
            })
        };
        drop(post);
        Ok((rows.into_iter().map(message).collect(), receipt))
    }

    /// The caller says that messages of a box arrived. Saying so again changes nothing.
    pub async fn received(&self, caller: &Caller, id: &str, ids: &[i64]) -> Result<(), Trouble> {
        let id = self.find(caller, id)?.id();
        if !(1..=CONFIRMED).contains(&ids.len()) {
            return Err(unfit("ids"));
        }
        let now = self.0.clock.now();
        self.mark_arrived(id, ids.to_vec(), caller.agent.clone(), now)
            .await
    }

    async fn mark_arrived(
        &self,
        id: BoxId,
        seqs: Vec<i64>,
        agent: Option<Box<str>>,
        now: Time,
    ) -> Result<(), Trouble> {
        let messages = &self.0.keep.messages;
        let _turn = messages.turn.lock().await;
        let marked = self.beside(move |beside| {
            beside.messages_arrived(id, &seqs, agent.as_deref(), now)?;
            Ok(seqs)
        });
        messages.forget(&marked.await?);
        Ok(())
    }
}
