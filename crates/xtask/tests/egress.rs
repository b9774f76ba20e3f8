//! The way out of real boxes. The machine is a network namespace that the test made, and so is its internet: nothing of it
//! reaches the network of the machine that runs the test, nor changes it.

use std::fs::Permissions;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use xtask::harness::{Answer, Instance, SETTINGS, until};
use xtask::outside::{self, MACHINE, METADATA, ONE, OTHER, Outside, PRIVATE, ip, nft, talk_to};

/// Keeps a connection, and a connected socket of datagrams; notes when the connection ends.
const HOLD: &str = "exec 4<>/dev/udp/9.9.9.9/53; exec 3<>/dev/tcp/9.9.9.9/80; echo hi >&3; \
    read -r line <&3; echo \"$line\" >/work/began; while read -r line <&3; do :; done; echo so >/work/ended; sleep 600";

/// A server in a network of the test's own. The thread that made it is in that network, too, and so is all that it starts.
struct World {
    instance: Instance,
    ids: Vec<String>,
    _outside: Outside,
}

impl World {
    fn new(name: &str, settings: &str) -> Self {
        let outside = outside::enter().expect("networks of its own (needs root)");
        let mut instance = Instance::new(name, false).expect("a data folder");
        let settings = format!("{settings}\n[egress]\nresolvers = [\"{ONE}\"]\n");
        std::fs::write(instance.data.join(SETTINGS), settings).expect("settings");
        // Its `nft` is one that a test can break, or make hang.
        let programs = instance.data.join("bin");
        std::fs::create_dir(&programs).expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let wrapper = format!(
            "#!/bin/sh\n\
             [ ! -e {0}/broken ] || {{ echo broken on purpose >&2; exit 1; }}\n\
             [ ! -e {0}/hangs ] || exec sleep 600\n\
             PATH={path} exec nft \"$@\"\n",
            programs.display()
        );
        let nft = programs.join("nft");
        std::fs::write(&nft, wrapper).expect("a program");
        std::fs::set_permissions(&nft, Permissions::from_mode(0o755)).expect("a program");
        let path = format!("{}:{path}", programs.display());
        instance.start(&[("PATH", &path)]).expect("a server");
        Self {
            instance,
            ids: Vec::new(),
            _outside: outside,
        }
    }

    fn start(&mut self, body: Value) -> String {
        let id = self.instance.start_box(body).expect("a box");
        self.ids.push(id.clone());
        id
    }

    /// Whether a program in the box has an answer from there.
    fn reaches(&self, id: &str, address: &str) -> bool {
        self.exit_code(id, &talk_to(address)) == 0
    }

    fn exit_code(&self, id: &str, cmd: &str) -> i64 {
        let path = format!("/v1/boxes/{id}/exec");
        let answer = self.instance.post(&path, json!({ "cmd": cmd }));
        answer.expect("an answer")["exitCode"]
            .as_i64()
            .unwrap_or(-1)
    }

    fn exec(&self, id: &str, cmd: &str) -> String {
        self.instance.exec(id, cmd).expect("it ends well")
    }

    fn change(&self, id: &str, egress: Value) {
        self.ask_for(id, egress).ok().expect("a change");
    }

    fn ask_for(&self, id: &str, egress: Value) -> Answer {
        let path = format!("/v1/boxes/{id}");
        let body = json!({ "egress": egress });
        let answer = self.instance.ask("PATCH", &path, Some(&body));
        answer.expect("an answer")
    }

    /// Why a box reaches nothing outside although it may.
    fn failure(&self, id: &str) -> Value {
        let view = self.instance.get(&format!("/v1/boxes/{id}"));
        view.expect("a box")["egress"]["failure"]["error"].clone()
    }

    /// Makes the server's `nft` so, or not any more.
    fn nft_is(&self, what: &str, on: bool) {
        let mark = self.instance.data.join("bin").join(what);
        let done = if on {
            std::fs::write(mark, "")
        } else {
            std::fs::remove_file(mark)
        };
        done.expect("a mark");
    }

    /// Waits until a box has the way out that it should.
    fn until_whole(&self, id: &str) {
        let whole = until(Duration::from_secs(60), || {
            Ok(self.failure(id).is_null().then_some(()))
        });
        whole.expect("its way out is made in the end");
    }

    /// A program in the box has a connection to outside.
    fn hold(&self, id: &str) {
        self.exec(id, "rm -f /work/ended /work/began");
        let path = format!("/v1/boxes/{id}/exec");
        let held = json!({"cmd": HOLD, "background": true});
        self.instance.post(&path, held).expect("it holds");
        self.wait_for_file(id, "began");
    }

    fn wait_for_file(&self, id: &str, name: &str) {
        let wait = format!("timeout 20 bash -c 'until [ -s /work/{name} ]; do sleep 0.05; done'");
        assert_eq!(self.exit_code(id, &wait), 0, "no {name}");
    }

    fn freeze(&self, id: &str) -> Value {
        let path = format!("/v1/boxes/{id}/freeze");
        self.instance.post(&path, json!({})).expect("it freezes")
    }

    /// Stops every box; nothing is left of them.
    fn end(mut self) {
        for id in &self.ids {
            let stopped = self
                .instance
                .post(&format!("/v1/boxes/{id}/stop"), json!({}));
            stopped.expect("it stops");
        }
        let left = self.instance.leftovers(&self.ids);
        assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
        self.instance.stop().expect("the server ends");
        assert_eq!(outside::left().expect("a look"), Vec::<String>::new());
    }
}

/// Whether the machine has the rules that keep boxes from it.
fn has_table() -> bool {
    let tables = nft(&["list", "tables"]).expect("a list");
    tables.contains("table inet icebox")
}

#[test]
fn box_egress_reaches_what_it_may() {
    let mut world = World::new("egress-lists", "");
    let id = world.start(json!({}));
    for (egress, one, other, private) in [
        (json!({"mode": "open"}), true, true, false),
        (json!({"mode": "none"}), false, false, false),
        (json!({"allowOut": [ONE]}), true, false, false),
        (json!({"denyOut": ["9.0.0.0/8"]}), false, true, false),
        (
            json!({"allowOut": [ONE], "denyOut": ["0.0.0.0/0"]}),
            true,
            false,
            false,
        ),
        (
            json!({"allowOut": ["0.0.0.0/0", METADATA, MACHINE]}),
            true,
            true,
            false,
        ),
        (
            json!({"mode": "open", "allowOut": ["10.20.0.0/16"]}),
            true,
            true,
            true,
        ),
    ] {
        world.change(&id, egress.clone());
        for (address, reached) in [
            (ONE, one),
            (OTHER, other),
            (PRIVATE, private),
            (METADATA, false),
            // The machine by its address outside, and by those of its links to boxes.
            (MACHINE, false),
            ("169.254.192.0", false),
            ("169.254.1.1", false),
        ] {
            assert_eq!(world.reaches(&id, address), reached, "{egress} {address}");
        }
    }
    assert!(world.exec(&id, "getent ahostsv4 some.name").contains(OTHER));
    assert!(!world.exec(&id, "cat /proc/net/if_inet6").contains("eth0"));
    world.end();
}

#[test]
fn box_egress_never_reaches_the_machine_or_other_boxes() {
    let mut world = World::new("egress-never", "");
    let id = world.start(json!({}));
    let other = world.start(json!({}));
    let links = ip(&["-o", "-4", "addr"]).expect("addresses");
    let links: Vec<&str> = links
        .lines()
        .filter(|line| line.contains("icebox"))
        .filter_map(|line| line.split_whitespace().nth(3)?.split('/').next())
        .collect();
    assert_eq!(links.len(), 2, "{links:?}");
    for link in links {
        let link: Ipv4Addr = link.parse().expect("an address");
        for address in [link, Ipv4Addr::from_bits(link.to_bits() + 1)] {
            assert!(!world.reaches(&id, &address.to_string()), "{address}");
            assert!(!world.reaches(&other, &address.to_string()), "{address}");
        }
    }
    // Without the box's own rules the machine's are left, and hold.
    let gateway = world.instance.data.join("run").join(&id).join("gateway");
    let flush = Command::new("nsenter")
        .arg(format!("--net={}", gateway.display()))
        .args(["nft", "delete table inet icebox; add table inet icebox; add chain inet icebox hide { type nat hook postrouting priority srcnat; }; add rule inet icebox hide oifname \"wan\" masquerade"])
        .status();
    assert!(flush.expect("nsenter").success());
    assert!(world.reaches(&id, ONE));
    for address in [MACHINE, METADATA] {
        assert!(!world.reaches(&id, address), "{address}");
    }
    world.end();
}

#[test]
fn box_egress_a_change_ends_what_is_open() {
    let mut world = World::new("egress-open", "");
    let id = world.start(json!({}));
    world.hold(&id);
    world.change(&id, json!({"denyOut": [OTHER]}));
    assert_eq!(
        world.exit_code(&id, "[ -e /work/ended ]"),
        1,
        "it was still allowed"
    );
    world.change(&id, json!({"allowOut": [OTHER]}));
    world.wait_for_file(&id, "ended");
    assert!(world.reaches(&id, OTHER));
    world.change(&id, json!({"mode": "open"}));
    world.hold(&id);
    world.change(&id, json!({"mode": "none"}));
    world.wait_for_file(&id, "ended");
    assert_eq!(
        world
            .exec(&id, "cat /proc/net/dev | grep -c eth0 || true")
            .trim(),
        "0"
    );
    world.end();
}

/// Freezes a box that has a connection; it goes on, knows that the connection is over, and reaches what it did.
fn through_a_freeze(name: &str, settings: &str, tier: &str) {
    let mut world = World::new(name, settings);
    let id = world.start(json!({"egress": {"allowOut": [ONE]}}));
    for _ in 0..2 {
        world.hold(&id);
        assert_eq!(world.freeze(&id)["tier"], tier);
        world.wait_for_file(&id, "ended");
        assert!(world.reaches(&id, ONE) && !world.reaches(&id, OTHER));
        assert!(world.exec(&id, "getent ahostsv4 some.name").contains(OTHER));
    }
    // Changed while it is frozen.
    world.freeze(&id);
    world.change(&id, json!({"mode": "open"}));
    assert_eq!(world.instance.status(&id).expect("a status"), "frozen");
    assert!(world.reaches(&id, OTHER));
    world.freeze(&id);
    world.change(&id, json!({"mode": "none"}));
    assert!(!world.reaches(&id, ONE));
    // Refused at once, not after a time limit: there is no route that leads nowhere.
    assert_eq!(
        world.exit_code(&id, "timeout 2 bash -c 'exec 3<>/dev/tcp/9.9.9.9/80'"),
        1
    );
    world.end();
}

#[test]
fn box_egress_is_kept_through_a_freeze_to_disk() {
    through_a_freeze("egress-disk", "", "disk");
}

#[test]
fn box_egress_is_kept_through_a_freeze_in_ram() {
    through_a_freeze("egress-ram", "[limits]\nwarm_memory_mb = 8192\n", "ram");
}

#[test]
fn box_egress_of_forks_and_after_a_restart() {
    let mut world = World::new("egress-forks", "");
    let id = world.start(json!({"egress": {"allowOut": [ONE]}}));
    world.hold(&id);
    let forked = world
        .instance
        .post(&format!("/v1/boxes/{id}/fork"), json!({}));
    let forked = forked.expect("a fork");
    let fork = forked["forks"][0]["box"]["id"]
        .as_str()
        .expect("its id")
        .to_owned();
    world.ids.push(fork.clone());
    for id in [&id, &fork] {
        assert!(world.reaches(id, ONE) && !world.reaches(id, OTHER), "{id}");
    }
    world.instance.kill().expect("a crash");
    // Somebody empties the firewall meanwhile.
    nft(&["flush", "ruleset"]).expect("it is emptied");
    world.instance.start(&[]).expect("another server");
    for id in [&id, &fork] {
        let reached = until(Duration::from_secs(20), || {
            Ok(world.reaches(id, ONE).then_some(()))
        });
        reached.context("no way out after a restart").expect(id);
        assert!(
            !world.reaches(id, OTHER) && !world.reaches(id, MACHINE),
            "{id}"
        );
    }
    world.end();
}

#[test]
fn box_egress_is_mended_when_somebody_changes_the_firewall() {
    const NEW: &str = "9.9.8.77";
    let mut world = World::new("egress-emptied", "");
    let id = world.start(json!({}));
    // An address that the machine gets later is its own as well, also for the rules in front of the box.
    ip(&["addr", "add", &format!("{NEW}/32"), "dev", "uplink"]).expect("an address");
    assert!(!world.reaches(&id, NEW));
    let gateway = world.instance.data.join("run").join(&id).join("gateway");
    let mut rules = Command::new("nsenter");
    rules.arg(format!("--net={}", gateway.display()));
    rules.args(["nft", "list", "set", "inet", "icebox", "machine"]);
    let noticed = until(Duration::from_secs(30), || {
        let shown = rules.output()?.stdout;
        Ok(String::from_utf8_lossy(&shown).contains(NEW).then_some(()))
    });
    noticed.expect("the new address is noticed");
    for change in [
        &["flush", "ruleset"][..],
        &["flush", "chain", "inet", "icebox", "input"],
        &["flush", "chain", "inet", "icebox", "hide"],
        &["delete", "table", "inet", "icebox"],
    ] {
        let whole = nft(&["list", "table", "inet", "icebox"]).expect("the table");
        nft(change).expect("a change");
        // Until it is mended nothing more is reached than before.
        for address in [MACHINE, NEW, METADATA] {
            assert!(!world.reaches(&id, address), "{change:?} {address}");
        }
        let mended = until(Duration::from_secs(30), || {
            let shown = nft(&["list", "table", "inet", "icebox"]).unwrap_or_default();
            Ok((shown == whole).then_some(()))
        });
        mended.unwrap_or_else(|error| panic!("{change:?}: {error:#}"));
        assert!(world.reaches(&id, ONE), "{change:?}");
    }
    world.end();
}

#[test]
fn box_egress_does_not_reach_what_the_machine_publishes() {
    let mut world = World::new("egress-published", "");
    let id = world.start(json!({}));
    // As container engines do it: a port of the machine leads to somebody whom the box reaches only because of that.
    nft(&["add table ip published; \
         add chain ip published arrive { type nat hook prerouting priority dstnat; }; \
         add rule ip published arrive ip daddr 9.9.8.1 tcp dport 80 dnat to 10.20.30.40"])
    .expect("a published port");
    assert!(!world.reaches(&id, MACHINE));
    let gateway = world.instance.data.join("run").join(&id).join("gateway");
    let emptied = Command::new("nsenter")
        .arg(format!("--net={}", gateway.display()))
        .args(["nft", "flush set inet icebox machine"])
        .status();
    assert!(emptied.expect("nsenter").success());
    assert!(!world.reaches(&id, MACHINE), "the machine's own rules");
    nft(&["flush", "chain", "inet", "icebox", "arrive"]).expect("a change");
    assert!(world.reaches(&id, MACHINE), "it was not published at all");
    world.end();
}

#[test]
fn box_egress_goes_on_while_no_server_runs() {
    let mut world = World::new("egress-between", "");
    let id = world.start(json!({}));
    world.hold(&id);
    world.instance.stop().expect("it ends");
    assert!(has_table(), "a box still needs it");
    world.instance.start(&[]).expect("another server");
    assert_eq!(world.exit_code(&id, "[ -e /work/ended ]"), 1);
    assert!(world.reaches(&id, ONE) && !world.reaches(&id, MACHINE));
    world.end();
}

#[test]
fn box_egress_that_cannot_be_made_is_none_says_so_and_is_tried_again() {
    let mut world = World::new("egress-broken", "");
    let id = world.start(json!({}));
    world.hold(&id);
    for (what, why) in [
        ("broken", "broken on purpose"),
        ("hangs", "was not over after"),
    ] {
        world.nft_is(what, true);
        let answer = world.ask_for(&id, json!({"denyOut": [OTHER]}));
        let text = answer.body["error"].as_str().unwrap_or_default();
        assert_eq!((answer.status, text.contains(why)), (503, true), "{text}");
        assert!(
            world
                .failure(&id)
                .as_str()
                .is_some_and(|error| error.contains(why))
        );
        world.wait_for_file(&id, "ended");
        for address in [ONE, OTHER, MACHINE] {
            assert!(!world.reaches(&id, address), "{what} {address}");
        }
        world.nft_is(what, false);
        world.until_whole(&id);
        assert!(
            world.reaches(&id, ONE) && !world.reaches(&id, OTHER),
            "{what}"
        );
        world.change(&id, json!({"mode": "open"}));
        world.hold(&id);
    }
    // A wake works without; and so does a start.
    world.freeze(&id);
    world.nft_is("broken", true);
    let other = world.start(json!({}));
    for id in [&id, &other] {
        assert!(!world.reaches(id, ONE), "{id}");
        let failure = world.failure(id);
        assert!(
            failure
                .as_str()
                .is_some_and(|error| error.contains("broken on purpose")),
            "{failure}"
        );
        // It hears so at once, not after a time limit.
        let refused = world.exit_code(id, "timeout 2 bash -c 'exec 3<>/dev/tcp/9.9.9.9/80'");
        assert_eq!(refused, 1, "{id}");
    }
    world.nft_is("broken", false);
    for id in [&id, &other] {
        world.until_whole(id);
        assert!(world.reaches(id, ONE), "{id}");
    }
    world.end();
}
