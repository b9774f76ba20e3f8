//! From a request of either service to a process in the table: user, environment, directory, shell.
//!
//! Knows no wire format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::id::ExecId;
use crate::launch::{Env, Launch, directory};
use crate::proc::{About, Deadline, GRACE, Proc};
use crate::settings::Settings;
use crate::shell;
use crate::spawn::Wiring;
use crate::table::Table;
use crate::users::User;

/// A command line to run.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) cmd: String,
    /// Empty: the work directory.
    pub(crate) cwd: String,
    pub(crate) env: Vec<(String, String)>,
    /// Empty: root.
    pub(crate) user: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) stdin: bool,
    pub(crate) background: bool,
}

/// A program to run with its words.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) words: Vec<String>,
    /// Absent: the settings' directory, else the user's home.
    pub(crate) cwd: Option<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) user: User,
    pub(crate) tag: Option<String>,
    pub(crate) wiring: Wiring,
    pub(crate) timeout: Option<Duration>,
}

/// Starts processes.
pub(crate) struct Starter {
    /// Where they go.
    pub(crate) table: Arc<Table>,
    pub(crate) settings: Arc<Settings>,
    box_env: BTreeMap<String, String>,
    work_dir: PathBuf,
}

impl Starter {
    /// `box_env` is for every process; `work_dir` is where command lines start.
    pub(crate) fn new(
        table: Arc<Table>,
        settings: Arc<Settings>,
        box_env: BTreeMap<String, String>,
        work_dir: PathBuf,
    ) -> Self {
        Self {
            table,
            settings,
            box_env,
            work_dir,
        }
    }

    /// Runs a command line under `id`; true when that id ran already and this only found it.
    pub(crate) fn line(&self, id: ExecId, line: &Line) -> Result<(Arc<Proc>, bool), Error> {
        match self.table.find(id) {
            Ok(proc) => return Ok((proc, true)),
            Err(Error::NoProc(_)) => {}
            Err(error) => return Err(error),
        }
        if line.cmd.trim().is_empty() {
            return Err(Error::BadRequest(
                "cmd is empty; say what to run".to_owned(),
            ));
        }
        let user = User::find(&line.user)?;
        let env = self.env(&user, &line.env);
        let cwd = directory(&line.cwd, &self.work_dir)?;
        if let Some(words) = shell::plain_words(&line.cmd, &env)
            && let Ok(started) = self.run_line(id, line, words, env.clone(), &cwd, user.clone())
        {
            return Ok(started);
        }
        // A missing program or a script without an interpreter is bash's to judge as well.
        self.run_line(id, line, shell::shell_words(&line.cmd), env, &cwd, user)
    }

    /// Runs a program.
    pub(crate) fn words(&self, words: Words) -> Result<Arc<Proc>, Error> {
        let env = self.env(&words.user, &words.env);
        let workdir = &self.settings.now().default_workdir;
        let home = Path::new(&words.user.home);
        let base = match workdir.as_str() {
            "" if home.is_dir() => home,
            "" => Path::new("/"),
            workdir => Path::new(workdir),
        };
        let cwd = directory(words.cwd.as_deref().unwrap_or_default(), base)?;
        let launch = Launch::new(&words.words, env, &cwd, words.user)?;
        let about = About {
            cmd: words.words.join(" "),
            words: words.words,
            env: words.env,
            cwd: words.cwd,
            tag: words.tag,
            background: true,
        };
        let deadline = words
            .timeout
            .map(|after| Deadline::new(after, Duration::ZERO));
        let (proc, _fresh) =
            self.table
                .start(ExecId::fresh(), &launch, words.wiring, about, deadline)?;
        Ok(proc)
    }

    fn run_line(
        &self,
        id: ExecId,
        line: &Line,
        words: Vec<String>,
        env: Env,
        cwd: &Path,
        user: User,
    ) -> Result<(Arc<Proc>, bool), Error> {
        let launch = Launch::new(&words, env, cwd, user)?;
        let about = About {
            words,
            cmd: line.cmd.clone(),
            env: line.env.clone(),
            cwd: Some(cwd.to_string_lossy().into_owned()),
            tag: None,
            background: line.background,
        };
        let deadline = line.timeout.map(|after| Deadline::new(after, GRACE));
        self.table.start(
            id,
            &launch,
            Wiring::Pipes { stdin: line.stdin },
            about,
            deadline,
        )
    }

    /// What every process of the box gets: boxd's own variables, then the settings'.
    pub(crate) fn box_wide(&self) -> BTreeMap<String, String> {
        let mut all = self.box_env.clone();
        all.extend(self.settings.now().env.clone());
        all
    }

    /// The user's, then box-wide, then the call's.
    fn env(&self, user: &User, call: &[(String, String)]) -> Env {
        let mut env = Env::of(user);
        env.extend(
            self.box_wide()
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        env.extend(
            call.iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
        env
    }
}
