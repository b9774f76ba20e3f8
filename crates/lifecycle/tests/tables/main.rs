//! Runs every table in `testdata/`: one a rule, named after its number. Owns the format, which `testdata/README.md`
//! explains, and the check that each rule has its table. `UPDATE_TABLES=1` writes what happened into the tables, for a
//! person to read.

mod read;
mod show;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use icebox_lifecycle::{Admission, Decision, Event, Outcome, Sandbox, Time, all_rules};

use read::{Step, Table};

fn tables() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut tables: Vec<PathBuf> = fs::read_dir(folder)
        .expect("testdata is there")
        .map(|entry| entry.expect("testdata can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    tables.sort();
    tables
}

fn name(path: &Path) -> String {
    path.file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[test]
fn every_table_comes_true() {
    let update = std::env::var_os("UPDATE_TABLES").is_some();
    let mut wrong = String::new();
    for path in tables() {
        let text = fs::read_to_string(&path).expect("a table can be read");
        let played = play(&text).unwrap_or_else(|what| panic!("{}: {what}", name(&path)));
        if update {
            fs::write(&path, &played.text).expect("a table can be written");
        }
        for line in played.wrong {
            let _ = writeln!(wrong, "{}:{line}", name(&path));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_rule_has_a_table_that_shows_each_of_its_numbers() {
    let texts: BTreeMap<String, String> = tables()
        .iter()
        .map(|path| (name(path), fs::read_to_string(path).unwrap_or_default()))
        .collect();
    let here = || all_rules().iter().filter(|rule| rule.elsewhere.is_none());
    for rule in here() {
        let table = format!("{}_{}", rule.number, rule.name);
        let text = texts
            .get(&table)
            .unwrap_or_else(|| panic!("rule {} has no table testdata/{table}.txt", rule.number));
        for number in [rule.number].iter().chain(rule.also) {
            let heading = format!("# {number} ");
            assert!(
                text.lines().any(|line| line.starts_with(&heading)),
                "{table} says nothing under `{heading}`"
            );
        }
    }
    assert_eq!(texts.len(), here().count(), "a table belongs to no rule");
}

#[test]
fn a_rule_that_is_kept_elsewhere_is_named_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for rule in all_rules() {
        let Some(file) = rule.elsewhere else { continue };
        let text = fs::read_to_string(root.join(file))
            .unwrap_or_else(|error| panic!("rule {} is kept in {file}: {error}", rule.number));
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.');
        for number in [rule.number].iter().chain(rule.also) {
            let named = numbers
                .clone()
                .any(|word| word.trim_end_matches('.') == *number);
            assert!(named, "{file} does not say where it keeps rule {number}");
        }
    }
}

#[test]
fn rules_are_in_the_order_of_the_rule_book() {
    let place = |number: &str| -> Vec<u32> {
        let parts = number.split('.');
        parts.map(|part| part.parse().expect("a number")).collect()
    };
    let places: Vec<Vec<u32>> = all_rules().iter().map(|rule| place(rule.number)).collect();
    assert!(places.is_sorted(), "{places:?}");
    let mut once = places.clone();
    once.dedup();
    assert_eq!(places, once, "two rules have the same number");
}

/// What came of a table.
struct Played {
    /// The table with what really happened.
    text: String,
    /// Where that is not what it said.
    wrong: Vec<String>,
}

fn play(text: &str) -> Result<Played, String> {
    let mut table = Table::parse(text)?;
    let mut wrong = Vec::new();
    let mut sandbox: Option<Sandbox> = None;
    for line in &mut table.lines {
        match &mut line.step {
            Step::Text => {}
            Step::Box(start) => sandbox = Some(start.make()),
            Step::Row(row) => {
                let sandbox = sandbox.as_mut().ok_or("a row before any box")?;
                let happened = happen(sandbox, row.at, &row.event)
                    .map_err(|what| format!("{}: {what}", line.number))?;
                sandbox
                    .check()
                    .map_err(|what| format!("{}: {what}", line.number))?;
                for cell in &mut row.cells {
                    let really = show::cell(&cell.column, sandbox, row.at, &happened)
                        .map_err(|what| format!("{}: {what}", line.number))?;
                    if cell.text != really {
                        wrong.push(format!(
                            "{}: {} is `{really}`, the table says `{}`",
                            line.number, cell.column, cell.text
                        ));
                    }
                    cell.text = really;
                }
            }
        }
    }
    let text = table.show();
    Ok(Played { text, wrong })
}

/// What a row's event came to.
struct Happened {
    decision: Decision,
    answer: Option<Admission>,
}

fn happen(sandbox: &mut Sandbox, at: Time, event: &str) -> Result<Happened, String> {
    if let Some(ask) = event.strip_prefix("ask ") {
        return Ok(Happened {
            decision: Decision::default(),
            answer: Some(sandbox.admit(at, &read::ask(ask)?)),
        });
    }
    let event = match event {
        // Answers of the driver go to whatever is awaited.
        "ok" => answer(sandbox, Outcome::Done)?,
        _ => match event.split_once(' ').unwrap_or((event, "it broke")) {
            ("failed", why) => answer(sandbox, Outcome::Failed { reason: why.into() })?,
            ("refused", why) => answer(sandbox, Outcome::Refused { reason: why.into() })?,
            ("gone", why) => answer(sandbox, Outcome::Gone { reason: why.into() })?,
            _ => read::event(event)?,
        },
    };
    Ok(Happened {
        decision: sandbox.handle(at, event),
        answer: None,
    })
}

fn answer(sandbox: &Sandbox, outcome: Outcome) -> Result<Event, String> {
    let op = sandbox.awaited().ok_or("no answer is awaited")?;
    Ok(Event::Outcome { op, outcome })
}
