//! The server: gathers what clients want, schedules the data channel, answers NAKs.
//!
//! ```text
//!           Want/Request                    last packet of the pass left
//!   ┌─────────────────────▶ pending ──choose──▶ pass ───────────┐
//!   │                          ▲                 │ NAK          ▼
//!   │        NAK refused       │                 ▼          (clients say
//! client ◀─────────────────────┴──────────── gathering ──▶   Done, or NAK)
//!   ▲                                            │ gathered     ▲
//!   └── Done                                     ▼              │
//!                                             repair ───────────┘
//! ```
//!
//! The states are those of one item. *Pending*: clients lack some of it, the scheduler ranks it
//! [Repository §2.2]. *Pass*: it is sent, in one transmission or, when it is large, in several
//! one after the other; what clients lacked is taken as delivered unless they NAK. *Gathering*:
//! a NAK that the policy honours [Repository §3.2.4] waits for others. *Repair*: what the
//! gathered NAKs ask for is sent. NAKs that are not honoured put what they name back to pending
//! [Repository §3.3].

mod announce;
mod auto;
mod feedback;
mod gathering;
mod item;
mod loss;
mod plan;
mod sessions;
mod throttle;
mod transmission;

pub use self::sessions::ClientStatus;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use umbel_wire::repository::{ItemInfo, Need, ServerMessage};
use umbel_wire::{Digest, Oti, Toi};

use self::gathering::Gathering;
use self::item::Item;
use self::loss::Loss;
use self::sessions::Client;
use self::throttle::Throttle;
use self::transmission::{Ended, Repair, Transmission};
use super::config::SourceConfig;
use super::control::Control;
use super::drops::{DropReason, Drops};
use super::scheduler::Scheduler;
use crate::symbols::{BlockId, Load, SymbolSource};
use crate::units::Rate;
use crate::{
    Address, Datagram, Engine, Instant, Membership, RateClass, SessionId, Transmit, TransmitBuf,
};

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

/// The server's engine.
#[derive(Debug)]
pub struct Source<S> {
    config: SourceConfig,
    symbols: S,
    /// The server's end of the multicast control channel, once it has joined it.
    control: Option<Control>,
    clients: BTreeMap<SessionId, Client>,
    items: BTreeMap<Toi, Item>,
    scheduler: Scheduler,
    /// The pass under way: continued before another item is chosen [Repository §4].
    current_pass: Option<Toi>,
    repairs: BTreeMap<Toi, Repair>,
    /// By `auto`, NAKs that wait for others.
    gathering: Gathering,
    /// By `auto`, packets that are due to the oldest request.
    oldest_credit: f64,
    /// What is supposed of new clients: the loss of all together.
    usual_loss: Loss,
    queue: VecDeque<Transmission>,
    ended: BTreeMap<(Toi, u32), Ended>,
    /// The same transmissions in the order in which they ended.
    ended_order: VecDeque<(Instant, Toi, u32)>,
    next_transmission: u32,
    outbox: VecDeque<(SessionId, ServerMessage)>,
    events: VecDeque<SourceEvent>,
    waiting_for_symbols: bool,
    /// The first transmission in line may not start yet.
    waiting_for_start: bool,
    /// The channel is kept free for NAKs until then.
    kept_free_until: Option<Instant>,
    /// The last transmission that is over, and its listeners, until a packet of a later one
    /// leaves.
    unseen_end: Option<(u32, BTreeSet<SessionId>)>,
    /// Packets that are planned and have not left.
    queued_packets: u64,
    throttle: Throttle,
    drops: Drops,
    stats: SourceStats,
}

impl<S: SymbolSource> Source<S> {
    /// A server that takes symbols from `symbols`.
    pub fn new(config: SourceConfig, symbols: S) -> Source<S> {
        Source {
            scheduler: Scheduler::new(config.scheduler),
            throttle: Throttle::new(config.rate),
            config,
            symbols,
            control: None,
            clients: BTreeMap::new(),
            items: BTreeMap::new(),
            current_pass: None,
            repairs: BTreeMap::new(),
            gathering: Gathering::default(),
            oldest_credit: 0.0,
            usual_loss: Loss::supposed(0.0),
            queue: VecDeque::new(),
            ended: BTreeMap::new(),
            ended_order: VecDeque::new(),
            next_transmission: 1,
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            waiting_for_symbols: false,
            waiting_for_start: false,
            kept_free_until: None,
            unseen_end: None,
            queued_packets: 0,
            drops: Drops::default(),
            stats: SourceStats::default(),
        }
    }

    /// Input that was discarded, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Counters of the data channel.
    pub fn stats(&self) -> SourceStats {
        self.stats
    }

    /// Where symbols are taken from.
    pub fn symbols_mut(&mut self) -> &mut S {
        &mut self.symbols
    }

    /// Items that some client wants from the channel and does not have.
    pub fn pending_items(&self) -> usize {
        self.items.len()
    }

    /// The rate at which data packets leave now: the operator's, or what most clients can take.
    pub fn rate(&self) -> Rate {
        self.throttle.rate()
    }

    /// The next control message, in the group or on a session.
    fn poll_message(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if let Some(transmit) = self.control.as_mut().and_then(|c| c.poll_transmit(now, buf)) {
            return Some(transmit);
        }
        let (session, message) = self.outbox.pop_front()?;
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        buf.push_message(bytes);
        Some(Transmit::control(Address::Session(session)))
    }

    /// Fills `buf` from the transmissions in line.
    fn poll_data(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let mut first_len = 0;
        while buf.len() < buf.allows(RateClass::Data) {
            if self.queue.front().is_some_and(Transmission::finished) {
                self.finish_front(now);
            }
            let Some(front) = self.queue.front() else { break };
            if front.not_before > now {
                self.waiting_for_start = true;
                break;
            }
            let Some((block, esi, index)) = front.next_symbol() else { continue };
            let (id, oti) = (front.id, front.oti);
            match self.symbols.symbol(block, esi) {
                Load::Ready(symbol) => {
                    if !buf.is_empty() && symbol.len() > first_len {
                        break;
                    }
                    if buf.is_empty() {
                        first_len = symbol.len();
                    }
                    let shorter = symbol.len() < first_len;
                    let len = self.push_packet(buf, (id, index), oti, (block, esi), symbol);
                    self.stats.packets += 1;
                    self.unseen_end = None;
                    self.queued_packets = self.queued_packets.saturating_sub(1);
                    self.stats.bytes += len as u64;
                    let left = self.queue.front_mut().and_then(Transmission::advance);
                    if let Some(left) = left {
                        self.symbols.release(left);
                    }
                    if shorter {
                        break;
                    }
                }
                Load::Pending => {
                    self.waiting_for_symbols = true;
                    break;
                }
                Load::Gone(reason) => self.lose_item(now, block.toi, &reason),
            }
        }
        if self.queue.front().is_some_and(Transmission::finished) {
            self.finish_front(now);
        }
        (!buf.is_empty()).then_some(Transmit::data(Address::Channel(self.config.channel)))
    }

    /// Writes a data packet; gives its length.
    fn push_packet(
        &self,
        buf: &mut TransmitBuf,
        (transmission, index): (u32, u32),
        oti: Oti,
        (block, esi): (BlockId, u32),
        symbol: bytes::Bytes,
    ) -> usize {
        let header = umbel_wire::alc::DataHeader {
            tsi: self.config.tsi,
            toi: block.toi,
            transmission,
            index,
            scheme: oti.scheme,
            sbn: block.sbn,
            esi,
        };
        let head = header
            .emit()
            .expect("the partition numbers blocks and symbols within the scheme's fields");
        let total = head.len() + symbol.len();
        buf.push(&head, symbol);
        total
    }
}

impl<S: SymbolSource> Engine for Source<S> {
    type Command = SourceCommand;
    type CommandError = std::convert::Infallible;
    type Event = SourceEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        match datagram.by {
            Address::Session(session) => self.on_session_message(now, session, datagram.payload),
            Address::Channel(by) => match &mut self.control {
                Some(control) if control.owns(&by) => {
                    control.handle_datagram(now, by, datagram.payload);
                    // Only the server has anything to tell.
                    while control.poll_message().is_some() {}
                }
                _ => self.drops.count(DropReason::Unexpected),
            },
            Address::Host(_) => self.drops.count(DropReason::Unexpected),
        }
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: SourceCommand,
    ) -> Result<(), Self::CommandError> {
        self.on_command(now, command);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.waiting_for_start = false;
        self.drive_control(now);
        self.forget_old_transmissions(now);
        self.fill_queue(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.control.as_mut()?.poll_membership()
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if let Some(transmit) = self.poll_message(now, buf) {
            return Some(transmit);
        }
        if buf.allows(RateClass::Data) == 0 || !self.wants(RateClass::Data) {
            return None;
        }
        self.fill_queue(now);
        self.poll_message(now, buf).or_else(|| self.poll_data(now, buf))
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data
            && !self.waiting_for_symbols
            && !self.waiting_for_start
            && !self.queue.is_empty()
    }

    fn poll_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let starts = self.queue.front().filter(|_| self.waiting_for_start).map(|t| t.not_before);
        // While the channel is busy, what is due is planned between packets.
        let idle = self.queue.is_empty();
        let repairs = self.repairs.values().map(|repair| repair.due).min();
        let gathers = [repairs, self.gathering.next_due()].into_iter().flatten().min();
        let gathers = gathers.filter(|_| idle);
        let forgets = self.ended_order.front().map(|&(at, ..)| at);
        let control = self.control_due();
        [starts, gathers, forgets, self.kept_free_until, control].into_iter().flatten().min()
    }
}
