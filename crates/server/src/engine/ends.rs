//! The ends of calls on their way to the views. A call is answered before its end is committed, which would only make the
//! caller wait; whoever looks at a box afterwards waits for it instead. Owns the two counts that this takes.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// How many ends were announced, and how many show.
#[derive(Debug)]
pub(super) struct Ends {
    expected: AtomicU64,
    shown: watch::Sender<u64>,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            expected: AtomicU64::new(0),
            shown: watch::Sender::new(0),
        }
    }
}

impl Ends {
    /// An end is about to be sent. Comes before the sending, so that it is counted before it can show.
    pub(super) fn expect(&self) {
        self.expected.fetch_add(1, Ordering::SeqCst);
    }

    /// So many more ends have been taken, and whatever came of them shows.
    pub(super) fn show(&self, more: u64) {
        if more > 0 {
            self.shown.send_modify(|shown| *shown += more);
        }
    }

    /// Waits for all that are expected by now. Messages are taken in the order they were sent: what was sent before the
    /// look was counted before it, so the count cannot be reached without it.
    pub(super) async fn shown(&self) {
        let expected = self.expected.load(Ordering::SeqCst);
        if *self.shown.borrow() >= expected {
            return;
        }
        let mut shown = self.shown.subscribe();
        // The sender lives as long as this.
        let _ = shown.wait_for(|shown| *shown >= expected).await;
    }
}
