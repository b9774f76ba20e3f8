//! Words between people and agents: a line of an agent to whoever watches its box, a message of a person to whoever holds a
//! box, and feedback to the operator. None of them is use of a box, and none wakes one (rule 3.2). How a message arrives
//! once is in [`super::handover`].

use icebox_lifecycle::CallKind;
use icebox_wire::rest::{
    FeedbackRequest, FeedbackResponse, FeedbackView, MessageView, MessagesResponse, SayRequest,
};

use super::check::{self, unfit};
use super::trouble::{Kind, Trouble, timestamp};
use super::{Caller, Commands, ask};
use crate::store::{Beside, Ending, FeedbackRow, HistoryStep, MessageRow, SUMMARY_LEN, cut};

/// The longest line of an agent, in characters.
const SAY_LEN: usize = 500;
/// The longest message of a person, and each field of feedback.
const TEXT_LEN: usize = 4_000;
/// The most messages that wait at one box.
const MOST_WAITING: usize = 100;
/// The most messages in one list.
const LISTED: usize = 100;
/// Feedback that is kept, and shown.
const FEEDBACK_KEPT: usize = 10_000;
const FEEDBACK_SHOWN: usize = 200;

impl Commands {
    /// Tells the person who watches a box something: a step of it, which a repeat with the same `sayId` is not.
    pub async fn say(
        &self,
        caller: &Caller,
        id: &str,
        request: &SayRequest,
    ) -> Result<(), Trouble> {
        let text = said(&request.text, SAY_LEN)?;
        let say_id = request.say_id.as_deref();
        if say_id.is_some_and(|id| !check::is_exec_id(id)) {
            return Err(unfit("sayId"));
        }
        let view = self.find(caller, id)?;
        if let Some(ended) = Trouble::of_ended(&view, self.0.clock.now()) {
            return Err(ended);
        }
        let id = view.id();
        let began = self.0.engine.begin_call(id, CallKind::Reads, false, None);
        let (call, _) = began.await.map_err(|error| ask(error, id))?;
        let long = text.chars().count() > SUMMARY_LEN;
        let step = HistoryStep {
            at: self.0.clock.now(),
            exec: say_id.map(|id| format!("say-{id}")),
            kind: "say",
            summary: cut(text, SUMMARY_LEN),
            // A step's summary is short; the whole of a longer line is its note.
            note: long.then(|| text.to_owned()),
            detail: None,
            target: None,
            ending: Ending::default(),
        };
        call.end_with(step).await;
        Ok(())
    }

    /// Leaves a message for the conversation that holds a box, or holds it next.
    pub async fn leave_message(
        &self,
        caller: &Caller,
        id: &str,
        text: &str,
    ) -> Result<MessageView, Trouble> {
        let text = said(text, TEXT_LEN)?.to_owned();
        let view = self.find(caller, id)?;
        if let Some(ended) = Trouble::of_ended(&view, self.0.clock.now()) {
            return Err(ended);
        }
        let (id, now, kept) = (view.id(), self.0.clock.now(), text.clone());
        let left = self.beside(move |beside| beside.leave_message(id, &kept, now, MOST_WAITING));
        let Some(seq) = left.await? else {
            let text = format!(
                "{MOST_WAITING} messages wait at box {id} already; nobody who holds it has looked since"
            );
            return Err(Trouble::new(Kind::TooMany, text));
        };
        self.0.keep.messages.left_at(id);
        Ok(MessageView {
            id: seq,
            at: timestamp(now),
            text,
            delivered_at: None,
            agent: None,
        })
    }

    /// The latest messages that were left at a box, those that arrived, too.
    pub async fn messages(&self, caller: &Caller, id: &str) -> Result<MessagesResponse, Trouble> {
        let id = self.find(caller, id)?.id();
        // Read first: what arrives meanwhile is in the rows by the time that it is no longer on its way.
        let arrived = self.0.keep.messages.arrived();
        let rows = self
            .beside(move |beside| beside.messages(id, LISTED))
            .await?;
        let rows = rows.into_iter().map(|row| arrived.mark(row));
        Ok(MessagesResponse {
            messages: rows.map(message).collect(),
        })
    }

    /// Keeps what an agent says to the operator.
    pub async fn feedback(&self, caller: &Caller, request: FeedbackRequest) -> Result<(), Trouble> {
        for (field, text) in [
            ("task", &request.task),
            ("usage", &request.usage),
            ("problems", &request.problems),
            ("suggestions", &request.suggestions),
        ] {
            check::text(field, Some(text), TEXT_LEN)?;
        }
        let of_box = request.id.as_deref();
        let of_box = of_box.map(|id| self.find(caller, id)).transpose()?;
        let row = FeedbackRow {
            at: self.0.clock.now(),
            account: caller.account,
            of_box: of_box.map(|view| view.id().to_string()),
            agent: caller.agent.as_deref().map(str::to_owned),
            task: request.task,
            usage: request.usage,
            problems: request.problems,
            suggestions: request.suggestions,
        };
        let add = move |beside: &Beside| beside.add_feedback(&row, FEEDBACK_KEPT);
        self.beside(add).await
    }

    /// The latest feedback of all accounts, for the operator.
    pub async fn all_feedback(&self) -> Result<FeedbackResponse, Trouble> {
        let rows = self
            .beside(|beside| beside.feedback(FEEDBACK_SHOWN))
            .await?;
        let accounts = self.0.engine.accounts();
        let shown = |row: FeedbackRow| FeedbackView {
            at: timestamp(row.at),
            account: accounts
                .get(row.account)
                .map(|account| account.name.to_string())
                .unwrap_or_default(),
            id: row.of_box,
            agent: row.agent,
            task: row.task,
            usage: row.usage,
            problems: row.problems,
            suggestions: row.suggestions,
        };
        Ok(FeedbackResponse {
            feedback: rows.into_iter().map(shown).collect(),
        })
    }
}

/// A message that says something and fits.
fn said(text: &str, most: usize) -> Result<&str, Trouble> {
    let text = text.trim();
    if text.is_empty() {
        let limit = format!("a text of 1 to {most} characters");
        return Err(Trouble::bad("text", limit));
    }
    check::text("text", Some(text), most).map_err(|_| match most {
        SAY_LEN => unfit("text"),
        _ => Trouble::bad("text", format!("a text of 1 to {most} characters")),
    })?;
    Ok(text)
}

pub(super) fn message(row: MessageRow) -> MessageView {
    MessageView {
        id: row.seq,
        at: timestamp(row.at),
        text: row.text,
        delivered_at: row.delivered_at.map(timestamp),
        agent: row.agent,
    }
}
