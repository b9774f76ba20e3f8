//! One line of a result that is no duration: a figure, what it is measured against, and what it is to reach.

/// A figure and its goal.
pub(super) struct Goal {
    /// What was measured.
    pub(super) what: &'static str,
    /// In which unit.
    pub(super) unit: &'static str,
    /// Ours.
    pub(super) ours: f64,
    /// Against what, in words.
    pub(super) against: String,
    /// What ours has to be.
    pub(super) limit: Limit,
}

/// What a figure has to be.
#[derive(Clone, Copy)]
pub(super) enum Limit {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Goal {
    /// Whether it is as it has to be.
    pub(super) fn is_reached(&self) -> bool {
        match self.limit {
            Limit::AtLeast(least) => self.ours >= least,
            Limit::AtMost(most) => self.ours <= most,
        }
    }

    /// Prints the line.
    pub(super) fn print(&self) {
        let Self {
            what,
            unit,
            ours,
            against,
            limit,
        } = self;
        let limit = match limit {
            Limit::AtLeast(least) => format!("at least {least:.2}"),
            Limit::AtMost(most) => format!("at most {most:.2}"),
        };
        let mark = if self.is_reached() {
            "reached"
        } else {
            "MISSED"
        };
        println!("{what:46} {ours:10.2} {unit:12} {limit:20} {mark:8} {against}");
    }
}

/// Prints all and fails if one was missed.
pub(super) fn conclude(goals: &[Goal]) -> anyhow::Result<()> {
    println!();
    goals.iter().for_each(Goal::print);
    let missed = goals.iter().filter(|goal| !goal.is_reached()).count();
    anyhow::ensure!(
        missed == 0,
        "{missed} of {} figures were missed",
        goals.len()
    );
    Ok(())
}
