//! What boxes may reach outside: what is asked for, whether the asker and this host can have it, and how a change was
//! carried out.

use std::time::Duration;

use icebox_lifecycle::BoxId;
use icebox_wire::rest::{EgressMode, EgressRequest};
use tokio::sync::oneshot;

use super::Commands;
use super::check::unfit;
use super::trouble::{Kind, Trouble};
use crate::config::PrivateAddresses;
use crate::driver::Egress;
use crate::driver::egress::Range;
use crate::record::AccountId;

/// The most entries of one list.
const LIST_MAX: usize = 1_000;
/// How long a change waits until it is carried out; then it goes on by itself.
const CHANGE_LIMIT: Duration = Duration::from_secs(90);

impl Commands {
    /// What a box may reach about which nobody says anything.
    #[must_use]
    pub fn usual_egress(&self) -> Egress {
        match self.0.config.egress.default {
            EgressMode::Open => self.open_egress(),
            EgressMode::None => Egress::default(),
        }
    }

    /// The internet, where boxes can have a way out.
    #[must_use]
    pub fn open_egress(&self) -> Egress {
        match self.can_reach_out() {
            Ok(()) => Egress::open(),
            Err(_) => Egress::default(),
        }
    }

    /// Whether boxes can have a way out on this server; if not, why.
    pub fn can_reach_out(&self) -> Result<(), String> {
        self.0.driver.capabilities().egress
    }

    /// What is asked for, if it makes sense, the account may have it, and this host can do it.
    pub fn egress(&self, account: AccountId, asked: &EgressRequest) -> Result<Egress, Trouble> {
        let allow = ranges("egress.allowOut", &asked.allow_out)?;
        let deny = ranges("egress.denyOut", &asked.deny_out)?;
        let mode = asked.mode.unwrap_or({
            if !allow.is_empty() && deny.is_empty() {
                EgressMode::None
            } else {
                EgressMode::Open
            }
        });
        let egress = Egress {
            open: mode == EgressMode::Open,
            allow,
            deny,
        };
        self.may_reach(account, &egress)?;
        match self.can_reach_out() {
            Err(why) if !egress.is_closed() => Err(Trouble::new(
                Kind::BadRequest,
                format!(
                    "a box here reaches nothing outside, so `egress.mode` must be `none`: {why}"
                ),
            )),
            Ok(()) | Err(_) => Ok(egress),
        }
    }

    /// Errors when the account may not name private networks, and does.
    pub fn may_reach(&self, account: AccountId, egress: &Egress) -> Result<(), Trouble> {
        let may = match self.0.config.egress.private_addresses {
            PrivateAddresses::Nobody => false,
            PrivateAddresses::Admin => account == self.0.admin,
            PrivateAddresses::Everyone => true,
        };
        match egress.allow.iter().find(|range| range.is_private()) {
            Some(range) if !may => Err(Trouble::new(
                Kind::BadRequest,
                format!(
                    "`allowOut` must be without private networks such as {range}: this server keeps boxes of this account \
                     out of them (`private_addresses` in `[egress]` of its settings)"
                ),
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Waits until a change that was recorded is carried out, where anything has to be.
    pub(super) async fn carried_out(
        &self,
        id: BoxId,
        heard: oneshot::Receiver<Option<Box<str>>>,
    ) -> Result<(), Trouble> {
        let what = match tokio::time::timeout(CHANGE_LIMIT, heard).await {
            // Nobody will say anything: it is carried out when the box next runs, or was so already.
            Ok(Ok(None) | Err(_)) => return Ok(()),
            Ok(Ok(Some(reason))) => format!(
                "could not be made, so that it reaches nothing outside for now: {reason}. It is tried again by itself, and \
                 when you ask for it again"
            ),
            Err(_) => {
                "is not made yet; `egress.failure` of the box says so if it cannot be".to_owned()
            }
        };
        Err(Trouble::new(
            Kind::EgressFailed,
            format!("what box {id} may reach is recorded, but {what}"),
        ))
    }
}

/// A list of ranges. Boxes have no IPv6.
fn ranges(field: &'static str, list: &[String]) -> Result<Box<[Range]>, Trouble> {
    if list.len() > LIST_MAX {
        return Err(unfit(field));
    }
    let read = list.iter().map(|text| text.parse::<Range>());
    read.collect::<Result<_, _>>().map_err(|_| unfit(field))
}
