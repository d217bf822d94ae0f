//! Notices that playlists in a ladder's directories have changed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};

use super::name::{FileName, is_playlist};

/// Watches the directories of playlists. It only says that something may have changed; its users
/// read the playlists again. So a queue that overflowed, or a directory that came late, costs
/// nothing but that.
#[derive(Debug)]
pub struct LadderWatch {
    inotify: Inotify,
}

impl LadderWatch {
    /// Watches nothing yet.
    ///
    /// # Errors
    ///
    /// If the system has no watch left.
    pub fn new() -> io::Result<LadderWatch> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(LadderWatch { inotify })
    }

    /// Watches the directories of these playlists below `root`, and `root`. Those that are watched
    /// stay so; those that do not exist are left out, so call it again after a change.
    pub fn cover(&self, root: &Path, playlists: &[FileName]) {
        // A playlist is complete when it is closed or renamed; a directory, when it is there.
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_ONLYDIR
            | AddWatchFlags::IN_DONT_FOLLOW;
        // The root may be given by a link.
        let followed = flags.difference(AddWatchFlags::IN_DONT_FOLLOW);
        let _ = self.inotify.add_watch(root, followed);
        let mut directories: Vec<&str> = playlists.iter().map(FileName::directory).collect();
        directories.sort_unstable();
        directories.dedup();
        for directory in directories.into_iter().filter(|directory| !directory.is_empty()) {
            let _ = self.inotify.add_watch(&root.join(directory), flags);
        }
    }

    /// Returns whether a playlist may have changed since the last time.
    ///
    /// # Errors
    ///
    /// If the system refuses to tell.
    pub fn take(&self) -> io::Result<bool> {
        let mut changed = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) if events.is_empty() => return Ok(changed),
                Ok(events) => changed |= events.iter().any(tells),
                Err(Errno::EAGAIN) => return Ok(changed),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Returns whether an event can mean that a playlist has changed.
fn tells(event: &InotifyEvent) -> bool {
    let structure = AddWatchFlags::IN_Q_OVERFLOW
        | AddWatchFlags::IN_ISDIR
        | AddWatchFlags::IN_IGNORED
        | AddWatchFlags::IN_DELETE_SELF;
    let written = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
    let is_playlist = || {
        let name = event.name.as_ref().and_then(|name| name.to_str());
        name.is_some_and(is_playlist)
    };
    event.mask.intersects(structure) || event.mask.intersects(written) && is_playlist()
}

impl AsFd for LadderWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_playlist_counts_when_it_is_complete_and_a_directory_when_it_is_there() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let playlist = FileName::parse("v0/index.m3u8").unwrap();
        let watch = LadderWatch::new().unwrap();
        let cover = || watch.cover(root.path(), std::slice::from_ref(&playlist));
        cover();
        assert!(!watch.take().unwrap());
        fs::create_dir(at("v0")).unwrap();
        assert!(watch.take().unwrap());
        cover();
        fs::write(at("v0/seg.m4s"), "s").unwrap();
        let unfinished = fs::File::create(at("v0/index.m3u8")).unwrap();
        assert!(!watch.take().unwrap());
        drop(unfinished);
        assert!(watch.take().unwrap());
        fs::write(at("v0/index.m3u8.tmp"), "p").unwrap();
        assert!(!watch.take().unwrap());
        fs::rename(at("v0/index.m3u8.tmp"), at("v0/index.m3u8")).unwrap();
        assert!(watch.take().unwrap());
        fs::remove_dir_all(at("v0")).unwrap();
        assert!(watch.take().unwrap());
    }
}
