//! What users may ask of webhooks, whatever dialect they speak: make, list, change and remove them, try one, and see what
//! became of deliveries. Owns the checks and how many an account may have.

use icebox_wire::rest::{WebhookPatch, WebhookRequest};

use super::attempt::{self, Outcome};
use super::{Secret, Webhooks, internal, message};
use crate::commands::check::unfit;
use crate::commands::{Caller, Kind, Trouble};
use crate::outside::Target;
use crate::random;
use crate::store::{Delivery, Hook, HookChange};

/// Webhooks of one account.
const MOST: usize = 20;
/// What events may be about: the statuses a box goes to, and news of its way out.
const KINDS: &[&str] = &[
    "claimed",
    "starting",
    "ready",
    "takeover",
    "freezing",
    "frozen",
    "thawing",
    "stopping",
    "terminated",
    "interrupted",
    "error",
    "egress",
];

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested {
    /// What `webhook-id` said.
    pub id: String,
    /// The HTTP status of the answer, if there was one.
    pub status: Option<u16>,
    /// Why the endpoint did not take it, if so.
    pub error: Option<String>,
}

impl Webhooks {
    /// Makes a webhook; it is sent what happens from now on.
    pub async fn create(&self, caller: &Caller, request: WebhookRequest) -> Result<Hook, Trouble> {
        self.check_url(caller, &request.url)?;
        check_kinds(&request.kinds)?;
        self.check_box(caller, request.of_box.as_deref())?;
        let hook = Hook {
            id: format!("wh_{}", random::hex::<8>()),
            account: caller.account,
            created_at: self.0.commands.clock().now(),
            url: request.url,
            kinds: request.kinds,
            of_box: request.of_box,
            secret: secret(request.secret.as_deref())?,
            enabled: request.enabled.unwrap_or(true),
            disabled_reason: None,
            waiting: 0,
        };
        let made = hook.clone();
        let fits = self.0.with(move |hooks| hooks.create(&made, MOST)).await;
        if !fits.map_err(internal)? {
            let text = format!("an account has at most {MOST} webhooks; remove one first");
            return Err(Trouble::new(Kind::TooMany, text).with("limit", MOST));
        }
        self.changed();
        Ok(hook)
    }

    /// The account's webhooks, oldest first.
    pub async fn list(&self, caller: &Caller) -> Result<Vec<Hook>, Trouble> {
        let account = caller.account;
        let list = self.0.with(move |hooks| hooks.list(Some(account))).await;
        list.map_err(internal)
    }

    /// One of them.
    pub async fn get(&self, caller: &Caller, id: &str) -> Result<Hook, Trouble> {
        let (account, wanted) = (caller.account, id.to_owned());
        let found = self.0.with(move |hooks| hooks.get(account, &wanted)).await;
        found.map_err(internal)?.ok_or_else(|| {
            let text = format!("there is no webhook `{id}`");
            Trouble::new(Kind::NotFound, text)
        })
    }

    /// Changes one. All of the change or nothing.
    pub async fn change(
        &self,
        caller: &Caller,
        id: &str,
        patch: WebhookPatch,
    ) -> Result<Hook, Trouble> {
        if let Some(url) = &patch.url {
            self.check_url(caller, url)?;
        }
        check_kinds(patch.kinds.as_deref().unwrap_or_default())?;
        self.check_box(caller, patch.of_box.as_ref().and_then(Option::as_deref))?;
        let new_secret = patch.secret.map(|given| secret(given.as_deref()));
        let change = HookChange {
            url: patch.url,
            kinds: patch.kinds,
            of_box: patch.of_box,
            secret: new_secret.transpose()?,
            enabled: patch.enabled,
        };
        let id = self.get(caller, id).await?.id;
        let changed = id.clone();
        let done = self.0.with(move |hooks| hooks.change(&changed, &change));
        done.await.map_err(internal)?;
        self.changed();
        self.get(caller, &id).await
    }

    /// Removes one, and all that waits for it.
    pub async fn remove(&self, caller: &Caller, id: &str) -> Result<(), Trouble> {
        let id = self.get(caller, id).await?.id;
        let done = self.0.with(move |hooks| hooks.remove(&id)).await;
        done.map_err(internal)?;
        self.changed();
        Ok(())
    }

    /// The latest deliveries of one, newest event first.
    pub async fn deliveries(
        &self,
        caller: &Caller,
        id: &str,
        limit: usize,
    ) -> Result<(Hook, Vec<Delivery>), Trouble> {
        let hook = self.get(caller, id).await?;
        let id = hook.id.clone();
        let list = self.0.with(move |hooks| hooks.deliveries(&id, limit)).await;
        Ok((hook, list.map_err(internal)?))
    }

    /// Sends one a test message, at once and once, even if it is disabled.
    pub async fn test(&self, caller: &Caller, id: &str) -> Result<Tested, Trouble> {
        let hook = self.get(caller, id).await?;
        let _place = self.0.tests.try_acquire().map_err(|_| {
            let text = "too many webhooks are being tested; try again in a moment";
            Trouble::new(Kind::Busy, text)
        })?;
        let private_too = self.0.private_too(hook.account);
        let message = message::of_test(&hook.id);
        let id = message.id.clone();
        let (dialer, secret) = (&self.0.dialer, &hook.secret);
        let outcome = attempt::post(dialer, &hook.url, private_too, secret, message).await;
        let (status, error) = match outcome {
            Outcome::Taken { status } => (Some(status), None),
            Outcome::Failed { status, why, .. } => (status, Some(why)),
            Outcome::Gone => (Some(attempt::GONE), Some(attempt::GONE_WHY.to_owned())),
        };
        Ok(Tested { id, status, error })
    }

    fn changed(&self) {
        self.0.changed.send_modify(|count| *count += 1);
    }

    fn check_url(&self, caller: &Caller, url: &str) -> Result<(), Trouble> {
        let bad = |why| {
            Trouble::bad(
                "url",
                format!("`http://` or `https://`, a host and a path: {why}"),
            )
        };
        let target = Target::parse(url).map_err(bad)?;
        if target.is_private_address() && !self.0.private_too(caller.account) {
            return Err(bad(
                "its host is not on the public internet, and this account's webhooks may go nowhere else",
            ));
        }
        Ok(())
    }

    /// Whether a box is one of the caller's.
    fn check_box(&self, caller: &Caller, id: Option<&str>) -> Result<(), Trouble> {
        match id {
            Some(id) => self.0.commands.find(caller, id).map(drop),
            None => Ok(()),
        }
    }
}

fn check_kinds(kinds: &[String]) -> Result<(), Trouble> {
    for (index, kind) in kinds.iter().enumerate() {
        if !KINDS.contains(&&**kind) || kinds[..index].contains(kind) {
            let list = KINDS.join("`, `");
            let limit = format!("a list of different ones of `{list}`");
            return Err(Trouble::bad("kinds", limit));
        }
    }
    Ok(())
}

/// The secret that was given, or a new one.
fn secret(given: Option<&str>) -> Result<Secret, Trouble> {
    match given {
        Some(text) => Secret::parse(text).ok_or_else(|| unfit("secret")),
        None => Ok(Secret::random()),
    }
}
