//! What each field takes: the table that messages about bad values quote.

use crate::commands::trouble::Trouble;

/// What the lists of `egress` take.
const RANGES: &str = "a list of at most 1000 IPv4 addresses and CIDR ranges, such as 192.0.2.0/24 (boxes have no IPv6)";

/// What each field takes, for messages about values that are out of range or not even of the right type.
const FIELDS: &[(&str, &str)] = &[
    ("goal", "a text of at most 500 characters"),
    (
        "name",
        "a text of 1 to 60 characters, no control characters",
    ),
    ("image", "`host`, the one image so far"),
    ("idleTimeoutMin", "a whole number from 1 to 10080 (minutes)"),
    (
        "waitForCapacitySec",
        "a whole number from 0 to 1800 (seconds)",
    ),
    ("restore", "the id of a stopped box"),
    ("snapshot", "the id or the name of a snapshot"),
    ("memory", "true or false"),
    ("count", "a whole number from 1 to 20"),
    ("wait", "true or false"),
    ("keep", "true or false"),
    ("egress", "an object {mode, allowOut, denyOut}"),
    ("egress.mode", "`open` or `none`"),
    ("egress.allowOut", RANGES),
    ("egress.denyOut", RANGES),
    ("private", "true or false"),
    ("coldRestart", "true or false"),
    ("ttlSec", "a whole number from 1 to 2592000 (seconds)"),
    ("service", "the name of one of the box's services"),
    (
        "port",
        "a whole number from 1 to 65535, and not that of the box's daemon",
    ),
    ("background", "true or false"),
    ("readOnly", "true or false"),
    ("cmd", "a text of 1 to 131072 bytes, none of them NUL"),
    ("cwd", "a path of at most 4096 bytes"),
    ("timeoutSec", "a whole number from 1 to 3600 (seconds)"),
    ("stdin", "a text of at most 1048576 bytes"),
    ("note", "a text of at most 200 characters"),
    (
        "readyPort",
        "a whole number from 1 to 65535, and not that of the box's daemon",
    ),
    ("readyLog", "a text of 1 to 1000 bytes, without line breaks"),
    ("readySec", "a whole number from 1 to 300 (seconds)"),
    ("until", "`end` or `ready`"),
    ("execId", "16 hexadecimal digits, lowercase"),
    ("sayId", "16 hexadecimal digits, lowercase"),
    ("ids", "a list of 1 to 100 numbers of messages"),
    (
        "env",
        "an object of at most 256 variables, names and values together at most 65536 bytes, none of them NUL",
    ),
    (
        "metadata",
        "an object of at most 64 texts of at most 1000 characters each",
    ),
    (
        "services",
        "a list of at most 32 objects {name, port, web, targetPort, fromBox, version}",
    ),
    ("mode", "`box` or `external`"),
    (
        "targetPort",
        "a whole number from 1 to 65535, and not that of the box's daemon",
    ),
    (
        "externalBaseUrl",
        "`http://` or `https://`, a host, and perhaps a path, at most 2000 bytes",
    ),
    ("fromBox", "the id of another box of the account"),
    (
        "version",
        "the label or id of a published version of the service",
    ),
    ("web", "true or false"),
    (
        "scenePaths",
        "a list of at most 32 paths of at most 200 bytes, each from the `/` and without `..`, `%`, `?` and `#`",
    ),
    (
        "endpoints",
        "a list of at most 64 of `host:port` or `name=address:port`",
    ),
    ("secrets", "a list of at most 100 names of secrets"),
    ("names", "a list of 1 to 100 names of secrets"),
    ("value", "a text of 1 to 32768 bytes, none of them NUL"),
    (
        "settings",
        "at most 256 variables, names and values together at most 65536 bytes, none of them NUL",
    ),
    ("environment", "the name of an environment of this account"),
    ("label", "1 to 100 letters, digits and ._-+"),
    ("gitSha", "7 to 64 hexadecimal digits"),
    (
        "dir",
        "a folder: relative to /work, or absolute below it, of at most 1000 bytes and without `..`",
    ),
    (
        "out",
        "a list of 1 to 20 paths relative to `dir`, each of at most 1000 bytes and without `..`",
    ),
    ("text", "a text of 1 to 500 characters"),
    ("task", "a text of at most 4000 characters"),
    ("usage", "a text of at most 4000 characters"),
    ("problems", "a text of at most 4000 characters"),
    ("suggestions", "a text of at most 4000 characters"),
    ("size", "an object {cpus, memoryMb, diskGb}"),
    ("size.cpus", "a number of CPUs, at least 0.1"),
    ("size.memoryMb", "a whole number of MiB, at least 64"),
    ("size.diskGb", "a whole number of GiB, at least 1"),
    (
        "policy",
        "`agent`, `router`, `task`, or an object of policy fields",
    ),
    ("policy.preset", "`agent`, `router` or `task`"),
    (
        "policy.freezeAfterSec",
        "a whole number from 1 to 604800 (seconds), or null for never",
    ),
    ("policy.keeps", "`files` or `files_and_memory`"),
    (
        "policy.stopFrozenAfterSec",
        "a whole number from 1 to 2592000 (seconds), or null for never",
    ),
    (
        "policy.restorableSec",
        "a whole number from 0 to 604800 (seconds)",
    ),
    (
        "policy.lifetimeSec",
        "a whole number from 1 to 2592000 (seconds), or null for no limit",
    ),
    ("policy.atEnd", "`destroy` or `pause`"),
    (
        "policy.backgroundHoldSec",
        "a whole number from 0 to 604800 (seconds)",
    ),
    (
        "policy.urlHoldSec",
        "a whole number from 0 to 604800 (seconds)",
    ),
    (
        "policy.recordingHoldSec",
        "a whole number from 0 to 604800 (seconds)",
    ),
    ("add", "a number of credits from 0.000001 to 1000000000"),
    ("left", "a number of credits from 0 to 1000000000"),
    ("credits", "a number of credits from 0 to 1000000000"),
    ("unlimited", "true"),
    ("advanceSec", "a whole number from 0 to 315360000 (seconds)"),
    ("limit", "a whole number from 1 to 1000"),
    ("cursor", "the `nextCursor` of an earlier page"),
    ("project", "the id or the name of a project"),
    ("query", "a text of at most 2000 bytes"),
    (
        "origins",
        "a list of at most 20 origins as in `https://app.example`",
    ),
    (
        "events",
        "a list of 1 to 500 objects {msg, level, name, at, stack, extra}; `level` is `debug`, `info`, `warn` or `error`, \
         and `at` whole milliseconds since 1970",
    ),
    ("key", "a write key"),
    ("sentAt", "the whole milliseconds since 1970"),
    ("release", "a text"),
    ("user", "a text"),
    ("session", "a text"),
    ("device", "a text"),
    ("boxId", "the id of a box"),
    ("all", "true or false, 1 or 0 in a query"),
    ("stream", "`stdout` or `stderr`"),
    ("offset", "a whole number of bytes, at least 0"),
    ("follow", "1 or 0"),
    ("look", "1 or 0"),
    ("list", "1 or 0"),
    ("cols", "a whole number from 1 to 1000"),
    ("rows", "a whole number from 1 to 1000"),
    ("since", "the whole number of an event, at least 0"),
    ("last", "a whole number from 0 to 1000, without `since`"),
    ("Last-Event-ID", "the whole number of an event, at least 0"),
    (
        "waitSec",
        "a whole number from 0 to 300 (seconds); for logs, to 25",
    ),
    ("graceSec", "a whole number from 0 to 60 (seconds)"),
    ("client", "a text"),
    ("url", "a text of at most 2000 bytes"),
    ("kinds", "a list of kinds of events"),
    ("box", "the id of a box"),
    (
        "secret",
        "`whsec_` and the base64 of 24 to 64 bytes, or absent",
    ),
    ("enabled", "true or false"),
    (
        "path",
        "a path of 1 to 4096 bytes: relative to /work, or below /work, /tmp or /dev/shm",
    ),
    ("paths", "a list of 1 to 100 paths"),
    ("dest", "a folder below /work, 1 to 4096 bytes"),
    ("repo", "a text of at most 100 characters"),
    ("id", "the id of a box, as in sandbox_list"),
    ("action", "`list`, `wait` or `stop`"),
    ("bgId", "the `bgId` or `execId` of a command"),
    ("fields", "a list of names of fields"),
];

/// What a field takes, if it is one of ours. Positions in lists and keys of maps do not matter.
#[must_use]
pub fn takes(path: &str) -> Option<&'static str> {
    let find = |path: &str| {
        let mut fields = FIELDS.iter();
        fields
            .find(|(field, _)| *field == path)
            .map(|(_, takes)| *takes)
    };
    let head = path.split(['.', '[']).next().unwrap_or(path);
    find(path).or_else(|| find(head))
}

/// A field with a value that does not fit.
#[must_use]
pub fn unfit(field: &str) -> Trouble {
    Trouble::bad(field, takes(field).unwrap_or("something else"))
}
