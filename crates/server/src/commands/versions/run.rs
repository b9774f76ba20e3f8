//! Running a published version under a name of a box: in a box of its own, to which the name then leads. Owns what a version
//! runs from and what is looked at before it counts as running. Which of these boxes are needed is the engine's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use icebox_lifecycle::{BoxId, Command, SnapshotId};
use icebox_wire::rest::{
    ExecRequest, PolicyFields, PolicyRequest, ServiceRequest, StartRequest, WireRequest,
};

use super::SNAPSHOT;
use crate::commands::check;
use crate::commands::trouble::{Kind, Trouble};
use crate::commands::{Caller, Commands};
use crate::engine::{Patience, View};
use crate::record::Runs;
use crate::store::{VersionRow, cut};

/// How long its command may take until its port takes connections, in seconds.
const UP_SEC: u32 = 120;
/// How long what goes on from memory may take for that.
const GOES_ON: Duration = Duration::from_secs(10);
/// A box that is in use may not need its version for days.
const KEPT_FROZEN_SEC: u32 = 7 * 24 * 60 * 60;
/// The longest name of a box, in characters.
const NAME_LEN: usize = 60;

/// A version that is to run under a name of a box.
pub(in crate::commands) struct ToRun<'r> {
    /// The box.
    pub(in crate::commands) for_box: BoxId,
    /// The name.
    pub(in crate::commands) service: &'r str,
    /// The port on which its program listens.
    pub(in crate::commands) port: u16,
    /// Its label or id.
    pub(in crate::commands) version: &'r str,
    /// Variables for its command.
    pub(in crate::commands) env: BTreeMap<String, String>,
    /// The environment of the box.
    pub(in crate::commands) environment: Option<String>,
}

impl Commands {
    /// Has a version run under a name. Gives the box as it is then, and the label.
    pub(in crate::commands) async fn wire_version(
        &self,
        caller: &Caller,
        view: &Arc<View>,
        version: &str,
        request: WireRequest,
    ) -> Result<Arc<View>, Trouble> {
        for (field, given) in [
            ("mode", request.mode.is_some()),
            ("externalBaseUrl", request.external_base_url.is_some()),
            ("fromBox", request.from_box.is_some()),
        ] {
            if given {
                let limit = "left out when `version` is given, which has a box of its own";
                return Err(Trouble::bad(field, limit));
            }
        }
        let own = WireRequest {
            mode: Some("box".to_owned()),
            version: None,
            env: BTreeMap::new(),
            ..request.clone()
        };
        // What cannot be is refused before anything is started.
        let port = self.port_of(caller, view, &own)?;
        let to_run = ToRun {
            for_box: view.id(),
            service: request.service.as_deref().unwrap_or_default(),
            port: request.target_port.unwrap_or(port),
            version,
            env: request.env,
            environment: self.environment_of(view.id()).await?,
        };
        let (ran, label) = self.run_version(caller, to_run).await?;
        let linked = WireRequest {
            mode: None,
            from_box: Some(ran.to_string()),
            ..own
        };
        let detail = Some(format!("version {label}"));
        let id = view.id();
        let wired = self.wire_as(caller, id.as_str(), &linked, detail).await;
        if wired.is_err() {
            self.end_version(ran).await;
        }
        wired
    }

    /// Runs versions for the services of a box that is about to start: their boxes, one for each, or none at all.
    pub(in crate::commands) async fn run_versions(
        &self,
        caller: &Caller,
        to_run: Vec<ToRun<'_>>,
    ) -> Result<Vec<BoxId>, Trouble> {
        let running = to_run.into_iter().map(|one| self.run_version(caller, one));
        let mut ran = Vec::new();
        let mut trouble = None;
        for result in futures_util::future::join_all(running).await {
            match result {
                Ok((id, _)) => ran.push(id),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        let Some(trouble) = trouble else {
            return Ok(ran);
        };
        for id in ran {
            self.end_version(id).await;
        }
        Err(trouble)
    }

    /// Ends a box that ran a version for nothing.
    pub(in crate::commands) async fn end_version(&self, id: BoxId) {
        let ended = self.0.engine.command(id, Command::Unneeded).await;
        if let Err(error) = ended {
            // Frozen and unused, it ends by itself.
            tracing::warn!(%id, %error, "the box of a version that nobody uses stays");
        }
    }

    /// Starts a box that runs a version: its id, and the label.
    async fn run_version(
        &self,
        caller: &Caller,
        to_run: ToRun<'_>,
    ) -> Result<(BoxId, String), Trouble> {
        let version = self.version(caller, to_run.service, to_run.version).await?;
        check::env(&to_run.env)?;
        let request = self.start_of(caller, &version, &to_run)?;
        let runs = Runs {
            for_box: to_run.for_box.as_str().into(),
            version: version.id.as_str().into(),
            label: version.label.as_str().into(),
        };
        let started = self.begin_box(caller, request, Patience::default(), Some(runs), true);
        let id = started.await?.id();
        match self.comes_up(caller, id, &version, to_run.port).await {
            Ok(()) => Ok((id, version.label)),
            Err(trouble) => {
                self.end_version(id).await;
                Err(trouble)
            }
        }
    }

    /// The version of a service of that label or id.
    async fn version(
        &self,
        caller: &Caller,
        service: &str,
        named: &str,
    ) -> Result<VersionRow, Trouble> {
        let (account, of, label) = (caller.account, service.to_owned(), named.to_owned());
        let found = self.beside(move |beside| beside.version(account, &of, &label));
        if let Some(found) = found.await? {
            return Ok(found);
        }
        let known = self.versions(caller, Some(service)).await?.versions;
        let known: Vec<&str> = known.iter().take(5).map(|known| &*known.label).collect();
        let known = if known.is_empty() {
            "there are none yet".to_owned()
        } else {
            format!("the latest are `{}`", known.join("`, `"))
        };
        let named = cut(named, 64);
        let limit = format!(
            "the label or id of a published version of `{service}`; `{named}` is none, {known}"
        );
        Err(Trouble::bad("version", limit))
    }

    /// What a box is started as that runs a version.
    fn start_of(
        &self,
        caller: &Caller,
        version: &VersionRow,
        to_run: &ToRun<'_>,
    ) -> Result<StartRequest, Trouble> {
        let (label, service) = (&version.label, to_run.service);
        let (snapshot, image) = match version.image.strip_prefix(SNAPSHOT) {
            Some(id) => (Some(id.to_owned()), None),
            None => (None, Some(version.image.clone())),
        };
        let refused = |why: String| {
            let text = format!("version `{label}` of `{service}` cannot run: {why}");
            Err(Trouble::new(Kind::BadRequest, text).with("field", "version"))
        };
        if let Some(id) = &snapshot {
            let known = SnapshotId::parse(id).and_then(|_| self.find_snapshot(caller, id).ok());
            let Some(known) = known else {
                return refused(format!("snapshot {id}, which it runs from, was removed"));
            };
            if version.cmd.is_none() && !known.memory {
                return refused(format!(
                    "snapshot {id} holds files alone; publish it with a `cmd`"
                ));
            }
        } else if check::image(image.clone()).is_err() {
            return refused(format!(
                "no box starts from `{}`; publish one from a snapshot (`snapshot:NAME`) or a box (`fromBox`)",
                version.image
            ));
        } else if version.cmd.is_none() {
            return refused("nothing says what starts it; publish it with a `cmd`".to_owned());
        }
        if version.cmd.is_none() && !to_run.env.is_empty() {
            let text = format!(
                "`env` changes nothing for version `{label}`, which goes on as it ran when it was published; publish it with a `cmd`"
            );
            return Err(Trouble::new(Kind::BadRequest, text).with("field", "env"));
        }
        let policy = PolicyFields {
            stop_frozen_after_sec: Some(Some(KEPT_FROZEN_SEC)),
            ..PolicyFields::default()
        };
        Ok(StartRequest {
            name: Some(cut(&format!("{service} {label}"), NAME_LEN)),
            goal: Some(format!(
                "version {label} of {service}, for box {}",
                to_run.for_box
            )),
            memory: snapshot.is_some().then_some(version.cmd.is_none()),
            snapshot,
            image,
            env: to_run.env.clone(),
            environment: to_run.environment.clone(),
            services: vec![ServiceRequest {
                name: service.to_owned(),
                port: to_run.port,
                ..ServiceRequest::default()
            }],
            policy: Some(PolicyRequest::Fields(policy)),
            ..StartRequest::default()
        })
    }

    /// Starts what a version says, and waits until it takes connections.
    async fn comes_up(
        &self,
        caller: &Caller,
        id: BoxId,
        version: &VersionRow,
        port: u16,
    ) -> Result<(), Trouble> {
        let (label, service) = (&version.label, &version.service);
        let Some(cmd) = &version.cmd else {
            let (call, _) = self.acting(caller, id, false).await?;
            let opened = tokio::time::timeout(GOES_ON, self.port_opens(id, Some(port))).await;
            call.end().await;
            return opened.unwrap_or_else(|_| {
                let text = format!(
                    "version `{label}` of `{service}` was started, but nothing listens on port {port} in it: did its server run \
                     when it was published, and is that its port (`targetPort`)?"
                );
                Err(Trouble::new(Kind::NotReady, text))
            });
        };
        let request = ExecRequest {
            cmd: cmd.clone(),
            background: true,
            note: Some(cut(
                &format!("starts version {label} of {service}"),
                check::NOTE_LEN,
            )),
            ready_port: Some(port),
            ready_sec: Some(UP_SEC),
            ..ExecRequest::default()
        };
        let began = self.exec(caller, id.as_str(), request).await?;
        if began.ready == Some(true) {
            return Ok(());
        }
        let text = format!(
            "version `{label}` of `{service}` was started, but nothing listened on port {port} in it within {UP_SEC} s"
        );
        Err(Trouble::new(Kind::NotReady, text))
    }
}

/// Refuses variables for a name that no version runs under.
pub(in crate::commands) fn without_version(request: &WireRequest) -> Result<(), Trouble> {
    if request.env.is_empty() || request.version.is_some() {
        return Ok(());
    }
    let text =
        "`env` goes with `version`; give variables to the command that starts the program instead";
    Err(Trouble::new(Kind::BadRequest, text).with("field", "env"))
}
