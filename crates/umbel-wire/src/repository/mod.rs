//! Messages between a repository's server and its clients.
//!
//! They travel on the client's session (reliable, in order, one after the other). Announcements
//! may also travel on a multicast control channel; their encoding is the same.
//!
//! - Here: the messages.
//! - `client.rs`, `server.rs`: emitting and parsing; the messages' type numbers.
//! - `need.rs`, `item.rs`: compact encodings of needs and of pages of the catalog.
//! - `link.rs`: the text of a symbolic link.
//! - `field.rs`: the TLV types that all messages share.
//! - [`limits`]: the limits of messages.
//!
//! Each message is one control message ([`control`](crate::control)) with a TLV for each field.
//! Parsing accepts only values within the documented ranges, so an engine need not check again.
//! Emitting does not check; the peer refuses a message that exceeds a limit.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use zeroize::{Zeroize, ZeroizeOnDrop};

mod client;
mod field;
mod item;
pub mod limits;
mod link;
mod need;
mod server;
mod unicast;

pub use link::LinkText;
pub use unicast::UnicastBlock;

use crate::reception::{ReceptionReport, ReportSchedule};
use crate::srm::MemberId;
use crate::{Channel, Digest, Oti, Toi, Tsi};

/// A run of neighbouring source blocks that each need the same number of further symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedRun {
    /// First source block number of the run.
    pub first_block: u32,
    /// Number of blocks; at least 1. `first_block + blocks` fits 32 bits.
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
    /// Number of symbols; at least 1. `first_esi + count` fits 32 bits.
    pub count: u32,
}

/// The part of an item that a client still needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The whole item.
    Whole,
    /// Any further symbols of some blocks, a number for each: runs in ascending block order, not
    /// overlapping, at most [`limits::RUNS`]. An empty list needs nothing.
    Symbols(Vec<NeedRun>),
    /// Exactly these symbols (exact-packet mode, "no ECC" of [Repository §6.4]): runs in ascending
    /// order, not overlapping, at most [`limits::RUNS`].
    Exact(Vec<SymbolRun>),
}

/// What an item is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ItemKind {
    /// A file, or other content.
    #[default]
    File,
    /// A directory. It has no content: its entries are items of their own.
    Directory,
    /// A symbolic link with this text. It has no content.
    Link(LinkText),
    /// Another name (a hard link) of the file that is the item of this name, with the same content,
    /// which is not sent twice.
    HardLink(String),
}

impl ItemKind {
    /// Returns whether it is a file whose content is sent.
    pub fn is_file(&self) -> bool {
        *self == ItemKind::File
    }

    /// Returns whether it is a directory.
    pub fn is_directory(&self) -> bool {
        *self == ItemKind::Directory
    }
}

/// Metadata of an item of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemInfo {
    /// The object that carries this version of the item.
    pub toi: Toi,
    /// Path relative to the repository's root with `/` between its parts, or a URI.
    pub name: String,
    /// What it is.
    pub kind: ItemKind,
    /// BLAKE3 digest of the content. All zero in a listing while it is unknown; always known in the
    /// answer to a request.
    pub digest: Digest,
    /// Modification time: nanoseconds since the Unix epoch.
    pub modified_ns: Option<i64>,
    /// Permissions of the file or directory: read, write and execute for owner, group and others.
    pub mode: Option<u16>,
    /// The source blocks that are holes: they have nothing but zeros, and need not be sent. Runs in
    /// ascending order, neither empty nor touching each other, at most [`limits::HOLES`]. `None` if
    /// the file has no holes, and an empty list if it has some, but none that is a whole block.
    pub holes: Option<Vec<Range<u32>>>,
    /// Media type, or empty if unknown.
    pub media_type: String,
    /// Object transmission information, with the item's size.
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
    /// Number of data packets in the transmission.
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
    /// The key that authenticates the members' messages. `None` if they are sealed with the group
    /// keys ([`SealedMessage`](crate::sealed::SealedMessage)).
    pub key: Option<ControlKey>,
}

/// The key of a control group. `Debug` does not print it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ControlKey(pub [u8; 32]);

impl fmt::Debug for ControlKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlKey(..)")
    }
}

/// A key of a repository that is sealed. All admitted clients have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKey {
    /// Number of the key, which packets carry; one more than that of the key before, wrapping.
    pub id: u16,
    /// The secret from which the keys of the data channel and of the control group are derived.
    pub secret: GroupSecret,
}

/// The secret of a group key. It is wiped when it is dropped, and `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupSecret(pub [u8; 32]);

impl Drop for GroupSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for GroupSecret {}

impl fmt::Debug for GroupSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupSecret(..)")
    }
}

/// The key of symbol digests. The client draws it, so that nobody who forges symbols can seek two
/// of the same digest. `Debug` does not print it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct SymbolKey(pub [u8; 32]);

impl fmt::Debug for SymbolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SymbolKey(..)")
    }
}

/// A short keyed digest of an encoding symbol and of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolDigest(pub [u8; 8]);

/// The report on a transmission that ended: the missing part, and packet counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nak {
    /// The transmission that ended.
    pub transmission: u32,
    /// Its item.
    pub toi: Toi,
    /// The missing part of the blocks that the transmission covered.
    pub need: Need,
    /// Number of data packets of this transmission that arrived.
    pub received: u32,
    /// Number of data packets of this transmission that did not arrive after the client began to
    /// listen, without those that its machine dropped.
    pub lost: u32,
}

/// A message from a client to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// Opens the session.
    Hello {
        /// Name and version of the client program.
        agent: String,
        /// Admission token, if the server requires one.
        token: Option<String>,
    },
    /// Asks for a page of the catalog.
    List {
        /// Chosen by the client; the answer carries it.
        query: u32,
        /// Glob patterns; an item matches if any of them does. An empty list matches every item.
        patterns: Vec<String>,
        /// 0 for the first page, then the `next` of the previous page.
        cursor: u64,
        /// Maximum number of items in the answer.
        limit: u32,
    },
    /// Asks for all matching items. The server answers with pages and transmits every item, as
    /// after a `Want` for the whole of it.
    Request {
        /// Chosen by the client; the answers carry it.
        query: u32,
        /// Glob patterns; an item matches if any of them does. An empty list matches every item.
        patterns: Vec<String>,
        /// Whether to transmit nothing yet: the client already holds some of the content, and sends
        /// a `Want` for the missing part of each item.
        hold: bool,
    },
    /// Asks for an item, or for the missing part of it.
    Want {
        /// The item.
        toi: Toi,
        /// The missing part.
        need: Need,
    },
    /// Reports, at the end of a transmission, what it left missing [Repository §3.2.3].
    Nak(Nak),
    /// Reports that the client has these items, verified.
    Done {
        /// The items.
        tois: Vec<Toi>,
        /// Number of data packets that arrived since the last `Done`, of transmissions without a
        /// NAK.
        received: u32,
        /// Number of data packets of these transmissions that did not arrive.
        lost: u32,
    },
    /// Withdraws the client's requests for these items.
    Cancel {
        /// The items.
        tois: Vec<Toi>,
    },
    /// Asks for symbols on the session, since multicast does not reach the client.
    Unicast {
        /// The item.
        toi: Toi,
        /// The missing part.
        need: Need,
    },
    /// Asks for the digest of each source block of an item whose digest did not match.
    Digests {
        /// The item.
        toi: Toi,
    },
    /// Asks for digests of encoding symbols of a source block, to tell wrong ones as they come.
    SymbolDigests {
        /// The item.
        toi: Toi,
        /// The key of the digests.
        key: SymbolKey,
        /// The symbols; at most [`limits::SYMBOL_DIGESTS`].
        symbols: SymbolRun,
    },
    /// Reports whether the client receives the server's announcements on the control group, so that
    /// its session need not carry them. Until this message, the session carries them.
    Control {
        /// Whether it does.
        hears: bool,
    },
    /// Confirms a [`ServerMessage::Key`]: the client can open what is sealed with it.
    HasKey {
        /// Number of the key.
        key: u16,
    },
    /// Reports how the packets of the data channel arrive.
    Reception(ReceptionReport),
    /// Asks for a burst of probe packets on a data channel.
    Probe {
        /// Chosen by the client; the packets and the answer carry it.
        probe: u32,
        /// Index of the data channel.
        channel: u8,
        /// Number of packets wanted.
        packets: u32,
        /// UDP payload of each packet in bytes.
        packet_len: u16,
        /// Bits of UDP payload per second.
        rate_bits_per_s: u64,
    },
}

/// A message from the server to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMessage {
    /// Admits the client.
    Welcome {
        /// Name and version of the server program.
        agent: String,
        /// The session of all data packets.
        tsi: Tsi,
        /// The data channels; [`Announcement::channel`] is an index into them. Servers have one so
        /// far, and clients receive the first alone. The list leaves room for servers that divide
        /// their rate among several, without another version of the protocol.
        channels: Vec<Channel>,
        /// Highest rate of the data channels together, in bits of UDP payload per second.
        rate_bits_per_s: u64,
        /// The control group in which the server also announces transmissions, if any.
        control: Option<ControlGroup>,
        /// The keys of the data channel and the control group, if these are sealed: the one in use
        /// and, during a change, the next. At most [`limits::KEYS`].
        keys: Vec<GroupKey>,
    },
    /// Refuses the client, and closes the session.
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
        /// Number of matching items on all pages. In the answer to a request for everything, and in
        /// the list of a feed, with those that the source cannot read or name, and so not offer.
        total: u64,
        /// The cursor of the next page; `None` on the last one.
        next: Option<u64>,
    },
    /// Reports that a query cannot be answered.
    Failed {
        /// The query.
        query: u32,
        /// One line for the user.
        reason: String,
    },
    /// Announces transmissions that are about to start, in this order.
    Announce {
        /// Present rate of the data channel, in bits of UDP payload per second.
        rate_bits_per_s: u64,
        /// Time until the first of them starts.
        starts_in: Duration,
        /// Upper bound of the random time by which clients delay a NAK.
        nak_spread: Duration,
        /// The transmissions.
        announcements: Vec<Announcement>,
    },
    /// The last packet of this transmission was sent, and no other transmission follows at once.
    End {
        /// The transmission.
        transmission: u32,
    },
    /// An item is no longer available.
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
        /// A digest for each block from there on.
        digests: Vec<Digest>,
        /// Whether more digests of this item follow.
        more: bool,
    },
    /// Digests of encoding symbols, with the client's key. Fewer than were asked for if the block
    /// has no more.
    SymbolDigests {
        /// The item.
        toi: Toi,
        /// Source block number.
        block: u32,
        /// Encoding symbol ID of the first digest.
        first_esi: u32,
        /// A digest for each encoding symbol from there on.
        digests: Vec<SymbolDigest>,
    },
    /// The next group key, which will be used soon. The client confirms it.
    Key(GroupKey),
    /// Says when to report how packets arrive.
    Reports(ReportSchedule),
    /// The client's path carries less than the channel's rate. The client leaves the channel and
    /// asks for its items on the session.
    Aside {
        /// Rate that the path carries, in bits of UDP payload per second.
        carries_bits_per_s: u64,
        /// The channel's rate.
        rate_bits_per_s: u64,
    },
    /// The probe burst was sent.
    Probed {
        /// The client's number for the probe.
        probe: u32,
        /// Number of packets sent.
        packets: u32,
    },
}
