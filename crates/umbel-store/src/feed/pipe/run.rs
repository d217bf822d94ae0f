//! Runs of a pipe's blocks: what their sender signs, and how a receiver tells that a block is the
//! sender's.
//!
//! ```text
//!  place in the run (1 byte) | blocks in the run (1) | ending (1) | 0 | length of the content (4)
//!  signature of the run (64)
//!  digests of the run's blocks (32 each)
//!  content
//! ```
//!
//! A digest is over the feed, the block's number, its ending and its content. The signature is over
//! the feed, the number of the run's first block and the digests. So each block proves by itself
//! that it is right, and one signature serves for up to [`MOST`] blocks.

use std::collections::VecDeque;

use ring::signature::{ED25519, UnparsedPublicKey};
use umbel_engine::Sign;
use umbel_wire::Tsi;

use super::super::BlockShape;

/// Most blocks in a run: at 1 Gbit/s and in blocks of 88 kB, 90 runs a second.
const MOST: usize = 16;
/// The digests take at most this part of a block.
const SHARE: usize = 16;
/// Bytes before the digests.
const FIXED: usize = 8 + SIGNATURE_LEN;
const SIGNATURE_LEN: usize = 64;
const DIGEST_LEN: usize = 32;
/// Bytes that precede what is signed. No other use of the key signs them.
const CONTEXT: &[u8] = b"umbel 2026 run of a pipe\n";
/// Runs that are remembered as the sender's.
const KNOWN: usize = 64;

/// A pipe that is sent once: the feed's number, and the version of its announcement, by which it
/// differs from other feeds of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeId {
    /// Number of the feed.
    pub feed: Tsi,
    /// Version of its announcement.
    pub version: u64,
}

/// Place of a block in its pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Others follow.
    None,
    /// It is the last.
    Whole,
    /// It is the last, and its content says why the pipe is incomplete.
    Failed,
}

impl Ending {
    const ALL: [Ending; 3] = [Ending::None, Ending::Whole, Ending::Failed];

    fn number(self) -> u8 {
        self as u8
    }
}

/// Returns the number of blocks in a full run.
pub(super) fn blocks(shape: BlockShape) -> usize {
    (block_len(shape) / SHARE / DIGEST_LEN).clamp(1, MOST)
}

/// Returns the number of bytes before the content of a block in a full run.
pub(super) fn head_len(shape: BlockShape) -> usize {
    FIXED + blocks(shape) * DIGEST_LEN
}

/// Returns the number of content bytes of a full block; 0 if it has no room for any.
pub(super) fn room(shape: BlockShape) -> usize {
    block_len(shape).saturating_sub(head_len(shape))
}

fn block_len(shape: BlockShape) -> usize {
    usize::from(shape.content_len()) * usize::from(shape.block_symbols)
}

fn digest(pipe: PipeId, number: u32, ending: Ending, content: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&pipe.feed.0.to_be_bytes()).update(&pipe.version.to_be_bytes());
    hasher.update(&number.to_be_bytes()).update(&[ending.number()]).update(content);
    hasher.finalize()
}

fn message(pipe: PipeId, first: u32, digests: &[u8]) -> Vec<u8> {
    let (feed, version) = (pipe.feed.0.to_be_bytes(), pipe.version.to_be_bytes());
    [CONTEXT, &feed, &version, &first.to_be_bytes(), digests].concat()
}

/// Returns the blocks of a run that begins with this number, at most [`MOST`].
pub(super) fn signed(
    pipe: PipeId,
    first: u32,
    contents: &[(Ending, Vec<u8>)],
    sign: &Sign,
) -> Vec<Vec<u8>> {
    let all = (first..).zip(contents);
    let digests: Vec<u8> = all
        .flat_map(|(number, (ending, content))| {
            <[u8; DIGEST_LEN]>::from(digest(pipe, number, *ending, content))
        })
        .collect();
    let signature = sign(&message(pipe, first, &digests));
    let block = |(place, (ending, content)): (u8, &(Ending, Vec<u8>))| {
        let fixed = [place, contents.len() as u8, ending.number(), 0];
        let len = (content.len() as u32).to_be_bytes();
        [&fixed[..], &len, &signature, &digests, content].concat()
    };
    (0..).zip(contents).map(block).collect()
}

/// Verifier that tells the blocks of one sender's pipe from all others.
#[derive(Debug)]
pub(super) struct Verifier {
    pipe: PipeId,
    /// The sender's Ed25519 key.
    key: [u8; 32],
    /// Digests of the last runs that were found to be signed by it.
    known: VecDeque<blake3::Hash>,
}

impl Verifier {
    pub(super) fn new(pipe: PipeId, key: [u8; 32]) -> Verifier {
        Verifier { pipe, key, known: VecDeque::new() }
    }

    /// Returns the ending of a block, and the place of its content. Returns `None` if it is not the
    /// sender's block of this number.
    pub(super) fn check(
        &mut self,
        number: u32,
        block: &[u8],
    ) -> Option<(Ending, std::ops::Range<usize>)> {
        let (&[place, count, ending, 0, ref len @ ..], rest) = block.split_first_chunk::<8>()?
        else {
            return None;
        };
        let (place, count) = (usize::from(place), usize::from(count));
        let ending = *Ending::ALL.get(usize::from(ending))?;
        let (signature, rest) = rest.split_at_checked(SIGNATURE_LEN)?;
        let digests = rest.get(..count * DIGEST_LEN).filter(|_| count <= MOST)?;
        let start = FIXED + digests.len();
        let content = start..start.checked_add(u32::from_be_bytes(*len) as usize)?;
        let own = digests.chunks_exact(DIGEST_LEN).nth(place)?;
        let first = number.checked_sub(place as u32)?;
        let genuine = digest(self.pipe, number, ending, block.get(content.clone())?);
        let sound = genuine.as_bytes() == own && self.is_signed(first, digests, signature);
        sound.then_some((ending, content))
    }

    fn is_signed(&mut self, first: u32, digests: &[u8], signature: &[u8]) -> bool {
        let message = message(self.pipe, first, digests);
        let run = blake3::Hasher::new().update(signature).update(&message).finalize();
        if self.known.contains(&run) {
            return true;
        }
        let key = UnparsedPublicKey::new(&ED25519, &self.key);
        if key.verify(&message, signature).is_err() {
            return false;
        }
        if self.known.len() == KNOWN {
            self.known.pop_front();
        }
        self.known.push_back(run);
        true
    }
}
