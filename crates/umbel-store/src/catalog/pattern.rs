//! Patterns of item names, as users write them.

use globset::{GlobBuilder, GlobMatcher};

use crate::PatternError;

/// Maximum length of a pattern in bytes.
const MAX_LEN: usize = 4_096;
/// Characters that make a pattern more than a name.
const WILDCARDS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// A parsed pattern.
#[derive(Clone, Debug)]
pub(super) enum Pattern {
    /// Matches all items.
    All,
    /// Matches the item with this name, or if there is none, the items below this directory.
    Literal(String),
    /// Matches the items whose names begin with this prefix.
    Below(String),
    /// Matches the items whose names the glob matches.
    Glob {
        /// The pattern as given, which may itself be the name of an item.
        text: String,
        /// Prefix of every name that matches.
        prefix: String,
        matcher: Box<GlobMatcher>,
    },
}

/// Returns the name of an item, or of a directory with items, that a pattern without wildcards
/// denotes. Returns `None` if the pattern can match any number of items.
pub fn name_of(pattern: &str) -> Option<&str> {
    let mut text = pattern;
    while let Some(rest) = text.strip_prefix("./").or_else(|| text.strip_prefix('/')) {
        text = rest;
    }
    let name = text.trim_end_matches('/');
    (!name.is_empty() && name != "." && !name.contains(WILDCARDS)).then_some(name)
}

impl Pattern {
    pub(super) fn new(given: &str) -> Result<Pattern, PatternError> {
        if given.len() > MAX_LEN {
            return Err(PatternError::Length { len: given.len(), max: MAX_LEN });
        }
        let mut text = given;
        while let Some(rest) = text.strip_prefix("./").or_else(|| text.strip_prefix('/')) {
            text = rest;
        }
        if text.is_empty() || text == "." {
            return Ok(Pattern::All);
        }
        if let Some(directory) = text.strip_suffix("**")
            && !directory.contains(WILDCARDS)
            && (directory.is_empty() || directory.ends_with('/'))
        {
            return Ok(Pattern::Below(directory.to_owned()));
        }
        let Some(wildcard) = text.find(WILDCARDS) else {
            return Ok(Pattern::Literal(text.to_owned()));
        };
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| PatternError::Syntax {
                pattern: given.to_owned(),
                reason: error.kind().to_string(),
            })?;
        Ok(Pattern::Glob {
            text: text.to_owned(),
            prefix: prefix_before(text, wildcard).to_owned(),
            matcher: Box::new(glob.compile_matcher()),
        })
    }
}

/// Returns the prefix that every match has. `a/**` also matches `a`, so the separator before `**`
/// does not count.
fn prefix_before(text: &str, wildcard: usize) -> &str {
    let prefix = &text[..wildcard];
    match prefix.strip_suffix('/') {
        Some(shorter) if text[wildcard..].starts_with("**") => shorter,
        _ => prefix,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_without_wildcards_is_a_name() {
        for (pattern, name) in [
            ("a.iso", Some("a.iso")),
            ("./d/a", Some("d/a")),
            ("/d/", Some("d")),
            ("", None),
            (".", None),
            ("./", None),
            ("d/**", None),
            ("*.iso", None),
            ("{a,b}", None),
        ] {
            assert_eq!(name_of(pattern), name, "{pattern}");
        }
    }
}
