//! The transition from one state of the catalog to the next, which keeps objects that have not
//! changed.

use std::collections::HashMap;
use std::sync::Arc;

use umbel_wire::repository::{ItemKind, limits};
use umbel_wire::{Oti, Toi};

use super::{Changes, Item};
use crate::OpenError;
use crate::origin::{Found, Place, SkipReason, Skipped};
use crate::sink::{NameError, RelativePath};
use crate::version::{FileNumber, FileVersion};

/// The transition from one snapshot to the next, both sorted by name.
pub(super) struct Update<'a> {
    pub(super) next_toi: u32,
    old: std::iter::Peekable<std::slice::Iter<'a, Arc<Item>>>,
    pub(super) items: Vec<Arc<Item>>,
    pub(super) fresh: Vec<Arc<Item>>,
    pub(super) changes: Changes,
    /// First names of files that have several, with the versions found there.
    first_names: FirstNames,
}

type FirstNames = HashMap<FileNumber, (String, FileVersion)>;

/// Returns what identifies a file that has several names.
fn of_several_names(found: &Found) -> Option<(FileNumber, FileVersion)> {
    let Place::File(version) = found.place else { return None };
    let number = version.of_several_names().filter(|_| check_name(&found.name).is_ok())?;
    Some((number, version))
}

/// Returns the first names of files that have several: those that are not hidden come first, since
/// clients may refuse the others.
fn first_names(items: &[Found]) -> FirstNames {
    let mut first_names = FirstNames::new();
    let is_hidden = |name: &str| name.starts_with('.');
    for found in items {
        let Some((number, version)) = of_several_names(found) else { continue };
        let is_better = |first: &str| is_hidden(first) && !is_hidden(&found.name);
        if first_names.get(&number).is_none_or(|(first, _)| is_better(first)) {
            first_names.insert(number, (found.name.clone(), version));
        }
    }
    first_names
}

impl<'a> Update<'a> {
    /// Begins a transition to these items, which are added then.
    pub(super) fn new(next_toi: u32, old: &'a [Arc<Item>], items: &[Found]) -> Update<'a> {
        Update {
            next_toi,
            old: old.iter().peekable(),
            items: Vec::with_capacity(items.len()),
            fresh: Vec::new(),
            changes: Changes::default(),
            first_names: first_names(items),
        }
    }

    /// Returns the item of which this is another name.
    fn first_name(&self, found: &Found) -> Option<String> {
        let (number, version) = of_several_names(found)?;
        let (first, there) = self.first_names.get(&number)?;
        (*first != found.name && there.is_same_content(&version)).then(|| first.clone())
    }

    pub(super) fn add(
        &mut self,
        mut found: Found,
        oti: Oti,
        skipped: &mut Skipped,
    ) -> Result<(), OpenError> {
        if let Some(first) = self.first_name(&found) {
            found.kind = ItemKind::HardLink(first);
        }
        while let Some(old) = self.old.next_if(|old| old.found.name < found.name) {
            self.changes.removed.push(old.toi);
        }
        let old = self.old.next_if(|old| old.found.name == found.name);
        if let Some(old) = old
            && old.found.is_same_version(&found)
        {
            let old = Arc::clone(old);
            let is_renewed = !old.found.has_attributes_of(&found);
            self.items.push(if is_renewed { renew(&old, found) } else { old });
            if is_renewed {
                self.fresh.extend(self.items.last().cloned());
            }
            return Ok(());
        }
        if let Err(error) = check_name(&found.name) {
            skipped.add(found.name, SkipReason::Name(error));
            return Ok(());
        }
        let toi = Toi(self.next_toi);
        if toi == Toi::PROBE {
            return Err(OpenError::Exhausted);
        }
        self.next_toi += 1;
        match old {
            Some(old) => self.changes.replaced.push((old.toi, toi)),
            None => self.changes.added.push(toi),
        }
        let item = Arc::new(Item::new(toi, oti, found));
        self.fresh.push(Arc::clone(&item));
        self.items.push(item);
        Ok(())
    }

    pub(super) fn finish(&mut self) {
        self.changes.removed.extend(self.old.by_ref().map(|old| old.toi));
    }
}

/// Returns the same version of an item with other attributes, such as a directory in which a file
/// was made.
fn renew(old: &Item, found: Found) -> Arc<Item> {
    let item = Item::new(old.toi, old.oti, found);
    if let Some(digest) = old.known_digest() {
        item.digest.get_or_init(|| digest);
    }
    Arc::new(item)
}

/// Refuses a name that clients would refuse.
fn check_name(name: &str) -> Result<(), NameError> {
    match name.len() {
        len if len > limits::NAME_LEN => {
            Err(NameError::TooLong { name: name.to_owned(), len, max: limits::NAME_LEN })
        }
        _ => RelativePath::of_item(name).map(drop),
    }
}
