//! The items that a client wants, and what has come of them.

use std::collections::{BTreeMap, HashSet};

use umbel_wire::repository::ItemInfo;
use umbel_wire::{Digest, Toi};

use super::Failure;

/// An item under way.
#[derive(Clone, Debug)]
pub(super) struct Underway {
    pub(super) info: ItemInfo,
    pub(super) restored: u64,
    /// Digests of its blocks that have come so far, when they were asked for.
    pub(super) digests: Vec<Digest>,
}

/// Counts items from the first page to the last byte, over any number of sessions.
#[derive(Debug, Default)]
pub(super) struct Items {
    underway: BTreeMap<Toi, Underway>,
    /// What was settled in this run: the same item may be offered again on another session.
    settled: HashSet<(String, Digest)>,
    /// Bytes of what is settled or under way.
    pub(super) bytes: u64,
    pub(super) bytes_done: u64,
    pub(super) done: u64,
    pub(super) already_there: u64,
    pub(super) received_bytes: u64,
    /// Bytes that an earlier run had written of items that were not complete.
    pub(super) resumed_bytes: u64,
    pub(super) failures: Vec<Failure>,
    /// The last page has come.
    pub(super) complete_list: bool,
}

impl Items {
    /// Whether the item was settled before.
    pub(super) fn is_settled(&self, info: &ItemInfo) -> bool {
        self.settled.contains(&(info.name.clone(), info.digest))
    }

    /// Whether this version of the item is under way.
    pub(super) fn is_underway(&self, toi: Toi) -> bool {
        self.underway.contains_key(&toi)
    }

    pub(super) fn begin(&mut self, info: ItemInfo) {
        self.bytes += info.oti.object_len;
        self.underway.insert(info.toi, Underway { info, restored: 0, digests: Vec::new() });
    }

    pub(super) fn get_mut(&mut self, toi: Toi) -> Option<&mut Underway> {
        self.underway.get_mut(&toi)
    }

    pub(super) fn restored(&mut self, toi: Toi, restored: u64) {
        if let Some(item) = self.underway.get_mut(&toi) {
            self.bytes_done = self.bytes_done - item.restored + restored;
            item.restored = restored;
        }
    }

    pub(super) fn finish(&mut self, toi: Toi) {
        let Some(item) = self.underway.remove(&toi) else { return };
        self.bytes_done += item.info.oti.object_len - item.restored;
        self.received_bytes += item.info.oti.object_len;
        self.done += 1;
        self.settled.insert((item.info.name, item.info.digest));
    }

    pub(super) fn was_there(&mut self, info: &ItemInfo) {
        self.bytes += info.oti.object_len;
        self.bytes_done += info.oti.object_len;
        self.already_there += 1;
        self.settled.insert((info.name.clone(), info.digest));
    }

    /// An item under way cannot be had; gives its name.
    pub(super) fn fail(&mut self, toi: Toi, reason: &str) -> Option<String> {
        let item = self.underway.remove(&toi)?;
        self.bytes -= item.info.oti.object_len;
        self.bytes_done -= item.restored;
        self.refuse(&item.info, reason);
        Some(item.info.name)
    }

    /// An item was not even begun.
    pub(super) fn refuse(&mut self, info: &ItemInfo, reason: &str) {
        self.settled.insert((info.name.clone(), info.digest));
        self.failures.push(Failure { name: info.name.clone(), reason: reason.to_owned() });
    }

    /// The session is lost: what is under way will be offered again.
    pub(super) fn interrupted(&mut self) -> Vec<Toi> {
        self.complete_list = false;
        let underway = std::mem::take(&mut self.underway);
        for item in underway.values() {
            self.bytes -= item.info.oti.object_len;
            self.bytes_done -= item.restored;
        }
        underway.into_keys().collect()
    }

    /// Items known so far, and of these, those that are there.
    pub(super) fn counts(&self) -> (u64, u64) {
        let there = self.done + self.already_there;
        (there + self.underway.len() as u64 + self.failures.len() as u64, there)
    }

    /// Whether everything is settled.
    pub(super) fn all_settled(&self) -> bool {
        self.complete_list && self.underway.is_empty()
    }
}
