//! Who waits to hear what became of a way out. They hear once it shows, so that whoever looks then sees it, too.

use icebox_lifecycle::{BoxId, Event};
use tokio::sync::oneshot;

use super::inbox::Message;
use super::turn::{Core, Turn};

/// Hears why a box reaches nothing outside although it should, if that is so.
pub(super) type Heard = oneshot::Sender<Option<Box<str>>>;

/// Those who hear after this turn.
#[derive(Default)]
pub(super) struct Hears(Vec<(Option<Box<str>>, Vec<Heard>)>);

impl Hears {
    /// Tells them; they may have gone away.
    pub(super) fn tell(self) {
        for (failure, hears) in self.0 {
            for heard in hears {
                let _ = heard.send(failure.clone());
            }
        }
    }
}

impl Core {
    /// A box has its way out, or reaches nothing.
    pub(super) fn way_out(
        &mut self,
        turn: &mut Turn,
        id: BoxId,
        failure: Option<Box<str>>,
        hears: Vec<Heard>,
    ) {
        let event = Event::WayOut {
            failure: failure.clone(),
        };
        turn.again.push(Message::Event(id, event.clone()));
        turn.hears.0.push((failure, hears));
        self.step(turn, id, event);
    }
}
