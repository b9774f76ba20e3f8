//! Making a client of MCP start the adapter: what has to be where, and putting it there without touching anything else.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::printer;

/// A program that agents run in.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Host {
    Claude,
    Codex,
    Cursor,
}

/// How far to go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Consent {
    /// Only show it.
    Print,
    /// Ask, where there is somebody to ask; show it otherwise.
    Ask,
    /// Do it.
    Given,
}

/// Makes a client start the adapter, or shows what does.
pub(super) fn install(host: Host, base: &str, consent: Consent) -> Result<(), CliError> {
    let shown = configuration(host, base);
    let does_it = match consent {
        Consent::Print => false,
        Consent::Given => true,
        Consent::Ask => std::io::stdin().is_terminal() && asked(host, &shown)?,
    };
    if !does_it {
        return printer::line(&shown);
    }
    match host {
        Host::Claude => add_to_claude(base),
        Host::Codex => {
            let home = std::env::var_os("CODEX_HOME").map(PathBuf::from);
            let folder = home.map_or_else(|| at_home(".codex"), Ok)?;
            change(&folder.join("config.toml"), |text| in_codex(text, base))
        }
        Host::Cursor => change(&at_home(".cursor")?.join("mcp.json"), |text| {
            in_cursor(text, base)
        }),
    }
}

/// What makes a client start the adapter. A key is never printed: it comes from the environment or the key file.
fn configuration(host: Host, base: &str) -> String {
    match host {
        Host::Claude => format!("claude {}", claude(base).join(" ")),
        Host::Codex => codex(base),
        Host::Cursor => format!("{:#}", json!({"mcpServers": {"icebox": cursor(base)}})),
    }
}

fn claude(base: &str) -> Vec<String> {
    let url = format!("ICEBOX_URL={base}");
    // For all projects of this user, as with the other clients.
    let scope = ["mcp", "add", "--scope", "user", "icebox"];
    let runs = ["--env", &url, "--", "icebox", "mcp"];
    scope
        .iter()
        .chain(&runs)
        .map(|&word| word.to_owned())
        .collect()
}

fn codex(base: &str) -> String {
    format!(
        "[mcp_servers.icebox]\n\
         command = \"icebox\"\n\
         args = [\"mcp\"]\n\
         env = {{ ICEBOX_URL = \"{base}\" }}\n\
         env_vars = [\"ICEBOX_API_KEY\"]\n\
         tool_timeout_sec = 3600"
    )
}

fn cursor(base: &str) -> Value {
    json!({"command": "icebox", "args": ["mcp"], "env": {"ICEBOX_URL": base}})
}

fn asked(host: Host, shown: &str) -> Result<bool, CliError> {
    let what = match host {
        Host::Claude => "This command will be run:",
        Host::Codex => "This will be added to Codex's config.toml:",
        Host::Cursor => "This will be put into Cursor's mcp.json, beside what is there:",
    };
    printer::note(&format!("{what}\n\n{shown}\n\nDo it? [y/N] "));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(CliError::io("read the answer"))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn at_home(folder: &str) -> Result<PathBuf, CliError> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let home = home.ok_or_else(|| {
        CliError::Usage(
            "HOME is not set, so where the client is configured is not known".to_owned(),
        )
    })?;
    Ok(PathBuf::from(home).join(folder))
}

fn add_to_claude(base: &str) -> Result<(), CliError> {
    let folder = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from);
    let settings = folder.map_or_else(|| at_home(""), Ok)?.join(".claude.json");
    // It refuses to add what is there, and does not say whether that is the same.
    if let Some(same) = in_claude(&fs::read_to_string(&settings).unwrap_or_default(), base) {
        let shown = settings.display();
        return if same {
            printer::line(&format!("{shown} has it already."))
        } else {
            Err(CliError::Usage(format!(
                "{shown} is left alone: it has other settings for `icebox`; \
                 `claude mcp remove --scope user icebox` removes them"
            )))
        };
    }
    let words = claude(base);
    let ran = Command::new("claude").args(&words).status();
    let ran = ran.map_err(CliError::io(
        "run `claude`: install Claude Code first, or add it with what --print shows",
    ))?;
    if ran.success() {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "`claude {}` failed; see what it says above",
        words.join(" ")
    )))
}

/// Whether Claude Code's own settings have it for all projects, and then whether as it would be added.
fn in_claude(text: &str, base: &str) -> Option<bool> {
    let all: Value = serde_json::from_str(text).ok()?;
    let there = all["mcpServers"].get("icebox")?;
    let wanted = cursor(base);
    let same = |field: &str| there[field] == wanted[field];
    Some(["command", "args", "env"].into_iter().all(same))
}

/// What becomes of a settings file.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// It says that already.
    Same,
    /// Its new content.
    To(String),
}

fn change(path: &Path, edit: impl FnOnce(&str) -> Result<Change, String>) -> Result<(), CliError> {
    let shown = path.display();
    // A link leads to where somebody keeps the file; that one is replaced, and the link stays.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let before = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(CliError::io(format!("read {shown}"))(error)),
    };
    let edited = edit(&before);
    let edited = edited.map_err(|why| CliError::Usage(format!("{shown} is left alone: {why}")))?;
    let text = match edited {
        Change::Same => return printer::line(&format!("{shown} has it already.")),
        Change::To(text) => text,
    };
    write(&path, &text).map_err(CliError::io(format!("write {shown}")))?;
    printer::line(&format!(
        "{shown} has it now; start the client anew. ICEBOX_API_KEY, or the server's key file, lets it in."
    ))
}

/// Writes a file anew, whole or not at all, with the mode it had.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mode = fs::metadata(path).map_or(0o600, |meta| meta.permissions().mode() & 0o777);
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn in_codex(text: &str, base: &str) -> Result<Change, String> {
    let not_toml = |error: toml::de::Error| format!("it is no TOML: {}", error.message());
    let read = |text: &str| toml::from_str::<toml::Table>(text).map_err(not_toml);
    let own = |all: &toml::Table| {
        let servers = all.get("mcp_servers").and_then(toml::Value::as_table);
        servers.and_then(|servers| servers.get("icebox").cloned())
    };
    let added = codex(base);
    match own(&read(text)?) {
        Some(there) if Some(&there) == own(&read(&added)?).as_ref() => return Ok(Change::Same),
        Some(_) => return Err("it has other settings for `icebox`: change them by hand".to_owned()),
        None => {}
    }
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let text = format!("{text}{gap}{added}\n");
    // An inline table of servers cannot be added to from outside.
    read(&text)?;
    Ok(Change::To(text))
}

fn in_cursor(text: &str, base: &str) -> Result<Change, String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let mut all: Value =
        serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let servers = all
        .as_object_mut()
        .ok_or("it is no JSON object")?
        .entry("mcpServers")
        .or_insert_with(|| json!({}));
    let servers = servers
        .as_object_mut()
        .ok_or("`mcpServers` in it is no object")?;
    let own = cursor(base);
    match servers.get("icebox") {
        Some(there) if *there == own => return Ok(Change::Same),
        Some(_) => return Err("it has other settings for `icebox`: change them by hand".to_owned()),
        None => {}
    }
    servers.insert("icebox".to_owned(), own);
    Ok(Change::To(format!("{all:#}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "http://127.0.0.1:7070";

    fn to(change: Result<Change, String>) -> String {
        match change.unwrap() {
            Change::To(text) => text,
            Change::Same => panic!("it is not there yet"),
        }
    }

    #[test]
    fn codex_keeps_what_it_has_and_gets_it_once() {
        let text = to(in_codex("model = \"x\" # mine", BASE));
        assert!(
            text.starts_with("model = \"x\" # mine\n\n[mcp_servers.icebox]\n"),
            "{text}"
        );
        assert_eq!(in_codex(&text, BASE).unwrap(), Change::Same);
        let other = in_codex(&text, "http://other:1").unwrap_err();
        assert!(other.contains("by hand"), "{other}");
        assert!(
            in_codex("= nonsense", BASE)
                .unwrap_err()
                .contains("no TOML")
        );
        assert!(
            in_codex("mcp_servers = {}", BASE).is_err(),
            "it cannot be added to"
        );
        assert!(to(in_codex("", BASE)).starts_with("[mcp_servers"));
    }

    #[test]
    fn cursor_keeps_what_it_has_and_gets_it_once() {
        let text = to(in_cursor(
            r#"{"mcpServers":{"a":{"command":"b"}},"c":1}"#,
            BASE,
        ));
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["mcpServers"]["a"]["command"], "b");
        assert_eq!(
            (&read["c"], &read["mcpServers"]["icebox"]["args"]),
            (&json!(1), &json!(["mcp"]))
        );
        assert_eq!(in_cursor(&text, BASE).unwrap(), Change::Same);
        assert!(in_cursor(&text, "http://other:1").is_err());
        for wrong in ["[]", "nonsense", r#"{"mcpServers":1}"#] {
            assert!(in_cursor(wrong, BASE).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_claude_has_is_seen_in_its_settings() {
        let settings = json!({"mcpServers": {"icebox": {
            "type": "stdio", "command": "icebox", "args": ["mcp"], "env": {"ICEBOX_URL": BASE},
        }}});
        let settings = settings.to_string();
        assert_eq!(in_claude(&settings, BASE), Some(true));
        assert_eq!(in_claude(&settings, "http://other:1"), Some(false));
        for nothing in ["", "nonsense", "{}", r#"{"mcpServers":{"other":{}}}"#] {
            assert_eq!(in_claude(nothing, BASE), None, "{nothing}");
        }
        let words = claude(BASE).join(" ");
        let expected =
            "mcp add --scope user icebox --env ICEBOX_URL=http://127.0.0.1:7070 -- icebox mcp";
        assert_eq!(words, expected);
    }

    #[test]
    fn a_settings_file_keeps_its_mode_and_the_link_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "before").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        change(&link, |text| Ok(Change::To(format!("{text} after")))).unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "before after");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(
            fs::metadata(&real).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert!(change(&link, |_| Err("no".to_owned())).is_err());
        let new = dir.path().join("a/b/new");
        change(&new, |_| Ok(Change::To("x".to_owned()))).unwrap();
        assert_eq!(
            fs::metadata(&new).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
