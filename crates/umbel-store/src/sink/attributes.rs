//! Permissions and modification times of files and directories, as far as the target can keep them.
//!
//! They follow the item whenever it is looked at, so that a file whose content was there already
//! gets those of the source, too.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use umbel_wire::repository::ItemInfo;

use crate::version::nanoseconds;

/// Steps of the times of file systems in nanoseconds, to which a time that is set is rounded: of
/// Windows, microseconds, milliseconds, exFAT, whole seconds, FAT.
const GRAINS_NS: [i64; 6] = [100, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000];

/// What an item has beside its name and content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    /// Permissions, as far as the umask allows.
    mode: Option<u16>,
    /// Modification time in nanoseconds since 1970.
    modified_ns: Option<i64>,
}

impl Attributes {
    /// Returns those of an item, with its times if these are to be kept.
    pub(super) fn of(info: &ItemInfo, preserve_times: bool) -> Attributes {
        Attributes { mode: info.mode, modified_ns: info.modified_ns.filter(|_| preserve_times) }
    }
}

/// Permissions of new files below the output directory, which the umask, or the access control list
/// of the directory, allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed(u32);

impl Allowed {
    /// Creates them from the mode of a file that was created with 0666.
    pub(super) fn of(mode: u32) -> Allowed {
        Allowed(mode & 0o666)
    }

    /// Returns those that the umask allows, without making a file.
    pub(super) fn by_umask() -> Allowed {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        let umask = umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok());
        Allowed::of(0o666 & !umask.unwrap_or(0o022))
    }

    /// Returns the permissions of a file whose item has this mode. A class of users that cannot read
    /// the file must not execute it. Its owner can always read it, and enter it if it is a
    /// directory, which also keeps what it has of its parent: whose group its files have.
    fn of_item(self, mode: u16, has: &Metadata) -> u32 {
        let (mode, Allowed(allowed)) = (u32::from(mode), self);
        let own = if has.is_dir() { has.permissions().mode() & 0o7000 | 0o500 } else { 0o400 };
        mode & allowed & 0o666 | mode & allowed >> 2 & 0o111 | own
    }
}

/// Number of files that could not keep what their items have, and of links that were not made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unkept {
    /// Files with other permissions.
    pub permissions: u64,
    /// Files and links with other modification times.
    pub times: u64,
    /// Symbolic links that the file system does not take.
    pub links: u64,
    /// Other names of files that are copies, since the file system gives no file several names.
    pub hard_links: u64,
    /// Symbolic links that may lead out of the output directory, and were not allowed to.
    pub links_out: u64,
}

/// Counts them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) permissions: AtomicU64,
    pub(super) times: AtomicU64,
    pub(super) links: AtomicU64,
    pub(super) hard_links: AtomicU64,
    pub(super) links_out: AtomicU64,
}

impl Counts {
    pub(super) fn get(&self) -> Unkept {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Unkept {
            permissions: count(&self.permissions),
            times: count(&self.times),
            links: count(&self.links),
            hard_links: count(&self.hard_links),
            links_out: count(&self.links_out),
        }
    }
}

/// Gives the file or directory the permissions and the modification time of its item, where it has
/// others. The content is right without them, so what the target cannot keep is only counted.
pub(super) fn set(attributes: Attributes, file: &File, allowed: Allowed, unkept: &Counts) {
    if let Some(mode) = attributes.mode
        && !set_permissions(file, mode, allowed).unwrap_or(false)
    {
        unkept.permissions.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(wanted) = attributes.modified_ns
        && !set_modified(file, wanted).unwrap_or(false)
    {
        unkept.times.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns whether the file has the permissions and the modification time of its item.
pub(super) fn fit(attributes: Attributes, file: &File, allowed: Allowed) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    let mode = attributes.mode.map(|mode| allowed.of_item(mode, &metadata));
    let modified = |wanted| is_kept(nanoseconds(metadata.mtime(), metadata.mtime_nsec()), wanted);
    mode.is_none_or(|mode| metadata.permissions().mode() & 0o777 == mode)
        && attributes.modified_ns.is_none_or(modified)
}

/// Returns whether a file that has one time has been given the other, both in nanoseconds since
/// 1970: it is the same, or what a file system has made of it.
pub(super) fn is_kept(has: i64, wanted: i64) -> bool {
    let distance = has.abs_diff(wanted);
    let rounded = |grain: &i64| has % grain == 0 && distance < grain.unsigned_abs();
    distance == 0 || GRAINS_NS.iter().any(rounded)
}

/// Returns the time of this many nanoseconds since 1970, if the system has it.
fn since_1970(ns: i64) -> Option<SystemTime> {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    match ns {
        0.. => SystemTime::UNIX_EPOCH.checked_add(distance),
        _ => SystemTime::UNIX_EPOCH.checked_sub(distance),
    }
}

/// Returns whether the file has the permissions of an item of this mode now.
fn set_permissions(file: &File, mode: u16, allowed: Allowed) -> io::Result<bool> {
    let metadata = file.metadata()?;
    let wanted = allowed.of_item(mode, &metadata);
    if metadata.permissions().mode() & 0o777 == wanted & 0o777 {
        return Ok(true);
    }
    file.set_permissions(Permissions::from_mode(wanted))?;
    Ok(file.metadata()?.permissions().mode() & 0o777 == wanted & 0o777)
}

/// Returns whether the file has this time now, in nanoseconds since 1970, or almost.
fn set_modified(file: &File, ns: i64) -> io::Result<bool> {
    let Some(wanted) = since_1970(ns) else { return Ok(false) };
    if file.metadata()?.modified()? == wanted {
        return Ok(true);
    }
    file.set_modified(wanted)?;
    let metadata = file.metadata()?;
    Ok(is_kept(nanoseconds(metadata.mtime(), metadata.mtime_nsec()), ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_kept_if_it_is_the_same_or_rounded() {
        let wanted = 1_700_000_001_987_654_321;
        let kept = [
            wanted,
            1_700_000_001_987_654_300,
            1_700_000_001_980_000_000,
            1_700_000_001_000_000_000,
            1_700_000_002_000_000_000,
            1_700_000_000_000_000_000,
        ];
        assert!(kept.into_iter().all(|has| is_kept(has, wanted)));
        let others = [wanted - 1, 1_700_000_001_987_654_200, 1_700_000_003_000_000_000];
        assert!(others.into_iter().all(|has| !is_kept(has, wanted)));
        assert!(is_kept(-1_000_000_000, -1_500_000_000) && !is_kept(0, i64::MIN));
    }
}
