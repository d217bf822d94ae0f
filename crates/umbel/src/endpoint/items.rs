//! Files or items that a command receives, and what has come of them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Digest, Toi};

/// An item or file that was not received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Its name.
    pub name: String,
    /// One line that says why.
    pub reason: String,
}

/// An item under way.
#[derive(Clone, Debug)]
pub(crate) struct Underway {
    pub(crate) info: ItemInfo,
    restored: u64,
    /// Digests of its blocks that have come so far, when they were asked for.
    pub(crate) digests: Vec<Digest>,
}

/// Counts items and bytes from the first list to the last verified file, over any number of
/// sessions.
#[derive(Debug, Default)]
pub(crate) struct Items {
    underway: BTreeMap<Toi, Underway>,
    /// What was settled in this run: the same item may be offered again on another session.
    settled: HashSet<(String, Digest)>,
    /// Items and bytes of all that is expected, where it is known beforehand.
    expected: Option<(u64, u64)>,
    /// Bytes of what is settled or under way.
    bytes: u64,
    pub(crate) bytes_done: u64,
    pub(crate) done: u64,
    pub(crate) already_there: u64,
    /// Bytes of items that were received in this run.
    pub(crate) received_bytes: u64,
    /// Bytes that an earlier run had written of items that were not complete.
    pub(crate) resumed_bytes: u64,
    pub(crate) failures: Vec<Failure>,
    /// Nothing more will be added.
    pub(crate) complete_list: bool,
    /// Files that the source has and cannot send.
    pub(crate) left_out: u64,
    asked: Asked,
}

/// Names that the user asked for, and the server has not offered.
#[derive(Debug, Default)]
pub(crate) struct Asked(BTreeSet<String>);

impl Asked {
    /// The names among patterns.
    pub(crate) fn new(patterns: &[String]) -> Asked {
        let names = patterns.iter().filter_map(|text| umbel_store::name_of(text));
        Asked(names.map(str::to_owned).collect())
    }

    /// The server offers an item of this name.
    pub(crate) fn offered(&mut self, name: &str) {
        if self.0.is_empty() {
            return;
        }
        // Its own name, or that of a directory that it is in.
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        for end in ends {
            self.0.remove(&name[..end]);
        }
    }

    /// Returns those that it does not have, once it has offered all.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Failure> {
        let reason = "there is no such item on the server: see `umbel ls`";
        self.0.iter().map(|name| Failure { name: name.clone(), reason: reason.to_owned() })
    }
}

impl Items {
    /// Expects what these patterns ask for.
    pub(crate) fn asked_for(patterns: &[String]) -> Items {
        Items { asked: Asked::new(patterns), ..Items::default() }
    }

    /// An item is on a page of the server's.
    pub(crate) fn offered(&mut self, info: &ItemInfo) {
        self.asked.offered(&info.name);
    }

    /// Returns what was not received, or not even offered.
    pub(crate) fn into_failures(self) -> Vec<Failure> {
        let missing = self.complete_list.then(|| self.asked.missing());
        let missing: Vec<Failure> = missing.into_iter().flatten().collect();
        [self.failures, missing].concat()
    }

    /// Says what is expected altogether.
    pub(crate) fn expect(&mut self, items: &[ItemInfo]) {
        let bytes = items.iter().map(|item| item.oti.object_len);
        self.expected = Some((items.len() as u64, bytes.fold(0, u64::saturating_add)));
    }

    /// Whether the item was settled before.
    pub(crate) fn is_settled(&self, info: &ItemInfo) -> bool {
        self.settled.contains(&(info.name.clone(), info.digest))
    }

    /// Whether this version of the item is under way.
    pub(crate) fn is_underway(&self, toi: Toi) -> bool {
        self.underway.contains_key(&toi)
    }

    /// An item is received from now on.
    pub(crate) fn begin(&mut self, info: ItemInfo) {
        self.bytes += info.oti.object_len;
        self.underway.insert(info.toi, Underway { info, restored: 0, digests: Vec::new() });
    }

    pub(crate) fn get_mut(&mut self, toi: Toi) -> Option<&mut Underway> {
        self.underway.get_mut(&toi)
    }

    /// So many bytes of an item are restored.
    pub(crate) fn restored(&mut self, toi: Toi, restored: u64) {
        if let Some(item) = self.underway.get_mut(&toi) {
            self.bytes_done = self.bytes_done - item.restored + restored;
            item.restored = restored;
        }
    }

    /// An item is verified and in its place.
    pub(crate) fn finish(&mut self, toi: Toi) {
        let Some(item) = self.underway.remove(&toi) else { return };
        self.bytes_done += item.info.oti.object_len - item.restored;
        self.received_bytes += item.info.oti.object_len;
        self.done += 1;
        self.settled.insert((item.info.name, item.info.digest));
    }

    /// An item was there before.
    pub(crate) fn was_there(&mut self, info: &ItemInfo) {
        self.bytes += info.oti.object_len;
        self.bytes_done += info.oti.object_len;
        self.already_there += 1;
        self.settled.insert((info.name.clone(), info.digest));
    }

    /// An item under way cannot be had. Returns its name.
    pub(crate) fn fail(&mut self, toi: Toi, reason: &str) -> Option<String> {
        let item = self.underway.remove(&toi)?;
        self.bytes -= item.info.oti.object_len;
        self.bytes_done -= item.restored;
        self.refuse(&item.info, reason);
        Some(item.info.name)
    }

    /// An item was not even begun.
    pub(crate) fn refuse(&mut self, info: &ItemInfo, reason: &str) {
        self.settled.insert((info.name.clone(), info.digest));
        self.failures.push(Failure { name: info.name.clone(), reason: reason.to_owned() });
    }

    /// The session is lost: what is under way will be offered again.
    pub(crate) fn interrupted(&mut self) -> Vec<Toi> {
        self.complete_list = false;
        let underway = std::mem::take(&mut self.underway);
        for item in underway.values() {
            self.bytes -= item.info.oti.object_len;
            self.bytes_done -= item.restored;
        }
        underway.into_keys().collect()
    }

    /// Items known so far, and of these, those that are there.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let there = self.done + self.already_there;
        let known = there + self.underway.len() as u64 + self.failures.len() as u64;
        (self.expected.map_or(known, |(items, _)| items), there)
    }

    /// Bytes of the items known so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.expected.map_or(self.bytes, |(_, bytes)| bytes)
    }

    /// Whether everything is settled.
    pub(crate) fn all_settled(&self) -> bool {
        self.complete_list && self.underway.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_offered_are_missing_and_patterns_never_are() {
        let patterns = ["a.iso", "typo.iso", "d", "e/", "deep/er", "*.png", "./b"];
        let mut asked = Asked::new(&patterns.map(str::to_owned));
        for name in ["a.iso", "d/x/y", "e/f", "deep", "b"] {
            asked.offered(name);
        }
        let missing: Vec<String> = asked.missing().map(|failure| failure.name).collect();
        assert_eq!(missing, ["deep/er", "typo.iso"]);
    }
}
