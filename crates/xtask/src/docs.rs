//! `cargo xtask docs`: writes `docs/rules.md` from the sentences that stand beside the code of each rule, so that the page
//! cannot say anything else. Owns the headings and the layout, not the rules.

use std::fmt::Write as _;
use std::fs;
use std::iter::once;
use std::path::Path;

use anyhow::{Context, ensure};
use icebox_lifecycle::policy::{AtEnd, Keeps, LifetimeFrom, Preset, StopFrozen, WokenBy};
use icebox_lifecycle::words::duration;
use icebox_lifecycle::{Ms, Policy, Rule, all_rules};

/// The page, from the root of the repository.
const PAGE: &str = "docs/rules.md";

/// The sections of the rule book that have rules.
const SECTIONS: &[(&str, &str)] = &[
    ("1", "Settings"),
    ("2", "The states of a box"),
    ("3", "Use and activity"),
    ("4", "Freezing"),
    ("5", "Waking"),
    ("6", "Stopping for good"),
    ("7", "Conversations"),
    ("8", "URLs"),
    ("9", "Takeovers"),
    ("10", "The screen"),
    ("11", "Status"),
    ("12", "Clocks"),
    ("13", "Tasks"),
    ("14", "Room and credits"),
    ("15", "E2B clients"),
];

/// Writes the page below `root`; with `check` it only compares.
///
/// # Errors
/// The page cannot be read or written, says something else than the rules, or a rule is of no section.
pub fn run(root: &Path, check: bool) -> anyhow::Result<()> {
    let path = root.join(PAGE);
    let page = page(all_rules())?;
    if check {
        let there = fs::read_to_string(&path).with_context(|| format!("read {PAGE}"))?;
        ensure!(
            there == page,
            "{PAGE} does not say what the rules say: run `cargo xtask docs`"
        );
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    fs::write(&path, page).with_context(|| format!("write {PAGE}"))?;
    println!("wrote {PAGE}: {} rules", all_rules().len());
    Ok(())
}

fn page(rules: &[Rule]) -> anyhow::Result<String> {
    let mut page = String::from(
        "<!-- Written by `cargo xtask docs` from crates/lifecycle/src/rules. Change the sentences there. -->\n\n\
         # The rules of a box\n\n\
         When a box freezes, wakes and stops, and what counts. Where a sentence has a duration, it is that of the preset \
         `agent`. The `why` of a box gives the number of the rule behind each decision.\n",
    );
    let mut section = "";
    for rule in rules {
        let of = rule.number.split('.').next().unwrap_or_default();
        if of != section {
            section = of;
            let (_, title) = SECTIONS
                .iter()
                .find(|(number, _)| *number == section)
                .with_context(|| format!("rule {} is of no section in docs.rs", rule.number))?;
            write!(page, "\n## {section}. {title}\n")?;
        }
        let numbers: Vec<&str> = once(rule.number).chain(rule.also.iter().copied()).collect();
        let numbers = numbers.join(", ");
        let Rule {
            title, sentence, ..
        } = rule;
        write!(page, "\n### {numbers} {title}\n\n{sentence}\n")?;
        if rule.name == "policies" {
            presets(&mut page)?;
        }
    }
    Ok(page)
}

/// The sets of settings, a line a setting.
fn presets(page: &mut String) -> std::fmt::Result {
    let names = Preset::ALL.map(|preset| format!("`{}`", preset.as_str()));
    write!(
        page,
        "\n| setting | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    )?;
    for (setting, show) in SETTINGS {
        let values = Preset::ALL.map(|preset| show(&Policy::of(preset)));
        writeln!(page, "| {setting} | {} |", values.join(" | "))?;
    }
    Ok(())
}

/// A setting in words, and its value in words.
type Setting = (&'static str, fn(&Policy) -> String);

const SETTINGS: [Setting; 11] = [
    ("freezes after no activity for", |policy| {
        length(policy.freeze_after_ms)
    }),
    ("a freeze keeps", |policy| match policy.keeps {
        Keeps::Files => "files".to_owned(),
        Keeps::FilesAndMemory => "files and memory".to_owned(),
    }),
    ("a frozen box stops", |policy| match policy.stop_frozen {
        StopFrozen::Never => "never".to_owned(),
        StopFrozen::AfterUseOrFreeze(ms) => format!("{} after its use or freeze", duration(ms)),
        StopFrozen::AfterFreeze(ms) => format!("{} after its freeze", duration(ms)),
    }),
    ("can then be brought back for", |policy| {
        hold(policy.restorable_ms)
    }),
    ("its own idle limit", |policy| length(policy.idle_limit_ms)),
    ("may be up for", |policy| match policy.lifetime {
        None => NONE.to_owned(),
        Some(lifetime) => {
            let from = match lifetime.from {
                LifetimeFrom::Creation => "in all",
                LifetimeFrom::LatestBoot => "from each boot",
                LifetimeFrom::Moment(_) => "from when that was set",
            };
            format!("{} {from}", duration(lifetime.ms))
        }
    }),
    ("and then", |policy| {
        match policy.lifetime.map(|lifetime| lifetime.at_end) {
            None => NONE.to_owned(),
            Some(AtEnd::Destroy) => "is destroyed".to_owned(),
            Some(AtEnd::Freeze) => "freezes".to_owned(),
            Some(AtEnd::KeepFiles) => "freezes for its files".to_owned(),
        }
    }),
    ("is woken from a pause by", |policy| match policy.woken_by {
        WokenBy::AnyCall => "any call".to_owned(),
        WokenBy::AnyCallFor(ms) => format!("any call, for {} at least", duration(ms)),
        WokenBy::Resume => "a resume".to_owned(),
    }),
    ("a background command holds it for", |policy| {
        hold(policy.background_hold_ms)
    }),
    ("requests hold it for at most", |policy| {
        hold(policy.url_hold_ms)
    }),
    ("a recording holds it for", |policy| {
        hold(policy.recording_hold_ms)
    }),
];

/// What stands where there is nothing.
const NONE: &str = "-";

fn length(ms: Option<Ms>) -> String {
    ms.map_or_else(|| NONE.to_owned(), duration)
}

fn hold(ms: Ms) -> String {
    length((ms > 0).then_some(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn the_page_says_what_the_rules_say() {
        run(root(), true).expect("docs/rules.md is up to date");
    }

    #[test]
    fn every_rule_is_there_under_its_section() {
        let page = page(all_rules()).expect("every rule has a section");
        for rule in all_rules() {
            assert!(page.contains(rule.sentence), "{}", rule.number);
        }
        let freezing = page.find("## 4. Freezing").expect("a heading");
        let waking = page.find("## 5. Waking").expect("a heading");
        let idle = page.find("### 4.1, ").expect("a rule");
        assert!(freezing < idle && idle < waking);
        assert_eq!(page.matches("\n## 4. ").count(), 1);
    }

    #[test]
    fn a_rule_without_a_section_and_a_page_that_drifted_are_refused() {
        let rule = Rule {
            number: "99.1",
            ..all_rules()[0]
        };
        let error = page(&[rule]).expect_err("there is no section 99");
        assert!(error.to_string().contains("99.1"), "{error}");
        let error = run(Path::new("/nonexistent"), true).expect_err("there is no page");
        assert!(error.to_string().contains(PAGE), "{error}");
    }
}
