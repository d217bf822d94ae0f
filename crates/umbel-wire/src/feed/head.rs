//! The head of a sealed feed: the feed's key, wrapped for each admitted receiver, and the sealed
//! list of files.
//!
//! ```text
//! number of wrapped keys        4 bytes
//! each: hint                    8 bytes    by which its receiver finds it
//!       wrapped key            48 bytes    the feed's key and a tag
//! the rest: the sealed manifest            empty in a pipe
//! ```

use crate::ParseError;

/// Length of a hint in bytes.
pub const HINT_LEN: usize = 8;
/// Length of a wrapped key in bytes.
pub const WRAPPED_LEN: usize = 32 + 16;
/// Maximum number of wrapped keys, and so of receivers of a sealed feed.
pub const WRAPPED_KEYS: usize = 1 << 18;

const COUNT_LEN: usize = 4;
const ENTRY_LEN: usize = HINT_LEN + WRAPPED_LEN;

/// A wrapped key, and the hint by which its receiver finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WrappedKey {
    /// A value that only the sender and the receiver can compute.
    pub hint: [u8; HINT_LEN],
    /// The feed's key, encrypted, and a tag.
    pub key: [u8; WRAPPED_LEN],
}

/// The head of a sealed feed, borrowing the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedHead<'a> {
    keys: &'a [[u8; ENTRY_LEN]],
    /// The sealed manifest.
    pub manifest: &'a [u8],
}

impl<'a> SealedHead<'a> {
    /// Parses a head. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if there are fewer bytes than the number of keys needs, or more than
    /// [`WRAPPED_KEYS`] keys.
    pub fn parse(bytes: &'a [u8]) -> Result<SealedHead<'a>, ParseError> {
        let bad = |problem| ParseError::Value { what: "head of a sealed feed", problem };
        let (count, rest) = bytes.split_first_chunk().ok_or(bad("no number of keys"))?;
        let count = u32::from_be_bytes(*count) as usize;
        if count > WRAPPED_KEYS {
            return Err(bad("more keys than a feed may have"));
        }
        let keys = rest.get(..count * ENTRY_LEN).ok_or(bad("it ends within the keys"))?;
        let manifest = &rest[keys.len()..];
        Ok(SealedHead { keys: keys.as_chunks().0, manifest })
    }

    /// Returns the wrapped keys, in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = WrappedKey> + use<'a> {
        self.keys.iter().map(|entry| {
            let (mut hint, mut key) = ([0; HINT_LEN], [0; WRAPPED_LEN]);
            hint.copy_from_slice(&entry[..HINT_LEN]);
            key.copy_from_slice(&entry[HINT_LEN..]);
            WrappedKey { hint, key }
        })
    }

    /// Appends the head with these keys and this manifest. Returns `None` and appends nothing if
    /// there are more than [`WRAPPED_KEYS`] keys.
    pub fn emit(keys: &[WrappedKey], manifest: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let count = u32::try_from(keys.len()).ok().filter(|_| keys.len() <= WRAPPED_KEYS)?;
        out.reserve(COUNT_LEN + keys.len() * ENTRY_LEN + manifest.len());
        out.extend_from_slice(&count.to_be_bytes());
        for key in keys {
            out.extend_from_slice(&key.hint);
            out.extend_from_slice(&key.key);
        }
        out.extend_from_slice(manifest);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back_and_a_short_one_is_refused() {
        let keys = [1, 2].map(|n| WrappedKey { hint: [n; HINT_LEN], key: [n + 10; WRAPPED_LEN] });
        let mut bytes = Vec::new();
        SealedHead::emit(&keys, b"list", &mut bytes).unwrap();
        let head = SealedHead::parse(&bytes).unwrap();
        assert!(head.keys().eq(keys));
        assert_eq!(head.manifest, b"list");
        for len in 0..bytes.len() - 4 {
            assert!(SealedHead::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
        bytes[..4].copy_from_slice(&(WRAPPED_KEYS as u32 + 1).to_be_bytes());
        assert!(SealedHead::parse(&bytes).is_err());
    }
}
