//! The connections of environments: which endpoints in networks that this server reaches their boxes may reach. Owns the
//! limits; who may open the host's networks to boxes is the API's.

use std::collections::BTreeSet;

use icebox_lifecycle::BoxId;
use icebox_wire::rest::{ConnectionRequest, ConnectionView, EndpointView};

use super::trouble::{Kind, Trouble, timestamp};
use super::{Caller, Commands, environments};
use crate::random;
use crate::record::AccountId;
use crate::wires::{Connection, Endpoint, Endpoints, Look, MOST_ENDPOINTS};

/// The most connections of an environment.
const MOST: usize = 16;
/// How much of an endpoint that does not fit is shown, in characters.
const SHOWN: usize = 80;

impl Commands {
    /// The same caller for another account, of which an admin gives the name.
    pub async fn on_behalf(
        &self,
        caller: &Caller,
        account: Option<&str>,
    ) -> Result<Caller, Trouble> {
        let Some(name) = account else {
            return Ok(caller.clone());
        };
        self.0.engine.settled().await;
        Ok(Caller {
            account: self.find_account(name)?.id,
            agent: None,
        })
    }

    /// Makes a connection.
    pub async fn make_connection(
        &self,
        caller: &Caller,
        environment: &str,
        request: ConnectionRequest,
    ) -> Result<ConnectionView, Trouble> {
        if !environments::is_name(&request.name) {
            return Err(Trouble::bad("name", environments::NAME));
        }
        let endpoints = endpoints(&request.endpoints)?;
        self.has_environment(caller, environment)
            .await
            .map_err(|trouble| Trouble {
                kind: Kind::NotFound,
                ..trouble
            })?;
        let connection = Connection {
            id: format!("conn_{}", random::hex::<8>()),
            name: request.name,
            created_at: self.0.clock.now(),
            endpoints,
        };
        self.put_connection(caller.account, environment, connection)
            .await
    }

    /// Sets what a connection leads to, for boxes that run as well.
    pub async fn set_endpoints(
        &self,
        caller: &Caller,
        environment: &str,
        id: &str,
        asked: &[String],
    ) -> Result<ConnectionView, Trouble> {
        let endpoints = endpoints(asked)?;
        let networks = self.0.boxds.wires().networks();
        let known = networks.of(caller.account, environment);
        let known = known.into_iter().find(|connection| connection.id == id);
        let known = known.ok_or_else(|| no_such(environment, id))?;
        let connection = Connection { endpoints, ..known };
        self.put_connection(caller.account, environment, connection)
            .await
    }

    /// Forgets a connection; what is open over it ends.
    pub async fn remove_connection(
        &self,
        caller: &Caller,
        environment: &str,
        id: &str,
    ) -> Result<(), Trouble> {
        let _alone = self.0.wiring.lock().await;
        let (account, of, gone) = (caller.account, environment.to_owned(), id.to_owned());
        let removed = self.beside(move |beside| beside.remove_connection(account, &of, &gone));
        if !removed.await? {
            return Err(no_such(environment, id));
        }
        self.connections_changed(account, environment, |all| {
            all.retain(|connection| connection.id != id);
        })
        .await
    }

    /// The connections of an environment, and how they are.
    pub async fn connections(&self, account: AccountId, environment: &str) -> Vec<ConnectionView> {
        let of = self.0.boxds.wires().networks().of(account, environment);
        let mut shown = Vec::with_capacity(of.len());
        for connection in of {
            shown.push(self.connection(connection).await);
        }
        shown
    }

    async fn put_connection(
        &self,
        account: AccountId,
        environment: &str,
        connection: Connection,
    ) -> Result<ConnectionView, Trouble> {
        let _alone = self.0.wiring.lock().await;
        let (of, put) = (environment.to_owned(), connection.clone());
        let put = self.beside(move |beside| beside.put_connection(account, &of, &put, MOST));
        if !put.await? {
            let text = format!("an environment has at most {MOST} connections; remove one first");
            return Err(Trouble::new(Kind::TooMany, text));
        }
        let made = connection.clone();
        self.connections_changed(account, environment, |all| {
            match all.iter_mut().find(|known| known.id == made.id) {
                Some(known) => *known = made,
                None => all.push(made),
            }
        })
        .await?;
        Ok(self.connection(connection).await)
    }

    /// Lets the boxes of an environment that run take notice, while nobody else changes anything of the kind. It is no use of
    /// them.
    pub(super) async fn connections_changed(
        &self,
        account: AccountId,
        environment: &str,
        change: impl FnOnce(&mut Vec<Connection>),
    ) -> Result<(), Trouble> {
        let wires = self.0.boxds.wires();
        let mut all = wires.networks().of(account, environment);
        change(&mut all);
        wires.networks().set(account, environment, all);
        let boxes = self.beside(move |beside| beside.in_environments(account));
        let boxes = boxes.await?.into_iter();
        let of_it = boxes.filter(|(of, _)| of == environment).map(|(_, id)| id);
        for id in of_it.collect::<BTreeSet<BoxId>>() {
            wires.renew(id).await;
        }
        Ok(())
    }

    async fn connection(&self, connection: Connection) -> ConnectionView {
        let networks = self.0.boxds.wires().networks();
        let looks = networks.look(&connection.endpoints).await;
        let hosts = connection.endpoints.iter().zip(looks);
        let hosts: Vec<EndpointView> = hosts
            .map(|(endpoint, look)| shown(endpoint, look))
            .collect();
        ConnectionView {
            id: connection.id,
            name: connection.name,
            online: hosts.iter().all(|host| host.online),
            rtt_ms: hosts.iter().filter_map(|host| host.rtt_ms).max(),
            hosts,
            created_at: Some(timestamp(connection.created_at)),
        }
    }
}

fn shown(endpoint: &Endpoint, look: Look) -> EndpointView {
    let (rtt_ms, error) = match look {
        Look::Online(ms) => (Some(ms), None),
        Look::Offline(why) => (None, Some(why)),
    };
    EndpointView {
        endpoint: endpoint.text(),
        online: error.is_none(),
        rtt_ms,
        error,
    }
}

fn endpoints(asked: &[String]) -> Result<Endpoints, Trouble> {
    let bad = |limit: String| Trouble::bad("endpoints", limit);
    if asked.len() > MOST_ENDPOINTS {
        return Err(bad(format!("at most {MOST_ENDPOINTS} of `host:port`")));
    }
    let mut known = BTreeSet::new();
    let mut all = Endpoints::with_capacity(asked.len());
    for text in asked {
        let shown: String = text.chars().take(SHOWN).collect();
        let endpoint = Endpoint::parse(text);
        let endpoint = endpoint.map_err(|why| {
            bad(format!(
                "`host:port`, or `name=address:port`; `{shown}` {why}"
            ))
        })?;
        if !known.insert((endpoint.name.clone(), endpoint.port)) {
            return Err(bad(format!(
                "different from each other; `{shown}` is there twice"
            )));
        }
        all.push(endpoint);
    }
    Ok(all)
}

fn no_such(environment: &str, id: &str) -> Trouble {
    let cut = |text: &str| text.chars().take(SHOWN).collect::<String>();
    let text = format!(
        "the environment `{}` has no connection `{}`",
        cut(environment),
        cut(id)
    );
    Trouble::new(Kind::NotFound, text)
}
