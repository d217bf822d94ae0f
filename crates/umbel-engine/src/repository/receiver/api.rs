//! What the client's application asks for or reports, and what it is told.

use std::time::Duration;

use bytes::Bytes;
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Channel, Digest, Oti, Toi};

use super::item::Held;
use crate::symbols::BlockId;
use crate::{Instant, SessionId};

/// What the client's application asks for or reports.
#[derive(Clone, Debug)]
pub enum ReceiverCommand {
    /// The session to the server is open.
    Connected {
        /// The session.
        session: SessionId,
    },
    /// The session is lost; every item is forgotten and may be asked for again.
    Disconnected,
    /// Ask for a page of the catalog.
    List {
        /// Comes back with the answer.
        query: u32,
        /// Glob patterns; empty for all.
        patterns: Vec<String>,
        /// 0, or what the page before said.
        cursor: u64,
        /// Most items.
        limit: u32,
    },
    /// Ask for all items that match, and have them transmitted.
    Request {
        /// Comes back with the answers.
        query: u32,
        /// Glob patterns; empty for all.
        patterns: Vec<String>,
        /// Transmit nothing before the client says what it lacks of each item.
        hold: bool,
    },
    /// Receive an item of a page.
    Accept {
        /// The item.
        toi: Toi,
        /// How it is cut into symbols.
        oti: Oti,
        /// What is already held of it.
        held: Held,
        /// The server has been asked for all of it, by [`ReceiverCommand::Request`].
        requested: bool,
    },
    /// Join the control group that the server named: its channel can be received.
    JoinControl,
    /// The item is verified, or was there all along: tell the server.
    Done {
        /// The item.
        toi: Toi,
    },
    /// No longer receive the item.
    Cancel {
        /// The item.
        toi: Toi,
    },
    /// A block could not be restored: more symbols are needed.
    RestoreFailed {
        /// The block.
        block: BlockId,
    },
    /// Blocks were found wrong and dropped.
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
    /// So many packets reached this machine and were lost in it, since they came too fast.
    Overrun {
        /// Packets.
        packets: u32,
    },
    /// A whole source block came on the session.
    UnicastBlock {
        /// The block.
        block: BlockId,
        /// Its content, without padding.
        content: Bytes,
    },
    /// Ask for a burst of probe packets and listen to it.
    Probe {
        /// Comes back with packets and answer.
        probe: u32,
        /// Packets.
        packets: u32,
        /// UDP payload bytes of each.
        packet_len: u16,
        /// Bits of UDP payload per second.
        rate_bits_per_s: u64,
    },
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverCommandError {
    /// The command needs a session and there is none.
    #[error("not connected")]
    NotConnected,
    /// The command names an item that is not being received.
    #[error("item {item} is not being received", item = .0.0)]
    UnknownItem(Toi),
    /// The object transmission information of an item makes no sense.
    #[error("the server describes item {item} wrongly: {1}", item = .0.0)]
    BadItem(Toi, String),
    /// The sink has no room for a block now; the same command may be given again later.
    #[error("no room for a block of item {item} now", item = .0.0)]
    NoRoom(Toi),
}

/// What the client's application should do or know.
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
        /// The items.
        items: Vec<ItemInfo>,
        /// Items on all pages.
        total: u64,
        /// The cursor of the next page.
        next: Option<u64>,
    },
    /// A query has no answer.
    Failed {
        /// The query.
        query: u32,
        /// One line for the user.
        reason: String,
    },
    /// The item can no longer be had.
    Gone {
        /// The item.
        toi: Toi,
        /// One line for the user.
        reason: String,
    },
    /// Digests of blocks that were asked for.
    Digests {
        /// The item.
        toi: Toi,
        /// Block of the first digest.
        first_block: u32,
        /// A digest of each block from there.
        digests: Vec<Digest>,
        /// Whether more follow.
        more: bool,
    },
    /// A probe packet arrived.
    ProbePacket {
        /// The probe.
        probe: u32,
        /// The packet's number in the burst.
        index: u32,
        /// When it arrived.
        at: Instant,
        /// UDP payload bytes.
        len: usize,
    },
    /// The server has sent a probe burst.
    Probed {
        /// The probe.
        probe: u32,
        /// Packets sent.
        packets: u32,
    },
    /// Multicast brings nothing: the client goes on by unicast.
    Fallback {
        /// For how long nothing came.
        silent: Duration,
    },
    /// Multicast works (again); the client goes on with it.
    MulticastBack,
}

/// Counters of the data channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Data packets of this session.
    pub packets: u64,
    /// Bytes of UDP payload in them.
    pub bytes: u64,
    /// Packets that came of transmissions that were announced to this client.
    pub heard: u64,
    /// Packets of those transmissions that did not come.
    pub lost: u64,
    /// Packets that came after a later one.
    pub reordered: u64,
    /// Transmissions of wanted items that were announced.
    pub announced: u64,
    /// Of these, those whose packets, or those of a later one, came before the announcement did.
    pub announced_late: u64,
    /// NAKs sent.
    pub naks: u64,
    /// Source blocks that came by unicast.
    pub unicast_blocks: u64,
}

impl ReceiverStats {
    /// Share of the packets announced to this client that did not come, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.heard + self.lost).max(1) as f64
    }
}
