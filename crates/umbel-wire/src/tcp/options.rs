//! The options of a segment.
//!
//! MSS [RFC 9293 §3.2], window scale [RFC 7323 §2], SACK [RFC 2018], and one of ours: the
//! *membership* option says on which channel a connection is served.
//!
//! ```text
//! +---------------+---------------+-------------------------------+
//! |   kind 253    |   length 7    |         ExID 0x554D "UM"      |
//! +---------------+---------------+---------------+---------------+
//! |   version 1   |             port              |
//! +---------------+-------------------------------+
//! ```
//!
//! Kind 253 is for experiments, told apart by an identifier [RFC 6994]. Stacks that do not know it
//! ignore it. The part after the version is for implementations that know that version. To all
//! others it says nothing, and the connection is served by unicast.

use super::Seq;
use crate::ParseError;
use crate::codec::Reader;

const WHAT: &str = "TCP options";

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const EXPERIMENT: u8 = 253;
/// Experiment identifier of the membership option.
const MEMBERSHIP: [u8; 2] = *b"UM";
/// Greatest shift of a window [RFC 7323 §2.3].
const MAX_WINDOW_SCALE: u8 = 14;

/// Blocks of sequence numbers, at most [`MAX`](SackBlocks::MAX).
#[derive(Clone, Copy, Debug, Default)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); SackBlocks::MAX],
    len: u8,
}

impl SackBlocks {
    /// Number of blocks that fit an option [RFC 2018 §3].
    pub const MAX: usize = 4;

    /// Adds the block from `left` up to, but not including, `right`. Does nothing if there is no
    /// room for it.
    pub fn push(&mut self, left: Seq, right: Seq) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = (left, right);
            self.len += 1;
        }
    }

    /// Returns the blocks in the order in which they stand.
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.blocks[..usize::from(self.len)]
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &SackBlocks) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

/// Meaning of the membership option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Destination port of the channel on which this connection is served from now on; 0 if it is
    /// not.
    Port(u16),
    /// Something that this version of Umbel does not know. The version that does; 0 if it names
    /// none.
    Other(u8),
}

impl Membership {
    /// Version of the option.
    pub const VERSION: u8 = 1;

    /// Reads the value of an option for experiments. `None` if it is another experiment.
    fn parse(value: &[u8]) -> Option<Membership> {
        Some(match value.strip_prefix(&MEMBERSHIP)? {
            &[Membership::VERSION, high, low] => Membership::Port(u16::from_be_bytes([high, low])),
            rest => Membership::Other(rest.first().copied().unwrap_or_default()),
        })
    }

    fn emit(self, out: &mut Vec<u8>) {
        let [u, m] = MEMBERSHIP;
        match self {
            Membership::Port(port) => {
                out.extend([NOP, EXPERIMENT, 7, u, m, Membership::VERSION]);
                out.extend(port.to_be_bytes());
            }
            Membership::Other(version) => {
                out.extend([NOP, NOP, NOP, EXPERIMENT, 5, u, m, version]);
            }
        }
    }
}

/// The options of a segment that TCP-SMO uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Length of the longest payload that the sender of the segment wants to receive.
    pub mss: Option<u16>,
    /// Bits by which the windows of later segments are shifted, at most 14.
    pub window_scale: Option<u8>,
    /// Whether selective acknowledgements may be sent.
    pub sack_permitted: bool,
    /// Blocks that were received out of order.
    pub sack: SackBlocks,
    /// Which channel serves this connection. Only in unicast segments of the source.
    pub membership: Option<Membership>,
}

impl Options {
    /// Length of all options in bytes at most [RFC 9293 §3.1].
    pub const MAX_LEN: usize = 40;

    /// Parses the options of a header. Unknown options are skipped.
    ///
    /// # Errors
    ///
    /// If an option is cut off, or one of a known kind does not have the length of its kind.
    pub fn parse(bytes: &[u8]) -> Result<Options, ParseError> {
        let mut options = Options::default();
        let mut reader = Reader::new(WHAT, bytes);
        while !reader.is_empty() {
            match reader.byte()? {
                END => break,
                NOP => {}
                kind => {
                    let len = usize::from(reader.byte()?);
                    let value_len =
                        len.checked_sub(2).ok_or_else(|| reader.bad("a length below 2"))?;
                    options.read(kind, Reader::new(WHAT, reader.take(value_len)?))?;
                }
            }
        }
        Ok(options)
    }

    fn read(&mut self, kind: u8, mut value: Reader<'_>) -> Result<(), ParseError> {
        match kind {
            MSS => self.mss = Some(u16::from_be_bytes(value.array()?)),
            WINDOW_SCALE => self.window_scale = Some(value.byte()?.min(MAX_WINDOW_SCALE)),
            SACK_PERMITTED => self.sack_permitted = true,
            SACK => {
                self.sack = SackBlocks::default();
                while !value.is_empty() {
                    let left = Seq(u32::from_be_bytes(value.array()?));
                    self.sack.push(left, Seq(u32::from_be_bytes(value.array()?)));
                }
            }
            EXPERIMENT => {
                // Experiments of others are theirs.
                self.membership = Membership::parse(value.rest()).or(self.membership);
            }
            _ => {
                value.rest();
            }
        }
        value.finish()
    }

    /// Appends the options, padded to 32-bit words. Blocks for which there is no room are left out.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        if let Some(mss) = self.mss {
            out.extend([MSS, 4]);
            out.extend(mss.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            out.extend([NOP, WINDOW_SCALE, 3, shift]);
        }
        if self.sack_permitted {
            out.extend([NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(membership) = self.membership {
            membership.emit(out);
        }
        let room = (Options::MAX_LEN - (out.len() - start)).saturating_sub(4) / 8;
        let blocks = &self.sack.as_slice()[..room.min(self.sack.as_slice().len())];
        if !blocks.is_empty() {
            out.extend([NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
            for (left, right) in blocks {
                out.extend(left.0.to_be_bytes());
                out.extend(right.0.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_others_are_skipped() {
        // Timestamps, Fast Open, another experiment, one of no known kind, the end, and rubbish.
        let timestamps = [8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        let others = [34, 2, 253, 4, 0xF9, 0x89, 253, 2, 77, 3, 9, 2, 4, 5, 0xB4, 0, 7, 7, 1];
        let bytes = [&timestamps[..], &others].concat();
        let parsed = Options::parse(&bytes).unwrap();
        assert_eq!(parsed, Options { mss: Some(1460), ..Options::default() });
    }

    #[test]
    fn options_with_impossible_lengths_are_refused() {
        for bytes in [
            &[2][..],
            &[2, 0],
            &[2, 1],
            &[2, 3, 5],
            &[2, 4, 5],
            &[2, 5, 1, 2, 3],
            &[3, 2],
            &[4, 3, 0],
            &[5, 6, 1, 2, 3, 4],
            &[9, 200, 0],
            &[253, 7, b'U', b'M', 1, 2],
        ] {
            assert!(Options::parse(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn memberships_of_other_versions_are_told_apart_from_ours() {
        for (bytes, membership) in [
            (&[253, 7, b'U', b'M', 1, 0x1F, 0x90][..], Membership::Port(8080)),
            (&[253, 7, b'U', b'M', 2, 0x1F, 0x90], Membership::Other(2)),
            (&[253, 9, b'U', b'M', 1, 0x1F, 0x90, 1, 2], Membership::Other(1)),
            (&[253, 4, b'U', b'M'], Membership::Other(0)),
        ] {
            assert_eq!(Options::parse(bytes).unwrap().membership, Some(membership), "{bytes:?}");
        }
    }

    #[test]
    fn a_window_is_shifted_by_14_bits_at_most() {
        assert_eq!(Options::parse(&[3, 3, 200]).unwrap().window_scale, Some(14));
    }

    #[test]
    fn blocks_beyond_the_room_are_left_out() {
        let mut sack = SackBlocks::default();
        (0..6).for_each(|n| sack.push(Seq(n), Seq(n + 1)));
        assert_eq!(sack.as_slice().len(), SackBlocks::MAX);
        let mut out = Vec::new();
        Options { membership: Some(Membership::Port(8080)), sack, ..Options::default() }
            .emit(&mut out);
        assert_eq!(out.len(), 8 + 4 + 24);
        assert_eq!(Options::parse(&out).unwrap().sack.as_slice(), &sack.as_slice()[..3]);
    }
}
