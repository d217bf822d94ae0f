//! Selections of items by pattern, page by page.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use umbel_wire::Toi;
use umbel_wire::repository::{ItemInfo, ItemKind};

use super::Item;
use super::pattern::Pattern;
use crate::PatternError;

/// Maximum number of patterns with wildcards in one query.
const MAX_GLOBS: usize = 256;
/// Number of selections that are remembered for their later pages, so that these cost little.
const REMEMBERED: usize = 16;
/// Number of states that are remembered for later pages. Only changes of the items make new ones, so
/// that no client's lists push another's out.
const STATES: usize = 16;
/// A cursor is the position in the selection in its low bits, and the generation of its snapshot
/// above.
const POSITION_BITS: u32 = 40;

/// One state of the catalog.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// Number of the state; the first is 1.
    pub(crate) generation: u32,
    /// Items, sorted by name.
    pub(crate) items: Vec<Arc<Item>>,
    /// Number of failures of its scan: what should be an item and is not.
    pub(crate) failures: u64,
}

impl Snapshot {
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.items.binary_search_by(|item| item.name().cmp(name)).ok()
    }

    /// Returns the items whose names begin with `prefix`.
    fn below(&self, prefix: &str) -> Range<usize> {
        let start = self.items.partition_point(|item| item.name() < prefix);
        let len = self.items[start..].partition_point(|item| item.name().starts_with(prefix));
        start..start + len
    }

    fn generation_bits(&self) -> u64 {
        u64::from(self.generation) << POSITION_BITS & !(1 << 63)
    }
}

/// A page of the items that match.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The items of this page, sorted by name.
    pub items: Vec<Arc<Item>>,
    /// Number of matching items on all pages.
    pub total: u64,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<u64>,
    /// Number of files that the scan of these items failed to take; see
    /// [`SkipReason::is_failure`](crate::SkipReason::is_failure).
    pub failures: u64,
    /// The patterns that match no item.
    pub unmatched: Vec<String>,
    /// Items of this page that are other names of files whose first names are on no page.
    apart: Vec<Toi>,
}

impl Selection {
    /// Returns how an item of this page is described to clients: as a file of its own if it is
    /// another name of one that is not selected.
    pub fn info(&self, item: &Item) -> ItemInfo {
        let is_apart = self.apart.contains(&item.toi());
        if is_apart { item.info_as(ItemKind::File) } else { item.info() }
    }
}

/// Selects items, and remembers recent selections and the states that they are of.
#[derive(Debug, Default)]
pub(super) struct Selector {
    lately: Mutex<VecDeque<Arc<Matches>>>,
    states: Mutex<VecDeque<Arc<Snapshot>>>,
}

/// All items of a snapshot that match.
#[derive(Debug)]
struct Matches {
    snapshot: Arc<Snapshot>,
    patterns: Vec<String>,
    /// Runs in ascending order, separate from each other: first item, one after the last, matches
    /// before.
    runs: Vec<(usize, usize, usize)>,
    total: usize,
    unmatched: Vec<String>,
}

impl Selector {
    pub(super) fn select(
        &self,
        now: &Arc<Snapshot>,
        patterns: &[String],
        cursor: u64,
        limit: usize,
    ) -> Result<Selection, PatternError> {
        let position = (cursor & ((1 << POSITION_BITS) - 1)) as usize;
        let generation = if cursor == 0 { now.generation_bits() } else { cursor - position as u64 };
        let state = self.state(now, generation).ok_or(PatternError::Changed)?;
        let matches = match self.recall(patterns, generation) {
            Some(matches) => matches,
            None => self.remember(Matches::new(&state, patterns)?),
        };
        Ok(matches.page(position, limit.max(1)))
    }

    /// Returns the state of a generation, if it is the present one or one of the last of which
    /// something was selected.
    fn state(&self, now: &Arc<Snapshot>, generation: u64) -> Option<Arc<Snapshot>> {
        let mut states = self.states.lock();
        let present = now.generation_bits();
        if states.iter().all(|state| state.generation_bits() != present) {
            states.push_front(Arc::clone(now));
            states.truncate(STATES);
        }
        states.iter().find(|state| state.generation_bits() == generation).cloned()
    }

    fn recall(&self, patterns: &[String], generation: u64) -> Option<Arc<Matches>> {
        let mut lately = self.lately.lock();
        let index = lately.iter().position(|matches| {
            matches.snapshot.generation_bits() == generation && matches.patterns == patterns
        })?;
        let matches = lately.remove(index)?;
        lately.push_front(Arc::clone(&matches));
        Some(matches)
    }

    fn remember(&self, matches: Matches) -> Arc<Matches> {
        let matches = Arc::new(matches);
        let mut lately = self.lately.lock();
        lately.push_front(Arc::clone(&matches));
        lately.truncate(REMEMBERED);
        matches
    }
}

impl Matches {
    fn new(snapshot: &Arc<Snapshot>, given: &[String]) -> Result<Matches, PatternError> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        let mut unmatched = Vec::new();
        let patterns = given.iter().map(|p| Pattern::new(p)).collect::<Result<Vec<_>, _>>()?;
        let globs = patterns.iter().filter(|p| matches!(p, Pattern::Glob { .. })).count();
        if globs > MAX_GLOBS {
            return Err(PatternError::Count { count: globs, max: MAX_GLOBS });
        }
        if given.is_empty() {
            runs.push(0..snapshot.items.len());
        }
        for (pattern, text) in patterns.iter().zip(given) {
            let matched = runs_of(snapshot, pattern);
            if matched.iter().all(Range::is_empty) {
                unmatched.push(text.clone());
            }
            runs.extend(matched);
        }
        let (runs, total) = union(runs);
        Ok(Matches {
            snapshot: Arc::clone(snapshot),
            patterns: given.to_vec(),
            runs,
            total,
            unmatched,
        })
    }

    /// Returns whether the item of this name matches.
    fn has(&self, name: &str) -> bool {
        let Some(index) = self.snapshot.position(name) else { return false };
        let after = self.runs.partition_point(|(start, _, _)| *start <= index);
        after.checked_sub(1).is_some_and(|run| index < self.runs[run].1)
    }

    fn page(&self, position: usize, limit: usize) -> Selection {
        let end = position.saturating_add(limit).min(self.total);
        let first =
            self.runs.partition_point(|(start, end, before)| before + end - start <= position);
        let mut items = Vec::with_capacity(end.saturating_sub(position));
        for (start, run_end, before) in &self.runs[first..] {
            if *before >= end {
                break;
            }
            let from = start + position.saturating_sub(*before);
            let to = (*run_end).min(start + (end - before));
            items.extend_from_slice(&self.snapshot.items[from..to]);
        }
        let is_apart = |item: &&Arc<Item>| match item.kind() {
            ItemKind::HardLink(first) => !self.has(first),
            _ => false,
        };
        let apart = items.iter().filter(is_apart).map(|item| item.toi()).collect();
        Selection {
            items,
            apart,
            total: self.total as u64,
            failures: self.snapshot.failures,
            next: (end < self.total).then(|| self.snapshot.generation_bits() | end as u64),
            unmatched: self.unmatched.clone(),
        }
    }
}

/// Returns the items that a pattern matches, ascending.
fn runs_of(snapshot: &Snapshot, pattern: &Pattern) -> Vec<Range<usize>> {
    let one = |index| Range { start: index, end: index + 1 };
    match pattern {
        Pattern::All => vec![Range { start: 0, end: snapshot.items.len() }],
        Pattern::Below(prefix) => vec![snapshot.below(prefix)],
        Pattern::Literal(text) => {
            let name = text.trim_end_matches('/');
            let below = || snapshot.below(&format!("{name}/"));
            match snapshot.position(text).or_else(|| snapshot.position(name)) {
                Some(index) if snapshot.items[index].kind().is_directory() => {
                    vec![one(index), below()]
                }
                Some(index) if snapshot.items[index].name() == text => vec![one(index)],
                _ => vec![below()],
            }
        }
        Pattern::Glob { text, prefix, matcher } => {
            if let Some(index) = snapshot.position(text) {
                return vec![one(index)];
            }
            let mut runs: Vec<Range<usize>> = Vec::new();
            let candidates = snapshot.below(prefix);
            let matches =
                |item: &Item| !item.kind().is_directory() && matcher.is_match(item.name());
            for index in candidates.filter(|i| matches(&snapshot.items[*i])) {
                match runs.last_mut() {
                    Some(last) if last.end == index => last.end += 1,
                    _ => runs.push(one(index)),
                }
            }
            runs
        }
    }
}

/// Sorts runs and merges those that touch or overlap. Returns them and the number of items in them.
fn union(mut runs: Vec<Range<usize>>) -> (Vec<(usize, usize, usize)>, usize) {
    runs.retain(|run| !run.is_empty());
    runs.sort_unstable_by_key(|run| run.start);
    let mut merged: Vec<(usize, usize, usize)> = Vec::new();
    let mut total = 0;
    for run in runs {
        match merged.last_mut() {
            Some((_, end, _)) if run.start <= *end => {
                total += run.end.saturating_sub(*end);
                *end = run.end.max(*end);
            }
            _ => {
                merged.push((run.start, run.end, total));
                total += run.end - run.start;
            }
        }
    }
    (merged, total)
}
