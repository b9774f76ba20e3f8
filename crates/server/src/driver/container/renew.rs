//! A running box's boxd, exchanged for the one that new boxes get, while everything else in the box goes on.
//!
//! The new one is mounted beside the old one, boxd executes that, the old one goes, and the new one moves into its place. What is
//! executed stays mounted all along: a box could not be copied otherwise. A server that ends in between leaves more mounted
//! than is executed, or at the other place, and a record of what was executed before; a freeze looks, and sets all of it right.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use icebox_lifecycle::BoxId;
use icebox_wire::boxd::NEXT_PLACE;
use serde_json::{Value, json};

use super::image::BOXD_IN_BOX;
use super::record::Record;
use super::{Host, Trouble, While, boot, mount, netns};
use crate::clock::monotonic_now;
use crate::driver::BOXD_PORT;
use crate::steps::reached;

/// How long boxd may take for its whole answer: it waits for files that are on their way, and has its successor look at
/// everything.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// The longest answer that is read, in bytes.
const ANSWER_MAX: usize = 16 * 1024;

pub(super) fn renew(host: &Host, id: BoxId) -> Result<(), Trouble> {
    let pid = host.require_first_process(id)?;
    let cgroup = host.hierarchies.of(id);
    if cgroup.is_frozen().when("look at the box's cgroup")? {
        return Err(Trouble::Failed("the box stands still".to_owned()));
    }
    // What an earlier try left is out of the way then.
    let before = settled(host, id, pid)?;
    let new = host.images.boxd(&host.boxd);
    mount::add_file(pid, &new, NEXT_PLACE, before.uid_base).map_err(no_room_for_it)?;
    reached("renew.mounted", None);
    let restarted = restart(host, id, pid);
    reached("renew.restarted", None);
    // If it has not happened by now, it cannot any more: the new one is taken away again.
    let after = settled(host, id, pid);
    reached("renew.settled", None);
    match (restarted, after) {
        (Ok(()), Ok(_)) => Ok(()),
        (Err(_), Ok(after)) if after.boxd != before.boxd => Ok(()),
        (Err(trouble), _) => Err(trouble),
        (Ok(()), Err(trouble)) => Err(Trouble::Failed(format!(
            "boxd is the new one, but not all is in order after it, so ask once more: {trouble}"
        ))),
    }
}

/// What the box executes, written down, in its place, and nothing else of that kind mounted.
pub(super) fn settled(host: &Host, id: BoxId, pid: u32) -> Result<Record, Trouble> {
    let link = fs::read_link(format!("/proc/{pid}/exe")).when("look what the box executes")?;
    let is_next = link == Path::new(NEXT_PLACE);
    if !is_next && link != Path::new(BOXD_IN_BOX) {
        let seen = link.display();
        let words = format!("the box's first process is {seen}, and no boxd of this server");
        return Err(Trouble::Refused(words));
    }
    let record = executed(host, id, pid)?;
    let moved = if is_next {
        mount::remove_file(pid, BOXD_IN_BOX)
            .and_then(|()| mount::move_file(pid, NEXT_PLACE, BOXD_IN_BOX))
    } else {
        mount::remove_file(pid, NEXT_PLACE)
    };
    moved.when("put the box's boxd into its place")?;
    Ok(record)
}

fn no_room_for_it(error: io::Error) -> Trouble {
    Trouble::Failed(format!(
        "the new boxd cannot be put at {NEXT_PLACE} in the box, where nothing else should be: {error}"
    ))
}

/// Writes down what the box executes, where that is another boxd than its record says.
pub(super) fn executed(host: &Host, id: BoxId, pid: u32) -> Result<Record, Trouble> {
    let mut record = host.record(id)?;
    let runs = |sum: &str| executes(pid, &host.images.boxd(sum)).when("look what the box executes");
    if runs(&record.boxd)? {
        return Ok(record);
    }
    for sum in host.images.boxds().when("list the boxds")? {
        if runs(&sum)? {
            record.boxd = sum;
            record.save(&host.paths.of(id)).when("write box.json")?;
            return Ok(record);
        }
    }
    Err(Trouble::Refused(
        "its boxd is not kept on this host, so that no copy of it could be woken".to_owned(),
    ))
}

/// Whether the box's first process executes this very file.
fn executes(pid: u32, boxd: &Path) -> io::Result<bool> {
    let executed = fs::metadata(format!("/proc/{pid}/exe"))?;
    match fs::metadata(boxd) {
        Ok(kept) => Ok((kept.dev(), kept.ino()) == (executed.dev(), executed.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Has boxd execute the next one.
fn restart(host: &Host, id: BoxId, pid: u32) -> Result<(), Trouble> {
    ask(pid, "Restart", &json!({ "next": true }))?;
    boot::wait_for_boxd(host, id)?;
    let link = fs::read_link(format!("/proc/{pid}/exe")).when("look what the box executes")?;
    if link == Path::new(NEXT_PLACE) {
        return Ok(());
    }
    Err(Trouble::Failed(
        "boxd could not execute the new one".to_owned(),
    ))
}

/// Calls a method of boxd's own service.
fn ask(pid: u32, method: &str, argument: &Value) -> Result<(), Trouble> {
    let (status, answer) = call(pid, method, argument).when("ask the box's boxd")?;
    if status == 200 {
        return Ok(());
    }
    let body: Value = serde_json::from_slice(&answer).unwrap_or_default();
    if body["code"] == "unimplemented" || status == 404 {
        return Err(Trouble::Refused(
            "the box's boxd is from before boxd could restart in place; the box gets a new one when it starts anew on its files"
                .to_owned(),
        ));
    }
    let said = body["message"].as_str().unwrap_or("it gave no reason");
    Err(Trouble::Failed(said.to_owned()))
}

/// The status and the body of its answer.
fn call(pid: u32, method: &str, argument: &Value) -> io::Result<(u16, Vec<u8>)> {
    let until = monotonic_now() + ANSWER_LIMIT;
    let mut stream = netns::connect(pid, BOXD_PORT)?;
    let body = argument.to_string();
    let length = body.len();
    // An answer to HTTP/1.0 ends with its connection, and comes in one piece.
    write!(
        stream,
        "POST /icebox.boxd.v1.Boxd/{method} HTTP/1.0\r\nHost: box\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    // Who answers is the box's business, and may take its time.
    let mut answer = Vec::new();
    let mut piece = [0; 1024];
    while answer.len() < ANSWER_MAX {
        let left = until.saturating_duration_since(monotonic_now());
        if left.is_zero() {
            let words = format!("no whole answer for {} s", ANSWER_LIMIT.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, words));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            length => answer.extend_from_slice(&piece[..length]),
        }
    }
    parsed(&answer).ok_or_else(|| io::Error::other("boxd's answer broke off"))
}

fn parsed(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(answer).ok()? else {
        return None;
    };
    Some((head.code?, answer[length..].to_vec()))
}
