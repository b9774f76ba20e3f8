//! Names in a box: lines of its `/etc/hosts`, each with our mark at its end, so that what else is in the file stays.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use connectrpc::client::CallOptions;
use icebox_lifecycle::BoxId;
use icebox_wire::boxd::ExecRequest;

use crate::boxd::Boxds;

/// How long writing may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Puts the lines in `ICEBOX_HOSTS` in place of those of an earlier time. The file is written as it is, not replaced: its
/// place may be a mount of the user's own.
const SCRIPT: &str = include_str!("hosts.bash");
/// How much of an error is kept, in characters.
const SAID: usize = 200;

/// The lines for some names.
pub(super) fn lines(names: &BTreeMap<&str, Ipv4Addr>) -> String {
    let mut lines = String::new();
    for (name, address) in names {
        // Writing to a text does not fail.
        let _ = writeln!(lines, "{address} {name} # icebox");
    }
    lines
}

/// Writes them in a box that runs. Why it was not possible, otherwise.
pub(super) async fn write(boxds: &Boxds, id: BoxId, lines: &str) -> Result<(), String> {
    let request = ExecRequest {
        cmd: SCRIPT.to_owned(),
        env: [("ICEBOX_HOSTS".to_owned(), lines.to_owned())]
            .into_iter()
            .collect(),
        timeout_ms: u64::try_from(LIMIT.as_millis()).unwrap_or(u64::MAX),
        ..ExecRequest::default()
    };
    let options = CallOptions::default().with_timeout(LIMIT);
    let client = boxds.client(id);
    let answer = client.exec_with_options(request, options).await;
    let answer = answer.map_err(|error| format!("the box's daemon did not answer: {error}"))?;
    let result = answer.into_owned().result;
    if result.proc.exit_code == Some(0) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&result.stderr_tail);
    let said: String = said.trim().chars().take(SAID).collect();
    Err(format!("/etc/hosts of the box cannot be written: {said}"))
}
