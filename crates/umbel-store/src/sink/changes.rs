//! What a run changes in the output directory, for users who want to see each change; and what it
//! would change, for those who only look.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Mutex, PoisonError};

use umbel_wire::Digest;
use umbel_wire::repository::{ItemInfo, ItemKind, LinkText};

use super::attributes::{self, Attributes};
use super::brought::Version;
use super::errors::SinkError;
use super::held::Held;
use super::item::{Prepared, Shelf};
use super::names::RelativePath;
use super::tree::{FileId, Place, Role, is_directory};

/// How an item differs from what is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing is there.
    New,
    /// Something else is there, or another content.
    Replaced,
    /// Only its permissions or times differ, or which files are one.
    Attributes,
}

impl Change {
    /// Returns how an item that is not as it should be is described.
    pub fn describe(self) -> &'static str {
        match self {
            Change::New => "it is missing",
            Change::Replaced => "it differs",
            Change::Attributes => "its permissions or time differ, or it is another file's copy",
        }
    }
}

/// What a run is to do with the differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// To bring the items.
    #[default]
    Bring,
    /// To bring the items, and tell each change.
    BringAndTell,
    /// Only to find the differences. Nothing is written.
    Look,
}

/// The changes, by the paths of the items below the output directory.
#[derive(Debug, Default)]
pub(super) struct Changes(Mutex<BTreeMap<String, Change>>);

impl Changes {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Change>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self) -> Vec<(String, Change)> {
        self.lock().iter().map(|(path, change)| (path.clone(), *change)).collect()
    }
}

impl Shelf {
    /// Notes a change if the user wants to be told.
    pub(super) fn note_change(&self, path: &RelativePath, change: Change) {
        if self.purpose != Purpose::Bring {
            self.changes.lock().entry(path.joined()).or_insert(change);
        }
    }

    /// Notes that an item is brought: what is there now, if anything, is replaced.
    pub(super) fn note_arrival(&self, place: &Place) {
        if self.purpose == Purpose::BringAndTell {
            let there = self.tree.stat(place, Role::Target).ok().flatten();
            let change = if there.is_some() { Change::Replaced } else { Change::New };
            self.note_change(&place.relative, change);
        }
    }

    /// Notes that a file or directory that is there has other attributes, if it has.
    pub(super) fn note_attributes(&self, path: &RelativePath, wanted: Attributes, file: &File) {
        if self.purpose == Purpose::BringAndTell && !attributes::fit(wanted, file, self.allowed) {
            self.note_change(path, Change::Attributes);
        }
    }

    /// Compares an item with what is there, and changes nothing.
    pub(super) fn look(&self, info: &ItemInfo) -> Result<Prepared, SinkError> {
        let relative = match info.kind {
            ItemKind::Directory => self.names().place_directory(&info.name)?,
            _ => self.names().place(&info.name)?,
        };
        let place = Place::new(self.tree.path(), relative, info.mode);
        if !self.hidden && place.relative.is_hidden() {
            return Err(SinkError::Hidden { path: place.target });
        }
        let as_is = |held| Ok(Prepared { item: None, replay: None, held });
        let change = match &info.kind {
            ItemKind::Link(text) if !self.makes_link(&place, text) => {
                self.count_left_out();
                let there = self.tree.stat(&place, Role::Target)?;
                if there.is_none() || self.tree.read_link(&place)?.as_deref() == Some(text.as_str())
                {
                    return as_is(Held::LeftOut);
                }
                // Something else is there, which a run leaves.
                Some(Change::Replaced)
            }
            ItemKind::Link(text) => self.look_at_link(info, &place, text)?,
            ItemKind::Directory => self.look_at_directory(info, &place)?,
            ItemKind::HardLink(first) => self.look_at_name(info, &place, first)?,
            ItemKind::File => self.look_at_file(info, &place)?,
        };
        match change {
            None if info.kind.is_directory() => as_is(Held::Directory),
            None => as_is(Held::AlreadyThere),
            Some(change) => {
                self.note_change(&place.relative, change);
                Err(SinkError::Differs { path: place.target, change })
            }
        }
    }

    fn look_at_file(&self, info: &ItemInfo, place: &Place) -> Result<Option<Change>, SinkError> {
        if info.digest == Digest([0; 32]) {
            return Err(SinkError::NoDigest { name: info.name.clone() });
        }
        let Some(stat) = self.tree.stat(place, Role::Target)? else {
            return Ok(Some(Change::New));
        };
        let version = Version { digest: info.digest, len: info.oti.object_len };
        let Some(file) = Shelf::whole(&self.tree, place, &stat, version)? else {
            return Ok(Some(Change::Replaced));
        };
        Ok(self.other_attributes(info, &file))
    }

    fn look_at_name(
        &self,
        info: &ItemInfo,
        place: &Place,
        first: &str,
    ) -> Result<Option<Change>, SinkError> {
        let first = Place::new(self.tree.path(), RelativePath::of_item(first)?, None);
        let [there, first] = [place, &first].map(|place| self.tree.stat(place, Role::Target));
        match (there?, first?) {
            (Some(there), Some(first)) if FileId::from(&there) == FileId::from(&first) => Ok(None),
            _ => {
                let change = self.look_at_file(info, place)?;
                Ok(Some(change.unwrap_or(Change::Attributes)))
            }
        }
    }

    fn look_at_link(
        &self,
        info: &ItemInfo,
        place: &Place,
        text: &LinkText,
    ) -> Result<Option<Change>, SinkError> {
        let Some(stat) = self.tree.stat(place, Role::Target)? else {
            return Ok(Some(Change::New));
        };
        if self.tree.read_link(place)?.as_deref() != Some(text.as_str()) {
            return Ok(Some(Change::Replaced));
        }
        let modified_ns = info.modified_ns.filter(|_| self.preserve_times);
        let has = stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec);
        let fits = |wanted| attributes::is_kept(has, wanted);
        Ok(modified_ns.filter(|wanted| !fits(*wanted)).map(|_| Change::Attributes))
    }

    fn look_at_directory(
        &self,
        info: &ItemInfo,
        place: &Place,
    ) -> Result<Option<Change>, SinkError> {
        match self.tree.stat(place, Role::Target)? {
            None => return Ok(Some(Change::New)),
            Some(stat) if !is_directory(&stat) => return Ok(Some(Change::Replaced)),
            Some(_) => {}
        }
        let directory = self.directory(place.relative.parts(), false)?;
        Ok(directory.and_then(|directory| self.other_attributes(info, &directory)))
    }

    fn other_attributes(&self, info: &ItemInfo, file: &File) -> Option<Change> {
        let wanted = Attributes::of(info, self.preserve_times);
        let fits = attributes::fit(wanted, file, self.allowed);
        (!fits).then_some(Change::Attributes)
    }
}
