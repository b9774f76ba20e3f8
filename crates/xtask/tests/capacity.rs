//! Room on the host with real boxes (rules 5.9, 14.1): two boxes where one may be up.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use xtask::harness::{Instance, SETTINGS, until};

fn slots(instance: &Instance) -> Value {
    let host = instance.get("/v1/host").expect("the host");
    host["capacity"]["slots"].clone()
}

fn until_one_waits(instance: &Instance) {
    let waits = || Ok((slots(instance)["waiting"] == 1).then_some(()));
    until(Duration::from_secs(30), waits).expect("a box in the queue");
}

fn advance(instance: &Instance, sec: u64) {
    let by = json!({ "advanceSec": sec });
    instance.post("/v1/test/clock", by).expect("the clock");
}

#[test]
fn box_that_freezes_gives_its_room_to_the_next_and_a_wake_waits_in_vain() {
    let mut instance = Instance::new("capacity", true).expect("a data folder");
    fs::write(
        instance.data.join(SETTINGS),
        "[limits]\nrunning_boxes = 1\n",
    )
    .expect("settings");
    instance.start(&[]).expect("a server");
    let small = json!({ "size": { "memoryMb": 512 } });
    let first = instance.start_box(small.clone()).expect("a box");
    instance
        .exec(&first, "echo kept >/dev/shm/word")
        .expect("a word in memory");

    let full = instance.ask("POST", "/v1/boxes", Some(&small));
    let full = full.expect("an answer");
    assert_eq!(
        (full.status, &full.body["code"], &full.body["slots"]),
        (
            503,
            &json!("no_capacity"),
            &json!({ "running": 1, "maximum": 1, "waiting": 0 })
        )
    );

    let second = std::thread::scope(|scope| {
        let start = scope.spawn(|| {
            let mut patient = small.clone();
            patient["waitForCapacitySec"] = json!(1_800);
            instance.start_box(patient).expect("the second box")
        });
        until_one_waits(&instance);
        assert!(!start.is_finished());
        // The first is not used for ten minutes, and freezes.
        advance(&instance, 600);
        start.join().expect("it starts")
    });
    assert_eq!(instance.status(&first).expect("a status"), "frozen");
    assert_eq!(instance.exec(&second, "echo up").expect("a word"), "up\n");

    let woken = std::thread::scope(|scope| {
        let wake = scope.spawn(|| {
            let path = format!("/v1/boxes/{first}/wake");
            let patient = json!({ "waitForCapacitySec": 60 });
            instance
                .ask("POST", &path, Some(&patient))
                .expect("an answer")
        });
        until_one_waits(&instance);
        let shown = instance.get(&format!("/v1/boxes/{first}")).expect("it");
        assert_eq!(
            (
                &shown["status"],
                &shown["tier"],
                &shown["waitsForRoom"]["before"]
            ),
            (&json!("frozen"), &json!("disk"), &json!(0)),
            "{shown}"
        );
        advance(&instance, 60);
        wake.join().expect("it is answered")
    });
    assert_eq!(
        (woken.status, &woken.body["code"]),
        (503, &json!("no_capacity")),
        "{woken:?}"
    );
    let copy = instance.data.join("boxes").join(&first).join("copies/1");
    assert!(copy.join("manifest.json").exists(), "the copy is gone");
    assert_eq!(instance.status(&second).expect("a status"), "ready");

    let stop = |id: &str| instance.post(&format!("/v1/boxes/{id}/stop"), json!({}));
    stop(&second).expect("stop");
    let word = instance.exec(&first, "cat /dev/shm/word");
    assert_eq!(word.expect("its memory"), "kept\n");
    stop(&first).expect("stop");
    let left = instance.leftovers(&[first, second]);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    instance.stop().expect("the server ends");
}
