//! The loop itself: waits for a message or the earliest deadline, then takes a turn. Owns the waiting and the moves of the
//! test clock; what happens to a box is the turn's.

use std::collections::VecDeque;
use std::time::Duration;

use icebox_lifecycle::Time;
use tokio::sync::oneshot;

use super::inbox::{Message, Receiver};
use super::turn::{Core, HEARTBEAT_MS};

/// Messages taken in one turn.
const MOST_MESSAGES: usize = 256;
/// How long to wait after a commit that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Runs until it is told to stop. Blocks its thread.
pub(super) fn run(core: Core, inbox: Receiver) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(Loop::new(core, inbox).run()),
        Err(error) => tracing::error!(%error, "the engine cannot start"),
    }
}

struct Loop {
    core: Core,
    inbox: Receiver,
    advances: VecDeque<(i64, oneshot::Sender<Time>)>,
    /// Where the advance under way ends.
    target: Option<Time>,
}

impl Loop {
    fn new(core: Core, inbox: Receiver) -> Self {
        Self {
            core,
            inbox,
            advances: VecDeque::new(),
            target: None,
        }
    }

    async fn run(mut self) {
        let mut messages = Vec::new();
        let mut again: Vec<Message> = Vec::new();
        loop {
            let wait = if again.is_empty() {
                let wait = self.wait();
                let write = self.core.behind.due_in();
                write.map_or(wait, |write| write.min(wait))
            } else {
                AFTER_FAILURE
            };
            self.receive(&mut messages, wait, !again.is_empty()).await;
            let mut turn = self.core.begin();
            let mut stop = None;
            for message in again.drain(..).chain(messages.drain(..)) {
                match message {
                    Message::Advance(ms, reply) if self.core.clock.is_test() => {
                        self.advances.push_back((ms, reply));
                    }
                    Message::Advance(_, reply) => {
                        // A system clock cannot be moved; the asker sees that from the answer.
                        let _ = reply.send(self.core.clock.now());
                    }
                    Message::Shutdown(done) => {
                        turn.closing = true;
                        stop = Some(done);
                    }
                    Message::Create(..)
                    | Message::Call(..)
                    | Message::Ask(..)
                    | Message::HungUp(..)
                    | Message::Patch(..)
                    | Message::Ended(..)
                    | Message::Step(..)
                    | Message::Account(..)
                    | Message::Save(..)
                    | Message::Saved(..)
                    | Message::Unsave(..)
                    | Message::Unsaved(_)
                    | Message::Event(..)
                    | Message::WayOut(..)
                    | Message::Done(..)
                    | Message::Exited(..) => self.core.take(&mut turn, message),
                }
            }
            self.core.tick(&mut turn);
            self.core.serve_queue(&mut turn);
            again = self.core.finish(turn).err().unwrap_or_default();
            if let Some(done) = stop {
                drop(self.core);
                // Whoever asked for the end may not wait for it.
                let _ = done.send(());
                return;
            }
        }
    }

    /// Waits for messages, at most `wait`; after a failure the wait is not cut short.
    async fn receive(&mut self, messages: &mut Vec<Message>, wait: Duration, failed: bool) {
        if failed {
            tokio::time::sleep(wait).await;
        }
        let receive = self.inbox.recv_many(messages, MOST_MESSAGES);
        // Running out of time means that something is due, which the turn finds out.
        let _ = tokio::time::timeout(if failed { Duration::ZERO } else { wait }, receive).await;
    }

    /// How long there is nothing to do. Moves the test clock on when everything before has come to its end.
    fn wait(&mut self) -> Duration {
        let longest = Duration::from_millis(HEARTBEAT_MS.unsigned_abs());
        if self.move_clock() {
            return Duration::ZERO;
        }
        let Some(at) = self.core.next_deadline() else {
            return longest;
        };
        if at <= self.core.clock.now() {
            return Duration::ZERO;
        }
        self.core
            .clock
            .until(at)
            .map_or(longest, |until| until.min(longest))
    }

    /// One step of an advance: to the next deadline, or to its end. `true` if time moved.
    fn move_clock(&mut self) -> bool {
        if self.core.effects.under_way() > 0 || !self.inbox.is_empty() {
            return false;
        }
        let now = self.core.clock.now();
        if self.core.next_deadline().is_some_and(|at| at <= now) {
            return false;
        }
        let Some((ms, _)) = self.advances.front() else {
            return false;
        };
        let target = *self.target.get_or_insert(now + *ms);
        match self.core.next_deadline() {
            Some(at) if at <= target => self.core.clock.move_to(at),
            Some(_) | None => {
                self.core.clock.move_to(target);
                self.target = None;
                if let Some((_, reply)) = self.advances.pop_front() {
                    // Whoever asked may have gone away.
                    let _ = reply.send(self.core.clock.now());
                }
            }
        }
        true
    }
}
