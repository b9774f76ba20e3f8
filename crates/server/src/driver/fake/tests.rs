//! The fake passes the suite that real drivers pass.

use super::*;
use crate::driver::conformance::{CASES, Subject, run};

#[tokio::test]
async fn the_fake_conforms() {
    let fake = Fake::new();
    let subject = Subject {
        driver: &fake,
        inside: &fake,
    };
    for (number, case) in CASES.iter().enumerate() {
        let letter = char::from(b'a' + u8::try_from(number).unwrap());
        let id = BoxId::parse(&letter.to_string().repeat(20)).unwrap();
        run(&subject, case, id).await;
    }
}

#[tokio::test]
async fn a_held_step_acts_only_when_the_gate_opens() {
    let fake = Fake::new();
    let id = BoxId::parse(&"a".repeat(20)).unwrap();
    fake.plant(id);
    let gate = Gate::default();
    fake.next(Step::Freeze, Behaviour::HoldBefore(gate.clone()));
    let frozen = tokio::spawn({
        let fake = fake.clone();
        async move { fake.freeze(id, FreezeMode::RamOnly).await }
    });
    gate.reached().await;
    assert_eq!(fake.seen(id).unwrap().processes, Processes::Running);
    gate.open();
    frozen.await.unwrap().unwrap();
    assert_eq!(fake.seen(id).unwrap().processes, Processes::Stopped);
}
