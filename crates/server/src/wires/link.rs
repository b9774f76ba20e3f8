//! Connections to other boxes. Each is use of the box it leads to and wakes it (rules 3.1, 5.1); that one is held while the
//! link is open and this box is awake for something else (4.2). Owns which boxes have a link open to which.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use icebox_lifecycle::{BoxId, State};

use super::{Rest, Source, Wires, carry, lock};
use crate::commands::Trouble;
use crate::driver::{BOXD_PORT, Stream};
use crate::engine::{Engine, View};

/// How long a box may take to wake; real time, whatever the test clock says.
const WAKE_LIMIT: Duration = Duration::from_secs(90);

/// How many connections are open, by the box they come from and the one they lead to.
#[derive(Clone, Default)]
pub(super) struct Open(Arc<Mutex<HashMap<(BoxId, BoxId), usize>>>);

/// A connection over a link. With the last one the link is closed.
struct Connected {
    open: Open,
    engine: Engine,
    from: BoxId,
    to: BoxId,
}

impl Open {
    /// Counted before the engine hears of it, so that the end of another one does not close the link after this one opened
    /// it.
    fn another(&self, engine: &Engine, from: BoxId, to: BoxId) -> Connected {
        *lock(&self.0).entry((from, to)).or_default() += 1;
        Connected {
            open: self.clone(),
            engine: engine.clone(),
            from,
            to,
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let pair = (self.from, self.to);
        let mut open = lock(&self.open.0);
        let left = open.get_mut(&pair).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            open.remove(&pair);
            // Under the lock: whoever comes next opens the link after this.
            self.engine.link_ended(self.to, self.from);
        }
    }
}

/// Carries a connection to a port of another box, which is woken for it.
pub(super) async fn carry(
    wires: &Wires,
    source: Source,
    to: BoxId,
    port: u16,
    stream: Stream,
) -> Result<(), String> {
    let Some(rest) = wires.0.rest.get() else {
        return Err("the server is just starting".to_owned());
    };
    may_reach(rest, source, to, port)?;
    let _connected = wires.0.links.another(&rest.engine, source.id, to);
    let begun = rest.engine.begin_link(to, source.id).await;
    let answer = begun.map_err(|error| Trouble::from_ask(error, to.as_str()).text)?;
    if answer.view.sandbox.state != State::Ready {
        until_ready(&rest.engine, to).await?;
    }
    let program = carry::connect(wires, to, port).await?;
    carry::both_ways(stream, program).await;
    Ok(())
}

/// Looked at with every connection, for what a link leads to may have become something else since it was made: a chain of
/// links could be a ring.
fn may_reach(rest: &Rest, source: Source, to: BoxId, port: u16) -> Result<(), String> {
    let view = rest.engine.views().get(to);
    let view = view.filter(|view| view.record.account == source.account);
    let Some(view) = view else {
        return Err(Trouble::no_such_box(to.as_str()).text);
    };
    if to == source.id || port == BOXD_PORT {
        return Err(format!("port {port} of box {to} is not for links"));
    }
    let mut services = view.record.services.iter();
    let elsewhere = services.find(|service| service.port == port && service.listens_on().is_none());
    match elsewhere {
        Some(service) => Err(format!(
            "`{}` of box {to} leads on to somewhere else: wire this name there instead",
            service.name
        )),
        None => Ok(()),
    }
}

async fn until_ready(engine: &Engine, id: BoxId) -> Result<(), String> {
    let ready = engine.views().wait_for(id, ready_or_why_not);
    match tokio::time::timeout(WAKE_LIMIT, ready).await {
        Ok(Some(result)) => result,
        Ok(None) => Err(Trouble::no_such_box(id.as_str()).text),
        Err(_) => Err(format!(
            "box {id} was not awake after {} s",
            WAKE_LIMIT.as_secs()
        )),
    }
}

fn ready_or_why_not(view: &Arc<View>) -> ControlFlow<Result<(), String>> {
    let id = view.id();
    match &view.sandbox.state {
        State::Ready => ControlFlow::Break(Ok(())),
        State::Starting { .. }
        | State::Freezing { .. }
        | State::Thawing { .. }
        | State::Releasing { .. } => ControlFlow::Continue(()),
        State::Frozen(frozen) if frozen.wake => ControlFlow::Continue(()),
        State::Frozen(frozen) => ControlFlow::Break(Err(match &frozen.wake_error {
            Some(reason) => format!("box {id} could not be woken: {reason}"),
            None => format!("box {id} was frozen again at once"),
        })),
        State::Stopping { .. } | State::Terminated { .. } | State::Interrupted { .. } => {
            ControlFlow::Break(Err(format!("box {id} has ended")))
        }
    }
}
