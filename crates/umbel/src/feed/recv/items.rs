//! The files of a feed and what has become of them.

use std::collections::BTreeMap;

use umbel_wire::Toi;
use umbel_wire::repository::ItemInfo;

use crate::get::Failure;

/// Counts files and bytes from the list to the last verified file.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// Those under way, with the bytes of each that are restored.
    underway: BTreeMap<Toi, (ItemInfo, u64)>,
    /// The list was read and the disk looked at.
    pub(super) known: bool,
    pub(super) count: u64,
    pub(super) done: u64,
    pub(super) already_there: u64,
    pub(super) bytes: u64,
    pub(super) bytes_done: u64,
    /// Of those received in this run.
    pub(super) received_bytes: u64,
    pub(super) resumed_bytes: u64,
    pub(super) failures: Vec<Failure>,
}

impl Items {
    /// The list is here.
    pub(super) fn list(&mut self, items: &[ItemInfo]) {
        self.count = items.len() as u64;
        self.bytes = items.iter().map(|item| item.oti.object_len).sum();
    }

    /// A file is received, of which so many bytes are held.
    pub(super) fn begin(&mut self, info: ItemInfo, held: u64) {
        self.resumed_bytes += held;
        self.underway.insert(info.toi, (info, 0));
    }

    /// A file is there.
    pub(super) fn was_there(&mut self, info: &ItemInfo) {
        self.already_there += 1;
        self.bytes_done += info.oti.object_len;
    }

    /// Whether the file is under way.
    pub(super) fn is_underway(&self, toi: Toi) -> bool {
        self.underway.contains_key(&toi)
    }

    /// So many bytes of a file are restored.
    pub(super) fn restored(&mut self, toi: Toi, bytes: u64) {
        if let Some((_, restored)) = self.underway.get_mut(&toi) {
            self.bytes_done = self.bytes_done + bytes - *restored;
            *restored = bytes;
        }
    }

    /// A file is verified and in its place.
    pub(super) fn finish(&mut self, toi: Toi) {
        let Some((info, restored)) = self.underway.remove(&toi) else { return };
        self.bytes_done += info.oti.object_len - restored;
        self.received_bytes += info.oti.object_len;
        self.done += 1;
    }

    /// A file cannot be had; gives its name, if it was under way.
    pub(super) fn fail(&mut self, toi: Toi, reason: &str) -> Option<String> {
        let (info, restored) = self.underway.remove(&toi)?;
        self.bytes_done -= restored;
        self.refuse(&info.name, reason);
        Some(info.name)
    }

    /// A file was not even begun.
    pub(super) fn refuse(&mut self, name: &str, reason: &str) {
        self.failures.push(Failure { name: name.to_owned(), reason: reason.to_owned() });
    }

    /// Whether nothing is under way any more.
    pub(super) fn all_settled(&self) -> bool {
        self.known && self.underway.is_empty()
    }
}
