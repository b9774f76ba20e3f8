//! Everything that can go wrong in the program, as one line a person can act on, or as JSON. Owns the words of the
//! client's own errors and their exit codes; the server's errors are passed on as they are.

use std::io;
use std::path::PathBuf;

use icebox_server::ServeError;
use icebox_server::config::ConfigError;
use icebox_wire::rest::ErrorBody;
use serde_json::json;

use crate::text::printable;
use crate::words::Now;

/// Why a verb did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Nothing listens there.
    #[error("no Icebox server answers at {url}")]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// What the connection came to.
        source: io::Error,
    },
    /// The connection broke after the call was sent.
    #[error("the server at {url} went away during the call")]
    Lost {
        /// Which server.
        url: String,
        /// How it broke.
        source: io::Error,
    },
    /// There is no TLS with it.
    #[error("no TLS with {url}: {why}")]
    NoTls {
        /// Which server.
        url: String,
        /// Why not.
        why: String,
        /// It is there, and nobody vouches for it.
        unknown: bool,
    },
    /// The server is there but did not answer in time.
    #[error("the server at {url} did not answer within {limit_s} s")]
    NoAnswer {
        /// Which server.
        url: String,
        /// How long it was waited for, in seconds.
        limit_s: u64,
    },
    /// The server said no.
    #[error("{}", .body.error)]
    Api {
        /// Its words.
        body: ErrorBody,
        /// When it may be asked again, in seconds, where it says so.
        retry_after: Option<String>,
    },
    /// The answer is none that this program knows.
    #[error("what answers at {url} is not understood: {what}")]
    NotUnderstood {
        /// Who answered.
        url: String,
        /// What was wrong with the answer.
        what: String,
    },
    /// The server wants a key and there is none to send.
    #[error("the server wants a key, and {0}")]
    NoKey(String),
    /// The key of the server here cannot be shown.
    #[error("{0}")]
    NoLocalKey(String),
    /// The address of the server is no good.
    #[error("`{url}` is no address of a server")]
    Url {
        /// What was given.
        url: String,
    },
    /// No box is called that.
    #[error("no box has the id or the name `{0}`")]
    NoBox(String),
    /// Several boxes are meant.
    #[error("`{word}` may mean several boxes: {}", .candidates.join(", "))]
    Ambiguous {
        /// What was given.
        word: String,
        /// Each box it may mean, as `id (name, status)`.
        candidates: Vec<String>,
    },
    /// There are more boxes than are looked through.
    #[error("there are too many boxes to look for `{0}`")]
    TooManyBoxes(String),
    /// The box has no command that fits.
    #[error("{0}")]
    NoCommand(String),
    /// What was given does not fit.
    #[error("{0}")]
    Usage(String),
    /// A local file or stream.
    #[error("cannot {what}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The reader of our output is gone: nobody is there to be told.
    #[error("nobody reads the output any more")]
    OutputClosed,
    /// The settings of the server are no good.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server does not run.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// This machine cannot run boxes.
    #[error("{0}")]
    Host(String),
    /// The demo found something that is not as it should be.
    #[error("the demo failed at \"{step}\": {why}")]
    Demo {
        /// The step it was at.
        step: String,
        /// What was wrong.
        why: String,
        /// What to look at.
        log: PathBuf,
    },
    /// Ctrl-C, or a request to end.
    #[error("interrupted")]
    Interrupted,
    /// A command was sent, and nobody knows what became of it.
    #[error("the command may run in the box")]
    MayRun {
        /// The box.
        id: String,
        /// The command.
        exec_id: String,
        /// Why nobody knows.
        error: Box<CliError>,
    },
    /// What went wrong with one box of several.
    #[error("{word}")]
    Of {
        /// The box, as it was named.
        word: String,
        /// What.
        error: Box<CliError>,
    },
}

impl CliError {
    /// A failed piece of work on a local file or stream.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| {
            if source.kind() == io::ErrorKind::BrokenPipe {
                Self::OutputClosed
            } else {
                Self::Io { what, source }
            }
        }
    }

    /// The same, about one box of several.
    pub(crate) fn of(self, word: &str) -> Self {
        Self::Of {
            word: word.to_owned(),
            error: Box::new(self),
        }
    }

    /// Whether it may pass when the same is asked again: the connection, or a server that is about to be back.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Lost { .. } | Self::NoAnswer { .. }
        )
    }

    /// The machine's word for it.
    fn code(&self) -> &str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Lost { .. } => "lost",
            Self::NoTls { .. } => "no_tls",
            Self::NoAnswer { .. } => "no_answer",
            Self::Api { body, .. } => &body.code,
            Self::NotUnderstood { .. } => "not_understood",
            Self::NoKey(_) | Self::NoLocalKey(_) => "unauthorized",
            Self::Url { .. } | Self::Usage(_) | Self::Config(_) => "usage",
            Self::Serve(_) => "serve",
            Self::NoBox(_) | Self::NoCommand(_) => "not_found",
            Self::Ambiguous { .. } | Self::TooManyBoxes(_) => "ambiguous",
            Self::Io { .. } => "io",
            Self::OutputClosed => "output_closed",
            Self::Host(_) => "host",
            Self::Demo { .. } => "demo",
            Self::Interrupted => "interrupted",
            Self::Of { error, .. } | Self::MayRun { error, .. } => error.code(),
        }
    }

    /// What to do about it, where the text does not say so already.
    fn advice(&self) -> Option<String> {
        Some(match self {
            Self::Unreachable { .. } => {
                "start it with `icebox serve`, or name another with --url".to_owned()
            }
            Self::Lost { .. } => {
                "the call may have taken effect: look with `icebox ls` or `icebox status`, and at the server's log"
                    .to_owned()
            }
            Self::NoTls { unknown: true, .. } => {
                "if its authority is its own, copy the file that `icebox tls ca` shows there, and name it with --ca or ICEBOX_CA"
                    .to_owned()
            }
            Self::NoTls { .. } => "a server without TLS is at http://".to_owned(),
            Self::NoAnswer { .. } => {
                "the call may still take effect: look with `icebox ls` or `icebox status`".to_owned()
            }
            Self::Api { body, .. } if body.more.contains_key("blockedBy") => {
                "`icebox status BOX` says by what, `icebox ps BOX` lists its commands, and `icebox kill BOX EXEC` ends one"
                    .to_owned()
            }
            Self::Api { retry_after, .. } => format!("try again in {} s", retry_after.as_ref()?),
            Self::NotUnderstood { .. } => {
                "is it an Icebox server of this version? Its address is set with --url".to_owned()
            }
            Self::NoKey(_) => {
                "set ICEBOX_API_KEY, or name the server's folder with --data".to_owned()
            }
            Self::NoLocalKey(_) => {
                "a server writes it at its first start; name the server's folder with --data"
                    .to_owned()
            }
            Self::Url { .. } => {
                "it looks like http://127.0.0.1:7070 or https://boxes.example.com".to_owned()
            }
            Self::NoBox(_) => "`icebox ls --all` shows what there is".to_owned(),
            Self::Ambiguous { .. } => "give more of the id".to_owned(),
            Self::TooManyBoxes(_) => "give the whole id".to_owned(),
            Self::Demo { log, .. } => format!("look at {}", log.display()),
            Self::NoCommand(_)
            | Self::Usage(_)
            | Self::Io { .. }
            | Self::OutputClosed
            | Self::Config(_)
            | Self::Serve(_)
            | Self::Host(_)
            | Self::Interrupted
            | Self::MayRun { .. }
            | Self::Of { .. } => return None,
        })
    }

    /// The server's words, with what to type here in place of what to send.
    fn words(&self) -> String {
        let Self::Api { body, .. } = self else {
            return self.to_string();
        };
        let gone = (body.code == "box_gone").then(|| restorable(body, &Now::here()));
        gone.flatten().unwrap_or_else(|| {
            body.error
                .replace("`\"coldRestart\": true`", "`icebox wake --cold`")
        })
    }

    /// The whole thing in one line, without `error: `.
    pub(crate) fn line(&self) -> String {
        if let Self::Of { word, error } = self {
            return format!("{}: {}", printable(word), error.line());
        }
        if let Self::MayRun { id, exec_id, error } = self {
            return format!(
                "{}; the command may run on in the box: once the server answers, `icebox logs --follow {id} {exec_id}` \
                 shows its output, and `icebox kill {id} {exec_id}` ends it",
                printable(&error.with_causes())
            );
        }
        let mut line = self.with_causes();
        if let Some(advice) = self.advice() {
            line.push_str("; ");
            line.push_str(&advice);
        }
        printable(&line)
    }

    fn with_causes(&self) -> String {
        let mut line = self.words();
        let mut source = std::error::Error::source(self);
        while let Some(deeper) = source {
            line.push_str(": ");
            line.push_str(&deeper.to_string());
            source = deeper.source();
        }
        line
    }

    /// As JSON, in one line: the server's own fields where it was the server that said no.
    pub(crate) fn json(&self) -> String {
        let mut fields = self.fields();
        fields.insert("error".to_owned(), self.line().into());
        fields.insert("code".to_owned(), self.code().into());
        serde_json::Value::Object(fields).to_string()
    }

    /// What a program may want to know besides.
    fn fields(&self) -> serde_json::Map<String, serde_json::Value> {
        match self {
            Self::Api { body, .. } => body.more.clone(),
            Self::Ambiguous { candidates, .. } => {
                serde_json::Map::from_iter([("candidates".to_owned(), json!(candidates))])
            }
            Self::MayRun { id, exec_id, error } => {
                let mut fields = error.fields();
                fields.insert("box".to_owned(), id.as_str().into());
                fields.insert("execId".to_owned(), exec_id.as_str().into());
                fields
            }
            Self::Of { word, error } => {
                let mut fields = error.fields();
                fields.insert("box".to_owned(), word.as_str().into());
                fields
            }
            Self::Unreachable { .. }
            | Self::Lost { .. }
            | Self::NoTls { .. }
            | Self::NoAnswer { .. }
            | Self::NotUnderstood { .. }
            | Self::NoKey(_)
            | Self::NoLocalKey(_)
            | Self::Url { .. }
            | Self::NoBox(_)
            | Self::TooManyBoxes(_)
            | Self::NoCommand(_)
            | Self::Usage(_)
            | Self::Io { .. }
            | Self::OutputClosed
            | Self::Config(_)
            | Self::Serve(_)
            | Self::Host(_)
            | Self::Demo { .. }
            | Self::Interrupted => serde_json::Map::new(),
        }
    }

    /// The exit code of every verb but `exec`, whose own is the command's.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Of { error, .. } | Self::MayRun { error, .. } => error.exit_code(),
            Self::Interrupted => 130,
            Self::OutputClosed => 141,
            Self::Usage(_) | Self::Url { .. } | Self::Config(_) => 2,
            Self::Unreachable { .. }
            | Self::Lost { .. }
            | Self::NoTls { .. }
            | Self::NoAnswer { .. }
            | Self::Api { .. }
            | Self::NotUnderstood { .. }
            | Self::NoKey(_)
            | Self::NoLocalKey(_)
            | Self::NoBox(_)
            | Self::Ambiguous { .. }
            | Self::TooManyBoxes(_)
            | Self::NoCommand(_)
            | Self::Io { .. }
            | Self::Serve(_)
            | Self::Host(_)
            | Self::Demo { .. } => 1,
        }
    }
}

/// How a stopped box that can come back does so: times are local, and the box is named as `icebox restore` takes it.
fn restorable(body: &ErrorBody, now: &Now) -> Option<String> {
    let field = |name: &str| body.more.get(name).and_then(|value| value.as_str());
    let time = |name: &str| field(name).and_then(|at| at.parse().ok());
    let until = now.moment(time("restorableUntil")?);
    let id = body
        .error
        .split_whitespace()
        .skip_while(|word| *word != "box")
        .nth(1)?;
    let stopped = time("stoppedAt").map_or(String::new(), |at| format!(" {}", now.at(at)));
    let why = field("statusReason").map_or(String::new(), |why| format!(" ({why})"));
    Some(format!(
        "box {id} was stopped{stopped}{why}; until {until} it comes back with `icebox restore {id}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, error: &str, more: serde_json::Value) -> CliError {
        let body = ErrorBody {
            error: error.to_owned(),
            code: code.to_owned(),
            more: more.as_object().cloned().unwrap_or_default(),
        };
        CliError::Api {
            body,
            retry_after: None,
        }
    }

    #[test]
    fn a_command_of_which_nothing_is_known_is_named() {
        let error = CliError::MayRun {
            id: "abcd".to_owned(),
            exec_id: "3f".to_owned(),
            error: Box::new(CliError::Lost {
                url: "http://h".to_owned(),
                source: io::ErrorKind::ConnectionReset.into(),
            }),
        };
        let line = error.line();
        assert!(
            line.starts_with("the server at http://h went away"),
            "{line}"
        );
        assert!(line.contains("`icebox logs --follow abcd 3f`"), "{line}");
        let json = error.json();
        assert!(json.contains(r#""code":"lost""#), "{json}");
        assert!(json.contains(r#""execId":"3f""#), "{json}");
    }

    #[test]
    fn what_the_server_says_of_requests_is_said_in_verbs() {
        let more = json!({"stoppedAt": "2020-03-04T13:00:00Z", "restorableUntil": "2020-03-05T13:00:00Z",
            "statusReason": "unused for 24 h"});
        let text = "box abcd was stopped at 2020-03-04T13:00:00Z (unused for 24 h); until 2020-03-05T13:00:00Z it can \
                    be brought back: start with `\"restore\": \"abcd\"`";
        let gone = refused("box_gone", text, more).line();
        assert!(
            gone.ends_with("it comes back with `icebox restore abcd`"),
            "{gone}"
        );
        assert!(gone.contains("(unused for 24 h)"), "{gone}");
        assert!(
            !gone.contains("00Z") && !gone.contains("restore\""),
            "{gone}"
        );
        let cold = "its copy is damaged: wake it with `\"coldRestart\": true`";
        assert_eq!(
            refused("wake_failed", cold, json!({})).line(),
            "its copy is damaged: wake it with `icebox wake --cold`"
        );
        let other = "box abcd was stopped by a call";
        assert_eq!(refused("box_gone", other, json!({})).line(), other);
    }
}
