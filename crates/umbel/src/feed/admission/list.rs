//! The list of admitted receivers.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use umbel_store::feed::seal::PublicKey;

/// Shortest run of hexadecimal digits that counts as an attempt at a key.
const LOOKS_LIKE_A_KEY: usize = 40;
/// Shortest run of hexadecimal digits behind a name that counts as part of a key.
const LOOKS_LIKE_A_PART: usize = 16;

/// Receivers that should get a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmitList {
    /// Names by which the receivers report.
    pub names: BTreeSet<String>,
    /// Their public keys. If there are any, only their holders can read the feed.
    pub keys: Vec<PublicKey>,
    /// The key of each name. A key may have several names.
    pub owners: BTreeMap<String, PublicKey>,
}

impl AdmitList {
    /// Parses lines `NAME` or `NAME KEY`. Skips empty lines and comments. A comment follows a `#`
    /// that begins a line or stands between spaces, or is anything behind a key that begins with
    /// `#`.
    ///
    /// # Errors
    ///
    /// One line that says which line is wrong. A line that seems meant to have a key, but has no
    /// readable one, is an error, as the feed would go out unsealed. So is a list without a name.
    /// Either all lines have a key or none has. With some, it would be unclear what the others are
    /// promised. A name has one key: with two, one receiver's word would do for another.
    pub fn parse(text: &str) -> anyhow::Result<AdmitList> {
        let mut list = AdmitList::default();
        let mut keys = BTreeSet::new();
        let mut without = None;
        let mut lines_of = BTreeMap::new();
        let text = text.trim_start_matches('\u{feff}');
        let lines = (1..).zip(text.lines().map(without_comment));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let (name, key) = split(line).with_context(|| format!("line {number}"))?;
            match key {
                Some(key) => {
                    let before = list.owners.insert(name.to_owned(), key);
                    let first = *lines_of.entry(name).or_insert(number);
                    if before.is_some_and(|before| before != key) {
                        bail!(
                            "line {number}: `{name}` has another key in line {first}: give each \
                             receiver its own name"
                        );
                    }
                    keys.extend([key]);
                }
                None => without = without.or(Some((number, name))),
            }
            list.names.insert(name.to_owned());
        }
        if let (Some((number, name)), false) = (without, keys.is_empty()) {
            bail!(
                "line {number}: `{name}` has no key and others have: give it the one that \
                 `umbel key` prints there, or take all keys out"
            );
        }
        if list.names.is_empty() {
            bail!("it names nobody: everyone could read the feed");
        }
        list.keys = keys.into_iter().collect();
        Ok(list)
    }
}

/// Returns a line up to its comment.
fn without_comment(line: &str) -> &str {
    let begins = |(at, _): &(usize, &str)| {
        let (before, after) = (&line[..*at], &line[at + 1..]);
        let behind_key =
            before.split_whitespace().next_back().is_some_and(|last| hexadecimal_run(last) == 64);
        let apart = before.is_empty() || before.ends_with(char::is_whitespace);
        let loose = after.is_empty() || after.starts_with(char::is_whitespace);
        before.trim().is_empty() || apart && (loose || behind_key)
    };
    let end = line.match_indices('#').find(begins).map_or(line.len(), |(at, _)| at);
    line[..end].trim()
}

/// Returns the length of the longest run of hexadecimal digits.
fn hexadecimal_run(text: &str) -> usize {
    let runs = text.split(|c: char| !c.is_ascii_hexdigit()).map(str::len);
    runs.max().unwrap_or(0)
}

/// Splits a line into its name and key.
fn split(line: &str) -> anyhow::Result<(&str, Option<PublicKey>)> {
    let (name, last) = line.rsplit_once(char::is_whitespace).unwrap_or(("", line));
    let hexadecimal = last.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hexadecimal && last.len() >= LOOKS_LIKE_A_KEY {
        let key = last.parse()?;
        let name = name.trim_end();
        if hexadecimal_run(name) >= LOOKS_LIKE_A_KEY {
            bail!("two keys: each belongs on its own line, behind a name");
        }
        return match name {
            "" => bail!("a key without a name before it"),
            name => Ok((name, Some(key))),
        };
    }
    let behind = line.split_once(|c: char| !c.is_ascii_hexdigit()).map_or("", |(_, rest)| rest);
    if hexadecimal_run(line) >= LOOKS_LIKE_A_KEY || hexadecimal_run(behind) >= LOOKS_LIKE_A_PART {
        bail!(
            "it seems to have a key that cannot be read: write a name, a space and the 64 digits \
             that `umbel key` prints, and nothing else but a comment after ` # `"
        );
    }
    Ok((line, None))
}

#[cfg(test)]
mod tests {
    use umbel_store::feed::seal::SecretKey;

    use super::*;

    fn key(n: u8) -> PublicKey {
        SecretKey::new([n; 32]).public()
    }

    #[test]
    fn a_list_has_names_or_names_with_keys() {
        let list = AdmitList::parse("# all of them\nb\n\n  a \nb\nlab 3\n").unwrap();
        assert_eq!(list.names, ["a", "b", "lab 3"].map(str::to_owned).into());
        assert_eq!(list.keys, []);
        // A long number alone is a machine's number.
        let number = "0123456789abcdef0123456789abcdef";
        assert_eq!(AdmitList::parse(number).unwrap().names, [number.to_owned()].into());
        let text = format!("lab 3 \t{}\na {}\n#\n", key(1), key(2).to_string().to_uppercase());
        let list = AdmitList::parse(&text).unwrap();
        assert_eq!(list.names, ["a", "lab 3"].map(str::to_owned).into());
        assert_eq!(BTreeSet::from_iter(list.keys), [key(1), key(2)].into());
        let owners = [("lab 3".to_owned(), key(1)), ("a".to_owned(), key(2))];
        assert_eq!(list.owners, owners.into());
    }

    #[test]
    fn a_comment_behind_a_name_or_a_key_is_a_comment() {
        let (one, two) = (key(1), key(2));
        let text = format!(
            "\u{feff}# all\n  # more\na {one} # lab 3\r\nb {two} #lab 4\nlab #5 {one}\t#\n#c {two}\n"
        );
        let list = AdmitList::parse(&text).unwrap();
        assert_eq!(list.names, ["a", "b", "lab #5"].map(str::to_owned).into());
        assert_eq!(BTreeSet::from_iter(list.keys), [one, two].into());
        let list = AdmitList::parse("a # the first\nlab #5").unwrap();
        assert_eq!(list.names, ["a", "lab #5"].map(str::to_owned).into());
    }

    #[test]
    fn a_key_that_cannot_be_read_never_leaves_the_feed_unsealed() {
        let one = key(1).to_string();
        for text in [
            format!("a {one} lab 3"),
            format!("a {one}, lab 3"),
            format!("a {one}."),
            format!("a,{one}"),
            format!("a={one}"),
            format!("a \"{one}\""),
            format!("a\u{a0}{one}x"),
            format!("a {}", &one[..30]),
            format!("a {} {}", &one[..32], &one[32..]),
            format!("a {one} {one}"),
            format!("a {one}# lab 3"),
            String::new(),
            format!("# a {one}\n\n"),
        ] {
            let error = AdmitList::parse(&text);
            assert!(error.is_err(), "{text:?}: {error:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let one = key(1);
        for (text, words) in [
            (format!("a {one}\nb\n"), "line 2: `b` has no key"),
            (
                format!("a {one}\nb {one}\na {one}\n\na {}\n", key(2)),
                "line 5: `a` has another key in line 1: give each receiver",
            ),
            (format!("\n{one}\n"), "line 2: a key without a name"),
            (format!("a {}", &one.to_string()[1..]), "line 1: a key has 64"),
            (format!("a {}", "0".repeat(64)), "line 1: it is no receiver's key"),
        ] {
            let error = format!("{:#}", AdmitList::parse(&text).unwrap_err());
            assert!(error.starts_with(words), "{error}");
        }
    }
}
