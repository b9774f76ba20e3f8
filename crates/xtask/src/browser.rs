//! A real Chromium with one page, told what to do by playwright-core as a person would do it. Owns starting and ending it;
//! the deeds there are stand in `browser/browser.mjs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

/// A browser with one page. It is closed when this is dropped.
pub struct Browser {
    node: Child,
    say: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
}

impl Browser {
    /// Starts one. `url` is what paths are relative to, `locale` the reader's language, as in `en-GB`.
    pub fn open(url: &str, locale: &str) -> anyhow::Result<Self> {
        let prefix = std::env::var_os("ICEBOX_PREFIX");
        let prefix = prefix.map_or_else(|| PathBuf::from("/usr/local/lib/icebox"), PathBuf::from);
        let folder = prefix.join("browser");
        let chromium = Path::new("/usr/bin/chromium");
        ensure!(
            folder.join("node_modules/playwright-core").is_dir() && chromium.is_file(),
            "this needs Chromium and playwright-core: run scripts/bootstrap --tests"
        );
        let mut node = Command::new("node")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/browser/browser.mjs"))
            .arg(folder)
            .arg(chromium)
            .args([url, locale])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("run node")?;
        let (say, hear) = (node.stdin.take(), node.stdout.take());
        Ok(Self {
            say,
            hear: BufReader::new(hear.context("node has no output")?),
            node,
        })
    }

    /// Does one thing, such as `{"do": "goto", "path": "/"}`, and says what came of it.
    pub fn ask(&mut self, deed: &Value) -> anyhow::Result<Value> {
        let say = self.say.as_mut().context("the browser was closed")?;
        writeln!(say, "{deed}").context("the browser is gone")?;
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        let answer = serde_json::from_str(&line);
        let mut answer: Value =
            answer.with_context(|| format!("{deed}: the browser said {line:?}"))?;
        if let Some(error) = answer["error"].as_str() {
            bail!("{deed}: {error}");
        }
        Ok(answer["ok"].take())
    }

    /// Goes to an address and waits until this is visible. Says how long that took (`ms`), what the servers answered to
    /// navigations on the way (`statuses`), and when pages were loaded (`loads`).
    pub fn visit(&mut self, path: &str, until: &str) -> anyhow::Result<Value> {
        self.ask(&json!({ "do": "visit", "path": path, "until": until }))
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, script: &str) -> anyhow::Result<Value> {
        self.ask(&json!({ "do": "evaluate", "script": script }))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It closes its browser when it has nothing more to read.
        self.say = None;
        if let Err(error) = self.node.wait() {
            eprintln!("the browser did not end: {error}");
        }
    }
}
