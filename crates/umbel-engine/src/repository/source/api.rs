//! What the server's application asks for, and what it is told.

use std::time::Duration;

use umbel_wire::repository::{ItemInfo, Need};
use umbel_wire::{Digest, Oti, Toi};

use crate::SessionId;
use crate::units::Rate;

/// What the server's application asks for or answers.
#[derive(Clone, Debug)]
pub enum SourceCommand {
    /// A client opened a session.
    SessionOpened {
        /// The session.
        session: SessionId,
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
    /// The session is over; its client wants nothing more.
    SessionClosed {
        /// The session.
        session: SessionId,
    },
    /// A client's loss on the data channel, 0 to 1, is known from elsewhere: it is estimated no
    /// longer.
    LossKnown {
        /// The session.
        session: SessionId,
        /// The share of packets that it loses.
        loss: f64,
    },
    /// A page that answers [`SourceEvent::List`] or [`SourceEvent::Request`].
    Page {
        /// The session that asked.
        session: SessionId,
        /// The query that it answers.
        query: u32,
        /// The items.
        items: Vec<ItemInfo>,
        /// Items on all pages.
        total: u64,
        /// The cursor of the next page.
        next: Option<u64>,
        /// The client requested these items: they are scheduled for it.
        wanted: bool,
    },
    /// A query has no answer.
    Failed {
        /// The session that asked.
        session: SessionId,
        /// The query.
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
        /// How it is cut into symbols.
        oti: Oti,
        /// What the client lacks.
        need: Need,
    },
    /// An item can no longer be had.
    Gone {
        /// The item.
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
        /// The item.
        toi: Toi,
        /// Block of the first digest.
        first_block: u32,
        /// A digest of each block from there.
        digests: Vec<Digest>,
        /// Whether more follow.
        more: bool,
    },
    /// Answers [`SourceEvent::Probe`] when the burst has been sent.
    Probed {
        /// The session that asked.
        session: SessionId,
        /// As the client chose it.
        probe: u32,
        /// Packets sent.
        packets: u32,
    },
    /// The symbol source has made something: goes on with what waited for it.
    SymbolsReady,
}

/// What the server's application should do or know.
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
        /// Where the page starts.
        cursor: u64,
        /// Most items.
        limit: u32,
    },
    /// Answer with all items that match, as wanted pages unless `hold` is set.
    Request {
        /// The session that asks.
        session: SessionId,
        /// Chosen by the client.
        query: u32,
        /// Glob patterns; empty for all.
        patterns: Vec<String>,
        /// Transmit nothing before the client says what it lacks of each item.
        hold: bool,
    },
    /// A client wants an item that the engine does not know: answer with
    /// [`SourceCommand::Want`] or [`SourceCommand::NoSuchItem`].
    Lookup {
        /// The session that asks.
        session: SessionId,
        /// The item.
        toi: Toi,
        /// What the client lacks.
        need: Need,
    },
    /// Send what is needed on the session; stops what was sent there of the item before.
    ServeUnicast {
        /// The session.
        session: SessionId,
        /// The item.
        toi: Toi,
        /// What the client lacks.
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
    /// Send a burst of probe packets.
    Probe {
        /// The session that asks.
        session: SessionId,
        /// Chosen by the client.
        probe: u32,
        /// Packets.
        packets: u32,
        /// UDP payload bytes of each.
        packet_len: u16,
        /// Bits of UDP payload per second.
        rate_bits_per_s: u64,
    },
    /// End the session: its client is not admitted or broke the protocol.
    CloseSession {
        /// The session.
        session: SessionId,
        /// One line for the log.
        reason: String,
    },
    /// A client has an item.
    Delivered {
        /// The session.
        session: SessionId,
        /// The item.
        toi: Toi,
    },
    /// An item could not be read; every client that wanted it has been told.
    ItemLost {
        /// The item.
        toi: Toi,
        /// What went wrong.
        reason: String,
    },
    /// Data packets are to leave at this rate from now on: clients cannot take more, or can again.
    Rate {
        /// The rate.
        rate: Rate,
    },
    /// A client wants nothing more.
    Satisfied {
        /// The session.
        session: SessionId,
        /// From its first request to now.
        after: Duration,
    },
}

/// Counters of the data channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Transmissions finished.
    pub transmissions: u64,
    /// Of these, retransmissions.
    pub repairs: u64,
    /// Data packets sent.
    pub packets: u64,
    /// Bytes of UDP payload in data packets.
    pub bytes: u64,
    /// NAKs heard.
    pub naks: u64,
}

/// What an operator sees of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientStatus {
    /// Items that it wants and does not have.
    pub wanted: usize,
    /// Items that it gets on the session, because multicast does not reach it.
    pub by_unicast: usize,
    /// Estimated loss on the data channel, 0 to 1.
    pub loss: f64,
    /// Round trip time of the session.
    pub rtt: Duration,
}
