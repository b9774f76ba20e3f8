//! Trouble on real boxes: damaged copies, full disks, programs that cannot be copied, a dead boxd, restarts of
//! the server and of the host. Nothing is lost that was there, and every answer says what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use xtask::harness::{Instance, until};

/// A program that counts in its memory, says each number, and keeps the last one in a file that is always whole.
const COUNTER: &str = "i=0; while :; do i=$((i+1)); echo $i; echo $i >/work/next; \
                       mv /work/next /work/count; sleep 0.02; done";

/// A process that CRIU refuses: it is traced by another.
const TRACED: &str = r#"exec python3 -c '
import ctypes, os, time
child = os.fork()
if child == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), 19)
os.waitpid(child, 2)
open("/work/traced", "w").close()
time.sleep(10**6)'"#;

fn started(name: &str) -> Instance {
    let mut instance = Instance::new(name, false).expect("a data folder");
    instance.start(&[]).expect("a server");
    instance
}

fn counting_box(instance: &Instance) -> (String, String) {
    let id = instance
        .start_box(json!({"size": {"memoryMb": 512}}))
        .expect("a box");
    let run = json!({"cmd": COUNTER, "background": true});
    let answer = instance
        .post(&format!("/v1/boxes/{id}/exec"), run)
        .expect("the counter");
    let exec = answer["bgId"].as_str().expect("a bgId").to_owned();
    wait_in_box(instance, &id, "test -s /work/count");
    (id, exec)
}

fn wait_in_box(instance: &Instance, id: &str, cmd: &str) {
    until(Duration::from_secs(30), || Ok(instance.exec(id, cmd).ok())).expect(cmd);
}

fn count(instance: &Instance, id: &str) -> u64 {
    let text = instance.exec(id, "cat /work/count").expect("the count");
    text.trim().parse().expect("a number")
}

/// The count goes on from where it was.
fn counts_on(instance: &Instance, id: &str, before: u64) {
    let after = count(instance, id);
    assert!(after >= before, "{after} after {before}");
    wait_in_box(
        instance,
        id,
        &format!("test $(cat /work/count) -gt {after}"),
    );
}

fn view(instance: &Instance, id: &str) -> Value {
    instance
        .get(&format!("/v1/boxes/{id}"))
        .expect("the status")
}

fn stop(instance: &mut Instance, id: &str) {
    instance
        .post(&format!("/v1/boxes/{id}/stop"), json!({}))
        .expect("stop");
    let left = instance.leftovers(&[id.to_owned()]);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    instance.stop().expect("the server ends");
}

fn box_folder(instance: &Instance, id: &str) -> PathBuf {
    instance.data.join("boxes").join(id)
}

#[test]
fn box_with_a_damaged_copy_is_refused_kept_and_startable_from_its_files() {
    let mut instance = started("damaged");
    let (id, _) = counting_box(&instance);
    instance
        .exec(&id, "echo precious >/work/file")
        .expect("a file");
    instance
        .post(&format!("/v1/boxes/{id}/freeze"), json!({}))
        .expect("freeze");
    let copy = box_folder(&instance, &id).join("copies/1");
    let pages = copy.join("img/pages-1.img");
    let mut bytes = fs::read(&pages).expect("the pages");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&pages, bytes).expect("the damage");

    let path = format!("/v1/boxes/{id}/exec");
    let refused = instance
        .ask("POST", &path, Some(&json!({"cmd": "true"})))
        .expect("an answer");
    assert_eq!(
        (refused.status, &refused.body["code"]),
        (503, &json!("wake_failed")),
        "{refused:?}"
    );
    let said = refused.body["error"].as_str().expect("a sentence");
    assert!(
        said.contains("pages-1.img does not match its checksum"),
        "{said}"
    );
    assert!(said.contains("cold"), "it does not say what to do: {said}");
    assert_eq!(view(&instance, &id)["status"], "frozen");
    assert!(copy.join("manifest.json").exists(), "the copy is gone");

    let wake = format!("/v1/boxes/{id}/wake");
    instance
        .post(&wake, json!({"coldRestart": true}))
        .expect("a cold start");
    assert_eq!(
        instance
            .exec(&id, "cat /work/file")
            .expect("the file")
            .trim(),
        "precious"
    );
    stop(&mut instance, &id);
}

/// A disk that does not answer is no empty disk.
#[test]
fn box_whose_copies_cannot_be_looked_at_keeps_them_and_no_server_starts_over_that() {
    let mut instance = started("unseen");
    let (id, _) = counting_box(&instance);
    let before = count(&instance, &id);
    instance
        .post(&format!("/v1/boxes/{id}/freeze"), json!({}))
        .expect("freeze");
    instance.kill().expect("kill");
    let folder = box_folder(&instance, &id);
    let (copies, aside) = (folder.join("copies"), folder.join("aside"));
    fs::rename(&copies, &aside).expect("the copies go aside");
    std::os::unix::fs::symlink(&copies, &copies).expect("a link to itself");
    let said = instance.start(&[]).expect_err("nobody can know");
    let said = format!("{said:#}");
    assert!(
        said.contains(&format!("box {id}: look for the box's copies")),
        "{said}"
    );
    instance.kill().expect("it has ended");
    fs::remove_file(&copies).expect("the link goes");
    fs::rename(&aside, &copies).expect("the copies come back");
    instance.start(&[]).expect("the next server");
    assert_eq!(view(&instance, &id)["status"], "frozen");
    counts_on(&instance, &id, before);
    stop(&mut instance, &id);
}

#[test]
fn box_whose_memory_cannot_be_copied_stays_frozen_in_ram() {
    let mut instance = started("refused");
    let (id, _) = counting_box(&instance);
    let run = json!({"cmd": TRACED, "background": true});
    instance
        .post(&format!("/v1/boxes/{id}/exec"), run)
        .expect("the traced program");
    wait_in_box(&instance, &id, "test -e /work/traced");
    let before = count(&instance, &id);
    instance
        .post(&format!("/v1/boxes/{id}/freeze"), json!({}))
        .expect("freeze");
    let frozen = view(&instance, &id);
    assert_eq!(
        (&frozen["status"], &frozen["tier"]),
        (&json!("frozen"), &json!("ram")),
        "{frozen}"
    );
    assert_eq!(frozen["keeps"], "files_and_memory");
    let why = frozen["snapshotError"].as_str().expect("it says why");
    assert!(why.contains("CRIU"), "{why}");
    counts_on(&instance, &id, before);
    stop(&mut instance, &id);
}

#[test]
fn box_4_10_on_a_host_without_criu_freezes_in_ram_and_outlives_the_server() {
    let mut instance = Instance::new("no-criu", false).expect("a data folder");
    let without = [("ICEBOX_CRIU", "/nonexistent")];
    instance.start(&without).expect("a server");
    let (id, _) = counting_box(&instance);
    let before = count(&instance, &id);
    instance
        .post(&format!("/v1/boxes/{id}/freeze"), json!({}))
        .expect("freeze");
    let frozen = view(&instance, &id);
    assert_eq!(frozen["tier"], "ram", "{frozen}");
    let why = frozen["snapshotError"].as_str().expect("it says why");
    assert!(why.contains("install"), "it does not say what to do: {why}");
    instance.kill().expect("kill");
    instance.start(&without).expect("the next server");
    assert_eq!(view(&instance, &id)["status"], "frozen");
    counts_on(&instance, &id, before);
    stop(&mut instance, &id);
}

/// A small filesystem over a folder; taken away also when the test fails.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn over(folder: &Path, mib: u32) -> Self {
        let size = format!("size={mib}m");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "small"])
            .arg(folder)
            .status();
        assert!(status.expect("mount").success());
        Self(folder.to_path_buf())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(&self.0).status();
        assert!(
            status.is_ok_and(|s| s.success()),
            "{} stays mounted",
            self.0.display()
        );
    }
}

#[test]
fn box_goes_on_as_before_when_the_disk_is_full_in_the_middle_of_a_freeze() {
    let mut instance = started("full");
    let (id, _) = counting_box(&instance);
    let hold = "exec python3 -c 'import os, time; held = os.urandom(150 << 20); \
                open(\"/work/holding\", \"w\").close(); time.sleep(10**6)'";
    let run = json!({"cmd": hold, "background": true});
    instance
        .post(&format!("/v1/boxes/{id}/exec"), run)
        .expect("a program with memory");
    wait_in_box(&instance, &id, "test -e /work/holding");
    let before = count(&instance, &id);
    // Enough for the freeze to begin, not enough for it to end.
    let small = SmallDisk::over(&box_folder(&instance, &id).join("copies"), 100);
    let path = format!("/v1/boxes/{id}/freeze");
    let failed = instance
        .ask("POST", &path, Some(&json!({})))
        .expect("an answer");
    assert_eq!(failed.status, 503, "{failed:?}");
    let said = failed.body["error"].as_str().expect("a sentence");
    assert!(
        said.contains("disk") && said.contains("free some space"),
        "{said}"
    );
    assert_eq!(view(&instance, &id)["status"], "ready");
    counts_on(&instance, &id, before);
    drop(small);
    instance.post(&path, json!({})).expect("freeze with room");
    counts_on(&instance, &id, before);
    stop(&mut instance, &id);
}

/// Ends a box's first process from outside, as the kernel would when memory runs out.
fn kill_boxd(id: &str) {
    let unified = Path::new("/sys/fs/cgroup/unified");
    let root = if unified.exists() {
        unified
    } else {
        Path::new("/sys/fs/cgroup")
    };
    let group = root.join("icebox").join(id);
    fs::write(group.join("cgroup.kill"), "1").expect("kill the box's processes");
    until(Duration::from_secs(10), || {
        // A server that runs notices, and removes the group at once.
        let events = fs::read_to_string(group.join("cgroup.events"));
        let events = events.unwrap_or_else(|_| "populated 0".to_owned());
        Ok(events.contains("populated 0").then_some(()))
    })
    .expect("they end");
}

#[test]
fn box_2_2_whose_boxd_was_killed_is_interrupted_and_keeps_its_files() {
    let mut instance = started("killed");
    let (id, _) = counting_box(&instance);
    instance
        .exec(&id, "echo precious >/work/file")
        .expect("a file");
    kill_boxd(&id);
    instance
        .wait_for_status(&id, &["interrupted"])
        .expect("it is noticed");
    assert!(
        view(&instance, &id)["statusReason"]
            .as_str()
            .is_some_and(|why| why.contains("boxd"))
    );
    let path = format!("/v1/boxes/{id}/exec");
    let refused = instance
        .ask("POST", &path, Some(&json!({"cmd": "true"})))
        .expect("an answer");
    assert_eq!(
        (refused.status, &refused.body["code"]),
        (409, &json!("interrupted")),
        "{refused:?}"
    );
    instance
        .post(
            &format!("/v1/boxes/{id}/wake"),
            json!({"coldRestart": true}),
        )
        .expect("a cold start");
    assert_eq!(
        instance
            .exec(&id, "cat /work/file")
            .expect("the file")
            .trim(),
        "precious"
    );
    stop(&mut instance, &id);
}

#[test]
fn box_goes_on_over_a_restart_of_the_server_with_its_commands_and_their_output() {
    let mut instance = started("restart");
    let (id, exec) = counting_box(&instance);
    let before = count(&instance, &id);
    for ending in ["stop", "kill"] {
        match ending {
            "stop" => instance.stop().expect("stop"),
            _ => instance.kill().expect("kill"),
        }
        instance.start(&[]).expect("the next server");
        assert_eq!(view(&instance, &id)["status"], "ready", "after {ending}");
        let blocked = view(&instance, &id)["freeze"]["blockedBy"].to_string();
        assert!(blocked.contains("background"), "after {ending}: {blocked}");
        counts_on(&instance, &id, before);
    }
    let procs = instance
        .get(&format!("/v1/boxes/{id}/procs"))
        .expect("procs");
    assert!(procs.to_string().contains(&exec), "{procs}");
    let offset = "1\n2\n".len();
    let path = format!("/v1/boxes/{id}/procs/{exec}/output?stream=stdout&offset={offset}");
    let output = instance.ask("GET", &path, None).expect("output");
    let text = output.body.as_str().expect("plain text").to_owned();
    assert!(
        text.starts_with("3\n4\n5\n"),
        "{:?}",
        text.chars().take(40).collect::<String>()
    );
    stop(&mut instance, &id);
}

#[test]
fn box_after_a_reboot_of_the_host_is_frozen_as_before_or_interrupted_with_its_files() {
    let mut instance = started("reboot");
    let (frozen, _) = counting_box(&instance);
    let (running, _) = counting_box(&instance);
    instance
        .exec(&running, "echo precious >/work/file && sync /work/file")
        .expect("a file");
    let before = count(&instance, &frozen);
    instance
        .post(&format!("/v1/boxes/{frozen}/freeze"), json!({}))
        .expect("freeze");
    instance.kill().expect("kill");
    // What a reboot does to the box that runs: its processes and its mounts are gone.
    kill_boxd(&running);
    for mount in ["rootfs", "lower"] {
        let path = instance.data.join("run").join(&running).join(mount);
        let status = Command::new("umount").arg(&path).status().expect("umount");
        assert!(status.success(), "{}", path.display());
    }
    instance.start(&[]).expect("the next server");
    assert_eq!(view(&instance, &frozen)["status"], "frozen");
    counts_on(&instance, &frozen, before);
    let interrupted = view(&instance, &running);
    assert_eq!(interrupted["status"], "interrupted", "{interrupted}");
    instance
        .post(
            &format!("/v1/boxes/{running}/wake"),
            json!({"coldRestart": true}),
        )
        .expect("cold");
    assert_eq!(
        instance
            .exec(&running, "cat /work/file")
            .expect("the file")
            .trim(),
        "precious"
    );
    instance
        .post(&format!("/v1/boxes/{frozen}/stop"), json!({}))
        .expect("stop");
    stop(&mut instance, &running);
}
