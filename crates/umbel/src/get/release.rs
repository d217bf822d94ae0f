//! A link to the directory of a release, which goes from one release to the next in one rename.
//!
//! `current` is a symbolic link to `.current.umbel-a` or `.current.umbel-b` beside it. The next
//! release comes to the one to which the link does not point, where an interrupted run goes on. What
//! has not changed is linked there from the release before. When everything is there the link is
//! replaced, and then the release before removed. So whoever opens files by the link finds one
//! release at any time, also after a crash.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A release that is being brought.
#[derive(Debug)]
pub(super) struct Release {
    /// The link that users open.
    link: PathBuf,
    /// Directory of the release.
    pub(super) directory: PathBuf,
    /// Directory of the release before, and whether it was made here.
    pub(super) last: Option<(PathBuf, bool)>,
}

impl Release {
    /// Finds the place of the release after that to which a link points. There need not be one.
    ///
    /// # Errors
    ///
    /// If it is no link, so that it cannot be replaced at once.
    pub(super) fn after(link: &Path) -> anyhow::Result<Release> {
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
        let [a, b] = ["a", "b"].map(|which| format!(".{name}.umbel-{which}"));
        let is_at = |own: &str| target.as_deref() == Some(Path::new(own));
        let own = is_at(&a) || is_at(&b);
        let directory = link.with_file_name(if is_at(&a) { b } else { a });
        let last = target.map(|target| (link.with_file_name("").join(target), own));
        Ok(Release { link, directory, last })
    }

    /// Returns whether the release was put in place meanwhile, by another run.
    pub(super) fn is_in_place(&self) -> bool {
        fs::read_link(&self.link).is_ok_and(|target| Some(target.as_os_str()) == self.name())
    }

    fn name(&self) -> Option<&std::ffi::OsStr> {
        self.directory.file_name()
    }

    /// Puts the release in place, which has everything, and removes the one before.
    ///
    /// # Errors
    ///
    /// If the link cannot be replaced. The one before is in place then.
    pub(super) fn put_in_place(&self, durable: bool) -> anyhow::Result<()> {
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
        if let Some((last, true)) = &self.last {
            // By another name first, since the next run may use this one at once.
            let old = last.with_extension("umbel-old");
            let _ = fs::remove_dir_all(&old);
            let _ = fs::rename(last, &old).and_then(|()| fs::remove_dir_all(&old));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_alternate_and_what_is_no_link_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("current");
        for (directory, last) in [
            (".current.umbel-a", None),
            (".current.umbel-b", Some("a")),
            (".current.umbel-a", Some("b")),
        ] {
            let release = Release::after(&place.path().join("current/")).unwrap();
            assert_eq!(release.directory, place.path().join(directory));
            let before =
                last.map(|last| (place.path().join(format!(".current.umbel-{last}")), true));
            assert_eq!(release.last, before);
            fs::create_dir(&release.directory).unwrap();
            fs::write(release.directory.join("file"), directory).unwrap();
            assert!(!release.is_in_place());
            release.put_in_place(true).unwrap();
            assert!(release.is_in_place());
            assert_eq!(fs::read_to_string(link.join("file")).unwrap(), directory);
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
        }
        // The user's own release is left where it is.
        fs::create_dir(place.path().join("mine")).unwrap();
        fs::remove_file(&link).unwrap();
        symlink("mine", &link).unwrap();
        let release = Release::after(&link).unwrap();
        assert_eq!(release.last, Some((place.path().join("mine"), false)));
        fs::create_dir_all(&release.directory).unwrap();
        release.put_in_place(false).unwrap();
        assert!(place.path().join("mine").is_dir());
        for path in ["mine", ".", "/", "mine/.."] {
            assert!(Release::after(&place.path().join(path)).is_err(), "{path}");
        }
    }
}
