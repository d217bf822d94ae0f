//! What was taken to a drop directory, remembered across restarts.
//!
//! Each drop directory has a file in the state directory, with a line for each name: `SENDER VERSION
//! DIGEST NAME`. The file is written anew each time, and a lock beside it keeps a second resident
//! receiver off the same directory. Where there is no place for it, only the process itself
//! remembers.
//!
//! Beside them, `senders` has the keys from whose holders a feed was received whole, a line each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use umbel_net::session::Pin;

/// Name of the directory in the state directory.
pub(crate) const DIRECTORY: &str = "taken";
/// Most bytes of a file that are read.
const MOST: u64 = 16 << 20;
/// Name of the file with the keys.
const SENDERS: &str = "senders";
/// In the place of a digest, where nothing was taken yet.
const BEGUN: &str = "-";

/// A version that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Key or address of the sender.
    pub(crate) sender: String,
    pub(crate) version: u64,
    pub(crate) digest: String,
}

impl Entry {
    /// Returns that a name is given to the feeds of a sender, of which none was taken yet.
    pub(crate) fn begun(sender: Pin) -> Entry {
        Entry { sender: sender.to_string(), version: 0, digest: BEGUN.to_owned() }
    }

    /// Returns whether a version was taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.digest != BEGUN
    }
}

/// The versions that were taken last, by name.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    last: BTreeMap<String, Entry>,
    /// The file, and its lock.
    file: Option<(PathBuf, File)>,
    /// First line of the file, which names the directory for people.
    head: String,
}

impl Taken {
    /// Reads what was taken to a directory. Tells `note` what cannot be remembered, and why.
    ///
    /// # Errors
    ///
    /// If another process takes to the same directory.
    pub(crate) fn open(
        state: anyhow::Result<PathBuf>,
        directory: &Path,
        note: impl FnOnce(&str),
    ) -> anyhow::Result<Taken> {
        match state.and_then(|state| Taken::in_dir(&state, directory)) {
            Ok(Some(taken)) => Ok(taken),
            Ok(None) => bail!(
                "another umbel with --follow takes to {}: end it, or name another directory",
                directory.display()
            ),
            Err(error) => {
                note(&format!(
                    "{error:#}: after a restart the newest version comes again, though it was taken"
                ));
                Ok(Taken::default())
            }
        }
    }

    /// Returns `None` if another process has the lock.
    fn in_dir(state: &Path, directory: &Path) -> anyhow::Result<Option<Taken>> {
        let directory = fs::canonicalize(directory)
            .or_else(|_| std::path::absolute(directory))
            .with_context(|| format!("cannot find {}", directory.display()))?;
        let digest = blake3::hash(directory.as_os_str().as_encoded_bytes()).to_hex();
        let path = state.join(DIRECTORY).join(&digest[..16]);
        let cannot = || format!("cannot remember in {} what was taken", path.display());
        let holder = state.join(DIRECTORY);
        DirBuilder::new().recursive(true).mode(0o700).create(holder).with_context(cannot)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.with_extension("lock")).with_context(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            // A file system without locks has nobody to keep off.
            Err(TryLockError::Error(error)) => tracing::debug!("{}: {error}", path.display()),
        }
        let text = read(&path).with_context(cannot)?;
        let last = parse(&text);
        let head = directory.display().to_string().replace(char::is_control, "?");
        let mut taken = Taken { last, file: Some((path, lock)), head };
        // Whether it can be written is to be known before something is taken.
        taken.write()?;
        Ok(Some(taken))
    }

    /// Returns what was taken last under a name.
    pub(crate) fn last(&self, name: &str) -> Option<&Entry> {
        self.last.get(name)
    }

    /// Remembers what was taken.
    ///
    /// # Errors
    ///
    /// One line that names the file, if it cannot be written. The process remembers it.
    pub(crate) fn remember(&mut self, name: &str, entry: Entry) -> anyhow::Result<()> {
        self.last.insert(name.to_owned(), entry);
        self.write()
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let Some((path, _)) = &self.file else { return Ok(()) };
        let mut text = format!("# {}\n", self.head);
        for (name, Entry { sender, version, digest }) in &self.last {
            let _ = writeln!(text, "{sender} {version} {digest} {name}");
        }
        let write = || -> std::io::Result<()> {
            let holder = path.parent().unwrap_or(Path::new("."));
            let mut new = tempfile::NamedTempFile::new_in(holder)?;
            new.write_all(text.as_bytes())?;
            new.as_file().sync_data()?;
            new.persist(path)?;
            Ok(())
        };
        write().with_context(|| format!("cannot remember in {} what was taken", path.display()))
    }
}

/// Returns the keys from whose holders a feed was received whole.
///
/// # Errors
///
/// One line that names the file, if it cannot be read.
pub(crate) fn senders(state: &Path) -> anyhow::Result<BTreeSet<Pin>> {
    let path = state.join(DIRECTORY).join(SENDERS);
    let cannot = || format!("cannot read the known senders in {}", path.display());
    let text = read(&path).with_context(cannot)?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Remembers that a feed was received whole from the holder of this key.
///
/// # Errors
///
/// One line that names the file, if it cannot be read or written.
pub(crate) fn remember_sender(state: &Path, pin: Pin) -> anyhow::Result<()> {
    if senders(state)?.contains(&pin) {
        return Ok(());
    }
    let holder = state.join(DIRECTORY);
    let path = holder.join(SENDERS);
    let cannot = || format!("cannot remember the sender in {}", path.display());
    DirBuilder::new().recursive(true).mode(0o700).create(holder).with_context(cannot)?;
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    // One write, which is whole beside those of others. Half a line says nothing.
    file.and_then(|mut file| file.write_all(format!("{pin}\n").as_bytes())).with_context(cannot)
}

/// Reads a file, of which there may be none yet.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MOST).read_to_end(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Reads the lines. One that is wrong says nothing: its version may be taken again.
fn parse(text: &str) -> BTreeMap<String, Entry> {
    let entry = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let (sender, version) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        let digest = words.next()?.to_owned();
        let name = words.next().filter(|name| !name.is_empty())?.to_owned();
        (!sender.starts_with('#')).then_some((name, Entry { sender, version, digest }))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(version: u64) -> Entry {
        Entry { sender: "key".to_owned(), version, digest: "d".to_owned() }
    }

    fn open(state: &Path, directory: &Path) -> Taken {
        Taken::open(Ok(state.to_owned()), directory, |line| panic!("{line}")).unwrap()
    }

    #[test]
    fn the_next_process_knows_what_was_taken_to_the_same_directory() {
        let place = tempfile::tempdir().unwrap();
        let [state, one, two] = ["deep/state", "one", "two"].map(|name| place.path().join(name));
        fs::create_dir(&one).unwrap();
        let mut taken = open(&state, &one);
        taken.remember("nightly", entry(1)).unwrap();
        taken.remember("a b", entry(2)).unwrap();
        taken.remember("nightly", entry(3)).unwrap();
        drop(taken);
        let again = open(&state, &place.path().join("one/../one"));
        assert_eq!(again.last("nightly"), Some(&entry(3)));
        assert_eq!(again.last("a b"), Some(&entry(2)));
        // Another directory lacks all of it, and may be used at once.
        assert_eq!(open(&state, &two).last("nightly"), None);
    }

    #[test]
    fn two_processes_do_not_take_to_one_directory() {
        let place = tempfile::tempdir().unwrap();
        let first = open(place.path(), place.path());
        let second = Taken::open(Ok(place.path().to_owned()), place.path(), |_| ());
        assert!(second.unwrap_err().to_string().contains("another umbel"));
        drop(first);
        open(place.path(), place.path());
    }

    #[test]
    fn what_cannot_be_remembered_is_said_and_needed_by_nobody() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        for state in [Ok(file), Err(anyhow::anyhow!("no home directory"))] {
            let mut said = String::new();
            let taken = Taken::open(state, place.path(), |line| said += line);
            let mut taken = taken.unwrap();
            assert!(said.contains("comes again") && !said.contains('\n'), "{said}");
            taken.remember("a", entry(1)).unwrap();
            assert_eq!(taken.last("a"), Some(&entry(1)));
        }
    }

    #[test]
    fn senders_are_remembered_once() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("deep/state");
        let [one, two] = [1, 2].map(|digest| Pin::from_digest([digest; 32]));
        assert!(senders(&state).unwrap().is_empty());
        for pin in [one, two, one] {
            remember_sender(&state, pin).unwrap();
        }
        assert_eq!(senders(&state).unwrap(), BTreeSet::from([one, two]));
        let file = state.join(DIRECTORY).join(SENDERS);
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
        fs::write(file, format!("half\n\n{two}\n")).unwrap();
        assert_eq!(senders(&state).unwrap(), BTreeSet::from([two]));
    }

    #[test]
    fn wrong_lines_say_nothing() {
        let text = "# /srv/drop\n\nx\nkey 1 d\nkey x d a\nkey 1 d \nkey 2 d a b\n\u{0}\u{7f}";
        assert_eq!(parse(text), BTreeMap::from([("a b".to_owned(), entry(2))]));
    }
}
