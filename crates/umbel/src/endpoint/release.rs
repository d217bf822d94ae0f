//! A link to the directory of a release, which goes from one release to the next in one rename.
//!
//! `current` is a symbolic link to one of the places `.current.umbel-a` to `.current.umbel-u` beside
//! it, which are used in turn. The next release comes to the place after that to which the link
//! points, where an interrupted run goes on. What has not changed is linked there from the release
//! before. When everything is there the link is replaced, and then those releases are removed that
//! are not kept. So whoever opens files by the link finds one release at any time, also after a
//! crash.
//!
//! The turn does not depend on how many are kept. With three, the release after `c` comes to `d`, and
//! then `a` is removed; with two from now on, the next comes to `e`, and `b` and `c` go.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Most releases that can be kept.
pub(crate) const MOST_KEPT: u8 = 20;
/// Letters of the places for releases: one more than are kept.
const LETTERS: std::ops::RangeInclusive<u8> = b'a'..=b'a' + MOST_KEPT;
/// Number of places.
const PLACES: u8 = MOST_KEPT + 1;
/// What names of a run's own files have, and those of items do not.
const OWN: &str = ".umbel-part";

/// A release that is being brought.
#[derive(Debug)]
pub(crate) struct Release {
    /// The link that users open.
    link: PathBuf,
    /// Directory of the release.
    pub(crate) directory: PathBuf,
    /// Directory of the release before, if there is one.
    pub(crate) last: Option<PathBuf>,
    /// Places of releases that go when this one is in place.
    outdated: Vec<PathBuf>,
}

impl Release {
    /// Finds the place of the release after that to which a link points. There need not be one. The
    /// last `keep` releases are kept, this one included, at least one and at most [`MOST_KEPT`].
    ///
    /// # Errors
    ///
    /// If it is no link, so that it cannot be replaced at once.
    pub(crate) fn after(link: &Path, keep: u8) -> anyhow::Result<Release> {
        let name = link.file_name().and_then(|name| name.to_str());
        let Some(name) = name else {
            bail!("--atomic makes a link: give it a name, as in `-o ./current`");
        };
        // Without a slash at its end, which would follow it.
        let link = link.with_file_name(name);
        let target = match fs::read_link(&link) {
            Ok(target) => Some(target),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) if error.kind() == ErrorKind::InvalidInput => bail!(
                "{} is no link, and only a link can go from one release to the next at once: move it \
                 away, or name another",
                link.display()
            ),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", link.display()));
            }
        };
        let keep = keep.clamp(1, MOST_KEPT);
        let place = |letter: u8| format!(".{name}.umbel-{}", char::from(letter));
        let first = *LETTERS.start();
        let at = target.as_deref().and_then(Path::to_str);
        let at = at.and_then(|at| LETTERS.clone().find(|&letter| place(letter) == at));
        // The next of all places, and those that were used last before it.
        let in_turn = |steps_back: u8| {
            let next = at.map_or(0, |at| at - first + 1);
            first + (next + PLACES - steps_back) % PLACES
        };
        let kept: Vec<u8> = (0..keep).map(in_turn).collect();
        let outdated = LETTERS.filter(|letter| !kept.contains(letter));
        let outdated = outdated.map(|letter| link.with_file_name(place(letter))).collect();
        let directory = link.with_file_name(place(in_turn(0)));
        let last = target.map(|target| link.with_file_name("").join(target));
        Ok(Release { link, directory, last, outdated })
    }

    /// Returns whether another run has put the release in place meanwhile, or discarded it.
    pub(crate) fn is_over(&self) -> bool {
        let is_in_place =
            fs::read_link(&self.link).is_ok_and(|target| Some(target.as_os_str()) == self.name());
        is_in_place || !self.directory.is_dir()
    }

    /// Returns whether what is in place is the same already: names, permissions, and the lengths and
    /// times of files.
    pub(crate) fn is_there_already(&self) -> bool {
        is_same(&self.link, &self.directory).unwrap_or(false)
    }

    /// Removes the release, which is not put in place.
    pub(crate) fn discard(&self) {
        // The next release replaces what cannot be removed.
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::debug!("{}: {error}", self.directory.display());
        }
    }

    fn name(&self) -> Option<&std::ffi::OsStr> {
        self.directory.file_name()
    }

    /// Puts the release in place, which has everything, and removes those that are not kept.
    ///
    /// # Errors
    ///
    /// If the link cannot be replaced. The one before is in place then.
    pub(crate) fn put_in_place(&self, durable: bool) -> anyhow::Result<()> {
        let failed = || format!("cannot make {} a link to the release", self.link.display());
        let parent = self.link.with_file_name("");
        let parent = if parent == Path::new("") { PathBuf::from(".") } else { parent };
        if durable {
            let directory = File::open(&self.directory).with_context(failed)?;
            nix::unistd::syncfs(&directory).map_err(std::io::Error::from).with_context(failed)?;
        }
        let mut new = self.directory.clone().into_os_string();
        new.push(".link");
        // It may be left from a run that was killed.
        let _ = fs::remove_file(&new);
        symlink(self.name().unwrap_or_default(), &new).with_context(failed)?;
        fs::rename(&new, &self.link).with_context(failed)?;
        if durable {
            // Its name need not be safe for the release to be whole.
            let _ = File::open(&parent).and_then(|parent| parent.sync_all());
        }
        for outdated in self.outdated.iter().filter(|place| place.is_dir()) {
            // By another name first, since the next run may use this one at once.
            let old = outdated.with_extension("umbel-old");
            let _ = fs::remove_dir_all(&old);
            let _ = fs::rename(outdated, &old).and_then(|()| fs::remove_dir_all(&old));
        }
        Ok(())
    }
}

/// Returns whether two directories have the same names and permissions, and their files the same
/// lengths and times. Contents are linked from one to the other if they are the same.
fn is_same(one: &Path, other: &Path) -> std::io::Result<bool> {
    let names = names_in(one)?;
    if names != names_in(other)? {
        return Ok(false);
    }
    for name in names {
        let (one, other) = (one.join(&name), other.join(&name));
        let (of_one, of_other) = (fs::symlink_metadata(&one)?, fs::symlink_metadata(&other)?);
        let may = of_one.permissions() == of_other.permissions();
        let same = if of_one.is_dir() && of_other.is_dir() {
            may && is_same(&one, &other)?
        } else if of_one.is_symlink() && of_other.is_symlink() {
            fs::read_link(&one)? == fs::read_link(&other)?
        } else {
            may && of_one.is_file()
                && of_other.is_file()
                && of_one.len() == of_other.len()
                && of_one.modified()? == of_other.modified()?
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the names in a directory in order, but for those of a run's own files.
fn names_in(directory: &Path) -> std::io::Result<Vec<OsString>> {
    let entries = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = entries.collect::<std::io::Result<Vec<OsString>>>()?;
    names.retain(|name| !name.to_string_lossy().contains(OWN));
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_take_turns_and_what_is_no_link_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("current");
        for (directory, last) in [
            (".current.umbel-a", None),
            (".current.umbel-b", Some("a")),
            (".current.umbel-c", Some("b")),
        ] {
            let release = Release::after(&place.path().join("current/"), 1).unwrap();
            assert_eq!(release.directory, place.path().join(directory));
            let before = last.map(|last| place.path().join(format!(".current.umbel-{last}")));
            assert_eq!(release.last, before);
            fs::create_dir(&release.directory).unwrap();
            fs::write(release.directory.join("file"), directory).unwrap();
            assert!(!release.is_over());
            release.put_in_place(true).unwrap();
            assert!(release.is_over());
            assert_eq!(fs::read_to_string(link.join("file")).unwrap(), directory);
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
        }
        // The user's own release is left where it is.
        fs::create_dir(place.path().join("mine")).unwrap();
        fs::remove_file(&link).unwrap();
        symlink("mine", &link).unwrap();
        let release = Release::after(&link, 1).unwrap();
        assert_eq!(release.last, Some(place.path().join("mine")));
        fs::create_dir_all(&release.directory).unwrap();
        release.put_in_place(false).unwrap();
        assert!(place.path().join("mine").is_dir());
        for path in ["mine", ".", "/", "mine/.."] {
            assert!(Release::after(&place.path().join(path), 1).is_err(), "{path}");
        }
    }

    /// Returns the letters of the places that are there.
    fn places(place: &Path) -> String {
        let names = fs::read_dir(place).unwrap().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut letters: Vec<_> = names
            .filter_map(|name| name.strip_prefix(".current.umbel-").and_then(|l| l.chars().next()))
            .collect();
        letters.sort_unstable();
        letters.into_iter().collect()
    }

    #[test]
    fn so_many_releases_are_kept_and_nothing_else_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("current");
        fs::create_dir(place.path().join(".current.umbel-mine")).unwrap();
        fs::write(place.path().join(".current.umbel-z"), "a file").unwrap();
        let bring = |keep: u8| {
            let release = Release::after(&link, keep).unwrap();
            fs::create_dir_all(&release.directory).unwrap();
            release.put_in_place(false).unwrap();
            assert!(link.join(".").is_dir());
            places(place.path())
        };
        let others = "mz";
        let there: Vec<String> = (0..6).map(|_| bring(3)).collect();
        let expected = ["a", "ab", "abc", "bcd", "cde", "def"];
        assert_eq!(there, expected.map(|letters| format!("{letters}{others}")));
        // More are kept from now on, and then fewer: the oldest go.
        assert_eq!(bring(5), format!("defg{others}"));
        assert_eq!(bring(2), format!("gh{others}"));
        assert_eq!(bring(u8::MAX), format!("ghi{others}"));
        assert_eq!(bring(1), format!("j{others}"));
    }

    #[test]
    fn the_first_place_comes_after_the_last() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("current");
        symlink(".current.umbel-u", &link).unwrap();
        for letter in ["a", "t", "u"] {
            fs::create_dir(place.path().join(format!(".current.umbel-{letter}"))).unwrap();
        }
        let release = Release::after(&link, 2).unwrap();
        assert_eq!(release.directory, place.path().join(".current.umbel-a"));
        release.put_in_place(false).unwrap();
        assert_eq!(places(place.path()), "au");
    }

    #[test]
    fn a_release_that_is_there_already_is_told_from_another() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("current");
        let bring = || {
            let release = Release::after(&link, 1).unwrap();
            fs::create_dir_all(release.directory.join("d")).unwrap();
            symlink("a", release.directory.join("d/link")).unwrap();
            release
        };
        let first = bring();
        assert!(!first.is_there_already(), "there is none");
        fs::write(first.directory.join("a"), "text").unwrap();
        first.put_in_place(false).unwrap();
        let second = bring();
        assert!(!second.is_there_already(), "a file is missing");
        fs::hard_link(link.join("a"), second.directory.join("a")).unwrap();
        fs::write(second.directory.join(".x.umbel-part.lock"), "").unwrap();
        assert!(second.is_there_already());
        fs::write(link.join("d/more"), "").unwrap();
        assert!(!second.is_there_already(), "another file is there");
        assert!(!second.is_over());
        second.discard();
        assert!(second.is_over() && link.join("a").is_file());
    }
}
