//! Messages between a repository's server and its clients.
//!
//! They travel on the client's session (reliable, in order, one after the other). Announcements
//! may also travel on a multicast control channel; their encoding is the same.
//!
//! - Here: the messages.
//! - `client.rs`, `server.rs`: emitting and parsing them; their type numbers.
//! - `need.rs`, `item.rs`: the compact lists in them: what is needed, pages of the catalog.
//! - `field.rs`: the TLV types that all messages share.
//! - [`limits`]: how much of what a message may hold.
//!
//! Each message is one control message ([`control`](crate::control)) with a TLV for each field.
//! Parsing accepts nothing that a type's comment rules out, so an engine need not check again.
//! Emitting does not check: the peer refuses a message that keeps to no limits.

use std::fmt;
use std::time::Duration;

mod client;
mod field;
mod item;
pub mod limits;
mod need;
mod server;
mod unicast;

pub use unicast::UnicastBlock;

use crate::srm::MemberId;
use crate::{Channel, Digest, Oti, Toi, Tsi};

/// A run of neighbouring source blocks that each need the same number of further symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedRun {
    /// First source block number of the run.
    pub first_block: u32,
    /// How many blocks; at least 1. `first_block + blocks` fits 32 bits.
    pub blocks: u32,
    /// Encoding symbols that each block still needs; at least 1.
    pub symbols: u16,
}

/// A run of neighbouring encoding symbols of one source block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolRun {
    /// Source block number.
    pub block: u32,
    /// First encoding symbol ID of the run.
    pub first_esi: u32,
    /// How many symbols; at least 1. `first_esi + count` fits 32 bits.
    pub count: u32,
}

/// What a client still needs of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Everything.
    Whole,
    /// So many further symbols of some blocks, whichever: runs in ascending block order, not
    /// overlapping, at most [`limits::RUNS`]. An empty list needs nothing.
    Symbols(Vec<NeedRun>),
    /// Exactly these symbols (exact-packet mode, "no ECC" of [Repository §6.4]): runs in ascending order, not
    /// overlapping, at most [`limits::RUNS`].
    Exact(Vec<SymbolRun>),
}

/// What is told about an item of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemInfo {
    /// The object that carries this version of the item.
    pub toi: Toi,
    /// Path relative to the repository's root with `/` between its parts, or a URI.
    pub name: String,
    /// BLAKE3 digest of the content. All zero in a listing where it is not known yet; always
    /// known in the answer to a request.
    pub digest: Digest,
    /// Modification time: nanoseconds since the Unix epoch.
    pub modified_ns: Option<i64>,
    /// Permissions of the file: read, write and execute for owner, group and others.
    pub mode: Option<u16>,
    /// Media type, or empty where it is not known.
    pub media_type: String,
    /// How the item is cut into symbols; its size among them.
    pub oti: Oti,
}

/// One transmission of a run of an item's source blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Identifies the transmission within the session; grows by one from each transmission to
    /// the next, wrapping.
    pub transmission: u32,
    /// The item.
    pub toi: Toi,
    /// The data channel that carries it: an index into the channels of the welcome.
    pub channel: u8,
    /// First source block of the run.
    pub first_block: u32,
    /// Number of source blocks in the run. `first_block + blocks` fits 32 bits.
    pub blocks: u32,
    /// Data packets that the transmission has.
    pub packets: u32,
}

/// The multicast control channel: an SRM group in which the server announces transmissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// The group; any-source multicast.
    pub channel: Channel,
    /// The server's name in it.
    pub server: MemberId,
    /// The client's name in it.
    pub client: MemberId,
    /// Authenticates what members say.
    pub key: ControlKey,
}

/// The key of a control group. It is not printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ControlKey(pub [u8; 32]);

impl fmt::Debug for ControlKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlKey(..)")
    }
}

/// What a transmission left missing, and how it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nak {
    /// The transmission that ended.
    pub transmission: u32,
    /// Its item.
    pub toi: Toi,
    /// What the client still needs of the blocks that the transmission covered.
    pub need: Need,
    /// Data packets of this transmission that came.
    pub received: u32,
    /// Data packets of this transmission that did not come after the client was listening.
    pub lost: u32,
    /// Data packets since the last NAK that came and could not be kept: more came at once
    /// than the client can take.
    pub overrun: u32,
}

/// From a client to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// Opens the session.
    Hello {
        /// Name and version of the client program.
        agent: String,
        /// Admission token, where the server asks for one.
        token: Option<String>,
    },
    /// Asks for a page of the catalog.
    List {
        /// Chosen by the client; the answer carries it.
        query: u32,
        /// Glob patterns; an item matches if any of them does. Empty: every item.
        patterns: Vec<String>,
        /// 0, or what the page before said.
        cursor: u64,
        /// Most items wanted in the answer.
        limit: u32,
    },
    /// Asks for all items that match: answered with pages, and transmitted as if each item had
    /// been named in a `Want` for all of it.
    Request {
        /// Chosen by the client; the answers carry it.
        query: u32,
        /// Glob patterns; an item matches if any of them does. Empty: every item.
        patterns: Vec<String>,
        /// Transmit nothing yet: the client holds some of them, and says with a `Want` for
        /// each what it lacks.
        hold: bool,
    },
    /// Asks for an item or for what is missing of it.
    Want {
        /// The item.
        toi: Toi,
        /// What is missing.
        need: Need,
    },
    /// Says, at the end of a transmission, what it left missing [Repository §3.2.3].
    Nak(Nak),
    /// The client has these items, verified.
    Done {
        /// The items.
        tois: Vec<Toi>,
        /// Data packets that came of transmissions of which no NAK told, since the last `Done`.
        received: u32,
        /// Data packets of these transmissions that did not come.
        lost: u32,
    },
    /// The client no longer wants these items.
    Cancel {
        /// The items.
        tois: Vec<Toi>,
    },
    /// Multicast does not reach the client: asks for symbols on the session.
    Unicast {
        /// The item.
        toi: Toi,
        /// What is missing.
        need: Need,
    },
    /// Asks for the digest of each source block of an item whose digest did not match.
    Digests {
        /// The item.
        toi: Toi,
    },
    /// Whether the client hears the server on the control group, so that it needs no announcements
    /// on its session. Until it says so it does.
    Control {
        /// It does.
        hears: bool,
    },
    /// Asks for a burst of probe packets on a data channel.
    Probe {
        /// Chosen by the client; the packets and the answer carry it.
        probe: u32,
        /// Index of the data channel.
        channel: u8,
        /// Packets wanted.
        packets: u32,
        /// UDP payload bytes of each packet.
        packet_len: u16,
        /// Bits of UDP payload per second.
        rate_bits_per_s: u64,
    },
}

/// From the server to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMessage {
    /// Admits the client.
    Welcome {
        /// Name and version of the server program.
        agent: String,
        /// The session of all data packets.
        tsi: Tsi,
        /// The data channels.
        channels: Vec<Channel>,
        /// Rate of the data channels together, in bits of UDP payload per second.
        rate_bits_per_s: u64,
        /// Where the server announces transmissions besides the session, if it does.
        control: Option<ControlGroup>,
    },
    /// Does not admit the client, and closes the session.
    Refused {
        /// One line for the user.
        reason: String,
    },
    /// A page of the catalog.
    Page {
        /// The query that it answers.
        query: u32,
        /// Items, in the catalog's order.
        items: Vec<ItemInfo>,
        /// Items that match, on all pages.
        total: u64,
        /// The cursor of the next page; `None` on the last one.
        next: Option<u64>,
    },
    /// A query that cannot be answered.
    Failed {
        /// The query.
        query: u32,
        /// One line for the user.
        reason: String,
    },
    /// Transmissions that are about to start, in this order.
    Announce {
        /// From now until the first of them.
        starts_in: Duration,
        /// Clients delay a NAK by a random time below this.
        nak_spread: Duration,
        /// The transmissions.
        announcements: Vec<Announcement>,
    },
    /// The last packet of this transmission was sent, and none of another follows at once.
    End {
        /// The transmission.
        transmission: u32,
    },
    /// An item can no longer be had.
    Gone {
        /// The item.
        toi: Toi,
        /// One line for the user.
        reason: String,
    },
    /// Digests of source blocks.
    Digests {
        /// The item.
        toi: Toi,
        /// Block of the first digest.
        first_block: u32,
        /// A digest of each block from there.
        digests: Vec<Digest>,
        /// Whether more of this item follow.
        more: bool,
    },
    /// The probe burst has been sent.
    Probed {
        /// As the client chose it.
        probe: u32,
        /// Packets sent.
        packets: u32,
    },
}
