//! Commands and events between the engine and the server's application.

use std::net::IpAddr;
use std::time::Duration;

use umbel_wire::repository::{GroupSecret, ItemInfo, Need, SymbolDigest, SymbolKey, SymbolRun};
use umbel_wire::{Digest, Oti, Toi};

use crate::SessionId;
use crate::congestion::PathStatus;
use crate::symbols::BlockId;
use crate::units::Rate;

/// Requests and answers of the server's application.
#[derive(Clone, Debug)]
pub enum SourceCommand {
    /// A client opened a session.
    SessionOpened {
        /// The session.
        session: SessionId,
        /// Address of the client.
        remote: IpAddr,
        /// Its round trip time.
        rtt: Duration,
    },
    /// A better estimate of a session's round trip time.
    SessionRtt {
        /// The session.
        session: SessionId,
        /// Its round trip time.
        rtt: Duration,
    },
    /// The session has ended. Its client wants nothing more.
    SessionClosed {
        /// The session.
        session: SessionId,
    },
    /// A client's loss on the data channel, 0 to 1, is known from elsewhere. The engine stops
    /// estimating it.
    LossKnown {
        /// The session.
        session: SessionId,
        /// The share of packets that the client loses.
        loss: f64,
    },
    /// A page that answers [`SourceEvent::List`] or [`SourceEvent::Request`].
    Page {
        /// The session that asked.
        session: SessionId,
        /// The query that it answers.
        query: u32,
        /// The page's items.
        items: Vec<ItemInfo>,
        /// Total number of items on all pages.
        total: u64,
        /// The cursor of the next page.
        next: Option<u64>,
        /// Whether the client requested these items. They are then scheduled for it.
        wanted: bool,
    },
    /// A query that failed.
    Failed {
        /// The session that asked.
        session: SessionId,
        /// The failed query.
        query: u32,
        /// One line for the user.
        reason: String,
    },
    /// Answers [`SourceEvent::Lookup`].
    Want {
        /// The session that asked.
        session: SessionId,
        /// The item.
        toi: Toi,
        /// The item's division into symbols.
        oti: Oti,
        /// The symbols missing at the client.
        need: Need,
    },
    /// An item is no longer available.
    Gone {
        /// The item that was lost.
        toi: Toi,
        /// One line for the user.
        reason: String,
    },
    /// A client asked for an item that does not exist.
    NoSuchItem {
        /// The session that asked.
        session: SessionId,
        /// The item.
        toi: Toi,
    },
    /// Answers a part of [`SourceEvent::Digests`].
    Digests {
        /// The session that asked.
        session: SessionId,
        /// The digested item.
        toi: Toi,
        /// Block of the first digest.
        first_block: u32,
        /// Digests of consecutive blocks from `first_block`.
        digests: Vec<Digest>,
        /// Whether more digests follow.
        more: bool,
    },
    /// Answers [`SourceEvent::SymbolDigests`].
    SymbolDigests {
        /// The session that asked.
        session: SessionId,
        /// The block.
        block: BlockId,
        /// Encoding symbol ID of the first digest.
        first_esi: u32,
        /// Digests of consecutive encoding symbols from `first_esi`.
        digests: Vec<SymbolDigest>,
    },
    /// Answers [`SourceEvent::Probe`] when the burst has been sent.
    Probed {
        /// The session that asked.
        session: SessionId,
        /// The client's number of the probe.
        probe: u32,
        /// Number of packets sent.
        packets: u32,
    },
    /// Answers [`SourceEvent::DrawSecret`].
    Secret(GroupSecret),
    /// The symbol source has made symbols. The engine resumes work that waited for them.
    SymbolsReady,
}

/// Requests and news for the server's application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// Answer with a page of the catalog.
    List {
        /// The session that asks.
        session: SessionId,
        /// Chosen by the client.
        query: u32,
        /// Glob patterns; empty for all.
        patterns: Vec<String>,
        /// Start of the page.
        cursor: u64,
        /// Greatest number of items.
        limit: u32,
    },
    /// Answer with all matching items, as wanted pages unless `hold` is set.
    Request {
        /// The session that asks.
        session: SessionId,
        /// Chosen by the client.
        query: u32,
        /// Glob patterns; empty for all.
        patterns: Vec<String>,
        /// Transmit nothing before the client names the missing symbols of each item.
        hold: bool,
    },
    /// A client wants an item that the engine does not know. Answer with [`SourceCommand::Want`] or
    /// [`SourceCommand::NoSuchItem`].
    Lookup {
        /// The session that asks.
        session: SessionId,
        /// The item.
        toi: Toi,
        /// The symbols missing at the client.
        need: Need,
    },
    /// Send the needed symbols on the session, in place of anything still being sent of the item
    /// there.
    ServeUnicast {
        /// The session.
        session: SessionId,
        /// The item.
        toi: Toi,
        /// The symbols missing at the client.
        need: Need,
    },
    /// The client no longer needs the item by unicast.
    StopUnicast {
        /// The session.
        session: SessionId,
        /// The item.
        toi: Toi,
    },
    /// Answer with the digests of an item's blocks.
    Digests {
        /// The session that asks.
        session: SessionId,
        /// The item.
        toi: Toi,
    },
    /// Answer with the digests of encoding symbols.
    SymbolDigests {
        /// The session that asks.
        session: SessionId,
        /// The item.
        toi: Toi,
        /// The key of the digests.
        key: SymbolKey,
        /// The symbols.
        symbols: SymbolRun,
    },
    /// Send a burst of probe packets.
    Probe {
        /// The session that asks.
        session: SessionId,
        /// Chosen by the client.
        probe: u32,
        /// Number of packets.
        packets: u32,
        /// UDP payload of each packet, in bytes.
        packet_len: u16,
        /// Rate of the burst, in bits of UDP payload per second.
        rate_bits_per_s: u64,
    },
    /// Draw the secret of the next group key from a generator that nobody can predict. Answer with
    /// [`SourceCommand::Secret`].
    DrawSecret,
    /// Close the session. Its client is not admitted or broke the protocol.
    CloseSession {
        /// The session.
        session: SessionId,
        /// One line for the log.
        reason: String,
        /// Whether its client showed a wrong token. The next session of its address has to wait.
        guess: bool,
    },
    /// A client has received a whole item.
    Delivered {
        /// The session.
        session: SessionId,
        /// The item.
        toi: Toi,
    },
    /// An item could not be read. Every client that wanted it has been told.
    ItemLost {
        /// The item.
        toi: Toi,
        /// Cause of the failure.
        reason: String,
    },
    /// Data packets leave at this rate from now on.
    Rate {
        /// The new rate.
        rate: Rate,
    },
    /// The path of a client carries less than the channel's rate. The client is asked to take its
    /// items on the session.
    Aside {
        /// The session.
        session: SessionId,
        /// Rate that its path carries.
        carries: Rate,
    },
    /// A client has everything that it wanted.
    Satisfied {
        /// The session.
        session: SessionId,
        /// Time from its first request until now.
        after: Duration,
    },
}

/// Counters of the data channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Transmissions finished.
    pub transmissions: u64,
    /// Number of these that were retransmissions.
    pub repairs: u64,
    /// Data packets sent.
    pub packets: u64,
    /// Bytes of UDP payload in data packets.
    pub bytes: u64,
    /// NAKs received.
    pub naks: u64,
}

/// A client's state, for the operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientStatus {
    /// Number of items that the client wants and does not have.
    pub wanted: usize,
    /// Number of items that it gets on the session because multicast does not reach it.
    pub by_unicast: usize,
    /// Estimated loss on the data channel, 0 to 1.
    pub loss: f64,
    /// Round trip time of the session.
    pub rtt: Duration,
    /// Its path, while it receives the channel and reports.
    pub path: Option<PathStatus>,
}
