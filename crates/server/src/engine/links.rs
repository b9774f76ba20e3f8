//! Links between boxes (rule 4.2): one holds the box that it leads to only while the one that it comes from is awake for
//! something other than links. Owns who has a link open to whom, and tells boxes at the other end when that changes; what a
//! link is worth is the rules'.

use std::collections::{BTreeSet, HashMap};

use icebox_lifecycle::{BoxId, Event, Time};

use super::turn::{Core, Turn};
use super::views::View;

/// Who has links open to whom.
#[derive(Default)]
pub(super) struct Links {
    /// The boxes that each box has links open to. Only boxes that have any are in it.
    targets: HashMap<BoxId, BTreeSet<BoxId>>,
    /// When boxes that have any are to be looked at again, as this turn found out.
    look_at: Vec<(BoxId, Time)>,
}

impl Links {
    /// A box was, and is.
    pub(super) fn follow(&mut self, before: Option<&View>, view: &View) {
        let target = view.id();
        for link in before
            .into_iter()
            .flat_map(|view| &view.sandbox.holds.links)
        {
            if let Some(targets) = self.targets.get_mut(&link.from) {
                targets.remove(&target);
                if targets.is_empty() {
                    self.targets.remove(&link.from);
                }
            }
        }
        for link in &view.sandbox.holds.links {
            self.targets.entry(link.from).or_default().insert(target);
        }
    }

    fn from(&self, source: BoxId) -> Vec<BoxId> {
        let targets = self.targets.get(&source);
        targets.into_iter().flatten().copied().collect()
    }
}

impl Core {
    /// Tells the boxes at the other end of links what became of the boxes in this turn. What follows from that for them is
    /// told on, to the end of each chain: a link changes at most once for each change of the box that it comes from.
    pub(super) fn follow_links(&mut self, turn: &mut Turn) {
        self.links.look_at.clear();
        let mut sources: BTreeSet<BoxId> = turn.work.keys().copied().collect();
        let mut links = BTreeSet::new();
        for (target, work) in &turn.work {
            links.extend(
                work.sandbox
                    .holds
                    .links
                    .iter()
                    .map(|link| (link.from, *target)),
            );
        }
        // A link that was opened in this turn is not in the list yet.
        sources.extend(links.iter().map(|(source, _)| *source));
        while let Some(source) = sources.pop_first() {
            let opened = links.range((source, BoxId::FIRST)..=(source, BoxId::LAST));
            let mut targets: BTreeSet<BoxId> = opened.map(|(_, target)| *target).collect();
            targets.extend(self.links.from(source));
            if targets.is_empty() {
                continue;
            }
            let now = turn.now;
            let (news, look_at) = match self.work(turn, source) {
                Some(work) => work.sandbox.as_link_source(now),
                None => (Event::LinkClosed { from: source }, None),
            };
            self.links.look_at.extend(look_at.map(|at| (source, at)));
            for target in targets {
                if self.is_news(turn, target, source, &news) {
                    self.step(turn, target, news.clone());
                    sources.insert(target);
                }
            }
        }
    }

    /// While links hold a box, no clock of its own strikes at the moment at which its own links are worth nothing any more. To
    /// be asked once what became of the boxes is shown, for that sets their own deadlines.
    pub(super) fn look_at_links(&mut self) {
        for (source, at) in self.links.look_at.drain(..) {
            self.deadlines.set(source, Some(at));
        }
    }

    /// Whether a box does not know yet what there is to tell of one of its links.
    fn is_news(&self, turn: &mut Turn, target: BoxId, source: BoxId, news: &Event) -> bool {
        let Some(work) = self.work(turn, target) else {
            return false;
        };
        let links = &work.sandbox.holds.links;
        let link = links.iter().find(|link| link.from == source);
        let known = |awake: bool| {
            if let Event::LinkSource {
                awake_by_itself, ..
            } = news
            {
                awake == *awake_by_itself
            } else {
                false
            }
        };
        link.is_some_and(|link| !known(link.awake_by_itself))
    }
}
