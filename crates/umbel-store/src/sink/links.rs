//! Links. Symbolic ones are made when they are named; other names of files (hard links) when all
//! files are there.
//!
//! Nothing is ever written through a symbolic link: directories are opened one by one without
//! following any ([`Tree`](super::tree::Tree)), and no item has a name below that of a link. Others
//! may follow the links afterwards, so those that lead out of the output directory are made only if
//! the user says so.
//!
//! A file gets another name only from an item that this run has verified in the same output
//! directory.

use std::collections::BTreeMap;
use std::io::{self, Seek};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::stat::FileStat;
use umbel_wire::Digest;
use umbel_wire::repository::{ItemInfo, LinkText};

use super::attributes::{self, Attributes};
use super::brought::{Bringer, Version};
use super::changes::Change;
use super::errors::SinkError;
use super::held::Held;
use super::item::Shelf;
use super::names::RelativePath;
use super::tree::{FileId, Place, Role, is_directory, is_link, is_regular};

/// Which symbolic links are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// Those that stay in the output directory, as their texts say, and do not lead to hidden files
    /// at its top, unless items may be such files.
    #[default]
    Inside,
    /// All, wherever they lead.
    All,
    /// None.
    None,
}

impl FromStr for Links {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Links, &'static str> {
        match text {
            "inside" => Ok(Links::Inside),
            "all" => Ok(Links::All),
            "none" => Ok(Links::None),
            _ => Err("it is `inside`, `all` or `none`"),
        }
    }
}

impl Links {
    fn allow(self, link: &RelativePath, text: &LinkText, hidden: bool) -> bool {
        match self {
            Links::Inside => !leads_out(link, text, hidden),
            Links::All => true,
            Links::None => false,
        }
    }
}

/// Returns whether a link may lead out of the output directory, as its text says: it is absolute,
/// steps above the directory, or steps up after a part that may be a link itself, from where up may
/// be anywhere. So may one that leads to a hidden file at the top, unless items may be `hidden`.
fn leads_out(link: &RelativePath, text: &LinkText, hidden: bool) -> bool {
    if text.as_str().starts_with('/') {
        return true;
    }
    let mut depth = link.split().0.len();
    let mut has_gone_down = false;
    for part in text.as_str().split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 || has_gone_down => return true,
            ".." => depth -= 1,
            hides if depth == 0 && !hidden && hides.starts_with('.') => return true,
            _ => {
                depth += 1;
                has_gone_down = true;
            }
        }
    }
    false
}

/// Another name of a file, which it gets at the end.
#[derive(Debug)]
struct OtherName {
    place: Place,
    /// Path of the file's first name.
    first: RelativePath,
    version: Version,
    attributes: Attributes,
}

/// The other names of files, by the names of their items.
#[derive(Debug, Default)]
pub(super) struct OtherNames(Mutex<BTreeMap<String, OtherName>>);

impl OtherNames {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OtherName>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets them.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }
}

/// What became of another name of a file.
#[derive(Clone, Debug)]
pub struct NamedFile {
    /// Name of the item.
    pub name: String,
    /// Path of the file; or why it has not got this name.
    pub result: Result<NameOutcome, SinkError>,
}

/// A name that a file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameOutcome {
    /// It had it before.
    WasThere,
    /// It has it now, at this path.
    Made(PathBuf),
}

impl Shelf {
    /// Makes a symbolic link, unless it is there.
    pub(super) fn prepare_link(&self, info: &ItemInfo, text: &LinkText) -> Result<Held, SinkError> {
        let place = self.link_place(info)?;
        let held = self.bring_link(info, &place, text);
        if held.is_err() {
            self.names().release(&info.name, &place.relative);
        }
        held
    }

    /// Returns whether a link with this text is made there.
    pub(super) fn makes_link(&self, place: &Place, text: &LinkText) -> bool {
        self.links.allow(&place.relative, text, self.hidden)
    }

    /// Counts a link that is not made, unless the user wants none.
    pub(super) fn count_left_out(&self) {
        if self.links == Links::Inside {
            self.unkept.links_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn link_place(&self, info: &ItemInfo) -> Result<Place, SinkError> {
        let relative = self.names().place(&info.name)?;
        let place = Place::new(self.tree.path(), relative, info.mode);
        if !self.hidden && place.relative.is_hidden() {
            self.names().release(&info.name, &place.relative);
            return Err(SinkError::Hidden { path: place.target });
        }
        Ok(place)
    }

    fn bring_link(
        &self,
        info: &ItemInfo,
        place: &Place,
        text: &LinkText,
    ) -> Result<Held, SinkError> {
        if !self.makes_link(place, text) {
            self.count_left_out();
            return Ok(Held::LeftOut);
        }
        let path = place.relative.joined();
        let version = version_of(text.as_str());
        let mut replace = false;
        if let Some(stat) = self.tree.stat(place, Role::Target)? {
            if is_link(&stat) && self.has_version(place, &stat, version)? {
                self.set_time(info, place, Role::Target);
                self.brought().note_whole(path, version);
                return Ok(Held::AlreadyThere);
            }
            self.check_replaceable(place, &stat)?;
            replace = true;
        }
        if !self.tree.make_link(place, text.as_str())? {
            self.unkept.links.fetch_add(1, Ordering::Relaxed);
            return Ok(Held::LeftOut);
        }
        self.set_time(info, place, Role::Link);
        self.put_link(place, replace)?;
        self.brought().put(path, version);
        self.note_change(&place.relative, if replace { Change::Replaced } else { Change::New });
        Ok(Held::Link(place.target.clone()))
    }

    /// Gives a symbolic link the time of its item.
    fn set_time(&self, info: &ItemInfo, place: &Place, role: Role) {
        let Some(modified_ns) = info.modified_ns.filter(|_| self.preserve_times) else { return };
        match self.tree.set_time(place, role, modified_ns) {
            Ok(true) if role == Role::Target => {
                self.note_change(&place.relative, Change::Attributes);
            }
            Ok(_) => {}
            Err(_) => {
                self.unkept.times.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Gives a new link its name.
    fn put_link(&self, place: &Place, replace: bool) -> Result<(), SinkError> {
        let renamed = self.tree.rename(place, Role::Link, Role::Target, replace);
        // Something is left if it could not be renamed, and if both were names of one file.
        if replace || renamed.is_err() {
            self.tree.remove(place, Role::Link)?;
        }
        renamed?;
        match self.tree.id(place, Role::Part)? {
            Some(_) => self.tree.discard(place),
            None => Ok(()),
        }
    }

    /// Refuses to replace what is at the target, unless it may be.
    fn check_replaceable(&self, place: &Place, stat: &FileStat) -> Result<(), SinkError> {
        if is_directory(stat) {
            return Err(SinkError::IsDirectory { path: place.target.clone() });
        }
        if self.may_replace(place) || self.is_left(place, stat)? {
            return Ok(());
        }
        Err(SinkError::Exists { path: place.target.clone() })
    }

    /// Returns whether an earlier run of this source has left the target as it is.
    pub(super) fn is_left(&self, place: &Place, stat: &FileStat) -> Result<bool, SinkError> {
        let bringer = self.brought().bringer(&place.relative.joined());
        match bringer {
            Some(Bringer::Earlier(version)) => self.has_version(place, stat, version),
            _ => Ok(false),
        }
    }

    /// Returns whether the target, which has this metadata, has this version.
    fn has_version(
        &self,
        place: &Place,
        stat: &FileStat,
        version: Version,
    ) -> Result<bool, SinkError> {
        if is_link(stat) {
            let text = self.tree.read_link(place)?;
            return Ok(text.is_some_and(|text| version_of(&text) == version));
        }
        Ok(Shelf::whole(&self.tree, place, stat, version)?.is_some())
    }

    /// Notes another name of a file.
    pub(super) fn prepare_other_name(
        &self,
        info: &ItemInfo,
        first: &str,
    ) -> Result<Held, SinkError> {
        let first = RelativePath::of_item(first)?;
        let other = OtherName {
            place: self.link_place(info)?,
            first,
            version: Version { digest: info.digest, len: info.oti.object_len },
            attributes: Attributes::of(info, self.preserve_times),
        };
        self.other_names.lock().insert(info.name.clone(), other);
        Ok(Held::OtherName)
    }

    /// Gives files their other names. To be called when all files are there that will be.
    pub(super) fn name_files(&self) -> Vec<NamedFile> {
        let others = std::mem::take(&mut *self.other_names.lock());
        let named = others.into_iter().map(|(name, other)| {
            let result = self.name_file(&name, &other);
            NamedFile { name, result }
        });
        named.collect()
    }

    fn name_file(&self, name: &str, other: &OtherName) -> Result<NameOutcome, SinkError> {
        let OtherName { place, first, version, .. } = other;
        let first = Place::new(self.tree.path(), first.clone(), None);
        let missing = || {
            let (name, first_name) = (name.to_owned(), first.relative.joined());
            if !self.hidden && first.relative.is_hidden() {
                return SinkError::HiddenFirstName { name, first: first_name };
            }
            SinkError::NoFirstName { name, first: first_name }
        };
        let bringer = self.brought().bringer(&first.relative.joined());
        let stat = match bringer {
            Some(Bringer::ThisRun(Some(there))) if there == *version => {
                self.tree.stat(&first, Role::Target)?.filter(is_regular).ok_or_else(missing)?
            }
            _ => return Err(missing()),
        };
        let path = place.relative.joined();
        let (mut replace, mut copy) = (false, None);
        if let Some(there) = self.tree.stat(place, Role::Target)? {
            if FileId::from(&there) == FileId::from(&stat) {
                self.brought().note_whole(path, *version);
                return Ok(NameOutcome::WasThere);
            }
            // A copy can become another name without loss.
            copy = Shelf::whole(&self.tree, place, &there, *version)?;
            if copy.is_none() {
                self.check_replaceable(place, &there)?;
            }
            replace = true;
        }
        if self.tree.link_beside(&first, place)? {
            self.put_link(place, replace)?;
        } else {
            self.unkept.hard_links.fetch_add(1, Ordering::Relaxed);
            if let Some(copy) = copy {
                self.note_attributes(&place.relative, other.attributes, &copy);
                attributes::set(other.attributes, &copy, self.allowed, &self.unkept);
                self.brought().note_whole(path, *version);
                return Ok(NameOutcome::WasThere);
            }
            self.copy(&first, other, replace)?;
        }
        self.brought().put(path, *version);
        self.note_change(&place.relative, if replace { Change::Replaced } else { Change::New });
        Ok(NameOutcome::Made(place.target.clone()))
    }

    /// Copies a file, where it cannot have another name.
    fn copy(&self, first: &Place, other: &OtherName, replace: bool) -> Result<(), SinkError> {
        self.find_room(&other.place, other.version.len)?;
        let copied = self.try_copy(first, other, replace);
        if copied.is_err() {
            // What there is of it only takes room.
            let _ = self.tree.discard(&other.place);
        }
        copied
    }

    fn try_copy(&self, first: &Place, other: &OtherName, replace: bool) -> Result<(), SinkError> {
        let place = &other.place;
        let fail = |error: io::Error| SinkError::io("copy", &place.target)(error);
        let from = self.tree.open_to_read(first, Role::Target)?;
        let from = from.ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?;
        self.tree.discard(place)?;
        let part = self.tree.open_part(place)?;
        (&from).rewind().and_then(|()| io::copy(&mut &from, &mut &part)).map_err(fail)?;
        attributes::set(other.attributes, &part, self.allowed, &self.unkept);
        if self.durable {
            part.sync_data().map_err(fail)?;
        }
        self.tree.rename(place, Role::Part, Role::Target, replace)
    }
}

/// Returns the version of a link with this text.
fn version_of(text: &str) -> Version {
    let digest = Digest(*blake3::hash(text.as_bytes()).as_bytes());
    Version { digest, len: text.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_out_if_it_is_absolute_or_steps_above_the_directory_or_up_after_a_name() {
        let out = |link: &str, text: &str| {
            let (link, text) = (RelativePath::of_item(link), LinkText::new(text));
            let (link, text) = (link.unwrap(), text.unwrap());
            let outs = [true, false].map(|hidden| leads_out(&link, &text, hidden));
            assert!(!outs[0] || outs[1]);
            outs[1]
        };
        for (link, text) in [
            ("a", "b"),
            ("a", "b/c/./d"),
            ("a", "."),
            ("d/a", ".."),
            ("d/a", "../b"),
            ("d/e/a", "../../b//c"),
            ("a", "a"),
            ("d/a", "..."),
            ("d/a", ".git/config"),
        ] {
            assert!(!out(link, text), "{link} -> {text}");
        }
        for (link, text) in [
            ("a", "/etc/passwd"),
            ("a", "/"),
            ("a", ".."),
            ("a", "../b"),
            ("d/a", "../.."),
            ("d/a", "./../../d/b"),
            // `b` may be a link to a directory above.
            ("d/e/a", "b/.."),
            ("d/a", "../e/../../x"),
            ("a", ".ssh/id"),
            ("d/a", ".././.ssh"),
        ] {
            assert!(out(link, text), "{link} -> {text}");
        }
        let hidden = LinkText::new("../.ssh").unwrap();
        assert!(!leads_out(&RelativePath::of_item("d/a").unwrap(), &hidden, true));
    }

    #[test]
    fn which_links_are_made_is_said_in_a_word() {
        assert_eq!("inside".parse(), Ok(Links::Inside));
        assert_eq!("all".parse(), Ok(Links::All));
        assert_eq!("none".parse(), Ok(Links::None));
        assert!("some".parse::<Links>().is_err());
    }
}
