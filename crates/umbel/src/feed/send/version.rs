//! Versions of a sender's announcements, which only grow, whatever its clock says.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, anyhow};

/// Name of the file in the state directory with the last version.
pub(crate) const FILE_NAME: &str = "feed_version";
/// Most bytes of the file that are read.
const MOST: u64 = 64;

/// Returns the version of the next feed: that of the clock, or one more than the last. Remembers
/// it.
///
/// # Errors
///
/// One line that names the file, if it cannot be read or written, or holds no number.
pub(super) fn next(state_dir: &Path, clock: u64) -> anyhow::Result<u64> {
    let path = state_dir.join(FILE_NAME);
    let cannot = || format!("cannot keep the version of the feed in {}", path.display());
    DirBuilder::new().recursive(true).mode(0o700).create(state_dir).with_context(cannot)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).with_context(cannot)?;
    file.lock().with_context(cannot)?;
    let mut text = String::new();
    (&file).take(MOST).read_to_string(&mut text).with_context(cannot)?;
    let last: Option<u64> = match text.trim() {
        "" => None,
        number => Some(number.parse().map_err(|_| {
            anyhow!("{} holds no number: remove it if the clock is right", path.display())
        })?),
    };
    let next = last.map_or(clock, |last| clock.max(last.saturating_add(1)));
    file.write_all_at(format!("{next:020}\n").as_bytes(), 0).with_context(cannot)?;
    file.sync_data().with_context(cannot)?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_when_the_clock_goes_back_for_years_or_ahead() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let year = 365 * 24 * 3_600_000;
        let clocks = [50 * year, 50 * year, 40 * year, 0, 60 * year, 59 * year];
        let versions = clocks.map(|clock| next(&state, clock).unwrap());
        let first = 50 * year;
        assert_eq!(versions, [first, first + 1, first + 2, first + 3, 60 * year, 60 * year + 1]);
        std::fs::write(state.join(FILE_NAME), "x").unwrap();
        let error = next(&state, 1).unwrap_err().to_string();
        assert!(error.contains("feed_version") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn senders_that_start_at_once_have_different_versions() {
        let directory = tempfile::tempdir().unwrap();
        let mut versions: Vec<u64> = std::thread::scope(|scope| {
            let senders: Vec<_> =
                (0..16).map(|_| scope.spawn(|| next(directory.path(), 7).unwrap())).collect();
            senders.into_iter().map(|sender| sender.join().unwrap()).collect()
        });
        versions.sort_unstable();
        assert_eq!(versions, (7..23).collect::<Vec<_>>());
    }
}
