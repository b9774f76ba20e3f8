//! Whether what a caller asks for fits: every field and its limits; touches no box.

mod fields;
mod place;

use std::collections::BTreeMap;

use icebox_lifecycle::policy::{AtEnd, Keeps, Lifetime, LifetimeFrom, Preset, StopFrozen};
use icebox_lifecycle::time::{MIN, SEC};
use icebox_lifecycle::{Ms, Policy, SnapshotId};
use icebox_wire::rest;

use super::trouble::{Kind, Trouble};
use crate::config::Limits;
use crate::driver::{BOXD_PORT, Capabilities};
use crate::engine::Patience;
use crate::record::{Service, Size};
use crate::snapshot::Snapshot;
use crate::store::cut;

pub use fields::{takes, unfit};
pub use place::{dest, file_path, path};

/// The longest name of a box, in characters.
const NAME_LEN: usize = 60;
/// The longest goal.
pub const GOAL_LEN: usize = 500;
/// The longest note of an exec.
pub const NOTE_LEN: usize = 200;
/// The longest command line, in bytes; the daemon's own limit.
pub const CMD_LEN: usize = 128 * 1024;
/// The longest input of a command, in bytes.
pub const STDIN_LEN: usize = 1024 * 1024;
/// The longest idle limit of its own a box may have, in minutes.
pub const IDLE_TIMEOUT_MAX_MIN: u32 = 10_080;
/// A command's deadline when none is given, in seconds.
pub const TIMEOUT_SEC: u32 = 600;
/// The latest deadline of a command.
pub const TIMEOUT_MAX_SEC: u32 = 3_600;
/// How long a command may take to be up.
pub const READY_MAX_SEC: u32 = 300;
/// How long a start may wait for room.
pub const CAPACITY_WAIT_MAX_SEC: u32 = 1_800;
/// How long a link is good when nothing is said, in seconds.
pub const LINK_SEC: u32 = 86_400;
/// How long it may be good.
pub const LINK_MAX_SEC: u32 = 2_592_000;
/// What the name of a snapshot may be.
const SNAPSHOT_NAME: &str = "1 to 60 letters, digits, `-`, `_` and `.`, perhaps with `:` and a tag of the same behind it, \
    and not like the id of a snapshot";
const ENV_COUNT: usize = 256;
const ENV_LEN: usize = 64 * 1024;
const METADATA_COUNT: usize = 64;
const METADATA_LEN: usize = 1_000;
/// The most services of a box.
pub const SERVICES: usize = 32;
const CWD_LEN: usize = 4_096;
const MIN_MILLI_CPUS: u32 = 100;
const MIN_MEMORY_MB: u64 = 64;

/// A text of at most so many characters.
pub fn text(field: &str, value: Option<&str>, most: usize) -> Result<(), Trouble> {
    match value {
        Some(value) if value.chars().count() > most || value.contains('\0') => Err(unfit(field)),
        Some(_) | None => Ok(()),
    }
}

/// How long what is asked waits for room.
pub fn patience(wait_sec: Option<u32>) -> Result<Patience, Trouble> {
    match wait_sec {
        Some(sec) if sec > CAPACITY_WAIT_MAX_SEC => Err(unfit("waitForCapacitySec")),
        Some(_) | None => Ok(Patience {
            wait_ms: wait_sec.map(|sec| Ms::from(sec) * SEC),
            gone: None,
        }),
    }
}

/// A folder anywhere in a box; what it may name is for the daemon there to say.
pub fn folder(field: &str, value: &str) -> Result<(), Trouble> {
    if value.is_empty() || value.len() > CWD_LEN || value.contains('\0') {
        return Err(unfit(field));
    }
    Ok(())
}

/// The own idle limit, in minutes.
pub fn idle_timeout(minutes: Option<u32>) -> Result<Option<Ms>, Trouble> {
    match minutes {
        Some(min) if !(1..=IDLE_TIMEOUT_MAX_MIN).contains(&min) => Err(unfit("idleTimeoutMin")),
        Some(min) => Ok(Some(Ms::from(min) * MIN)),
        None => Ok(None),
    }
}

/// The image.
pub fn image(image: Option<String>) -> Result<String, Trouble> {
    let image = image.unwrap_or_else(|| "host".to_owned());
    if image == "host" {
        Ok(image)
    } else {
        Err(unfit("image"))
    }
}

/// A name for people.
pub fn name(name: Option<&str>) -> Result<(), Trouble> {
    text("name", name, NAME_LEN)?;
    match name {
        Some(name) if name.is_empty() || name.contains(char::is_control) => Err(unfit("name")),
        Some(_) | None => Ok(()),
    }
}

/// The name of a snapshot, and perhaps a tag; without the tag that goes without saying.
pub fn snapshot_name(name: &str) -> Result<String, Trouble> {
    let name = name.strip_suffix(":default").unwrap_or(name);
    let part = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        (1..=NAME_LEN).contains(&part.len()) && part.chars().all(fits)
    };
    let (own, tag) = name.split_once(':').unwrap_or((name, "default"));
    // A name must not be taken for an id.
    if part(own) && part(tag) && SnapshotId::parse(own).is_none() {
        Ok(name.to_owned())
    } else {
        Err(Trouble::bad("name", SNAPSHOT_NAME))
    }
}

/// Variables of a box or a command.
pub fn env(env: &BTreeMap<String, String>) -> Result<(), Trouble> {
    for name in env.keys() {
        if !is_variable(name) {
            return Err(Trouble::bad(
                "env",
                format!(
                    "an object whose names are letters, digits and _; `{}` is none",
                    cut(name, 64)
                ),
            ));
        }
    }
    let bytes: usize = env
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    let whole = env.values().all(|value| !value.contains('\0'));
    if env.len() > ENV_COUNT || bytes > ENV_LEN || !whole {
        return Err(unfit("env"));
    }
    Ok(())
}

/// Whether a variable can have that name.
#[must_use]
pub fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a service can have that name.
#[must_use]
pub fn is_service(name: &str) -> bool {
    (1..=40).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// The caller's own words.
pub fn metadata(metadata: &BTreeMap<String, String>) -> Result<(), Trouble> {
    let long = |text: &String| text.chars().count() > METADATA_LEN;
    let fits =
        metadata.len() <= METADATA_COUNT && !metadata.iter().any(|(k, v)| long(k) || long(v));
    if fits { Ok(()) } else { Err(unfit("metadata")) }
}

/// The name of a service.
pub fn service_name(field: &str, name: &str) -> Result<(), Trouble> {
    if is_service(name) && name != "localhost" {
        return Ok(());
    }
    let shown = cut(name, 64);
    let limit = format!(
        "named with 1 to 40 lowercase letters and digits, a letter first, and not `localhost`; `{shown}` is not"
    );
    Err(Trouble::bad(field, limit))
}

/// A port of a box.
pub fn port(field: &str, port: u16) -> Result<(), Trouble> {
    if port != 0 && port != BOXD_PORT {
        return Ok(());
    }
    let limit =
        format!("a whole number from 1 to 65535, and not {BOXD_PORT}, which is the box's daemon");
    Err(Trouble::bad(field, limit))
}

/// Named ports.
pub fn services(services: &[rest::ServiceRequest]) -> Result<(), Trouble> {
    if services.len() > SERVICES {
        return Err(unfit("services"));
    }
    for (at, service) in services.iter().enumerate() {
        let name = &service.name;
        service_name("services", name)?;
        if service.port == 0 || service.port == BOXD_PORT {
            return Err(Trouble::bad(
                "services",
                format!(
                    "on ports from 1 to 65535, but for {BOXD_PORT}, which is the box's daemon; that of `{name}` is not"
                ),
            ));
        }
        if services[..at].iter().any(|other| other.name == *name) {
            return Err(Trouble::bad(
                "services",
                format!("named differently; `{name}` is there twice"),
            ));
        }
    }
    Ok(())
}

/// Whether the services of a box can be beside each other: the server listens for those that lead somewhere else.
pub fn together(field: &str, services: &[Service]) -> Result<(), Trouble> {
    if services.len() > SERVICES {
        let text = format!("a box has at most {SERVICES} services");
        return Err(Trouble::new(Kind::TooMany, text));
    }
    for service in services.iter().filter(|service| !service.leads.is_own()) {
        let port = service.port;
        let listens_there = |other: &&Service| {
            other.name != service.name && (other.port == port || other.listens_on() == Some(port))
        };
        if let Some(other) = services.iter().find(listens_there) {
            let limit = format!(
                "different for `{}` and `{}`: only one of them can have {port} when one leads somewhere else",
                service.name, other.name
            );
            return Err(Trouble::bad(field, limit));
        }
    }
    Ok(())
}

/// A size, within what the host can give.
pub fn size(
    asked: Option<&rest::SizeRequest>,
    limits: &Limits,
    host: &Capabilities,
) -> Result<Size, Trouble> {
    let none = rest::SizeRequest::default();
    let asked = asked.unwrap_or(&none);
    let (room, account) = (limits.host_room(host), limits.account_room());
    let most_milli = room.milli_cpus.min(account.milli_cpus);
    let most_milli = u32::try_from(most_milli).unwrap_or(u32::MAX);
    let most_cpus = f64::from(host.cpus).min(f64::from(most_milli) / 1000.0);
    let cpus = asked.cpus.unwrap_or(limits.default_cpus.min(most_cpus));
    let milli = (cpus * 1000.0).round();
    if !(f64::from(MIN_MILLI_CPUS)..=most_cpus * 1000.0).contains(&milli) {
        return Err(Trouble::bad(
            "size.cpus",
            format!("0.1 to {most_cpus} on this host"),
        ));
    }
    let most_mb = room.memory_mb.min(account.memory_mb).min(host.memory_mb);
    // A small machine has room for several boxes, too.
    let default_mb = (host.memory_mb / 4).clamp(MIN_MEMORY_MB, limits.default_memory_mb);
    let memory_mb = asked.memory_mb.unwrap_or(default_mb.min(most_mb));
    if !(MIN_MEMORY_MB..=most_mb).contains(&memory_mb) {
        let limit = format!("{MIN_MEMORY_MB} to {most_mb} on this host");
        return Err(Trouble::bad("size.memoryMb", limit));
    }
    let disk_gb = asked
        .disk_gb
        .unwrap_or(limits.default_disk_gb.min(host.disk_gb));
    if !(1..=host.disk_gb).contains(&disk_gb) {
        return Err(Trouble::bad(
            "size.diskGb",
            format!("1 to {} on this host", host.disk_gb),
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number in a range that was just checked"
    )]
    let milli_cpus = milli as u32;
    Ok(Size {
        milli_cpus,
        memory_mb,
        disk_gb,
    })
}

/// The size of a box that begins as a snapshot: what was asked for, else the snapshot's. Memory that goes on needs as much
/// as it had.
pub fn size_of(
    asked: &rest::SizeRequest,
    snapshot: &Snapshot,
    memory: bool,
    limits: &Limits,
    host: &Capabilities,
) -> Result<Size, Trouble> {
    let had = snapshot.record.size;
    let asked = rest::SizeRequest {
        cpus: asked.cpus.or(Some(f64::from(had.milli_cpus) / 1000.0)),
        memory_mb: asked.memory_mb.or(Some(had.memory_mb)),
        disk_gb: asked.disk_gb.or(Some(had.disk_gb)),
    };
    let size = size(Some(&asked), limits, host)?;
    if memory && size.memory_mb < had.memory_mb {
        let least = had.memory_mb;
        let limit = format!("at least {least}, for that is what the memory in the snapshot needs");
        return Err(Trouble::bad("size.memoryMb", limit));
    }
    Ok(size)
}

/// The policy that comes of a request on top of `base`.
pub fn policy(asked: &rest::PolicyRequest, base: &Policy) -> Result<Policy, Trouble> {
    let fields = match asked {
        rest::PolicyRequest::Preset(name) => {
            return preset(name).map(Policy::of).ok_or_else(|| unfit("policy"));
        }
        rest::PolicyRequest::Fields(fields) => fields,
    };
    let mut policy = match &fields.preset {
        Some(name) => preset(name)
            .map(Policy::of)
            .ok_or_else(|| unfit("policy.preset"))?,
        None => base.clone(),
    };
    let ms = |sec: u32| Ms::from(sec) * SEC;
    if let Some(after) = fields.freeze_after_sec {
        policy.freeze_after_ms = after.map(ms);
    }
    if let Some(keeps) = fields.keeps {
        policy.keeps = match keeps {
            rest::Keeps::Files => Keeps::Files,
            rest::Keeps::FilesAndMemory => Keeps::FilesAndMemory,
        };
    }
    if let Some(after) = fields.stop_frozen_after_sec {
        policy.stop_frozen = match (after.map(ms), policy.preset) {
            (None, _) => StopFrozen::Never,
            (Some(ms), Preset::Task) => StopFrozen::AfterFreeze(ms),
            (Some(ms), Preset::Agent | Preset::Router | Preset::E2b) => {
                StopFrozen::AfterUseOrFreeze(ms)
            }
        };
    }
    if let Some(sec) = fields.restorable_sec {
        policy.restorable_ms = ms(sec);
    }
    lifetime(fields, &mut policy)?;
    if let Some(sec) = fields.background_hold_sec {
        policy.background_hold_ms = ms(sec);
    }
    if let Some(sec) = fields.url_hold_sec {
        policy.url_hold_ms = ms(sec);
    }
    if let Some(sec) = fields.recording_hold_sec {
        policy.recording_hold_ms = ms(sec);
    }
    valid(policy)
}

fn lifetime(fields: &rest::PolicyFields, policy: &mut Policy) -> Result<(), Trouble> {
    if let Some(sec) = fields.lifetime_sec {
        let before = policy.lifetime;
        policy.lifetime = sec.map(|sec| Lifetime {
            ms: Ms::from(sec) * SEC,
            from: before.map_or(LifetimeFrom::Creation, |before| before.from),
            at_end: before.map_or(AtEnd::Destroy, |before| before.at_end),
        });
    }
    match (fields.at_end, &mut policy.lifetime) {
        (None, _) => Ok(()),
        (Some(at_end), Some(lifetime)) => {
            lifetime.at_end = match at_end {
                rest::AtEnd::Destroy => AtEnd::Destroy,
                rest::AtEnd::Pause => AtEnd::Freeze,
            };
            Ok(())
        }
        (Some(_), None) => Err(Trouble::bad(
            "policy.atEnd",
            "given together with `policy.lifetimeSec`, for without a lifetime there is no end",
        )),
    }
}

/// A policy whose fields are all in range.
pub fn valid(policy: Policy) -> Result<Policy, Trouble> {
    match policy.validate() {
        Ok(()) => Ok(policy),
        Err(error) => {
            let field = match error.field {
                "freeze_after" => "policy.freezeAfterSec",
                "stop_frozen" => "policy.stopFrozenAfterSec",
                "restorable" => "policy.restorableSec",
                "lifetime_seconds" => "policy.lifetimeSec",
                "background_hold" => "policy.backgroundHoldSec",
                "url_hold" => "policy.urlHoldSec",
                "recording_hold" => "policy.recordingHoldSec",
                other => other,
            };
            Err(Trouble::bad(field, takes(field).unwrap_or(error.limits)))
        }
    }
}

fn preset(name: &str) -> Option<Preset> {
    match name {
        "agent" => Some(Preset::Agent),
        "router" => Some(Preset::Router),
        "task" => Some(Preset::Task),
        _ => None,
    }
}

/// A command, in range.
pub fn exec(request: &rest::ExecRequest) -> Result<(), Trouble> {
    if request.cmd.is_empty() || request.cmd.len() > CMD_LEN || request.cmd.contains('\0') {
        return Err(unfit("cmd"));
    }
    let cwd = request.cwd.as_deref().unwrap_or_default();
    if cwd.len() > CWD_LEN || cwd.contains('\0') {
        return Err(unfit("cwd"));
    }
    env(&request.env)?;
    if let Some(sec) = request.timeout_sec
        && !(1..=TIMEOUT_MAX_SEC).contains(&sec)
    {
        return Err(unfit("timeoutSec"));
    }
    if request
        .stdin
        .as_ref()
        .is_some_and(|stdin| stdin.len() > STDIN_LEN)
    {
        return Err(Trouble::new(
            Kind::TooLarge,
            format!("`stdin` must be {}", takes("stdin").unwrap_or_default()),
        ));
    }
    text("note", request.note.as_deref(), NOTE_LEN)?;
    let waits = request.ready_port.is_some() || request.ready_log.is_some();
    match request.ready_sec {
        Some(_) if !waits => {
            let limit = "given together with `readyPort` or `readyLog`";
            return Err(Trouble::bad("readySec", limit));
        }
        Some(sec) if !(1..=READY_MAX_SEC).contains(&sec) => return Err(unfit("readySec")),
        Some(_) | None => {}
    }
    if waits && !request.background {
        let text =
            "`readyPort` and `readyLog` go with `background`: a command that is waited for ends";
        return Err(Trouble::new(Kind::BadRequest, text).with("field", "background"));
    }
    match &request.exec_id {
        Some(id) if !is_exec_id(id) => Err(unfit("execId")),
        Some(_) | None => Ok(()),
    }
}

/// Whether this can be the id of a command.
#[must_use]
pub fn is_exec_id(id: &str) -> bool {
    id.len() == 16
        && id
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
