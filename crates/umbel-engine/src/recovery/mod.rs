//! Recovery of lost symbols, block by block: who lacks what, who answers, what is repaired.
//!
//! A feed is blocks of symbols. Each [`Recovery`](umbel_wire::feed::Recovery) divides the same
//! three questions among its nodes, in the same terms:
//!
//! | question | term | in |
//! |---|---|---|
//! | who lacks what | [`Lack`] of a block, from [`Reception`](reception::Reception) | `reception.rs`; when it is said: `asks.rs` |
//! | who answers | a node with [`Debts`]: it takes lacks of [askers](Debts::Asker), and sends | `repairs.rs`, `lms.rs`, `srm.rs` |
//! | what is repaired | symbols of a [`Stock`] | the source's shelf, or a member's `buffer.rs` |
//!
//! ```text
//!            asks               answers                              repairs go to
//! tree    its parent            the parent: tmtp's `Domain`          the domain's group
//! source  the source            the source: tmtp's `Domain`          the data channel
//! lms     towards the source    whom routers chose: `Dmcasts`        a subtree, by its turning point
//! srm     the group             who has it, and is first: `Volunteer` the group
//! ```
//!
//! All else is the same for all of them, and TMTP's: blocks and their lengths, joining, ACKs, the
//! window, the rate, catching up, last words. Without a tree every receiver is a child of the
//! source for these purposes. So the source knows who has what, slows down for receivers that
//! cannot keep up, and gives up those that make no progress. Blocks that helpers do not repair come
//! from the source: by its T_retrans, or when it is asked directly.

pub(crate) mod asks;
pub(crate) mod buffer;
pub(crate) mod distance;
pub(crate) mod lms;
pub(crate) mod reception;
pub(crate) mod repairs;
pub(crate) mod srm;

use std::net::SocketAddr;
use std::ops::Range;

use bytes::Bytes;
use umbel_wire::Tsi;
use umbel_wire::reception::ChannelStamp;
use umbel_wire::small_block::{PIECE_LEN, Piece, SmallBlockHeader};

use crate::symbols::Load;
use crate::tmtp::{FEED, Purpose};
use crate::{Instant, TransmitBuf};
use reception::Lack;

/// Blocks of which a node can send symbols.
pub(crate) trait Stock {
    /// Returns the source symbols of a block that is held completely.
    fn held(&self, block: u32) -> Option<u8>;

    /// Returns the number of source symbols of a block of which this symbol can be sent.
    fn has(&self, block: u32, _esi: u32) -> Option<u8> {
        self.held(block)
    }

    /// Prepares symbols that will be asked for soon.
    fn prefetch(&mut self, block: u32, esis: Range<u32>);

    /// Returns a symbol of a block that is held.
    fn symbol(&mut self, block: u32, esi: u32) -> Load;
}

/// Reason why an acknowledgement or a request for a repair was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfounded {
    /// It names blocks that were never sent.
    NeverSent,
    /// It is a duplicate, or came after a later one.
    Old,
    /// The child has acknowledged the block, or this node does not hold it any more.
    NotLacking,
    /// Too many repairs wait.
    TooMany,
    /// The child's path carries much less than is sent now. Repairs would be lost as well.
    Behind,
}

/// Result of filling a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Packets for all that this node repairs are in the buffer.
    Packets,
    /// Packets for one address are in the buffer.
    PacketsTo(SocketAddr),
    /// The next symbol is being made.
    Pending,
    /// Nothing is due.
    Nothing,
}

/// The repairs that a node owes to those that asked it.
pub(crate) trait Debts {
    /// Requestor, as far as it matters for the answer.
    type Asker;

    /// Notes what somebody lacks of a block; `stock` is what can be sent now.
    ///
    /// # Errors
    ///
    /// If nothing is owed for it.
    fn ask(
        &mut self,
        now: Instant,
        asker: &Self::Asker,
        block: u32,
        lack: Lack,
        stock: &impl Stock,
    ) -> Result<(), Unfounded>;

    /// Returns whether repairs are due.
    fn any_due(&self) -> bool;

    /// Fills `buf` with repairs.
    fn fill(&mut self, now: Instant, stock: &mut impl Stock, buf: &mut TransmitBuf) -> Filled;
}

/// Numbers the packets of a channel whose receivers report how they arrive.
#[derive(Debug, Default)]
pub(crate) struct ChannelNumbers {
    next: u32,
}

impl ChannelNumbers {
    /// Returns the number of the next packet.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Stamps the next packet, which leaves with `together` others.
    pub(crate) fn stamp(&mut self, now: Instant, together: usize) -> ChannelStamp {
        let place = u8::try_from(together).unwrap_or(u8::MAX);
        let stamp = ChannelStamp::new(self.next, now.as_nanos() / 1_000, place);
        self.next = self.next.wrapping_add(1);
        stamp
    }
}

/// Returns the length of the bytes before the symbol in a data packet.
pub(crate) const fn head_len(is_stamped: bool) -> usize {
    if is_stamped { SmallBlockHeader::STAMPED_LEN } else { SmallBlockHeader::LEN }
}

/// Writes a data packet, with a stamp if its channel has numbers.
pub(crate) fn push_packet(
    (now, buf): (Instant, &mut TransmitBuf),
    numbers: Option<&mut ChannelNumbers>,
    feed: Tsi,
    why: (Purpose, u32),
    name: (u32, u8, u32),
    symbol: Bytes,
) {
    let stamp = numbers.map(|numbers| numbers.stamp(now, buf.len()));
    let header = SmallBlockHeader { stamp, ..header_of(feed, why, name) };
    let mut head = [0; SmallBlockHeader::STAMPED_LEN];
    let len = header.emit(&mut head).expect("the buffer has the header's length");
    buf.push(&head[..len], symbol);
}

/// Writes a packet with a piece of a symbol, whose offset and length of the symbol are `place`.
pub(crate) fn push_piece(
    (now, buf): (Instant, &mut TransmitBuf),
    numbers: &mut ChannelNumbers,
    feed: Tsi,
    index: u32,
    name: (u32, u8, u32),
    place: (usize, usize),
    piece: Bytes,
) {
    let stamp = Some(numbers.stamp(now, buf.len()));
    let header = SmallBlockHeader { stamp, ..header_of(feed, (Purpose::Piece, index), name) };
    let mut head = [0; SmallBlockHeader::STAMPED_LEN + PIECE_LEN];
    let len = header.emit(&mut head).expect("the buffer has the header's length");
    let [offset, of] = [place.0, place.1].map(|at| u16::try_from(at).unwrap_or(u16::MAX));
    head[len..].copy_from_slice(&Piece::head(offset, of));
    buf.push(&head, piece);
}

/// Returns the bytes before the symbol in a data packet without a stamp.
pub(crate) fn head_of(
    feed: Tsi,
    why: (Purpose, u32),
    name: (u32, u8, u32),
) -> [u8; SmallBlockHeader::LEN] {
    let mut head = [0; SmallBlockHeader::LEN];
    header_of(feed, why, name).emit(&mut head).expect("the buffer has the header's length");
    head
}

/// Returns the header of a data packet: its purpose and number, and the symbol's block, with its
/// number of source symbols, and number.
fn header_of(
    feed: Tsi,
    (purpose, index): (Purpose, u32),
    (block, block_symbols, esi): (u32, u8, u32),
) -> SmallBlockHeader {
    SmallBlockHeader {
        tsi: feed,
        toi: FEED,
        transmission: purpose.transmission(),
        index,
        stamp: None,
        sbn: block,
        block_symbols,
        esi: esi as u8,
    }
}
