//! The senders that a receiver knows: the name of each session that it received, and the key of its
//! sender then.
//!
//! Feeds and streams have a file each. It has a line for each, `PIN NAME`, or `PIN @VERSION NAME`
//! with the last version of the feed. Thus an earlier feed that a stranger replays is recognised.
//! Of several lines with one name the last counts. Receivers that run at once add lines one after
//! the other, and versions have one length, so that they are changed in their place.
//!
//! A receiver wants the file and does not need it: where none can be read or written, it says what
//! it cannot know or remember, and goes on. A file with a wrong line is refused without a pin, since
//! the right line might have said who the sender is.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use umbel_net::session::Pin;
use umbel_wire::session::SessionName;

use super::{Noun, SessionSelector, SessionUrl};

/// Names of the files in the state directory: those of feeds, and those of streams.
pub(crate) const FILE_NAMES: [&str; 2] = ["known_feeds", "known_streams"];
/// Most bytes of the file that are read.
const MOST: u64 = 16 << 20;

/// The file with the senders that are known.
#[derive(Clone, Debug)]
pub struct KnownSenders {
    noun: Noun,
    /// The file, or why there can be none.
    path: Result<PathBuf, String>,
}

impl KnownSenders {
    /// Returns those of feeds or of streams in a state directory. The file is made when there is
    /// something to remember.
    pub fn in_dir(noun: Noun, directory: &Path) -> KnownSenders {
        let [feeds, streams] = FILE_NAMES;
        let name = match noun {
            Noun::Feed => feeds,
            Noun::Stream => streams,
        };
        KnownSenders { noun, path: Ok(directory.join(name)) }
    }

    /// Returns those of a machine that has no state directory, for this reason.
    pub fn nowhere(noun: Noun, reason: String) -> KnownSenders {
        KnownSenders { noun, path: Err(reason) }
    }

    /// Looks up the sender of what a user names, before it is sought. From now on the selector
    /// selects sessions of that sender alone, unless its user has given another key. It selects no
    /// session older than the last. Tells `note` if the file cannot be read.
    ///
    /// # Errors
    ///
    /// One line that names the file, if a line in it is wrong and the user gives no key.
    pub fn look_up(
        self,
        selector: &mut SessionSelector,
        note: impl FnOnce(&str),
    ) -> anyhow::Result<Acquaintance> {
        let asked = selector.pin;
        let known = match self.last_of(&selector.name) {
            Ok(known) => known,
            Err(error) if asked.is_some() || is_unreadable(&error) => {
                note(&format!("{error:#}: who sent `{}` before is not known", selector.name));
                None
            }
            Err(error) => return Err(error),
        };
        selector.pin = asked.or(known.map(|known| known.pin));
        let same = known.filter(|known| selector.pin == Some(known.pin));
        let last = same.and_then(|known| known.version).unwrap_or(0);
        selector.since = selector.since.max(last);
        Ok(Acquaintance { senders: self, asked, known: known.map(|known| known.pin) })
    }

    /// Returns what was received last of this name.
    ///
    /// # Errors
    ///
    /// One line that names the file, if it cannot be read, or a line in it is none.
    pub fn last_of(&self, name: &SessionName) -> anyhow::Result<Option<Known>> {
        let Ok(path) = &self.path else { return Ok(None) };
        match File::open(path) {
            Ok(file) => Ok(self.find(&file, name)?.map(|(known, _)| known)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| self.cannot("read")),
        }
    }

    /// Returns a name of which something was received last from the holder of this key.
    fn name_of(&self, pin: Pin) -> anyhow::Result<Option<String>> {
        let last = self.last_of_all()?;
        Ok(last.into_iter().find_map(|(name, of)| (of == pin).then_some(name)))
    }

    /// Returns the key from whose holder something was received last of each name.
    fn last_of_all(&self) -> anyhow::Result<BTreeMap<String, Pin>> {
        let mut last = BTreeMap::new();
        let Ok(path) = &self.path else { return Ok(last) };
        match File::open(path) {
            Ok(file) => self.read(&file, |known, of, _| {
                last.insert(of.to_owned(), known.pin);
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| self.cannot("read")),
        }
        Ok(last)
    }

    /// Returns the last line of a name, and its place in the file.
    fn find(&self, file: &File, name: &SessionName) -> anyhow::Result<Option<(Known, u64)>> {
        let mut found = None;
        self.read(file, |known, of, place| {
            if of == name.as_str() {
                found = Some((known, place));
            }
        })?;
        Ok(found)
    }

    /// Reads the lines: what each says, of which name, and its place in the file.
    fn read(&self, file: &File, mut line_of: impl FnMut(Known, &str, u64)) -> anyhow::Result<()> {
        let mut text = String::new();
        file.take(MOST + 1).read_to_string(&mut text).with_context(|| self.cannot("read"))?;
        let shown = self.shown();
        if text.len() as u64 > MOST {
            bail!("{shown} is far too long: remove lines from it");
        }
        let mut place = 0;
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            let (start, line) = (place, line.trim_end_matches('\n'));
            place += line.len() as u64 + 1;
            let Some((known, of)) = parse(line).filter(|_| !line.is_empty()) else {
                if line.is_empty() {
                    continue;
                }
                bail!("line {number} of {shown} is not `PIN NAME`: remove it");
            };
            line_of(known, of, start);
        }
        Ok(())
    }

    /// Remembers that a session of this name comes from the holder of this key, and its version.
    ///
    /// # Errors
    ///
    /// One line that names the file, if it cannot be written.
    pub fn remember(&self, name: &SessionName, new: Known) -> anyhow::Result<()> {
        let write = || self.cannot("write");
        let path = self.path.as_ref().map_err(|reason| anyhow!("{reason}"))?;
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(write)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).with_context(write)?;
        // A file system without locks has none to wait for.
        if let Err(error) = file.lock() {
            tracing::debug!("{}: {error}", self.shown());
        }
        let Known { pin, version } = new;
        match (self.find(&file, name)?, version) {
            (Some((old, _)), None) if old.pin == pin => Ok(()),
            (Some((Known { pin: same, version: Some(old) }, place)), Some(version))
                if same == pin =>
            {
                let place = place + format!("{pin} @").len() as u64;
                let digits = format!("{:020}", version.max(old));
                file.write_all_at(digits.as_bytes(), place).with_context(write)
            }
            _ => {
                // One write at the end, which is whole or not at all for those who read meanwhile.
                let end = file.seek(SeekFrom::End(0)).with_context(write)?;
                let version = version.map(|version| format!("@{version:020} ")).unwrap_or_default();
                let written = file.write_all(format!("{pin} {version}{name}\n").as_bytes());
                if written.is_err() {
                    // Half a line would be a wrong one. On a full disk a file still gets shorter.
                    let _ = file.set_len(end);
                }
                written.with_context(write)
            }
        }
    }

    fn cannot(&self, what: &str) -> String {
        format!("cannot {what} the known senders in {}", self.shown())
    }

    fn shown(&self) -> impl fmt::Display {
        self.path.as_ref().map_or_else(String::clone, |path| path.display().to_string())
    }
}

/// A sender that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its key.
    pub pin: Pin,
    /// Version of the last session; `None` for streams.
    pub version: Option<u64>,
}

/// Returns whether nothing could be read, rather than something wrong.
fn is_unreadable(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|io| io.kind() != ErrorKind::InvalidData)
}

/// Returns what a line says, and of which name.
fn parse(line: &str) -> Option<(Known, &str)> {
    let (pin, rest) = line.split_once(' ')?;
    let pin = pin.parse().ok()?;
    // No name has an `@`.
    let Some(rest) = rest.strip_prefix('@') else {
        return Some((Known { pin, version: None }, rest));
    };
    let (version, name) = rest.split_once(' ')?;
    Some((Known { pin, version: Some(version.parse().ok()?) }, name))
}

/// Knowledge of a sender before its session is found.
#[derive(Debug)]
pub struct Acquaintance {
    senders: KnownSenders,
    /// The key that the user gives, and the one that is known.
    asked: Option<Pin>,
    known: Option<Pin>,
}

impl Acquaintance {
    /// Believes the sender of a session that was found, remembers it, and tells the user if nothing
    /// speaks for it: neither a pin nor anything received from it before. From now on the selector
    /// selects what comes from it alone, and nothing earlier. Tells also what cannot be remembered.
    pub fn made(
        &self,
        selector: &mut SessionSelector,
        (signer, version): (Pin, Option<u64>),
        source: impl fmt::Display,
        note: impl Fn(&str),
    ) {
        if self.known != Some(signer) && self.asked.is_none() {
            match self.senders.name_of(signer) {
                // Whoever trusts a sender has looked at its key before.
                Ok(Some(other)) => tracing::info!("its key is that of {other:?}"),
                Ok(None) | Err(_) => {
                    note(&format!("new sender {source}: compare its key there: {signer}"));
                }
            }
        }
        let Err(error) = self.follow(selector, (signer, version)) else { return };
        let (noun, name) = (self.senders.noun, &selector.name);
        if self.asked.is_none() {
            let url = SessionUrl { noun, name, pin: signer };
            note(&format!(
                "{error:#}: next time anybody may call a {noun} `{name}`; what is from this sender \
                 alone is '{url}'"
            ));
        } else if version.is_some() {
            note(&format!(
                "{error:#}: an earlier {noun} of this sender would not be recognised if somebody \
                 sent it again"
            ));
        }
    }

    /// Remembers the session that is received now. From now on the selector selects what comes from
    /// its sender alone, and nothing earlier.
    ///
    /// # Errors
    ///
    /// As [`remember`](KnownSenders::remember).
    pub fn follow(
        &self,
        selector: &mut SessionSelector,
        (signer, version): (Pin, Option<u64>),
    ) -> anyhow::Result<()> {
        selector.pin = Some(signer);
        selector.since = version.unwrap_or(0);
        if self.known == Some(signer) && version.is_none() {
            return Ok(());
        }
        self.senders.remember(&selector.name, Known { pin: signer, version })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn path_of(known: &KnownSenders) -> &Path {
        known.path.as_ref().unwrap()
    }

    /// Returns what is said when a session of this signer is found.
    fn said_of(known: KnownSenders, selector: &mut SessionSelector, pin: Pin) -> Vec<String> {
        let said = RefCell::new(Vec::new());
        let note = |line: &str| said.borrow_mut().push(line.to_owned());
        let acquaintance = known.look_up(selector, note).unwrap();
        acquaintance.made(selector, (pin, Some(1)), "192.0.2.2", note);
        assert_eq!((selector.pin, selector.since), (Some(pin), 1));
        said.into_inner()
    }

    #[test]
    fn what_cannot_be_remembered_is_said_and_needed_by_nobody() {
        let pin = Pin::from_digest([1; 32]);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let known = [
            KnownSenders::nowhere(Noun::Feed, "no home directory".to_owned()),
            KnownSenders::in_dir(Noun::Feed, &file),
            KnownSenders::in_dir(Noun::Feed, Path::new("/proc/umbel")),
        ];
        for known in known {
            let mut named: SessionSelector = "x".parse().unwrap();
            let said = said_of(known.clone(), &mut named, pin).join("\n");
            assert!(said.contains("new sender") && said.contains("next time"), "{said}");
            assert!(said.contains(&format!("umbel-feed://x?pin={pin}")), "{said}");
            let mut pinned = format!("umbel-feed://x?pin={pin}").parse().unwrap();
            let said = said_of(known, &mut pinned, pin).join("\n");
            assert!(said.contains("an earlier feed") && !said.contains("new sender"), "{said}");
        }
    }

    #[test]
    fn a_wrong_line_is_no_matter_for_those_who_give_a_pin() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownSenders::in_dir(Noun::Feed, directory.path());
        std::fs::write(path_of(&known), "x\n").unwrap();
        let mut named: SessionSelector = "a".parse().unwrap();
        assert!(known.clone().look_up(&mut named, |_| ()).is_err());
        let pin = Pin::from_digest([1; 32]);
        let mut pinned = format!("umbel-feed://a?pin={pin}").parse().unwrap();
        assert!(said_of(known, &mut pinned, pin)[0].contains("line 1"));
    }

    #[test]
    fn the_last_key_of_a_name_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownSenders::in_dir(Noun::Feed, &directory.path().join("deep/state"));
        let names = ["a", "a b"].map(|name| name.parse::<SessionName>().unwrap());
        let pins = [1, 2].map(|digest| Pin::from_digest([digest; 32]));
        assert_eq!(known.last_of(&names[0]).unwrap(), None);
        let of = |n: usize, version| Known { pin: pins[n], version };
        known.remember(&names[0], of(0, None)).unwrap();
        known.remember(&names[1], of(1, Some(7))).unwrap();
        known.remember(&names[1], of(1, Some(9))).unwrap();
        known.remember(&names[1], of(1, Some(8))).unwrap();
        assert_eq!(known.last_of(&names[0]).unwrap(), Some(of(0, None)));
        assert_eq!(known.last_of(&names[1]).unwrap(), Some(of(1, Some(9))));
        known.remember(&names[0], of(1, None)).unwrap();
        assert_eq!(known.last_of(&names[0]).unwrap(), Some(of(1, None)));
        known.remember(&names[1], of(1, Some(u64::MAX))).unwrap();
        assert_eq!(known.last_of(&names[1]).unwrap(), Some(of(1, Some(u64::MAX))));
        assert_eq!(std::fs::read_to_string(path_of(&known)).unwrap().lines().count(), 3);
    }

    #[test]
    fn nothing_earlier_than_the_last_session_of_a_sender_is_selected() {
        let directory = tempfile::tempdir().unwrap();
        let known = || KnownSenders::in_dir(Noun::Feed, directory.path());
        let pin = Pin::from_digest([1; 32]);
        let mut first: SessionSelector = "nightly".parse().unwrap();
        let acquaintance = known().look_up(&mut first, |_| ()).unwrap();
        assert_eq!((first.pin, first.since), (None, 0));
        // Years in the future, and then back.
        acquaintance.made(&mut first, (pin, Some(4_000)), "a", |_| ());
        assert_eq!((first.pin, first.since), (Some(pin), 4_000));
        let mut next: SessionSelector = "nightly".parse().unwrap();
        known().look_up(&mut next, |_| ()).unwrap();
        assert_eq!((next.pin, next.since), (Some(pin), 4_000));
        // Another key that the user gives starts from scratch.
        let other = Pin::from_digest([2; 32]);
        let mut next: SessionSelector =
            format!("umbel-feed://nightly?pin={other}").parse().unwrap();
        known().look_up(&mut next, |_| ()).unwrap();
        assert_eq!((next.pin, next.since), (Some(other), 0));
    }

    #[test]
    fn the_first_session_of_a_sender_shows_its_key_and_others_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let meet = |name: &str, pin: Pin| {
            let known = KnownSenders::in_dir(Noun::Feed, directory.path());
            let mut selector: SessionSelector = name.parse().unwrap();
            said_of(known, &mut selector, pin)
        };
        let [one, two] = [1, 2].map(|digest| Pin::from_digest([digest; 32]));
        let said = meet("monday", one).join("\n");
        assert!(said.contains("192.0.2.2") && said.contains(&one.to_string()), "{said}");
        assert!(said.len() < 100, "it fits into a line: {said}");
        assert_eq!(meet("monday", one), [""; 0]);
        assert_eq!(meet("tuesday", one), [""; 0], "the key is known");
        assert_eq!(meet("wednesday", two).len(), 1, "another sender");
        assert_eq!(meet(&format!("umbel-feed://x?pin={two}"), two), [""; 0]);
    }

    #[test]
    fn receivers_that_start_at_once_remember_all_their_senders() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownSenders::in_dir(Noun::Stream, directory.path());
        let name = |n: u8| format!("feed {n}").parse::<SessionName>().unwrap();
        let of = |n: u8| Known { pin: Pin::from_digest([n; 32]), version: Some(n.into()) };
        std::thread::scope(|scope| {
            for n in 0..16 {
                let known = &known;
                scope.spawn(move || known.remember(&name(n), of(n)).unwrap());
            }
        });
        for n in 0..16 {
            assert_eq!(known.last_of(&name(n)).unwrap(), Some(of(n)));
        }
    }

    #[test]
    fn a_damaged_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownSenders::in_dir(Noun::Stream, directory.path());
        for bad in ["x", "x y", "\u{0}"] {
            std::fs::write(path_of(&known), format!("\n{bad}\n")).unwrap();
            let error = known.last_of(&"a".parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains("known_streams"), "{error}");
        }
        std::fs::write(path_of(&known), [0xFF]).unwrap();
        assert!(known.last_of(&"a".parse().unwrap()).is_err());
    }
}
