//! Names of the files of a ladder.

use std::fmt;

/// Maximum length of a name in bytes; it fits the head of an object.
pub const MAX_NAME: usize = 512;
/// Maximum length of one part of a name in bytes, as in most file systems.
const MAX_PART: usize = 255;

/// Path of a file relative to the ladder's directory, which it cannot leave. No part is empty, `.`
/// or `..`, and none has a character with a special meaning in a URI.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

/// Reason why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty, or has an empty part.
    #[error("an empty part")]
    Empty,
    /// The name begins at the root, or with a server's name.
    #[error("an absolute path")]
    Absolute,
    /// The name leaves its directory, or repeats it.
    #[error("a part `.` or `..`")]
    Dots,
    /// A scheme, a query, a fragment, an escape, a backslash or a control character.
    #[error("the character {0:?}, as no relative path has it")]
    Character(char),
    /// The name is too long.
    #[error("{0} bytes, which is too long")]
    TooLong(usize),
}

impl FileName {
    /// Parses a path relative to the ladder's directory.
    ///
    /// # Errors
    ///
    /// If it is anything else.
    pub fn parse(text: &str) -> Result<FileName, NameError> {
        if text.len() > MAX_NAME {
            return Err(NameError::TooLong(text.len()));
        }
        if text.starts_with('/') {
            return Err(NameError::Absolute);
        }
        let bad = |c: &char| c.is_control() || matches!(c, ':' | '?' | '#' | '%' | '\\' | '"');
        if let Some(c) = text.chars().find(bad) {
            return Err(NameError::Character(c));
        }
        for part in text.split('/') {
            match part {
                "" => return Err(NameError::Empty),
                "." | ".." => return Err(NameError::Dots),
                _ if part.len() > MAX_PART => return Err(NameError::TooLong(part.len())),
                _ => {}
            }
        }
        Ok(FileName(text.to_owned()))
    }

    /// Parses what stands in a playlist of this name: a path relative to the playlist's directory.
    ///
    /// # Errors
    ///
    /// If it is anything else.
    pub fn beside(&self, text: &str) -> Result<FileName, NameError> {
        // An absolute path must not become a relative one by what is put before it.
        let name = FileName::parse(text)?;
        match self.directory() {
            "" => Ok(name),
            directory => FileName::parse(&format!("{directory}/{name}")),
        }
    }

    /// Returns the path of this file as it stands in a playlist of that name, which must be in the
    /// same directory or above it.
    pub fn seen_from(&self, playlist: &FileName) -> Option<&str> {
        match playlist.directory() {
            "" => Some(&self.0),
            directory => self.0.strip_prefix(directory)?.strip_prefix('/'),
        }
    }

    /// Returns the path of its directory; empty for that of the ladder.
    pub fn directory(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(directory, _)| directory)
    }

    /// Returns the part after the last dot of the last part, or an empty string.
    pub fn extension(&self) -> &str {
        let last = self.0.rsplit('/').next().unwrap_or_default();
        last.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// Returns the parts, from the ladder's directory down.
    pub(super) fn parts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leaves_its_directory() {
        for (text, error) in [
            ("", NameError::Empty),
            ("a//b", NameError::Empty),
            ("a/", NameError::Empty),
            ("/etc/passwd", NameError::Absolute),
            ("//host/a", NameError::Absolute),
            ("..", NameError::Dots),
            ("a/../../b", NameError::Dots),
            ("./a", NameError::Dots),
            ("http://host/a", NameError::Character(':')),
            ("data:text/plain,a", NameError::Character(':')),
            ("a%2e%2e/b", NameError::Character('%')),
            ("a\\..\\b", NameError::Character('\\')),
            ("a\0", NameError::Character('\0')),
            ("a?b", NameError::Character('?')),
        ] {
            assert_eq!(FileName::parse(text), Err(error), "{text}");
            let playlist = FileName::parse("v0/index.m3u8").unwrap();
            assert_eq!(playlist.beside(text), Err(error), "{text}");
        }
        assert_eq!(FileName::parse(&"a/".repeat(300)), Err(NameError::TooLong(600)));
        assert_eq!(FileName::parse(&"a".repeat(256)), Err(NameError::TooLong(256)));
    }

    #[test]
    fn names_in_a_playlist_are_relative_to_it() {
        let playlist = FileName::parse("v0/low/index.m3u8").unwrap();
        let segment = playlist.beside("seg 1.m4s").unwrap();
        assert_eq!(segment.as_str(), "v0/low/seg 1.m4s");
        assert_eq!(segment.seen_from(&playlist), Some("seg 1.m4s"));
        assert_eq!(segment.extension(), "m4s");
        let master = FileName::parse("master.m3u8").unwrap();
        assert_eq!(playlist.seen_from(&master), Some("v0/low/index.m3u8"));
        assert_eq!(master.beside("v0/low/index.m3u8").unwrap(), playlist);
        assert_eq!(master.seen_from(&playlist), None);
        let other = FileName::parse("v0/lower/a").unwrap();
        assert_eq!(other.seen_from(&playlist), None);
    }
}
