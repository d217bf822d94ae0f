//! Directories that are items: they are made when they are named, and get their permissions and
//! times when everything below them is there, which would change the times again.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, PoisonError};

use umbel_wire::repository::ItemInfo;

use super::attributes::{self, Attributes};
use super::changes::{Change, Purpose};
use super::errors::SinkError;
use super::held::Held;
use super::item::Shelf;
use super::tree::{Place, Role, is_directory};

/// Permissions without which a directory's owner cannot write below it.
const NEEDED: u32 = 0o700;

/// The directories that are items, and what they get at the end.
#[derive(Debug, Default)]
pub(super) struct Directories(Mutex<BTreeMap<Vec<String>, Attributes>>);

impl Shelf {
    /// Makes the directory if it is not there, and notes what it gets at the end.
    pub(super) fn prepare_directory(&self, info: &ItemInfo) -> Result<Held, SinkError> {
        let relative = self.names().place_directory(&info.name)?;
        if !self.hidden && relative.is_hidden() {
            return Err(SinkError::Hidden { path: self.tree.path().join(relative.joined()) });
        }
        let place = Place::new(self.tree.path(), relative.clone(), info.mode);
        self.make_way(&place)?;
        let attributes = Attributes::of(info, self.preserve_times);
        if self.purpose == Purpose::BringAndTell {
            match self.directory(relative.parts(), false)? {
                Some(directory) => self.note_attributes(&relative, attributes, &directory),
                None => self.note_change(&relative, Change::New),
            }
        }
        if let Some(directory) = self.directory(relative.parts(), true)? {
            // What fails here fails below it, and is said there.
            let _ = open_up(&directory);
        }
        self.directories.lock().insert(relative.parts().to_vec(), attributes);
        Ok(Held::Directory)
    }

    /// Removes the file or link that is in the place of a directory, if it may be replaced.
    fn make_way(&self, place: &Place) -> Result<(), SinkError> {
        let Some(stat) = self.tree.stat(place, Role::Target)? else { return Ok(()) };
        if !is_directory(&stat) && (self.may_replace(place) || self.is_left(place, &stat)?) {
            self.note_change(&place.relative, Change::Replaced);
            self.tree.remove(place, Role::Target)?;
        }
        Ok(())
    }

    /// Gives the directories their permissions and times, those below others first.
    pub(super) fn set_directories(&self) {
        let all = std::mem::take(&mut *self.directories.lock());
        for (parts, attributes) in all.into_iter().rev() {
            if let Ok(Some(directory)) = self.directory(&parts, false) {
                attributes::set(attributes, &directory, self.allowed, &self.unkept);
            }
        }
        if self.durable {
            self.tree.sync_new_directories();
        }
    }

    pub(super) fn directory(
        &self,
        parts: &[String],
        create: bool,
    ) -> Result<Option<File>, SinkError> {
        let Some(directory) = self.tree.directory_at(parts, create)? else { return Ok(None) };
        let path = || self.tree.path().join(parts.join("/"));
        let own = directory.try_clone().map_err(|error| SinkError::io("open", &path())(error))?;
        Ok(Some(own.into()))
    }
}

/// Lets the owner write below a directory that has its final permissions from an earlier run.
fn open_up(directory: &File) -> std::io::Result<()> {
    let mode = directory.metadata()?.permissions().mode() & 0o7777;
    match mode & NEEDED {
        NEEDED => Ok(()),
        _ => directory.set_permissions(Permissions::from_mode(mode | NEEDED)),
    }
}

impl Directories {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Vec<String>, Attributes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
