//! Building in a box, and putting in place what an equal build made instead (`sandbox_build`). Equal: the same content of the
//! folder, command, variables and tools. Owns what goes into that comparison and when the result of a build is kept; where
//! it is kept is [`crate::builds`]'s. The work is done in the box, by the scripts in `build/`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use connectrpc::client::CallOptions;
use futures_util::{Stream, StreamExt as _, stream};
use http::Method;
use http_body_util::BodyExt as _;
use icebox_lifecycle::BoxId;
use icebox_wire::boxd::{self, ProcResult};
use icebox_wire::rest::{BuildRequest, BuildResponse, ExecRequest, ExecResponse};
use icebox_wire::tree::FILE_PATH;
use sha2::{Digest as _, Sha256};

use super::check::{self, unfit};
use super::exec::{SLACK, ending};
use super::files::{Named, query};
use super::trouble::{Kind, Trouble};
use super::{Caller, Commands, to_its_end, wait};
use crate::builds::Adding;
use crate::engine::{CallUnderWay, Patience, View};
use crate::random;
use crate::store::{HistoryStep, SUMMARY_LEN, cut};

const INPUTS: &str = include_str!("build/inputs.bash");
const PACK: &str = include_str!("build/pack.bash");
const UNPACK: &str = include_str!("build/unpack.bash");

/// The most paths that a build makes.
const MOST_OUTS: usize = 20;
const PATH_LEN: usize = 1_000;
/// The most files that are compared.
const MOST_FILES: u32 = 200_000;
/// How long comparing, packing and unpacking may take, each.
const SCRIPT: Duration = Duration::from_secs(600);
/// What a script says that refuses for a reason of the caller's.
const CALLERS: i32 = 90;
/// What one says when there is nothing to keep.
const NOTHING: i32 = 92;
/// How much is sent at a time, in bytes.
const PIECE: usize = 256 * 1024;

/// A build, checked.
struct Plan {
    request: BuildRequest,
    /// The folder, relative to `/work`.
    dir: String,
    outs: Vec<String>,
    exec_id: String,
}

impl Commands {
    /// Builds, or puts in place what an equal build of the account made. It goes on if the caller stops listening.
    pub async fn build(
        &self,
        caller: &Caller,
        id: &str,
        request: BuildRequest,
    ) -> Result<BuildResponse, Trouble> {
        let plan = plan(request)?;
        let id = self.find(caller, id)?.id();
        let (commands, caller) = (self.clone(), caller.clone());
        to_its_end(async move { commands.build_in(&caller, id, plan).await }).await
    }

    async fn build_in(
        &self,
        caller: &Caller,
        id: BoxId,
        plan: Plan,
    ) -> Result<BuildResponse, Trouble> {
        let began = self.0.clock.now();
        let (call, answer) = self.begin(caller, id, true, Patience::default()).await?;
        let mut view = answer.view;
        let done = async {
            if !wait::is_ready(&view) {
                view = self.until_ready(id).await?;
            }
            self.reuse_or_build(&call, &view, &plan).await
        };
        let done = done.await;
        let took = self.0.clock.now().since(began);
        let ran = match &done {
            Ok(built) => Ok(built.ran.clone().unwrap_or_default()),
            Err(trouble) => Err(trouble.clone()),
        };
        let step = HistoryStep {
            at: began,
            exec: Some(plan.exec_id.clone()),
            kind: "build",
            summary: cut(&plan.request.cmd, SUMMARY_LEN),
            note: plan.request.note.clone(),
            detail: done
                .as_ref()
                .is_ok_and(|built| built.reused)
                .then(|| "reused".into()),
            target: Some(plan.dir.clone()),
            ending: ending(&ran, took),
        };
        call.end_with(step).await;
        done.map_err(|trouble| trouble.with("execId", plan.exec_id))
    }

    async fn reuse_or_build(
        &self,
        call: &CallUnderWay,
        view: &Arc<View>,
        plan: &Plan,
    ) -> Result<BuildResponse, Trouble> {
        let before = self.inputs(call, view, plan).await?;
        if self.reuse(call, view, plan, &before).await {
            return Ok(BuildResponse {
                reused: true,
                cached: true,
                ..BuildResponse::default()
            });
        }
        let request = ExecRequest {
            cmd: plan.request.cmd.clone(),
            cwd: Some(plan.dir.clone()),
            env: plan.request.env.clone(),
            timeout_sec: plan.request.timeout_sec,
            note: plan.request.note.clone(),
            ..ExecRequest::default()
        };
        let ran = self.run_in(call, view, request, &plan.exec_id).await?;
        let kept = self.keep(call, view, plan, &before, &ran).await;
        let (cached_bytes, not_cached) = match kept {
            Ok(bytes) => (Some(bytes), None),
            Err(trouble) => (None, Some(trouble.text)),
        };
        Ok(BuildResponse {
            reused: false,
            cached: not_cached.is_none(),
            not_cached,
            cached_bytes,
            ran: Some(ran),
            notices: Vec::new(),
        })
    }

    /// What goes into a build, as one word.
    async fn inputs(
        &self,
        call: &CallUnderWay,
        view: &Arc<View>,
        plan: &Plan,
    ) -> Result<String, Trouble> {
        let patterns: Vec<_> = plan.outs.iter().map(|out| pattern(out)).collect();
        let env = [
            ("D", plan.dir.clone()),
            ("SKIP", patterns.join("\n")),
            ("MOST", MOST_FILES.to_string()),
            ("INSTALL", u8::from(plan.only_installs()).to_string()),
        ];
        let said = self.script(call, view.id(), INPUTS, env).await?;
        let given = self.given(view).await?;
        let mut hash = Sha256::new();
        // Each part with its length, so that none can pass for another.
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        for text in [INPUTS, said.trim(), &plan.dir, &plan.request.cmd] {
            part(text);
        }
        let own = view.record.env.iter();
        let given = given.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let asked = plan.request.env.iter();
        let asked = asked.map(|(k, v)| (k.as_str(), v.as_str()));
        // What is later in this list wins in the box, too.
        let variables: BTreeMap<_, _> = own.chain(given).chain(asked).collect();
        for (name, value) in variables {
            part(name);
            part(value);
        }
        for out in &plan.outs {
            part(out);
        }
        let digest = hash.finalize();
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Puts what an equal build made in place, if there is one. Whatever goes wrong with that, it can still be built.
    async fn reuse(
        &self,
        call: &CallUnderWay,
        view: &Arc<View>,
        plan: &Plan,
        inputs: &str,
    ) -> bool {
        match self.try_to_reuse(call, view, plan, inputs).await {
            Ok(reused) => reused,
            Err(trouble) => {
                tracing::warn!(id = %view.id(), why = %trouble.text, "a kept build is not reused");
                false
            }
        }
    }

    async fn try_to_reuse(
        &self,
        call: &CallUnderWay,
        view: &Arc<View>,
        plan: &Plan,
        inputs: &str,
    ) -> Result<bool, Trouble> {
        let (commands, account) = (self.clone(), view.record.account);
        let asked = inputs.to_owned();
        let found = blocking(move || {
            let builds = &commands.0.keep.builds;
            let Some(mut kept) = builds.find(account, &asked)? else {
                return Ok(None);
            };
            if kept.is_whole()? {
                return Ok(Some(kept));
            }
            tracing::warn!(account = account.0, "a kept build is damaged, and removed");
            builds.remove(&kept)?;
            Ok(None)
        });
        let Some(kept) = found.await? else {
            return Ok(false);
        };
        let name = random::hex::<8>();
        let path = format!("/work/.psbx-sync/{name}");
        let uri = query(FILE_PATH, &Named { path: &path })?;
        let body = pieces(tokio::fs::File::from_std(kept.file));
        self.upload(view.id(), Method::PUT, &uri, body).await?;
        let env = [
            ("D", plan.dir.clone()),
            ("OUTS", plan.outs.join("\n")),
            ("NAME", name),
        ];
        self.script(call, view.id(), UNPACK, env).await?;
        Ok(true)
    }

    /// Keeps what a build made: how many bytes that is, packed. It is not kept when that would be wrong for an equal build.
    async fn keep(
        &self,
        call: &CallUnderWay,
        view: &Arc<View>,
        plan: &Plan,
        inputs: &str,
        ran: &ExecResponse,
    ) -> Result<u64, Trouble> {
        let not = |text: &str| Trouble::new(Kind::BadRequest, text);
        if ran.exit_code != Some(0) {
            return Err(not("the command failed"));
        }
        if self.inputs(call, view, plan).await? != inputs {
            return Err(not(
                "the command, or something else, changed files of `dir` that are not in `out`: an equal build would lack \
                 those; name them in `out`, or run it once more if they stay as they are now",
            ));
        }
        let limits = self.0.keep.builds.limits();
        let most = limits.one.min(limits.account).min(limits.all);
        if most == 0 {
            return Err(not("this server keeps no builds"));
        }
        let name = random::hex::<8>();
        let env = [
            ("D", plan.dir.clone()),
            ("OUTS", plan.outs.join("\n")),
            ("NAME", name.clone()),
            ("MAX", most.to_string()),
        ];
        self.script(call, view.id(), PACK, env).await?;
        let path = format!("/work/.psbx-sync/{name}");
        let fetched = self.fetch(view, &path).await;
        let remove = ": /work/.psbx-sync/; rm -f -- \"/work/.psbx-sync/$NAME\"";
        let removed = self.script(call, view.id(), remove, [("NAME", name)]).await;
        let adding = fetched?;
        removed?;
        let bytes = adding.bytes();
        let (commands, inputs) = (self.clone(), inputs.to_owned());
        if blocking(move || commands.0.keep.builds.keep(adding, &inputs)).await? {
            return Ok(bytes);
        }
        Err(not("it is larger than what this server keeps"))
    }

    async fn fetch(&self, view: &Arc<View>, path: &str) -> Result<Adding, Trouble> {
        let response = self.ask_for_file(view.id(), Method::GET, path).await?;
        let (commands, account) = (self.clone(), view.record.account);
        let mut adding = blocking(move || commands.0.keep.builds.add(account)).await?;
        let mut body = response.into_body().into_data_stream();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| Trouble::internal(&error))?;
            adding = blocking(move || {
                adding.write(&piece)?;
                Ok(adding)
            })
            .await?;
        }
        Ok(adding)
    }

    /// Runs one of the scripts: what it wrote.
    async fn script<const N: usize>(
        &self,
        call: &CallUnderWay,
        id: BoxId,
        script: &str,
        env: [(&str, String); N],
    ) -> Result<String, Trouble> {
        let env = env.map(|(name, value)| (name.to_owned(), value));
        let request = boxd::ExecRequest {
            exec_id: random::hex::<8>(),
            cmd: script.to_owned(),
            env: env.into_iter().collect(),
            timeout_ms: u64::try_from(SCRIPT.as_millis()).unwrap_or(u64::MAX),
            ..boxd::ExecRequest::default()
        };
        let result = self
            .ask_daemon(call, id, false, || {
                let (client, request) = (self.0.boxds.client(id), request.clone());
                async move {
                    let options = CallOptions::default().with_timeout(SCRIPT + SLACK);
                    let answer = client.exec_with_options(request, options).await?;
                    Ok(ProcResult::clone(&answer.into_owned().result))
                }
            })
            .await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match result.proc.exit_code {
            Some(0) => Ok(text(&result.stdout_tail)),
            code => {
                let why = text(&result.stderr_tail);
                let why = why.lines().last().unwrap_or("it took too long").to_owned();
                Err(match code {
                    Some(CALLERS) => Trouble::new(Kind::BadRequest, why).with("field", "dir"),
                    Some(NOTHING) => Trouble::new(Kind::BadRequest, why).with("field", "out"),
                    Some(_) | None => Trouble::new(Kind::InUse, why),
                })
            }
        }
    }
}

impl Plan {
    /// Whether it does nothing but install packages: then the project's own version means nothing.
    fn only_installs(&self) -> bool {
        let mut words = self.request.cmd.split_whitespace();
        let tool = words.next().unwrap_or_default();
        let verb = words.next().unwrap_or_default();
        let installs = match tool {
            "npm" => matches!(verb, "ci" | "install" | "i"),
            "pnpm" | "bun" => matches!(verb, "install" | "i"),
            "yarn" => matches!(verb, "" | "install"),
            _ => false,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-=".contains(c);
        let flags = words.all(|word| word.starts_with('-') && word.chars().all(plain));
        installs && flags && self.outs == ["node_modules"]
    }
}

fn plan(request: BuildRequest) -> Result<Plan, Trouble> {
    check::exec(&ExecRequest {
        cmd: request.cmd.clone(),
        env: request.env.clone(),
        timeout_sec: request.timeout_sec,
        note: request.note.clone(),
        ..ExecRequest::default()
    })?;
    let dir = request.dir.strip_prefix("/work").map_or(
        Some(request.dir.as_str()).filter(|dir| !dir.starts_with('/')),
        |rest| (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/')),
    );
    let dir = dir.and_then(plain_path).ok_or_else(|| unfit("dir"))?;
    if request.dir.is_empty() || request.out.is_empty() || request.out.len() > MOST_OUTS {
        let field = if request.dir.is_empty() { "dir" } else { "out" };
        return Err(unfit(field));
    }
    let mut outs = Vec::with_capacity(request.out.len());
    for out in &request.out {
        let out = plain_path(out).filter(|out| !out.is_empty());
        outs.push(out.ok_or_else(|| unfit("out"))?);
    }
    outs.sort();
    outs.dedup();
    let inside = |out: &String| {
        outs.iter()
            .any(|other| Path::new(out).starts_with(other) && out != other)
    };
    if outs.iter().any(inside) {
        return Err(Trouble::bad("out", "paths of which none is inside another"));
    }
    Ok(Plan {
        dir,
        outs,
        exec_id: random::hex::<8>(),
        request,
    })
}

/// A relative path of plain names, without `.` and what does nothing.
fn plain_path(path: &str) -> Option<String> {
    if path.len() > PATH_LEN || path.starts_with('/') || path.contains(char::is_control) {
        return None;
    }
    let mut names = Vec::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => names.push(name.to_str()?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(names.join("/"))
}

/// A path as a pattern of `find` that fits nothing else.
fn pattern(path: &str) -> String {
    let mut pattern = String::new();
    for c in path.chars() {
        if "*?[]\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Trouble> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Trouble::internal(&error))?
        .map_err(|error| Trouble::internal(&error))
}

fn pieces(file: tokio::fs::File) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::unfold(Some(file), async |file| {
        use tokio::io::AsyncReadExt as _;
        let mut file = file?;
        let mut piece = vec![0; PIECE];
        match file.read(&mut piece).await {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some((Ok(piece.into()), Some(file)))
            }
            Err(error) => Some((Err(error), None)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(dir: &str, out: &[&str], cmd: &str) -> BuildRequest {
        BuildRequest {
            dir: dir.to_owned(),
            cmd: cmd.to_owned(),
            out: out.iter().map(|out| (*out).to_owned()).collect(),
            ..BuildRequest::default()
        }
    }

    #[test]
    fn paths_stay_below_work() {
        for (dir, plain) in [
            ("app", "app"),
            ("/work/app/", "app"),
            ("./a//b", "a/b"),
            ("/work", ""),
            (".", ""),
        ] {
            let plan = plan(request(dir, &["out"], "true")).unwrap();
            assert_eq!(plan.dir, plain, "{dir}");
        }
        for dir in ["", "/etc", "/workshop", "..", "a/../..", "a\nb", "a\0"] {
            let refused = plan(request(dir, &["out"], "true"))
                .map(|_| ())
                .unwrap_err();
            assert_eq!(refused.more["field"], "dir", "{dir:?}");
        }
        for out in [
            &[][..],
            &["."],
            &["/x"],
            &["../x"],
            &["a", "a/b"],
            &["a\nb"],
            &[""],
        ] {
            let refused = plan(request("app", out, "true")).map(|_| ()).unwrap_err();
            assert_eq!(refused.more["field"], "out", "{out:?}");
        }
        let plan = plan(request("app", &["b", "./a", "a"], "true")).unwrap();
        assert_eq!(plan.outs, ["a", "b"]);
        assert_eq!(pattern("a[1]*\\"), "a\\[1\\]\\*\\\\");
    }

    #[test]
    fn an_install_is_one_only_when_it_does_nothing_else() {
        for (cmd, out, only) in [
            ("npm ci", "node_modules", true),
            (
                "npm install --no-audit --loglevel=error",
                "node_modules",
                true,
            ),
            ("yarn", "node_modules", true),
            ("npm ci", "dist", false),
            ("npm ci && npm test", "node_modules", false),
            ("npm install left-pad", "node_modules", false),
            ("npm run build", "node_modules", false),
            ("npm ci --x=$(date)", "node_modules", false),
        ] {
            let plan = plan(request("app", &[out], cmd)).unwrap();
            assert_eq!(plan.only_installs(), only, "{cmd}");
        }
    }
}
