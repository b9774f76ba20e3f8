//! `/openapi.json` of the real program: valid for a published validator, and true of every call, made on real boxes by a
//! program of its own (`openapi/calls.py`). The packages are installed below `target/`, in the versions that are pinned there.

use std::process::Command;

use xtask::harness::Instance;
use xtask::sdks::{python, run, tests};

#[test]
fn box_every_call_is_as_the_document_describes_it() {
    let python = python("openapi/validator.txt").expect("the validator");
    let mut instance = Instance::new("openapi", true).expect("a data folder");
    instance.start(&[]).expect("a server");
    let (_, key) = instance.address().expect("an address");
    let called = run(Command::new(python)
        .arg(tests().join("openapi/calls.py"))
        .env("ICEBOX_URL", instance.url().expect("a URL"))
        .env("ICEBOX_API_KEY", key)
        .env("PYTHONDONTWRITEBYTECODE", "1"));
    if let Err(error) = called {
        panic!("{error:#}\n{}", instance.log_tail());
    }
    let left = instance.leftovers(&[]);
    assert!(left.is_empty(), "left behind:\n{}", left.join("\n"));
    instance.stop().expect("the server ends");
}
