//! Names of the files of a ladder, and how playlists refer to them.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Maximum length of a name in bytes; it fits the head of an object.
pub const MAX_NAME: usize = 512;
/// Maximum length of one part of a name in bytes, as in most file systems.
const MAX_PART: usize = 255;
/// Characters that have a meaning in a URI, or that none has [RFC 3986 §3.3, §4.2].
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b':')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Path of a file relative to the ladder's directory, which it cannot leave. No part is empty, `.`
/// or `..`, and none has a control character. Playlists refer to it by a URI.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

/// Reason why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty, or has an empty part, or is that of a directory.
    #[error("no file's name")]
    Empty,
    /// The name begins at the root.
    #[error("an absolute path")]
    Absolute,
    /// The file is at a server, or at whatever the URI's scheme means.
    #[error("the address of another place")]
    Elsewhere,
    /// The name leaves the ladder's directory, or repeats it.
    #[error("a path out of the directory")]
    Dots,
    /// A control character, or a slash within a part.
    #[error("the character {0:?}, as no file's name has it")]
    Character(char),
    /// An escape that is no text.
    #[error("escapes that are no UTF-8")]
    Encoding,
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
        if let Some(c) = text.chars().find(|c| c.is_control()) {
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

    /// Resolves a URI reference in a playlist of this name [RFC 3986 §5.2]. The ladder's directory
    /// is the root of its server. Queries and fragments are left out. Colons need no escape, and
    /// neither does a `%` before anything but two digits: many write them so.
    ///
    /// # Errors
    ///
    /// If it leads out of the directory, or to no file.
    pub fn beside(&self, reference: &str) -> Result<FileName, NameError> {
        let path = reference.split(['?', '#']).next().unwrap_or_default();
        if path.starts_with("//") || scheme(path).is_some() {
            return Err(NameError::Elsewhere);
        }
        let mut parts: Vec<String> = match path.strip_prefix('/') {
            Some(_) => Vec::new(),
            None => self.directory().split('/').map(str::to_owned).collect(),
        };
        parts.retain(|part| !part.is_empty());
        let mut is_file = false;
        for part in path.split('/') {
            let part = percent_decode_str(part).decode_utf8().map_err(|_| NameError::Encoding)?;
            is_file = !matches!(&part[..], "" | "." | "..");
            match &part[..] {
                "" | "." => {}
                ".." => drop(parts.pop().ok_or(NameError::Dots)?),
                part if part.contains('/') => return Err(NameError::Character('/')),
                part => parts.push(part.to_owned()),
            }
        }
        if is_file { FileName::parse(&parts.join("/")) } else { Err(NameError::Empty) }
    }

    /// Resolves a reference to a segment or its init file as [`beside`](FileName::beside). Of the
    /// address of a web server the last part counts, beside the playlist: writers put the address
    /// before the names of the files there (ffmpeg: `-hls_base_url`).
    ///
    /// # Errors
    ///
    /// As [`beside`](FileName::beside).
    pub(super) fn beside_or_served(&self, reference: &str) -> Result<FileName, NameError> {
        let path = reference.split(['?', '#']).next().unwrap_or_default();
        let served = scheme(path).filter(|scheme| {
            scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
        });
        match served.and_then(|_| path.rsplit_once('/')) {
            Some((_, last)) => self.beside(&format!("./{last}")),
            None => self.beside(reference),
        }
    }

    /// Returns how a playlist of that name refers to this file.
    pub fn seen_from(&self, playlist: &FileName) -> String {
        let mut from = playlist.parts().rev().skip(1).collect::<Vec<_>>();
        let mut to: Vec<&str> = self.parts().rev().collect();
        while let [_, .., part] = to[..]
            && from.last() == Some(&part)
        {
            from.pop();
            to.pop();
        }
        let up = from.iter().map(|_| "..".to_owned());
        let down = to.iter().rev().map(|part| utf8_percent_encode(part, ESCAPED).to_string());
        up.chain(down).collect::<Vec<_>>().join("/")
    }

    /// Returns whether it is the name of a playlist.
    pub fn is_playlist(&self) -> bool {
        is_playlist(&self.0)
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

/// Returns whether a file of this name is a playlist.
pub(super) fn is_playlist(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    extension.eq_ignore_ascii_case("m3u8") || extension.eq_ignore_ascii_case("m3u")
}

/// Returns the scheme of a URI that has an authority. A colon alone is one of a file's name.
fn scheme(path: &str) -> Option<&str> {
    let (scheme, _) = path.split_once("://")?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let sound =
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_part);
    sound.then_some(scheme)
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> FileName {
        FileName::parse(text).unwrap()
    }

    #[test]
    fn a_name_never_leaves_its_directory() {
        for (text, error) in [
            ("", NameError::Empty),
            ("a//b", NameError::Empty),
            ("a/", NameError::Empty),
            ("/etc/passwd", NameError::Absolute),
            ("..", NameError::Dots),
            ("a/../../b", NameError::Dots),
            ("./a", NameError::Dots),
            ("a\0", NameError::Character('\0')),
        ] {
            assert_eq!(FileName::parse(text), Err(error), "{text}");
        }
        assert_eq!(FileName::parse(&"a/".repeat(300)), Err(NameError::TooLong(600)));
        assert_eq!(FileName::parse(&"a".repeat(256)), Err(NameError::TooLong(256)));
        assert_eq!(name("seg:1?%20#.ts").as_str(), "seg:1?%20#.ts");
    }

    #[test]
    fn references_are_resolved_as_uris_within_the_directory() {
        let playlist = name("v0/low/index.m3u8");
        for (reference, file) in [
            ("seg_1.ts", "v0/low/seg_1.ts"),
            ("seg 1.ts", "v0/low/seg 1.ts"),
            ("my%20seg.ts", "v0/low/my seg.ts"),
            ("T%C3%BCr.ts", "v0/low/Tür.ts"),
            ("12:30:seg.ts", "v0/low/12:30:seg.ts"),
            ("100%.ts", "v0/low/100%.ts"),
            ("./seg.ts", "v0/low/seg.ts"),
            ("a/./b//c.ts", "v0/low/a/b/c.ts"),
            ("../high/seg.ts", "v0/high/seg.ts"),
            ("../../seg.ts", "seg.ts"),
            ("a/%2e%2E/seg.ts", "v0/low/seg.ts"),
            ("seg.ts?v=1/2", "v0/low/seg.ts"),
            ("seg.ts#t=1", "v0/low/seg.ts"),
            ("/v1/seg.ts", "v1/seg.ts"),
        ] {
            assert_eq!(playlist.beside(reference), Ok(name(file)), "{reference}");
            assert_eq!(playlist.beside_or_served(reference), Ok(name(file)), "{reference}");
        }
        for (reference, error) in [
            ("", NameError::Empty),
            ("?v=1", NameError::Empty),
            ("..", NameError::Empty),
            ("a/", NameError::Empty),
            ("/", NameError::Empty),
            ("../../../seg.ts", NameError::Dots),
            ("/../seg.ts", NameError::Dots),
            ("%2e%2e/../../seg.ts", NameError::Dots),
            ("a%2Fb.ts", NameError::Character('/')),
            ("a%00.ts", NameError::Character('\0')),
            ("a%ff.ts", NameError::Encoding),
            ("//host/seg.ts", NameError::Elsewhere),
            ("http://host/seg.ts", NameError::Elsewhere),
            ("file:///etc/passwd", NameError::Elsewhere),
        ] {
            assert_eq!(playlist.beside(reference), Err(error), "{reference}");
        }
        let served = playlist.beside_or_served("https://cdn.example/live/low/12:30.ts?token=a/b");
        assert_eq!(served, Ok(name("v0/low/12:30.ts")));
        let file = playlist.beside_or_served("file:///etc/passwd");
        assert_eq!(file, Err(NameError::Elsewhere));
        assert!(playlist.beside_or_served("http://cdn.example/").is_err());
    }

    #[test]
    fn files_are_referred_to_from_their_playlists() {
        for (file, playlist, reference) in [
            ("v0/low/seg 1.ts", "v0/low/index.m3u8", "seg%201.ts"),
            ("v0/low/12:30.ts", "v0/index.m3u8", "low/12%3A30.ts"),
            ("v0/seg.ts", "pl/low.m3u8", "../v0/seg.ts"),
            ("v0/lower/a", "v0/low/index.m3u8", "../lower/a"),
            ("a", "v0/low/index.m3u8", "../../a"),
            ("a/a/a", "a/a/index.m3u8", "a"),
            ("a", "a/index.m3u8", "../a"),
        ] {
            let (file, playlist) = (name(file), name(playlist));
            assert_eq!(file.seen_from(&playlist), reference);
            assert_eq!(playlist.beside(reference), Ok(file));
        }
        assert_eq!(name("v0/seg.m4s").extension(), "m4s");
        assert!(name("v0/A.M3U8").is_playlist() && name("a.m3u").is_playlist());
        assert!(!name("m3u8").is_playlist() && !name("a.m3u8.tmp").is_playlist());
    }

    proptest! {
        #[test]
        fn a_reference_is_inside_and_comes_back(
            from in "[a-c]{1,2}(/[a-c]{1,2}){0,3}",
            reference in "[a-c.%/:?#0-9ä ]{0,20}",
        ) {
            let playlist = name(&from);
            if let Ok(file) = playlist.beside(&reference) {
                prop_assert_eq!(FileName::parse(file.as_str()), Ok(file.clone()));
                prop_assert_eq!(playlist.beside(&file.seen_from(&playlist)), Ok(file));
            }
        }
    }
}
