//! Commands and events between the engine and the client's application.

use bytes::Bytes;
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Channel, Digest, Oti, Toi};

use super::fallback::Brought;
use super::item::Held;
use crate::symbols::BlockId;
use crate::{Instant, SessionId};

/// Requests and reports of the client's application.
#[derive(Clone, Debug)]
pub enum ReceiverCommand {
    /// The session to the server is open.
    Connected {
        /// The session.
        session: SessionId,
    },
    /// The session is lost. Every item is forgotten and may be asked for again.
    Disconnected,
    /// Ask for a page of the catalog.
    List {
        /// Number chosen by the application, returned with the answer.
        query: u32,
        /// Glob patterns; empty for all.
        patterns: Vec<String>,
        /// 0, or the cursor given with the page before.
        cursor: u64,
        /// Greatest number of items.
        limit: u32,
    },
    /// Ask for all matching items, and have them transmitted.
    Request {
        /// Number chosen by the application, returned with the answers.
        query: u32,
        /// Glob patterns; empty for all.
        patterns: Vec<String>,
        /// Transmit nothing before the client names the missing symbols of each item.
        hold: bool,
    },
    /// Receive an item of a page.
    Accept {
        /// The item.
        toi: Toi,
        /// The item's division into symbols.
        oti: Oti,
        /// The parts of it that are already held.
        held: Held,
        /// Whether the server has been asked for all of it, by [`ReceiverCommand::Request`].
        requested: bool,
    },
    /// Join the control group that the server named, because its channel can be received.
    JoinControl,
    /// The item is verified, or was already there. The server is told.
    Done {
        /// The item.
        toi: Toi,
    },
    /// Stop receiving the item.
    Cancel {
        /// The item.
        toi: Toi,
    },
    /// A block could not be restored. More symbols are needed.
    RestoreFailed {
        /// The block.
        block: BlockId,
    },
    /// Blocks were found corrupt and dropped.
    BadBlocks {
        /// The item.
        toi: Toi,
        /// Source block numbers.
        blocks: Vec<u32>,
    },
    /// Ask for the digest of each block of an item.
    AskDigests {
        /// The item.
        toi: Toi,
    },
    /// This number of packets reached this machine too fast and were lost in it.
    Overrun {
        /// Number of packets.
        packets: u32,
    },
    /// A whole source block arrived on the session.
    UnicastBlock {
        /// The block.
        block: BlockId,
        /// Its content, without padding.
        content: Bytes,
    },
    /// Ask for a burst of probe packets and listen to it.
    Probe {
        /// Number chosen by the application, returned with the packets and the answer.
        probe: u32,
        /// Number of packets.
        packets: u32,
        /// UDP payload of each packet, in bytes.
        packet_len: u16,
        /// Rate of the burst, in bits of UDP payload per second.
        rate_bits_per_s: u64,
    },
}

/// Reason for which a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverCommandError {
    /// The command needs a session and there is none.
    #[error("not connected")]
    NotConnected,
    /// The command names an item that is not being received.
    #[error("item {item} is not being received", item = .0.0)]
    UnknownItem(Toi),
    /// The object transmission information of an item is invalid.
    #[error("the server describes item {item} wrongly: {1}", item = .0.0)]
    BadItem(Toi, String),
    /// The sink has no room for a block now. The same command may be repeated later.
    #[error("no room for a block of item {item} now", item = .0.0)]
    NoRoom(Toi),
}

/// Requests and news for the client's application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The server admitted this client.
    Welcome {
        /// Name and version of the server program.
        agent: String,
        /// The data channel.
        channel: Channel,
        /// Rate of the data channel in bits of UDP payload per second.
        rate_bits_per_s: u64,
        /// The multicast control channel, if the server has one: see
        /// [`ReceiverCommand::JoinControl`].
        control: Option<Channel>,
        /// Whether the channels are sealed, so that only admitted clients can read them.
        sealed: bool,
    },
    /// The server does not admit this client.
    Refused {
        /// One line for the user.
        reason: String,
    },
    /// A page of the catalog.
    Page {
        /// The query that it answers.
        query: u32,
        /// The page's items.
        items: Vec<ItemInfo>,
        /// Total number of items on all pages.
        total: u64,
        /// The cursor of the next page.
        next: Option<u64>,
    },
    /// A query that failed.
    Failed {
        /// The failed query.
        query: u32,
        /// One line for the user.
        reason: String,
    },
    /// The item is no longer available.
    Gone {
        /// The item.
        toi: Toi,
        /// One line for the user.
        reason: String,
    },
    /// Digests of blocks, as asked for.
    Digests {
        /// The item.
        toi: Toi,
        /// Block of the first digest.
        first_block: u32,
        /// Digests of consecutive blocks from `first_block`.
        digests: Vec<Digest>,
        /// Whether more digests follow.
        more: bool,
    },
    /// A probe packet arrived.
    ProbePacket {
        /// The probe.
        probe: u32,
        /// The packet's number in the burst.
        index: u32,
        /// Time of its arrival.
        at: Instant,
        /// Its UDP payload in bytes.
        len: usize,
    },
    /// The server has sent a probe burst.
    Probed {
        /// The probe.
        probe: u32,
        /// Number of packets sent.
        packets: u32,
    },
    /// Multicast brings nothing, or next to nothing. The client continues by unicast.
    Fallback {
        /// What it brought.
        brought: Brought,
        /// Length of a full data packet, if an item is pending.
        packet_len: Option<u16>,
    },
    /// The path carries less than the channel's rate. The client takes its items on the session.
    Aside {
        /// Rate that the path carries, in bits of UDP payload per second.
        carries_bits_per_s: u64,
        /// Rate of the channel.
        rate_bits_per_s: u64,
    },
    /// Multicast works (again). The client continues with it.
    MulticastBack,
}

/// Counters of the data channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Data packets received of this session.
    pub packets: u64,
    /// Bytes of UDP payload in them.
    pub bytes: u64,
    /// Packets received of transmissions that were announced to this client.
    pub heard: u64,
    /// Packets of those transmissions that did not arrive.
    pub lost: u64,
    /// Packets that arrived out of order, after a later one.
    pub reordered: u64,
    /// Transmissions of wanted items that were announced.
    pub announced: u64,
    /// Of these, transmissions whose first packets, or those of a later one, came before the
    /// announcement.
    pub announced_late: u64,
    /// NAKs sent.
    pub naks: u64,
    /// Source blocks received by unicast.
    pub unicast_blocks: u64,
    /// Source blocks whose content was not that of their digest, and that come again.
    pub damaged_blocks: u64,
}

impl ReceiverStats {
    /// Returns the share of the packets announced to this client that did not arrive, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.heard + self.lost).max(1) as f64
    }
}
