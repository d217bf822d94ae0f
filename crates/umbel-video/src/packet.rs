//! Content of a packet.
//!
//! ```text
//!  0       1       2       3       4       5       6
//!  +-------+-------+-------+-------+-------+-------+---
//!  | 1 | l |      tag      |         frame         | segments …
//!  +-------+-------+-------+-------+-------+-------+---
//!
//!  Start     0     | first | count |   to  | length | (gap, version?, DC, planes 12→to)×count
//!  Continue  2 + s | first | span | count | from | to | length | (planes from→to)×count
//!  Refine    1     | first | count | from·16 + to | check, 2 bytes | length | gaps, planes×count
//! ```
//!
//! `1` is the version of the format, `l` the layer, each half a byte. `tag` is a digest of stream
//! and picture size: others are refused. `frame` wraps after 2^24. A number without a width is 7
//! bits a byte, low ones first. The part after `length`, of that many bytes, is range-coded with
//! its own contexts.
//!
//! - **Start** sets a block's new content. Those of a **restart** name the frame of the content: a
//!   receiver that has it already has nothing to do.
//! - **Continue** gives blocks that started in layer s of this frame more planes: all of them
//!   between `first` and `first + span`. They lie in one Start segment: a receiver of that can
//!   decode this, and others need nothing of it.
//! - **Refine** gives blocks that stand still another plane. `check` is a digest of addresses and
//!   versions: a receiver with other versions, or too few planes, leaves the segment aside.
//!
//! `to` and `from` of Start and Continue are in sixteenths of a plane. The fraction is the share of
//! blocks that hold one plane less; a digest of address and frame selects them.

use crate::frame::Size;
use crate::planes::PLANES;

/// The version of the format.
pub const FORMAT: u8 = 1;

/// Most layers.
pub const MAX_LAYERS: usize = 15;

/// Bytes before the first segment.
pub(crate) const HEADER_LEN: usize = 6;

/// Frame numbers wrap after these many bits.
pub(crate) const FRAME_BITS: u32 = 24;

/// Sixteenths of a plane.
pub(crate) type Sixteenths = u8;

/// All planes are missing.
pub(crate) const NOTHING: Sixteenths = PLANES * 16;

/// Returns the plane down to which a block goes.
pub(crate) fn plane_of(level: Sixteenths, address: usize, frame: u64) -> u8 {
    let mixed = (address as u32).wrapping_mul(0x9E37_79B1)
        ^ (frame as u32 & 0x00FF_FFFF).wrapping_mul(0x85EB_CA6B);
    let fraction = mixed.wrapping_mul(0xC2B2_AE35) >> 28;
    ((u32::from(level) + fraction) / 16).min(PLANES.into()) as u8
}

/// Returns what marks the packets of a stream of pictures of a size.
pub(crate) fn tag(stream: u16, size: Size) -> u16 {
    let mixed = (size.width() << 16 | size.height()).wrapping_mul(0x9E37_79B1);
    (mixed >> 16) as u16 ^ mixed as u16 ^ stream
}

/// A packet's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) layer: u8,
    /// Value of [`tag`] for the stream.
    pub(crate) tag: u16,
    /// The low bits of the frame's number.
    pub(crate) frame: u32,
}

impl Header {
    pub(crate) fn emit(self) -> [u8; HEADER_LEN] {
        let [s0, s1] = self.tag.to_be_bytes();
        let [_, f0, f1, f2] = self.frame.to_be_bytes();
        [FORMAT << 4 | self.layer, s0, s1, f0, f1, f2]
    }

    /// Returns the header and what follows, if it is of this format.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (&[first, s0, s1, f0, f1, f2], rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let layer = first & 15;
        (first >> 4 == FORMAT && usize::from(layer) < MAX_LAYERS).then_some((
            Self {
                layer,
                tag: u16::from_be_bytes([s0, s1]),
                frame: u32::from_be_bytes([0, f0, f1, f2]),
            },
            rest,
        ))
    }
}

/// Effect of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Start { restart: bool, to: Sixteenths },
    Continue { start: u8, span: usize, from: Sixteenths, to: Sixteenths },
    Refine { from: u8, to: u8, check: u16 },
}

/// A segment's head; `count` blocks from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) kind: Kind,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// Most bytes of a head, the length included.
pub(crate) const MAX_HEAD: usize = 16;

const START: u8 = 0;
const REFINE: u8 = 1;
const RESTART: u8 = 2;
const CONTINUE: u8 = 16;

impl Segment {
    /// Appends the segment with its coded body.
    pub(crate) fn emit(&self, body: &[u8], out: &mut Vec<u8>) {
        out.push(match self.kind {
            Kind::Start { restart: false, .. } => START,
            Kind::Start { restart: true, .. } => RESTART,
            Kind::Refine { .. } => REFINE,
            Kind::Continue { start, .. } => CONTINUE + start,
        });
        emit_number(self.first, out);
        match self.kind {
            Kind::Start { to, .. } => {
                emit_number(self.count, out);
                out.push(to);
            }
            Kind::Continue { span, from, to, .. } => {
                emit_number(span, out);
                emit_number(self.count, out);
                out.extend([from, to]);
            }
            Kind::Refine { from, to, check } => {
                emit_number(self.count, out);
                out.push(from << 4 | to);
                out.extend(check.to_be_bytes());
            }
        }
        emit_number(body.len(), out);
        out.extend_from_slice(body);
    }

    /// Returns the next segment with its body, and what follows; `None` if there is none. A
    /// returned segment is within the picture, and its planes go down.
    pub(crate) fn parse(bytes: &[u8], blocks: usize) -> Option<(Self, &[u8], &[u8])> {
        let (&kind, mut rest) = bytes.split_first()?;
        let first = number(&mut rest)?;
        let span = if kind >= CONTINUE { number(&mut rest)? } else { 0 };
        let count = number(&mut rest)?;
        let kind = match kind {
            START | RESTART => Kind::Start { restart: kind == RESTART, to: byte(&mut rest)? },
            REFINE => {
                let planes = byte(&mut rest)?;
                let check = u16::from_be_bytes([byte(&mut rest)?, byte(&mut rest)?]);
                Kind::Refine { from: planes >> 4, to: planes & 15, check }
            }
            _ => {
                let start = kind.checked_sub(CONTINUE)?;
                let (from, to) = (byte(&mut rest)?, byte(&mut rest)?);
                Kind::Continue { start, span, from, to }
            }
        };
        let down = match kind {
            Kind::Start { to, .. } => to <= NOTHING,
            Kind::Continue { from, to, .. } => to < from && from <= NOTHING,
            Kind::Refine { from, to, .. } => to < from && from <= PLANES,
        };
        let length = number(&mut rest)?;
        let (body, rest) = rest.split_at_checked(length)?;
        let inside =
            count >= 1 && first.checked_add(count)? <= blocks && first.checked_add(span)? < blocks;
        (down && inside).then_some((Self { kind, first, count }, body, rest))
    }
}

/// Digest of the addresses and versions that a segment refines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check(u32);

impl Check {
    pub(crate) const fn new() -> Self {
        Self(0x811C_9DC5)
    }

    pub(crate) const fn add(&mut self, address: usize, version: u64) {
        let version = version as u32 & ((1 << FRAME_BITS) - 1);
        self.0 = (self.0 ^ address as u32).wrapping_mul(0x0100_0193).rotate_left(13);
        self.0 = (self.0 ^ version).wrapping_mul(0x9E37_79B1).rotate_left(11);
    }

    pub(crate) const fn get(self) -> u16 {
        (self.0 ^ self.0 >> 16) as u16
    }
}

fn emit_number(mut number: usize, out: &mut Vec<u8>) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(byte)
}

/// Reads a number of up to three bytes.
fn number(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0;
    for shift in [0, 7, 14] {
        let byte = byte(bytes)?;
        number |= usize::from(byte & 127) << shift;
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_segment() -> impl Strategy<Value = Segment> {
        let kind = prop_oneof![
            (any::<bool>(), 0..=NOTHING).prop_map(|(restart, to)| Kind::Start { restart, to }),
            (0..MAX_LAYERS as u8, 0..500_usize, 1..=NOTHING, 0..NOTHING).prop_map(
                |(start, span, from, to)| Kind::Continue {
                    start,
                    span,
                    from,
                    to: to.min(from - 1)
                }
            ),
            (1..=PLANES, 0..PLANES, any::<u16>()).prop_map(|(from, to, check)| Kind::Refine {
                from,
                to: to.min(from - 1),
                check
            }),
        ];
        (kind, 0..30_000_usize, 1..5000_usize).prop_map(|(kind, first, count)| Segment {
            kind,
            first,
            count,
        })
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(
            segment in any_segment(),
            body in prop::collection::vec(any::<u8>(), 0..300),
            more in prop::collection::vec(any::<u8>(), 0..10),
        ) {
            let mut out = Vec::new();
            segment.emit(&body, &mut out);
            prop_assert!(out.len() <= body.len() + MAX_HEAD);
            out.extend(&more);
            let parsed = Segment::parse(&out, 36_000);
            prop_assert_eq!(parsed, Some((segment, body.as_slice(), more.as_slice())));
        }

        #[test]
        fn any_bytes_are_refused_or_within_the_picture(
            bytes in prop::collection::vec(any::<u8>(), 0..30)
        ) {
            if let Some((segment, body, rest)) = Segment::parse(&bytes, 100) {
                prop_assert!(segment.first + segment.count <= 100);
                prop_assert!(body.len() + rest.len() < bytes.len());
            }
            if let Some((header, rest)) = Header::parse(&bytes) {
                prop_assert_eq!([header.emit().as_slice(), rest].concat(), bytes);
            }
        }
    }

    #[test]
    fn a_level_between_planes_is_shared_out() {
        let low = (0..10_000).filter(|&block| plane_of(5 * 16 + 4, block, 77) == 5).count();
        assert!((7300..7700).contains(&low), "{low}");
        assert!((0..1000).all(|block| plane_of(NOTHING, block, 3) == PLANES));
        assert!((0..1000).all(|block| plane_of(0, block, 3) == 0));
    }
}
