//! Signed links to a box (rule 8.8): making one, and making all of them worthless. Neither is use, nor does it wake.

use icebox_lifecycle::time::SEC;
use icebox_lifecycle::{BoxId, Time};
use icebox_wire::rest::LinkRequest;

use super::check::{LINK_MAX_SEC, LINK_SEC, unfit};
use super::trouble::Trouble;
use super::{Caller, Commands, ask};
use crate::driver::BOXD_PORT;
use crate::edge::link;
use crate::engine::Patch;
use crate::random;

/// A link, in its parts.
#[derive(Clone, Debug)]
pub struct Link {
    /// The box.
    pub id: BoxId,
    /// The service or port, as its URL begins.
    pub place: String,
    /// Lets its holder in.
    pub token: String,
    /// Until then.
    pub end: Time,
}

impl Commands {
    /// Makes a link to a service or port of a box.
    pub async fn link(
        &self,
        caller: &Caller,
        id: &str,
        request: &LinkRequest,
    ) -> Result<Link, Trouble> {
        let view = self.find(caller, id)?;
        let now = self.0.clock.now();
        if let Some(ended) = Trouble::of_ended(&view, now) {
            return Err(ended);
        }
        let sec = request.ttl_sec.unwrap_or(LINK_SEC);
        if !(1..=LINK_MAX_SEC).contains(&sec) {
            return Err(unfit("ttlSec"));
        }
        let services = &view.record.services;
        let (place, port) = match (&request.service, request.port) {
            (Some(name), None) => {
                let found = services.iter().find(|known| known.name == *name);
                let found = found.ok_or_else(|| unfit("service"))?;
                (found.name.clone(), found.listens_on().unwrap_or(found.port))
            }
            (None, Some(port)) if port > 0 && port != BOXD_PORT => (port.to_string(), port),
            (None, Some(_)) => return Err(unfit("port")),
            (None, None) => {
                let first = services.first().ok_or_else(|| unfit("service"))?;
                (first.name.clone(), first.listens_on().unwrap_or(first.port))
            }
            (Some(_), Some(_)) => {
                return Err(Trouble::bad("port", "left out when `service` is given"));
            }
        };
        let id = view.id();
        let secret = match &view.record.link_secret {
            Some(secret) => secret.to_string(),
            None => self.new_secret(id, false).await?,
        };
        let end = now + i64::from(sec) * SEC;
        Ok(Link {
            id,
            place,
            token: link::token(&secret, id, port, end),
            end,
        })
    }

    /// Makes every link to a box worthless, and with it the cookies that came of them.
    pub async fn revoke_links(&self, caller: &Caller, id: &str) -> Result<(), Trouble> {
        let view = self.find(caller, id)?;
        self.new_secret(view.id(), true).await.map(|_| ())
    }

    /// Gives the box a secret. Of two callers who find none, both get the one that came first.
    async fn new_secret(&self, id: BoxId, instead: bool) -> Result<String, Trouble> {
        let secret = random::hex::<32>();
        let patch = Patch {
            link_secret: Some((secret.clone(), instead)),
            ..Patch::default()
        };
        let answer = self.0.engine.patch(id, patch).await;
        let answer = answer.map_err(|error| ask(error, id))?;
        let given = answer.view.record.link_secret.as_deref();
        Ok(given.map_or(secret, str::to_owned))
    }
}
