//! The manifest: the list of a feed's items, and the digest of each of their blocks.
//!
//! ```text
//! number of blocks (4 bytes), digest of each (32 bytes), in the feed's order
//! items, as consecutive pages of a catalog
//! ```
//!
//! So that a block is right or wrong as soon as it is whole, and a wrong one costs itself only. Blocks
//! that are holes have no digest there.

use umbel_fec::Partition;
use umbel_wire::control;
use umbel_wire::feed::MANIFEST_LEN;
use umbel_wire::repository::{ItemInfo, ServerMessage, limits};
use umbel_wire::{Digest, ParseError};

use super::seal::OpenError;

/// Maximum number of items in a manifest. Bounds the memory that parsing takes.
const ITEMS: usize = 1 << 20;
/// Approximate number of bytes per page.
const PAGE_BYTES: usize = 1 << 20;
/// Bytes of a digest.
const DIGEST_LEN: usize = 32;

/// Reason why a manifest is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The manifest is sealed and cannot be opened.
    #[error(transparent)]
    Sealed(#[from] OpenError),
    /// The bytes are not a list of items.
    #[error("the list of what is sent cannot be read: {0}")]
    Parse(#[from] ParseError),
    /// The digests are not those of the items' blocks.
    #[error("the list of what is sent has {digests} digests for {blocks} blocks")]
    Digests {
        /// Number of digests.
        digests: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Two items have the same number.
    #[error("the list of what is sent has item {0} twice")]
    Twice(u32),
    /// The manifest exceeds the maximum length.
    #[error(
        "too many items: a list of {len} bytes; {MANIFEST_LEN} bytes or a million items can be sent"
    )]
    TooLong {
        /// Length in bytes.
        len: u64,
    },
}

/// The contents of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The items, in the order in which they are sent.
    pub items: Vec<ItemInfo>,
    /// Number of further items at the source that it cannot send. On the wire, the pages carry the
    /// total number of items.
    pub left_out: u64,
    /// Digests of all blocks of the items that are no holes, in the same order.
    pub blocks: Vec<Digest>,
}

impl Manifest {
    /// Returns the bytes to send; never empty.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too many items.
    pub fn emit(&self) -> Result<Vec<u8>, ManifestError> {
        let mut out = self.emit_items()?;
        let count = self.blocks.len();
        let mut bytes = Vec::with_capacity(4 + count * DIGEST_LEN + out.len());
        bytes.extend_from_slice(&(count as u32).to_be_bytes());
        self.blocks.iter().for_each(|digest| bytes.extend_from_slice(&digest.0));
        bytes.append(&mut out);
        Ok(bytes)
    }

    fn emit_items(&self) -> Result<Vec<u8>, ManifestError> {
        let mut out = Vec::new();
        let mut rest = &self.items[..];
        loop {
            let mut bytes = 0;
            let fits = |item: &&ItemInfo| {
                bytes += item.max_wire_len();
                bytes <= PAGE_BYTES
            };
            let count = rest.iter().take(limits::PAGE_ITEMS).take_while(fits).count();
            let count = count.max(1).min(rest.len());
            let (items, others) = rest.split_at(count);
            rest = others;
            let count = self.items.len() as u64;
            let next = (!rest.is_empty()).then_some(count - rest.len() as u64);
            let total = count.saturating_add(self.left_out);
            ServerMessage::Page { query: 0, items: items.to_vec(), total, next }.emit(&mut out);
            if rest.is_empty() {
                break;
            }
        }
        match out.len() as u64 {
            len if len > MANIFEST_LEN || self.items.len() > ITEMS => {
                Err(ManifestError::TooLong { len })
            }
            _ => Ok(out),
        }
    }

    /// Parses received bytes. Takes memory in proportion to their length.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a list of items.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let (mut items, mut all) = (Vec::new(), 0);
        let short = ParseError::Value { what: "manifest", problem: "it ends within the digests" };
        let (count, rest) = bytes.split_first_chunk().ok_or_else(|| short.clone())?;
        let len = u32::from_be_bytes(*count) as usize * DIGEST_LEN;
        let (digests, mut rest) = rest.split_at_checked(len).ok_or(short)?;
        let blocks: Vec<Digest> =
            digests.as_chunks().0.iter().map(|digest| Digest(*digest)).collect();
        while !rest.is_empty() {
            if items.len() > ITEMS {
                return Err(ManifestError::TooLong { len: bytes.len() as u64 });
            }
            let header = control::peek(rest)?;
            let len = header.map_or(rest.len(), |header| header.frame_len()).min(rest.len());
            let (page, others) = rest.split_at(len);
            rest = others;
            let Some(ServerMessage::Page { items: more, total, .. }) =
                ServerMessage::parse(page)?.message()
            else {
                let problem = "not a page of items";
                return Err(ParseError::Value { what: "manifest", problem }.into());
            };
            items.extend(more);
            all = total;
        }
        let mut numbers: Vec<u32> = items.iter().map(|item| item.toi.0).collect();
        numbers.sort_unstable();
        if let Some(pair) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ManifestError::Twice(pair[0]));
        }
        check(&items, &blocks)?;
        let left_out = all.saturating_sub(items.len() as u64);
        Ok(Manifest { items, left_out, blocks })
    }
}

/// Checks that there is a digest for each block of the items.
fn check(items: &[ItemInfo], digests: &[Digest]) -> Result<(), ManifestError> {
    // Items that cannot be cut make no feed, which its layout will report.
    let cut = items.iter().filter(|item| Partition::new(&item.oti).is_ok());
    let runs = cut.flat_map(ItemInfo::data_blocks);
    let blocks = runs.map(|run| u64::from(run.end - run.start)).sum();
    match digests.len() as u64 {
        digests if digests != blocks => Err(ManifestError::Digests { digests, blocks }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::BlockShape;
    use super::super::layout::tests::item;
    use super::*;

    #[test]
    fn any_number_of_items_comes_back() {
        let shape = BlockShape { symbol_len: 1368, block_symbols: 64, sealed: false };
        for count in [0, 1, 4096, 4097, 10_000] {
            let items: Vec<_> = (0..count).map(|toi| item(toi, 5, shape)).collect();
            for left_out in [0, 7] {
                // Each has one block.
                let blocks = vec![Digest([9; 32]); items.len()];
                let manifest = Manifest { items: items.clone(), left_out, blocks };
                let bytes = manifest.emit().unwrap();
                assert!(!bytes.is_empty());
                assert_eq!(Manifest::parse(&bytes), Ok(manifest));
            }
        }
    }

    #[test]
    fn a_senseless_manifest_is_refused() {
        let shape = BlockShape { symbol_len: 1368, block_symbols: 64, sealed: false };
        let blocks = vec![Digest([9; 32])];
        let manifest = Manifest { items: vec![item(1, 5, shape)], left_out: 0, blocks };
        let bytes = manifest.emit().unwrap();
        for len in (0..bytes.len()).filter(|len| *len != 4 + DIGEST_LEN) {
            let cut = &bytes[..len];
            assert!(matches!(Manifest::parse(cut), Err(ManifestError::Parse(_))));
        }
        let none = ManifestError::Digests { digests: 1, blocks: 0 };
        assert_eq!(Manifest::parse(&bytes[..4 + DIGEST_LEN]), Err(none));
        let twice = [&bytes[..], &bytes[4 + DIGEST_LEN..]].concat();
        assert_eq!(Manifest::parse(&twice), Err(ManifestError::Twice(1)));
        let other = b"Um\x01\x05\0\0\0\0";
        assert!(Manifest::parse(other).is_err());
    }
}
