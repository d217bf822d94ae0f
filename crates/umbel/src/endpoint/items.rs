//! Items or files that a command receives, and their results.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use umbel_engine::units::counted;
use umbel_store::sink::{NameOutcome, NamedFile, Unkept};
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Digest, Toi};

/// An item or file that was not received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Name of the item.
    pub name: String,
    /// One line that says why.
    pub reason: String,
}

/// Returns lines that say what files could not keep, and which links were not made, if there is
/// anything.
pub(crate) fn unkept_lines(unkept: Unkept) -> Vec<String> {
    let Unkept { permissions, times, links, hard_links, links_out } = unkept;
    let of_files = [("permissions", permissions), ("times", times)].into_iter();
    let of_files = of_files.filter(|(_, files)| *files > 0);
    let mut parts: Vec<String> =
        of_files.map(|(what, files)| format!("{what} of {}", counted(files, "file"))).collect();
    if links > 0 {
        parts.push(counted(links, "symbolic link"));
    }
    if hard_links > 0 {
        parts.push(format!("{}, copied", counted(hard_links, "hard link")));
    }
    let unkept =
        (!parts.is_empty()).then(|| format!("not kept by the target: {}", parts.join(", ")));
    let out = (links_out > 0).then(|| {
        let links = counted(links_out, "symbolic link");
        format!(
            "not made, since it may lead out of the directory or to hidden files: {links}; --links \
             all makes them"
        )
    });
    unkept.into_iter().chain(out).collect()
}

/// Names that were in the last list of items.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed(Arc<Mutex<HashSet<String>>>);

impl Listed {
    pub(crate) fn names(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An item under way.
#[derive(Clone, Debug)]
pub(crate) struct Underway {
    pub(crate) info: ItemInfo,
    restored: u64,
    /// Digests of its blocks that have arrived so far, if they were asked for.
    pub(crate) digests: Vec<Digest>,
}

/// Counts items and bytes from the first list to the last verified file, over any number of
/// sessions.
#[derive(Debug, Default)]
pub(crate) struct Items {
    underway: BTreeMap<Toi, Underway>,
    /// Items settled in this run. The same item may be offered again on another session.
    settled: HashSet<(String, Digest)>,
    /// Number and bytes of all expected items, if known beforehand.
    expected: Option<(u64, u64)>,
    /// Bytes of items that are settled or under way.
    bytes: u64,
    pub(crate) bytes_done: u64,
    pub(crate) done: u64,
    pub(crate) already_there: u64,
    /// Bytes of items that were received in this run.
    pub(crate) received_bytes: u64,
    /// Bytes of incomplete items that an earlier run had written.
    pub(crate) resumed_bytes: u64,
    pub(crate) failures: Vec<Failure>,
    /// Items that are not as the source has them, where they are only looked at.
    pub(crate) differing: u64,
    /// Links that are not made.
    links_left: u64,
    /// Items that the server could not serve in the version that it had offered: why, and in which
    /// round of asking.
    gone: BTreeMap<String, (String, u32)>,
    /// Number of times that the server was asked again.
    pub(crate) round: u32,
    /// Items that the server had offered and does not have any more.
    pub(crate) vanished: Vec<String>,
    /// Whether the list of items is complete.
    pub(crate) complete_list: bool,
    /// Number of files of the source that it cannot send.
    pub(crate) left_out: u64,
    asked: Asked,
}

/// Names that the user asked for and the server has not offered.
#[derive(Debug, Default)]
pub(crate) struct Asked(BTreeSet<String>);

impl Asked {
    /// Collects the names among the patterns.
    pub(crate) fn new(patterns: &[String]) -> Asked {
        let names = patterns.iter().filter_map(|text| umbel_store::name_of(text));
        Asked(names.map(str::to_owned).collect())
    }

    /// Notes that the server offers an item of this name.
    pub(crate) fn offered(&mut self, name: &str) {
        if self.0.is_empty() {
            return;
        }
        // An item is offered by its own name, or by that of a directory that contains it.
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        for end in ends {
            self.0.remove(&name[..end]);
        }
    }

    /// Returns the names that the server does not have, once it has offered all items.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Failure> {
        let reason = "there is no such item on the server: see `umbel ls`";
        self.0.iter().map(|name| Failure { name: name.clone(), reason: reason.to_owned() })
    }
}

impl Items {
    /// Creates the counts for a request with these patterns.
    pub(crate) fn asked_for(patterns: &[String]) -> Items {
        Items { asked: Asked::new(patterns), ..Items::default() }
    }

    /// Notes an item on a page of the server.
    pub(crate) fn offered(&mut self, info: &ItemInfo) {
        self.asked.offered(&info.name);
        self.gone.remove(&info.name);
    }

    /// Notes that the server does not have this version of an item any more. Returns its name.
    pub(crate) fn withdraw(&mut self, toi: Toi, reason: &str) -> Option<String> {
        let item = self.underway.remove(&toi)?;
        self.bytes -= item.info.oti.object_len;
        self.bytes_done -= item.restored;
        self.gone.insert(item.info.name.clone(), (reason.to_owned(), self.round));
        Some(item.info.name)
    }

    /// Returns whether the server should be asked again for what was withdrawn.
    pub(crate) fn misses_versions(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Notes that the server is asked again.
    pub(crate) fn begin_again(&mut self) {
        self.complete_list = false;
        self.round += 1;
    }

    /// Notes that the list is complete. What was withdrawn before and is not in it has vanished.
    pub(crate) fn complete_list(&mut self) {
        self.complete_list = true;
        let (round, vanished) = (self.round, &mut self.vanished);
        self.gone.retain(|name, (_, since)| {
            let stays = *since == round;
            if !stays {
                vanished.push(name.clone());
            }
            stays
        });
    }

    /// Notes that what was withdrawn stays so.
    pub(crate) fn give_up_gone(&mut self) -> Vec<Failure> {
        let gone = std::mem::take(&mut self.gone).into_iter();
        let failures: Vec<Failure> =
            gone.map(|(name, (reason, _))| Failure { name, reason }).collect();
        self.failures.extend(failures.clone());
        failures
    }

    /// Returns the items that were not received, or not even offered.
    pub(crate) fn into_failures(self) -> Vec<Failure> {
        let missing = self.complete_list.then(|| self.asked.missing());
        let missing: Vec<Failure> = missing.into_iter().flatten().collect();
        [self.failures, missing].concat()
    }

    /// Sets all expected items.
    pub(crate) fn expect(&mut self, items: &[ItemInfo]) {
        let files = items.iter().filter(|item| item.kind.is_file());
        let bytes = files.map(|item| item.oti.object_len);
        let count = items.iter().filter(|item| !item.kind.is_directory()).count();
        self.expected = Some((count as u64, bytes.fold(0, u64::saturating_add)));
    }

    /// Returns whether the item was settled before.
    pub(crate) fn is_settled(&self, info: &ItemInfo) -> bool {
        self.settled.contains(&(info.name.clone(), info.digest))
    }

    /// Returns whether this version of the item is under way.
    pub(crate) fn is_underway(&self, toi: Toi) -> bool {
        self.underway.contains_key(&toi)
    }

    /// Notes that the reception of an item begins.
    pub(crate) fn begin(&mut self, info: ItemInfo) {
        self.bytes += info.oti.object_len;
        self.underway.insert(info.toi, Underway { info, restored: 0, digests: Vec::new() });
    }

    pub(crate) fn get_mut(&mut self, toi: Toi) -> Option<&mut Underway> {
        self.underway.get_mut(&toi)
    }

    /// Sets the number of restored bytes of an item.
    pub(crate) fn restored(&mut self, toi: Toi, restored: u64) {
        if let Some(item) = self.underway.get_mut(&toi) {
            self.bytes_done = self.bytes_done - item.restored + restored;
            item.restored = restored;
        }
    }

    /// Notes that an item is verified and in its place.
    pub(crate) fn finish(&mut self, toi: Toi) {
        let Some(item) = self.underway.remove(&toi) else { return };
        self.bytes_done += item.info.oti.object_len - item.restored;
        self.received_bytes += item.info.oti.object_len;
        self.done += 1;
        self.settled.insert((item.info.name, item.info.digest));
    }

    /// Notes that an item was already present.
    pub(crate) fn was_there(&mut self, info: &ItemInfo) {
        self.bytes += info.oti.object_len;
        self.bytes_done += info.oti.object_len;
        self.already_there += 1;
        self.settled.insert((info.name.clone(), info.digest));
    }

    /// Notes that a link was made.
    pub(crate) fn made(&mut self, info: &ItemInfo) {
        self.done += 1;
        self.settled.insert((info.name.clone(), info.digest));
    }

    /// Notes that a link is not made, which is no failure.
    pub(crate) fn leave_out(&mut self, info: &ItemInfo) {
        self.links_left += 1;
        self.settled.insert((info.name.clone(), info.digest));
    }

    /// Notes that an item is not as the source has it, which is only looked at.
    pub(crate) fn differs(&mut self, info: &ItemInfo) {
        self.differing += 1;
        self.settled.insert((info.name.clone(), info.digest));
    }

    /// Notes what became of another name of a file.
    pub(crate) fn named(&mut self, NamedFile { name, result }: &NamedFile) {
        match result {
            Ok(NameOutcome::WasThere) => self.already_there += 1,
            Ok(NameOutcome::Made(_)) => self.done += 1,
            Err(error) => {
                self.failures.push(Failure { name: name.clone(), reason: error.to_string() });
            }
        }
    }

    /// Notes that an item under way was brought to its place by somebody else. Returns its name.
    pub(crate) fn appeared(&mut self, toi: Toi) -> Option<String> {
        let item = self.underway.remove(&toi)?;
        self.bytes_done += item.info.oti.object_len - item.restored;
        self.already_there += 1;
        self.settled.insert((item.info.name.clone(), item.info.digest));
        Some(item.info.name)
    }

    /// Notes that an item under way has failed permanently. Returns its name.
    pub(crate) fn fail(&mut self, toi: Toi, reason: &str) -> Option<String> {
        let item = self.underway.remove(&toi)?;
        self.bytes -= item.info.oti.object_len;
        self.bytes_done -= item.restored;
        self.refuse(&item.info, reason);
        Some(item.info.name)
    }

    /// Notes that an item failed before it was begun.
    pub(crate) fn refuse(&mut self, info: &ItemInfo, reason: &str) {
        self.settled.insert((info.name.clone(), info.digest));
        self.failures.push(Failure { name: info.name.clone(), reason: reason.to_owned() });
    }

    /// Notes that the session is lost. Items under way will be offered again.
    pub(crate) fn interrupted(&mut self) -> Vec<Toi> {
        self.complete_list = false;
        let underway = std::mem::take(&mut self.underway);
        for item in underway.values() {
            self.bytes -= item.info.oti.object_len;
            self.bytes_done -= item.restored;
        }
        underway.into_keys().collect()
    }

    /// Returns the number of known items, and of those that are complete.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let there = self.done + self.already_there;
        let known = there + self.underway.len() as u64 + self.failures.len() as u64;
        let known = self.expected.map_or(known + self.links_left, |(items, _)| items);
        (known, there + self.links_left)
    }

    /// Returns the bytes of the items known so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.expected.map_or(self.bytes, |(_, bytes)| bytes)
    }

    /// Returns whether everything is settled.
    pub(crate) fn all_settled(&self) -> bool {
        self.complete_list && self.underway.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::repository::ItemKind;

    use super::*;

    #[test]
    fn what_a_target_cannot_keep_is_one_line() {
        assert_eq!(unkept_lines(Unkept::default()), [""; 0]);
        let some = Unkept { permissions: 3, times: 1, ..Unkept::default() };
        let line = "not kept by the target: permissions of 3 files, times of 1 file";
        assert_eq!(unkept_lines(some), [line]);
        let links = Unkept { links: 1, hard_links: 2, links_out: 3, ..Unkept::default() };
        let kept = "not kept by the target: 1 symbolic link, 2 hard links, copied";
        let out = "not made, since it may lead out of the directory or to hidden files: 3 symbolic \
                   links; --links all makes them";
        assert_eq!(unkept_lines(links), [kept, out]);
    }

    #[test]
    fn what_is_withdrawn_is_there_again_or_vanished_or_given_up() {
        let info = |toi, name: &str| ItemInfo {
            toi: Toi(toi),
            name: name.to_owned(),
            digest: Digest([toi as u8; 32]),
            modified_ns: None,
            mode: None,
            kind: ItemKind::File,
            holes: None,
            media_type: String::new(),
            oti: umbel_wire::Oti {
                scheme: umbel_wire::Scheme::NoCode,
                object_len: 10,
                symbol_len: 5,
                max_block_symbols: 2,
                max_encoding_symbols: 2,
            },
        };
        let mut items = Items::default();
        let offer = |items: &mut Items, toi, name| {
            items.offered(&info(toi, name));
            items.begin(info(toi, name));
        };
        for (toi, name) in [(1, "a"), (2, "b"), (3, "c")] {
            offer(&mut items, toi, name);
        }
        items.complete_list();
        for toi in 1..=3 {
            items.withdraw(Toi(toi), "it changed");
        }
        assert!(items.all_settled() && items.misses_versions() && items.failures.is_empty());
        items.begin_again();
        assert!(!items.all_settled());
        offer(&mut items, 4, "a");
        offer(&mut items, 5, "c");
        items.withdraw(Toi(5), "it changed again");
        items.complete_list();
        items.finish(Toi(4));
        assert_eq!((items.done, &items.vanished[..]), (1, &["b".to_owned()][..]));
        assert!(items.all_settled() && items.misses_versions());
        let failures = items.give_up_gone();
        assert_eq!((&failures[0].name[..], &failures[0].reason[..]), ("c", "it changed again"));
        assert!(!items.misses_versions() && items.bytes() == items.bytes_done);
    }

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
