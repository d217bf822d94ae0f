//! The senders that a receiver knows: the name of each session that it received, and the key of its
//! sender then.
//!
//! Feeds and streams have a file each. It has a line for each, `PIN NAME`; of several with one name the last counts. Receivers
//! that run at once add lines one after the other.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use umbel_net::session::Pin;
use umbel_wire::session::SessionName;

use super::{Noun, SessionSelector};

/// Names of the files in the state directory: those of feeds, and those of streams.
pub(crate) const FILE_NAMES: [&str; 2] = ["known_feeds", "known_streams"];
/// Most bytes of the file that are read.
const MOST: u64 = 16 << 20;

/// The file with the senders that are known.
#[derive(Clone, Debug)]
pub struct KnownSenders {
    noun: Noun,
    path: PathBuf,
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
        KnownSenders { noun, path: directory.join(name) }
    }

    /// Looks up the sender of what a user names, before it is sought. From now on the selector
    /// selects what comes from that sender alone, unless its user has given another key.
    ///
    /// # Errors
    ///
    /// As [`pin_of`](KnownSenders::pin_of).
    pub fn look_up(self, selector: &mut SessionSelector) -> anyhow::Result<Acquaintance> {
        let (asked, known) = (selector.pin, self.pin_of(&selector.name)?);
        selector.pin = asked.or(known);
        Ok(Acquaintance { senders: self, asked, known })
    }

    /// Returns the key of the sender from which a session of this name was received last.
    ///
    /// # Errors
    ///
    /// One line that names the file, if it cannot be read, or a line in it is none.
    pub fn pin_of(&self, name: &SessionName) -> anyhow::Result<Option<Pin>> {
        match File::open(&self.path) {
            Ok(file) => self.find(file, name),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| self.cannot("read")),
        }
    }

    fn find(&self, file: File, name: &SessionName) -> anyhow::Result<Option<Pin>> {
        let mut text = String::new();
        file.take(MOST + 1).read_to_string(&mut text).with_context(|| self.cannot("read"))?;
        let shown = self.path.display();
        if text.len() as u64 > MOST {
            bail!("{shown} is far too long: remove lines from it");
        }
        let mut found = None;
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
            let parts =
                line.split_once(' ').and_then(|(pin, name)| Some((pin.parse().ok()?, name)));
            let Some((pin, known)) = parts else {
                bail!("line {number} of {shown} is not `PIN NAME`: remove it");
            };
            if known == name.as_str() {
                found = Some(pin);
            }
        }
        Ok(found)
    }

    /// Remembers that a session of this name comes from the holder of this key.
    ///
    /// # Errors
    ///
    /// One line that names the file, if it cannot be written.
    pub fn remember(&self, name: &SessionName, pin: Pin) -> anyhow::Result<()> {
        let write = || self.cannot("write");
        if let Some(directory) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(write)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(&self.path).with_context(write)?;
        file.lock().with_context(write)?;
        if self.pin_of(name)? == Some(pin) {
            return Ok(());
        }
        // One write, which is whole or not at all for those who read meanwhile.
        file.write_all(format!("{pin} {name}\n").as_bytes()).with_context(write)
    }

    fn cannot(&self, what: &str) -> String {
        format!("cannot {what} the known senders in {}", self.path.display())
    }
}

/// What is known of a sender before its session is found.
#[derive(Debug)]
pub struct Acquaintance {
    senders: KnownSenders,
    /// The key that the user gives, and the one that is known.
    asked: Option<Pin>,
    known: Option<Pin>,
}

impl Acquaintance {
    /// Believes the sender of a session that was found, remembers it, and tells the user if nothing
    /// speaks for it. From now on the selector selects what comes from it alone.
    ///
    /// # Errors
    ///
    /// As [`remember`](KnownSenders::remember).
    pub fn made(
        &self,
        selector: &mut SessionSelector,
        signer: Pin,
        source: impl fmt::Display,
        note: impl FnOnce(&str),
    ) -> anyhow::Result<()> {
        let name = &selector.name;
        if self.known != Some(signer) {
            if self.asked.is_none() {
                let command = self.senders.noun.sender();
                note(&format!(
                    "`{name}` comes from {source} for the first time: its key {signer} is \
                     remembered, and must be the one that `{command}` printed there"
                ));
            }
            self.senders.remember(name, signer)?;
        }
        selector.pin = Some(signer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_key_of_a_name_is_remembered() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownSenders::in_dir(Noun::Feed, &directory.path().join("deep/state"));
        let names = ["a", "a b"].map(|name| name.parse::<SessionName>().unwrap());
        let pins = [1, 2].map(|digest| Pin::from_digest([digest; 32]));
        assert_eq!(known.pin_of(&names[0]).unwrap(), None);
        known.remember(&names[0], pins[0]).unwrap();
        known.remember(&names[1], pins[1]).unwrap();
        known.remember(&names[1], pins[1]).unwrap();
        assert_eq!(known.pin_of(&names[0]).unwrap(), Some(pins[0]));
        assert_eq!(known.pin_of(&names[1]).unwrap(), Some(pins[1]));
        known.remember(&names[0], pins[1]).unwrap();
        assert_eq!(known.pin_of(&names[0]).unwrap(), Some(pins[1]));
        assert_eq!(std::fs::read_to_string(&known.path).unwrap().lines().count(), 3);
    }

    #[test]
    fn receivers_that_start_at_once_remember_all_their_senders() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownSenders::in_dir(Noun::Stream, directory.path());
        let name = |n: u8| format!("feed {n}").parse::<SessionName>().unwrap();
        let pin = |n: u8| Pin::from_digest([n; 32]);
        std::thread::scope(|scope| {
            for n in 0..16 {
                let known = &known;
                scope.spawn(move || known.remember(&name(n), pin(n)).unwrap());
            }
        });
        for n in 0..16 {
            assert_eq!(known.pin_of(&name(n)).unwrap(), Some(pin(n)));
        }
    }

    #[test]
    fn a_damaged_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let known = KnownSenders::in_dir(Noun::Stream, directory.path());
        for bad in ["x", "x y", "\u{0}"] {
            std::fs::write(&known.path, format!("\n{bad}\n")).unwrap();
            let error = known.pin_of(&"a".parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains("known_streams"), "{error}");
        }
        std::fs::write(&known.path, [0xFF]).unwrap();
        assert!(known.pin_of(&"a".parse().unwrap()).is_err());
    }
}
