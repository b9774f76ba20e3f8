//! Stacks of minified scripts as those of their sources, by the maps of the release. Owns how a resolved line looks and how
//! much work one batch may cause.

use std::sync::Arc;

use sourcemap::{SourceMap, Token};

use super::Shared;
use super::maps::MapKey;
use super::shape;
use super::stack::Frame;

/// Lines of one stack that are looked at.
const FRAMES: usize = 50;
/// Maps that one batch may have read from the disk; a map takes up to a second to read.
const READS: usize = 8;

/// Resolves the stacks of one batch.
pub(super) struct Resolver<'s> {
    shared: &'s Shared,
    project: i64,
    reads: usize,
}

impl<'s> Resolver<'s> {
    pub(super) fn new(shared: &'s Shared, project: i64) -> Self {
        Self {
            shared,
            project,
            reads: 0,
        }
    }

    /// The stack by its sources; `None` when no line of it can be told.
    pub(super) fn resolve(&mut self, release: &str, stack: &str) -> Option<String> {
        let frames: Vec<_> = stack
            .lines()
            .take(FRAMES)
            .map(|line| {
                let frame = Frame::parse(line);
                let map = frame.and_then(|frame| self.map(release, frame.path()?));
                (line, frame, map)
            })
            .collect();
        let mut any = false;
        let mut lines = Vec::with_capacity(frames.len());
        for (index, (line, frame, map)) in frames.iter().enumerate() {
            let found = frame.and_then(|frame| {
                let token = token(map.as_ref()?, frame)?;
                // The caller's source says what it calls.
                let caller = frames.get(index + 1).and_then(|(_, caller, map)| {
                    let caller = caller.filter(|caller| !caller.function.starts_with("async"))?;
                    let called = token_at(map.as_ref()?, caller)?;
                    called.get_name().map(str::to_owned)
                });
                Some(shown(frame, token, caller.as_deref()))
            });
            any |= found.is_some();
            lines.push(found.unwrap_or_else(|| (*line).to_owned()));
        }
        any.then(|| lines.join("\n"))
    }

    /// The map of a script, if there is one and it may still be read.
    fn map(&mut self, release: &str, path: &str) -> Option<Arc<SourceMap>> {
        let key = MapKey {
            project: self.project,
            release: release.to_owned(),
            path: path.to_owned(),
        };
        if let Some(known) = self.shared.maps.get(&key) {
            return known;
        }
        if self.reads >= READS {
            return None;
        }
        self.reads += 1;
        let tables = &self.shared.tables;
        let kept = tables.map(self.project, release, path);
        let kept = kept.inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "a source map is not read"
            );
        });
        let map = kept.ok()?.and_then(|kept| shape::read(&kept).ok());
        let map = map.map(Arc::new);
        self.shared.maps.put(key, map.clone());
        map
    }
}

/// Where a frame is in the sources.
fn token<'m>(map: &'m SourceMap, frame: Frame<'_>) -> Option<Token<'m>> {
    let token = map.lookup_token(frame.line - 1, frame.column - 1)?;
    let same_line = token.get_dst_line() == frame.line - 1;
    (same_line && token.get_source().is_some()).then_some(token)
}

/// The same, if a piece of the source begins exactly there.
fn token_at<'m>(map: &'m SourceMap, frame: Frame<'_>) -> Option<Token<'m>> {
    token(map, frame).filter(|token| token.get_dst_col() == frame.column - 1)
}

fn shown(frame: Frame<'_>, token: Token<'_>, name: Option<&str>) -> String {
    let source = token.get_source().unwrap_or_default();
    let (line, column) = (
        token.get_src_line().saturating_add(1),
        token.get_src_col().saturating_add(1),
    );
    match name.unwrap_or(frame.function) {
        "" => format!("    at {source}:{line}:{column}"),
        name => format!("    at {name} ({source}:{line}:{column})"),
    }
}
