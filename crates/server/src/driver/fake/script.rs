//! What the fake driver does otherwise than it should, step by step.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// A step that a driver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are the driver's methods")]
pub enum Step {
    Boot,
    Freeze,
    Evict,
    Thaw,
    Release,
    Reach,
    Renew,
    Destroy,
    DropCopy,
    Save,
    DropSnapshot,
}

/// What becomes of a step.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Nothing is done, and it says that it failed.
    Fail(String),
    /// It is done as far as can be (a freeze stands still), and it says that it refuses the rest.
    Refuse(String),
    /// Nothing is done, and it says that there is no such box.
    Gone(String),
    /// It waits before it begins.
    HoldBefore(Gate),
    /// It is done, but says so only when the gate opens.
    HoldAfter(Gate),
    /// It is done, and says that it failed.
    ActAndFail(String),
    /// The driver breaks down.
    Panic,
}

/// A place to wait at: the step tells that it has come there, and goes on when the gate is opened.
#[derive(Clone, Debug)]
pub struct Gate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    reached: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(GateState {
            reached: watch::Sender::new(false),
            open: watch::Sender::new(false),
        }))
    }
}

impl Gate {
    /// Waits until the step has come to the gate.
    pub async fn reached(&self) {
        let mut reached = self.0.reached.subscribe();
        // The sender lives as long as the gate.
        let _ = reached.wait_for(|reached| *reached).await;
    }

    /// Lets the step go on.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    pub(super) async fn pass(&self) {
        self.0.reached.send_replace(true);
        let mut open = self.0.open.subscribe();
        // The sender lives as long as the gate.
        let _ = open.wait_for(|open| *open).await;
    }
}

/// Behaviours to come, for each step in order.
#[derive(Default)]
pub(super) struct Script(Mutex<HashMap<Step, VecDeque<Behaviour>>>);

impl Script {
    pub(super) fn add(&self, step: Step, behaviour: Behaviour) {
        let mut script = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        script.entry(step).or_default().push_back(behaviour);
    }

    pub(super) fn take(&self, step: Step) -> Option<Behaviour> {
        let mut script = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        script.get_mut(&step)?.pop_front()
    }
}
