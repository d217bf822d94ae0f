//! The mapping of item names to paths below the output directory.
//!
//! A name from the network is a path relative to the repository's root, or a URI. This module maps
//! it to a list of plain parts. No part is empty, `.` or `..`, or has a `/`, a NUL or another
//! control character. No part can be mistaken for one of the sink's own files. A path joined from
//! the parts cannot leave its directory. The server checks names by the same rules, and skips items
//! that clients would refuse. Names that are invalid only on Windows, such as `aux.c`, are allowed
//! here.

use std::collections::HashMap;

/// Maximum bytes of one part of a path.
const MAX_PART_LEN: usize = 255;
/// Maximum bytes of a whole path. Linux refuses 4,096 with the final NUL. The output directory is
/// opened first and does not count.
const MAX_PATH_LEN: usize = 4_000;
/// Length of the longest addition to a name: `.NAME.umbel-part.journal`.
const DECORATION_LEN: usize = ".".len() + PART_SUFFIX.len() + ".journal".len();
/// Suffix of an incomplete file: `.NAME.umbel-part`.
pub(super) const PART_SUFFIX: &str = ".umbel-part";
/// Names that some systems take for a device, whatever extension follows.
const DEVICES: [&str; 8] = ["con", "prn", "aux", "nul", "conin$", "conout$", "com", "lpt"];

/// Reason why an item's name cannot be that of a file below the output directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty, or has an empty part.
    #[error("item name {name:?} has an empty part")]
    Empty {
        /// Name of the item.
        name: String,
    },
    /// The name starts at the root of a file system.
    #[error("item name {name:?} is an absolute path")]
    Absolute {
        /// Name of the item.
        name: String,
    },
    /// A part is `.` or `..`.
    #[error("item name {name:?} leaves its directory with {part:?}")]
    Dots {
        /// Name of the item.
        name: String,
        /// The invalid part.
        part: String,
    },
    /// The name has a NUL or another control character.
    #[error("item name {name:?} holds a control character")]
    Control {
        /// Name of the item.
        name: String,
    },
    /// A part or the whole exceeds the length that file systems allow.
    #[error("item name {name:?} is too long: {len} bytes where {max} are allowed")]
    TooLong {
        /// Name of the item.
        name: String,
        /// Bytes of the part or the path.
        len: usize,
        /// Maximum number of bytes.
        max: usize,
    },
    /// A part looks like one of the sink's own files.
    #[error("item name {name:?} is kept for incomplete items")]
    Reserved {
        /// Name of the item.
        name: String,
    },
    /// Another item already has the name.
    #[error("item name {name:?} is taken by another item")]
    Taken {
        /// Name of the item.
        name: String,
    },
    /// Another item's name differs only in case, and the output directory does not distinguish
    /// them.
    #[error("item names {name:?} and {other:?} are the same file here: case is not told apart")]
    Case {
        /// Name of the item.
        name: String,
        /// Name of the earlier item.
        other: String,
    },
    /// One item is a file with the path of another's directory.
    #[error("item {name:?} cannot be stored: {path:?} would have to be a file and a directory")]
    FileAndDirectory {
        /// Name of the item.
        name: String,
        /// Path that would be both.
        path: String,
    },
}

impl NameError {
    /// Returns the error as text without the name.
    pub fn brief(&self) -> &'static str {
        match self {
            NameError::Empty { .. } => "its name has an empty part",
            NameError::Absolute { .. } => "its name is an absolute path",
            NameError::Dots { .. } => "its name has a part `.` or `..`",
            NameError::Control { .. } => "its name holds a control character",
            NameError::TooLong { .. } => "its name is too long",
            NameError::Reserved { .. } => "its name is that of an incomplete item",
            NameError::Taken { .. } | NameError::Case { .. } => "another item has its name",
            NameError::FileAndDirectory { .. } => "it would have to be a file and a directory",
        }
    }
}

/// A path below the output directory; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RelativePath {
    parts: Vec<String>,
}

impl RelativePath {
    /// Returns the path of an item of this name if no other item has that path.
    ///
    /// # Errors
    ///
    /// Returns an error if no item may have this name. A URI is never refused for its characters,
    /// only for its length. Characters that a file name cannot have are percent-encoded.
    pub fn of_item(name: &str) -> Result<RelativePath, NameError> {
        let parts = match Uri::of(name) {
            Some(uri) => uri.parts(),
            None => name.split('/').map(str::to_owned).collect(),
        };
        check(name, &parts)?;
        Ok(RelativePath { parts })
    }

    /// Returns the names of the directories below the output directory, and the name of the file.
    pub fn split(&self) -> (&[String], &str) {
        let (file, directories) = self.parts.split_last().expect("a path has at least one part");
        (directories, file)
    }

    /// Returns the names of the directories, and of the file.
    pub(super) fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Returns all parts, joined by `/`.
    pub fn joined(&self) -> String {
        self.parts.join("/")
    }

    /// Returns whether the first part begins with `.`, so that the path is that of a hidden file or
    /// below a hidden directory.
    pub fn is_hidden(&self) -> bool {
        self.parts.first().is_some_and(|part| part.starts_with('.'))
    }

    /// Returns the name of the part file beside the target.
    pub(super) fn part_name(&self) -> String {
        let name = self.split().1;
        if name.len() + DECORATION_LEN <= MAX_PART_LEN {
            return format!(".{name}{PART_SUFFIX}");
        }
        let tag = tag(name);
        let kept = name.floor_char_boundary(MAX_PART_LEN - DECORATION_LEN - tag.len());
        format!(".{}{tag}{PART_SUFFIX}", &name[..kept])
    }
}

/// A name that is a URI, which is never refused for its characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uri<'a> {
    /// `scheme://host/path`, with what a crawler put before it to name a view of the page:
    /// `urn:pageinfo` of `urn:pageinfo:https://host/path`, or nothing.
    Hierarchical { view: &'a str, rest: &'a str },
    /// Any other, such as `data:,a//b`, whose text would not be a path.
    Opaque(&'a str),
}

impl Uri<'_> {
    fn of(name: &str) -> Option<Uri<'_>> {
        if let Some((schemes, rest)) = name.split_once("://") {
            let (view, scheme) = schemes.rsplit_once(':').unwrap_or(("", schemes));
            if is_scheme(scheme) && (view.is_empty() || view.split(':').all(is_scheme)) {
                return Some(Uri::Hierarchical { view, rest });
            }
        }
        let (scheme, rest) = name.split_once(':')?;
        // A single letter is a drive, and what is a path may stay one: `c:/x`, `urn:a/b`.
        let path = || check(name, &name.split('/').map(str::to_owned).collect::<Vec<_>>()).is_ok();
        (scheme.len() > 1 && is_scheme(scheme) && !rest.is_empty() && !path())
            .then_some(Uri::Opaque(name))
    }

    /// Converts the URI to safe parts. A path that ends in `/` names its `index.html`.
    fn parts(self) -> Vec<String> {
        let (view, rest) = match self {
            Uri::Opaque(text) => return text.split('/').map(safe_part).collect(),
            Uri::Hierarchical { view, rest } => (view, rest),
        };
        let (path, query) = match rest.find(['?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (authority, path) = path.split_once('/').unwrap_or((path, ""));
        let mut parts = vec![authority.to_ascii_lowercase()];
        parts.extend(path.split('/').map(str::to_owned));
        if let Some(last) = parts.last_mut() {
            if last.is_empty() {
                "index.html".clone_into(last);
            }
            last.push_str(query);
        }
        if !view.is_empty() {
            parts.insert(0, view.to_owned());
        }
        parts.iter().map(|part| safe_part(part)).collect()
    }
}

/// Returns whether a text can be the scheme of a URI, or a part of a URN.
fn is_scheme(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && letters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Converts a part of a URI to a part of a path that passes [`check`].
fn safe_part(part: &str) -> String {
    let mut safe = String::with_capacity(part.len());
    for c in part.chars() {
        if c.is_control() || "/\\\"<>|*".contains(c) {
            let mut utf8 = [0; 4];
            c.encode_utf8(&mut utf8).bytes().for_each(|byte| safe.push_str(&percent(byte)));
        } else {
            safe.push(c);
        }
    }
    if safe.is_empty() {
        return "_".to_owned();
    }
    if safe == "." || safe == ".." || is_device(&safe) || is_reserved(&safe) {
        let first = safe.remove(0);
        safe.insert_str(0, &percent(first as u8));
    }
    if safe.len() > MAX_PART_LEN {
        let tag = tag(part);
        safe.truncate(safe.floor_char_boundary(MAX_PART_LEN - tag.len()));
        safe.push_str(&tag);
    }
    safe
}

fn percent(byte: u8) -> String {
    format!("%{byte:02X}")
}

/// Returns a tag that distinguishes texts with the same beginning.
fn tag(text: &str) -> String {
    let digest = blake3::hash(text.as_bytes());
    format!("~{}", &digest.to_hex()[..16])
}

fn check(name: &str, parts: &[String]) -> Result<(), NameError> {
    if name.starts_with('/') {
        return Err(NameError::Absolute { name: name.to_owned() });
    }
    for part in parts {
        check_part(name, part)?;
    }
    let len = parts.iter().map(|part| part.len() + 1).sum::<usize>();
    if len > MAX_PATH_LEN {
        return Err(NameError::TooLong { name: name.to_owned(), len, max: MAX_PATH_LEN });
    }
    Ok(())
}

fn check_part(name: &str, part: &str) -> Result<(), NameError> {
    let name = || name.to_owned();
    if part.is_empty() {
        return Err(NameError::Empty { name: name() });
    }
    if part == "." || part == ".." {
        return Err(NameError::Dots { name: name(), part: part.to_owned() });
    }
    if part.chars().any(|c| c.is_control() || c == '/') {
        return Err(NameError::Control { name: name() });
    }
    if part.len() > MAX_PART_LEN {
        return Err(NameError::TooLong { name: name(), len: part.len(), max: MAX_PART_LEN });
    }
    if is_reserved(part) {
        return Err(NameError::Reserved { name: name() });
    }
    Ok(())
}

/// Returns whether some system takes the part for a device: `con`, `NUL.txt`, `com1`, `lpt9.log`.
fn is_device(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or(part).trim_end().to_lowercase();
    DEVICES.iter().any(|&device| match stem.strip_prefix(device) {
        Some("") => device != "com" && device != "lpt",
        Some(number) if device == "com" || device == "lpt" => {
            matches!(number, "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³")
        }
        _ => false,
    })
}

/// Returns whether the part looks like an incomplete item or its journal.
pub(super) fn is_reserved(part: &str) -> bool {
    let lower = part.to_lowercase();
    lower.strip_prefix('.').is_some_and(|rest| {
        rest.ends_with(PART_SUFFIX) || rest.contains(&format!("{PART_SUFFIX}."))
    })
}

/// The names in use below one output directory.
#[derive(Debug, Default)]
pub struct Names {
    folds_case: bool,
    /// Maps the key of each file to the name of its item.
    files: HashMap<String, String>,
    /// Maps the key of each directory that is an item, or contains one, to its spelling.
    directories: HashMap<String, String>,
}

impl Names {
    /// Creates an empty set of names. If `folds_case` is true, names that differ only in case are
    /// the same file.
    pub fn new(folds_case: bool) -> Names {
        Names { folds_case, ..Names::default() }
    }

    /// Chooses the item's path and reserves it. The same item gets the same path again. A URI that
    /// collides with another item gets a suffix made from its digest.
    ///
    /// # Errors
    ///
    /// Returns an error if the name cannot be that of a file, or collides with that of another
    /// item.
    pub fn place(&mut self, name: &str) -> Result<RelativePath, NameError> {
        let path = RelativePath::of_item(name)?;
        match self.claim(name, &path) {
            Err(_) if Uri::of(name).is_some() => self.place_suffixed(name, path),
            Err(error) => Err(error),
            Ok(()) => Ok(path),
        }
    }

    /// Reserves the path of an item that is a directory, which any number of items can have.
    ///
    /// # Errors
    ///
    /// Returns an error if the name cannot be that of a directory, or collides with that of another
    /// item.
    pub fn place_directory(&mut self, name: &str) -> Result<RelativePath, NameError> {
        let path = RelativePath::of_item(name)?;
        let joined = path.joined();
        let ends = joined.match_indices('/').map(|(at, _)| at).chain([joined.len()]);
        self.claim_directories(name, ends.map(|end| &joined[..end]))?;
        Ok(path)
    }

    /// Returns whether the path is that of a directory that is an item, or contains one.
    pub(super) fn has_directory(&self, path: &str) -> bool {
        self.directories.contains_key(&self.key(path))
    }

    /// Returns the name of the item that has this path.
    pub(super) fn holder(&self, path: &str) -> Option<&str> {
        self.files.get(&self.key(path)).map(String::as_str)
    }

    /// Releases the path of an item that is no longer wanted.
    pub fn release(&mut self, name: &str, path: &RelativePath) {
        let key = self.key(&path.joined());
        if self.files.get(&key).is_some_and(|holder| holder == name) {
            self.files.remove(&key);
        }
    }

    fn place_suffixed(
        &mut self,
        name: &str,
        path: RelativePath,
    ) -> Result<RelativePath, NameError> {
        let mut parts = path.parts;
        for end in 1..parts.len() {
            let directory = parts[..end].join("/");
            if self.files.contains_key(&self.key(&directory)) {
                push_tag(&mut parts[end - 1], &format!("{directory}/"));
            }
        }
        let mut path = RelativePath { parts };
        if self.claim(name, &path).is_err() {
            push_tag(path.parts.last_mut().expect("a path has at least one part"), name);
            self.claim(name, &path)?;
        }
        Ok(path)
    }

    /// Reserves the path for the item, or returns the collision.
    fn claim(&mut self, name: &str, path: &RelativePath) -> Result<(), NameError> {
        let joined = path.joined();
        let key = self.key(&joined);
        match self.files.get(&key) {
            Some(holder) if holder == name => return Ok(()),
            Some(holder) => return Err(self.collision(name, holder)),
            None => {}
        }
        if self.directories.contains_key(&key) {
            return Err(NameError::FileAndDirectory { name: name.to_owned(), path: joined });
        }
        self.claim_directories(name, joined.match_indices('/').map(|(at, _)| &joined[..at]))?;
        self.files.insert(key, name.to_owned());
        Ok(())
    }

    /// Reserves the paths of directories for an item that is one or is below them.
    fn claim_directories<'a>(
        &mut self,
        name: &str,
        paths: impl Iterator<Item = &'a str>,
    ) -> Result<(), NameError> {
        let mut fresh = Vec::new();
        for directory in paths {
            let key = self.key(directory);
            if self.files.contains_key(&key) {
                let (name, path) = (name.to_owned(), directory.to_owned());
                return Err(NameError::FileAndDirectory { name, path });
            }
            match self.directories.get(&key) {
                Some(spelling) if spelling != directory => {
                    let (name, other) = (name.to_owned(), spelling.clone());
                    return Err(NameError::Case { name, other });
                }
                Some(_) => {}
                None => fresh.push((key, directory.to_owned())),
            }
        }
        self.directories.extend(fresh);
        Ok(())
    }

    fn collision(&self, name: &str, holder: &str) -> NameError {
        let differ = RelativePath::of_item(holder) != RelativePath::of_item(name);
        if self.folds_case && differ {
            NameError::Case { name: name.to_owned(), other: holder.to_owned() }
        } else {
            NameError::Taken { name: name.to_owned() }
        }
    }

    fn key(&self, path: &str) -> String {
        if self.folds_case { path.to_lowercase() } else { path.to_owned() }
    }
}

/// Appends a tag made from `text` to a part, which is truncated to keep the maximum length.
fn push_tag(part: &mut String, text: &str) {
    let tag = tag(text);
    part.truncate(part.floor_char_boundary(MAX_PART_LEN - tag.len()));
    part.push_str(&tag);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn placed(name: &str) -> String {
        RelativePath::of_item(name).unwrap().joined()
    }

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for name in [
            "a",
            "a/b.txt",
            "größe/日本.txt",
            "a b/c~1",
            "x\\y",
            "...",
            "a..b/.hidden",
            "aux.c",
            "con.txt",
            "NUL/COM1",
            "c:/x",
            "\\\\server\\share",
        ] {
            assert_eq!(placed(name), name);
        }
    }

    #[test]
    fn hostile_names_are_refused_each_for_its_reason() {
        let refused = |name: &str| RelativePath::of_item(name).unwrap_err();
        for name in ["..", "../a", "a/../b", "a/..", ".", "./a", "a/./b"] {
            assert!(matches!(refused(name), NameError::Dots { .. }), "{name}");
        }
        for name in ["/", "/etc/passwd", "//a"] {
            assert!(matches!(refused(name), NameError::Absolute { .. }), "{name}");
        }
        for name in ["", "a//b", "a/"] {
            assert!(matches!(refused(name), NameError::Empty { .. }), "{name}");
        }
        for name in ["a:", "1a://b/..", ":///", "C:/../a", "a b:/../c"] {
            assert!(RelativePath::of_item(name).is_ok() == (name == "a:"), "{name}");
        }
        for name in ["a\0b", "a\n", "\u{7f}", "a/\u{1b}[2J"] {
            assert!(matches!(refused(name), NameError::Control { .. }), "{name}");
        }
        for name in [".a.umbel-part", ".a.umbel-part.journal", "d/.X.UMBEL-PART"] {
            assert!(matches!(refused(name), NameError::Reserved { .. }), "{name}");
        }
        assert!(matches!(refused(&"x".repeat(256)), NameError::TooLong { len: 256, .. }));
        assert!(matches!(refused(&"x/".repeat(3_000)[..5_999]), NameError::TooLong { .. }));
    }

    #[test]
    fn uris_become_paths_below_their_host() {
        for (uri, path) in [
            ("http://Example.org", "example.org/index.html"),
            ("http://example.org/", "example.org/index.html"),
            ("https://example.org/a/b.png", "example.org/a/b.png"),
            ("http://h:8080/a/?q=x/y", "h:8080/a/index.html?q=x%2Fy"),
            ("http://h/a/../../b", "h/a/%2E./%2E./b"),
            ("http://../etc", "%2E./etc"),
            ("http://h//x", "h/_/x"),
            ("http://h/con", "h/%63on"),
            ("http://h/Com1.txt", "h/%43om1.txt"),
            ("http://h/console", "h/console"),
            ("http://h/a\\b\n", "h/a%5Cb%0A"),
            ("http://", "_/index.html"),
            ("urn:pageinfo:https://h/", "urn:pageinfo/h/index.html"),
            ("urn:thumbnail:https://H/a/b?c=1", "urn:thumbnail/h/a/b?c=1"),
            ("screenshot:http://h/a//b", "screenshot/h/a/_/b"),
            ("youtube-dl:00001:https://h/v", "youtube-dl:00001:https:/_/h/v"),
            ("blob:https://h/1-2-3", "blob/h/1-2-3"),
            (
                "urn:X-wpull:snapshot?url=https%3A%2F%2Fh%2F",
                "urn:X-wpull:snapshot?url=https%3A%2F%2Fh%2F",
            ),
            ("data:,a//b/../c\n", "data:,a/_/b/%2E./c%0A"),
        ] {
            assert_eq!(placed(uri), path, "{uri}");
        }
    }

    #[test]
    fn long_names_get_short_part_names_that_differ() {
        let (one, other) = ("é".repeat(127), format!("{}e", "é".repeat(126)));
        let part = |name: &str| RelativePath::of_item(name).unwrap().part_name();
        assert_ne!(part(&one), part(&other));
        assert!(part(&one).len() + ".journal".len() <= MAX_PART_LEN);
        assert_eq!(part("d/a"), ".a.umbel-part");
    }

    #[test]
    fn a_name_cannot_be_a_file_and_a_directory() {
        let mut names = Names::new(false);
        names.place("a").unwrap();
        assert!(matches!(names.place("a/b"), Err(NameError::FileAndDirectory { .. })));
        names.place("c/d/e").unwrap();
        assert!(matches!(names.place("c/d"), Err(NameError::FileAndDirectory { .. })));
        names.place("c/d/f").unwrap();
    }

    #[test]
    fn case_matters_only_where_the_file_system_tells_it_apart() {
        let mut names = Names::new(false);
        names.place("Read.me").unwrap();
        names.place("read.me").unwrap();
        let mut names = Names::new(true);
        names.place("Read.me").unwrap();
        names.place("Read.me").unwrap();
        let error = names.place("read.me").unwrap_err();
        assert!(matches!(error, NameError::Case { ref other, .. } if other == "Read.me"));
        names.place("dir/a").unwrap();
        assert!(matches!(names.place("DIR/b"), Err(NameError::Case { .. })));
    }

    #[test]
    fn uris_that_collide_get_a_suffix() {
        let mut names = Names::new(false);
        let mut place = |uri: &str| names.place(uri).unwrap().joined();
        assert_eq!(place("http://h/a"), "h/a");
        let secure = place("https://h/a");
        assert!(
            secure.starts_with("h/a~") && secure.len() == "h/a~1234567812345678".len(),
            "{secure}"
        );
        let below = place("http://h/a/b");
        assert!(below.starts_with("h/a~") && below.ends_with("/b"), "{below}");
        assert_eq!(place("https://h/a"), secure, "the same item keeps its place");
        assert_eq!(place("http://h/c/d"), "h/c/d");
        let above = place("http://h/c");
        assert!(above.starts_with("h/c~"), "{above}");
    }

    proptest! {
        #[test]
        fn no_name_leaves_the_directory(
            name in r"([a-zA-Z]{0,4}://)?([./\\:%?#~ a-cC0\x00-\x20]|\PC){0,40}"
        ) {
            if let Ok(path) = RelativePath::of_item(&name) {
                let joined = path.joined();
                let plain = std::path::Path::new(&joined)
                    .components()
                    .all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(plain, "{joined:?}");
                prop_assert!(!joined.is_empty() && !joined.chars().any(char::is_control));
                let (_, file) = path.split();
                prop_assert!(!file.contains('/') && file.len() <= MAX_PART_LEN);
                prop_assert!(!is_reserved(file) && is_reserved(&path.part_name()));
            }
        }

        #[test]
        fn no_two_items_share_a_place(uris in prop::collection::vec("http://h(/[ab?]{0,2}){0,3}", 1..12)) {
            let mut names = Names::new(true);
            let mut places = HashMap::new();
            for uri in uris {
                if let Ok(path) = names.place(&uri) {
                    let earlier = places.insert(path.joined().to_lowercase(), uri.clone());
                    prop_assert!(earlier.is_none_or(|earlier| earlier == uri));
                }
            }
        }
    }
}
