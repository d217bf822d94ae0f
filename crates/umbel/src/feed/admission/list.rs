//! The list of those who are admitted.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use umbel_store::feed::seal::PublicKey;

/// Words this long of nothing but hexadecimal digits are meant to be keys.
const LOOKS_LIKE_A_KEY: usize = 40;

/// Receivers that should have a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmitList {
    /// What they call themselves.
    pub names: BTreeSet<String>,
    /// Their public keys. If there are any, they alone can read the feed.
    pub keys: Vec<PublicKey>,
}

impl AdmitList {
    /// Parses lines `NAME` or `NAME KEY`; empty ones and those that begin with `#` count for
    /// nothing.
    ///
    /// # Errors
    ///
    /// One line that says which line is wrong. Either all have a key or none has one: with some,
    /// it would be unclear what the others are promised.
    pub fn parse(text: &str) -> anyhow::Result<AdmitList> {
        let mut list = AdmitList::default();
        let mut keys = BTreeSet::new();
        let mut without = None;
        let lines = (1..).zip(text.lines().map(str::trim));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let (name, key) = split(line).with_context(|| format!("line {number}"))?;
            match key {
                Some(key) => keys.extend([key]),
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
        list.keys = keys.into_iter().collect();
        Ok(list)
    }
}

/// A line's name and key.
fn split(line: &str) -> anyhow::Result<(&str, Option<PublicKey>)> {
    let (name, last) = line.rsplit_once(char::is_whitespace).unwrap_or(("", line));
    let hexadecimal = last.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !hexadecimal || last.len() < LOOKS_LIKE_A_KEY {
        return Ok((line, None));
    }
    let key = last.parse()?;
    match name.trim_end() {
        "" => bail!("a key without a name before it"),
        name => Ok((name, Some(key))),
    }
}

#[cfg(test)]
mod tests {
    use umbel_store::feed::seal::SecretKey;

    use super::*;

    fn key(n: u8) -> PublicKey {
        SecretKey([n; 32]).public()
    }

    #[test]
    fn a_list_has_names_or_names_with_keys() {
        let list = AdmitList::parse("# all of them\nb\n\n  a \nb\nlab 3\n").unwrap();
        assert_eq!(list.names, ["a", "b", "lab 3"].map(str::to_owned).into());
        assert_eq!(list.keys, []);
        let text = format!("lab 3 \t{}\na {}\n#\n", key(1), key(2).to_string().to_uppercase());
        let list = AdmitList::parse(&text).unwrap();
        assert_eq!(list.names, ["a", "lab 3"].map(str::to_owned).into());
        assert_eq!(BTreeSet::from_iter(list.keys), [key(1), key(2)].into());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let one = key(1);
        for (text, words) in [
            (format!("a {one}\nb\n"), "line 2: `b` has no key"),
            (format!("\n{one}\n"), "line 2: a key without a name"),
            (format!("a {}", &one.to_string()[1..]), "line 1: a key has 64"),
            (format!("a {}", "0".repeat(64)), "line 1: it is no receiver's key"),
        ] {
            let error = format!("{:#}", AdmitList::parse(&text).unwrap_err());
            assert!(error.starts_with(words), "{error}");
        }
    }
}
