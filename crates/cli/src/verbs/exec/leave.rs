//! Ctrl-C while a command runs in a box: the program ends and the command does not, which is said. Owns that handler.

use std::thread;

use icebox_wire::rest::ExecRequest;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;

use crate::error::CliError;
use crate::printer::note;

/// The exit code of a program that Ctrl-C ended.
const EXIT_CODE: i32 = 130;

/// From now on Ctrl-C says how to find the command again, and ends this program.
pub(super) fn tell_on_interrupt(
    word: &str,
    request: &ExecRequest,
    json: bool,
) -> Result<(), CliError> {
    let mut signals = Signals::new([SIGINT]).map_err(CliError::io("watch for signals"))?;
    let exec_id = request.exec_id.as_deref().unwrap_or_default();
    let text = words(word, exec_id, json);
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            note(&text);
            std::process::exit(EXIT_CODE);
        }
    });
    Ok(())
}

fn words(word: &str, exec_id: &str, json: bool) -> String {
    if json {
        let error = "interrupted; the command runs on in the box";
        return serde_json::json!({"error": error, "code": "interrupted", "execId": exec_id})
            .to_string();
    }
    format!(
        "icebox: the command runs on in the box; its output: icebox logs --follow {word} {exec_id}; to end it: \
         icebox kill {word} {exec_id}"
    )
}
