//! The client: asks, listens while something that it wants is announced, and says at the end of
//! each transmission what is missing.
//!
//! ```text
//!              Announce                 last packet, a later transmission,
//!            ┌──────────▶ listening ──── End, or silence ──────┐
//!            │                                                 ▼
//! item: wanted ◀──── NAK sent ◀──── random delay ◀──── blocks missing?
//!            │                                                 │ none
//!            └───────── every block complete ◀─────────────────┘
//!                               │
//!                               ▼
//!                           verifying ──digest matches──▶ done
//! ```
//!
//! Symbols of a wanted item are taken whenever they come, whether the transmission was announced
//! to this client or not. When announced transmissions bring no packet for
//! [`ReceiverConfig::fallback_after`], the client asks for its items on the session
//! (*unicast*), and goes back as soon as a probe or any data packet arrives.

mod control;
mod fallback;
mod item;
mod listening;
mod messages;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_wire::alc::{DataHeader, DataPacket};
use umbel_wire::repository::{ClientMessage, ItemInfo};
use umbel_wire::{Channel, Digest, Oti, Toi, Tsi};

use self::control::ControlEnd;
pub use self::item::Held;
use self::item::{Item, Taken};
use self::listening::{Listening, Reception};
use super::config::ReceiverConfig;
use super::drops::{DropReason, Drops};
use crate::symbols::{BlockId, SymbolSink};
use crate::{Address, Datagram, Engine, Instant, Membership, SessionId, Transmit, TransmitBuf};

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

/// Blocks that are put to rest when the sink has no room.
const REST_AT_ONCE: usize = 16;

/// Packets that came too fast since the last NAK.
#[derive(Clone, Copy, Debug, Default)]
struct Overrun {
    /// They never reached the engine.
    before: u32,
    /// The sink had no room for them.
    no_room: u32,
}

/// How the client gets its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Multicast,
    /// On the session; multicast is probed at this time.
    Unicast {
        next_probe: Instant,
    },
}

/// The client's engine.
#[derive(Debug)]
pub struct Receiver<K> {
    config: ReceiverConfig,
    sink: K,
    random: Xoshiro256PlusPlus,
    session: Option<SessionId>,
    tsi: Option<Tsi>,
    channel: Option<Channel>,
    packet_time: Duration,
    items: BTreeMap<Toi, Item>,
    /// Items whose blocks are all complete and whose digest is being checked.
    verifying: BTreeMap<Toi, Item>,
    listening: BTreeMap<u64, Listening>,
    naks: BTreeMap<(Instant, u64), Listening>,
    highest_transmission: u64,
    way: Way,
    last_packet: Instant,
    /// Since when an announced transmission runs and nothing came.
    silent_since: Option<Instant>,
    probing: bool,
    joined: bool,
    interest_until: Instant,
    overrun: Overrun,
    /// Of transmissions that ended without a NAK.
    untold: Reception,
    next_ask_again: Option<Instant>,
    control: ControlEnd,
    memberships: VecDeque<Membership>,
    outbox: VecDeque<ClientMessage>,
    done: Vec<Toi>,
    events: VecDeque<ReceiverEvent>,
    drops: Drops,
    stats: ReceiverStats,
}

impl<K: SymbolSink> Receiver<K> {
    /// A client that keeps symbols in `sink`.
    pub fn new(config: ReceiverConfig, sink: K) -> Receiver<K> {
        Receiver {
            random: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            config,
            sink,
            session: None,
            tsi: None,
            channel: None,
            packet_time: Duration::ZERO,
            items: BTreeMap::new(),
            verifying: BTreeMap::new(),
            listening: BTreeMap::new(),
            naks: BTreeMap::new(),
            highest_transmission: 1 << 32,
            way: Way::Multicast,
            last_packet: Instant::EPOCH,
            silent_since: None,
            probing: false,
            joined: false,
            interest_until: Instant::EPOCH,
            overrun: Overrun::default(),
            untold: Reception::default(),
            next_ask_again: None,
            control: ControlEnd::default(),
            memberships: VecDeque::new(),
            outbox: VecDeque::new(),
            done: Vec::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            stats: ReceiverStats::default(),
        }
    }

    /// Input that was discarded, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Counters of the data channel.
    pub fn stats(&self) -> ReceiverStats {
        let mut stats = self.stats;
        self.add_running(&mut stats);
        stats
    }

    /// Where symbols are kept.
    pub fn sink_mut(&mut self) -> &mut K {
        &mut self.sink
    }

    /// Items that are wanted and not verified yet.
    pub fn outstanding(&self) -> usize {
        self.items.len() + self.verifying.len()
    }

    /// Complete blocks and all blocks of an item that is being received.
    pub fn progress(&self, toi: Toi) -> Option<(u32, u32)> {
        self.items.get(&toi).or_else(|| self.verifying.get(&toi)).map(Item::progress)
    }

    /// Takes a packet of the data channel.
    fn on_packet(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(packet) = DataPacket::parse(bytes) else {
            return self.drops.count(DropReason::Malformed);
        };
        let DataHeader { tsi, toi, transmission, index, .. } = packet.header;
        if Some(tsi) != self.tsi {
            return self.drops.count(DropReason::OtherSession);
        }
        self.stats.packets += 1;
        self.stats.bytes += bytes.len() as u64;
        self.last_packet = now;
        self.silent_since = None;
        if self.way != Way::Multicast {
            self.on_multicast_back(now);
        }
        if toi == Toi::PROBE {
            let (probe, len) = (transmission, bytes.len());
            let event = ReceiverEvent::ProbePacket { probe, index, at: now, len };
            return self.events.push_back(event);
        }
        self.take_symbol(now, &packet);
        self.note_heard(now, transmission, index);
    }

    fn take_symbol(&mut self, now: Instant, packet: &DataPacket<'_>) {
        let DataPacket { header: DataHeader { toi, scheme, sbn, esi, .. }, symbol } = *packet;
        let Some(item) = self.items.get_mut(&toi) else {
            return self.drops.count(DropReason::NotWanted);
        };
        item.last_heard = now;
        if scheme != item.oti.scheme || !item.admits(sbn, esi, symbol.len()) {
            return self.drops.count(DropReason::OutsideItem);
        }
        if !item.lacks(sbn, esi) {
            return self.drops.count(DropReason::Duplicate);
        }
        let block = BlockId { toi, sbn };
        if !self.sink.store(block, esi, symbol) {
            self.overrun.no_room = self.overrun.no_room.saturating_add(1);
            // The oldest blocks wait for repairs; the disk can hold them meanwhile.
            for sbn in item.partial_blocks(0..sbn).take(REST_AT_ONCE) {
                self.sink.rest(BlockId { toi, sbn });
            }
            return self.drops.count(DropReason::NoRoom);
        }
        if item.take(sbn, esi) == Taken::BlockComplete {
            self.sink.restore(block);
            self.check_complete(toi);
        }
    }

    /// Asks for nothing more of an item whose last block is complete. The sink says whether it is
    /// right.
    fn check_complete(&mut self, toi: Toi) {
        if self.items.get(&toi).is_some_and(Item::is_complete)
            && let Some(item) = self.items.remove(&toi)
        {
            self.verifying.insert(toi, item);
        }
    }

    /// Keeps a block that came on the session, as if its source symbols had come one by one.
    fn take_block(
        &mut self,
        now: Instant,
        block: BlockId,
        content: &[u8],
    ) -> Result<(), ReceiverCommandError> {
        let Some(item) = self.items.get_mut(&block.toi) else { return Ok(()) };
        item.last_heard = now;
        if !item.is_block(block.sbn, content.len()) {
            self.drops.count(DropReason::OutsideItem);
            return Ok(());
        }
        for (esi, symbol) in (0..).zip(content.chunks(item.oti.symbol_len.into())) {
            if !item.lacks(block.sbn, esi) {
                continue;
            }
            if !self.sink.store(block, esi, symbol) {
                return Err(ReceiverCommandError::NoRoom(block.toi));
            }
            if item.take(block.sbn, esi) == Taken::BlockComplete {
                self.sink.restore(block);
            }
        }
        self.stats.unicast_blocks += 1;
        self.check_complete(block.toi);
        Ok(())
    }

    fn join(&mut self) {
        if let Some(channel) = self.channel.filter(|_| !self.joined) {
            self.joined = true;
            self.memberships.push_back(Membership::Join(channel));
        }
    }

    fn leave(&mut self) {
        if let Some(channel) = self.channel.filter(|_| self.joined) {
            self.joined = false;
            self.memberships.push_back(Membership::Leave(channel));
        }
    }

    /// Leaves the channel when nothing on it has been of interest for a while.
    fn leave_if_bored(&mut self, now: Instant) {
        let idle = self.listening.is_empty() && self.naks.is_empty() && !self.probing;
        let bored = self.items.is_empty() || now >= self.interest_until;
        if idle && bored && self.way == Way::Multicast {
            self.leave();
        }
    }

    fn next_message(&mut self) -> Option<ClientMessage> {
        if let Some(message) = self.outbox.pop_front() {
            return Some(message);
        }
        if self.done.is_empty() {
            return None;
        }
        let most = self.done.len().min(4096);
        let Reception { received, lost } = self.take_reception();
        Some(ClientMessage::Done { tois: self.done.drain(..most).collect(), received, lost })
    }
}

impl<K: SymbolSink> Engine for Receiver<K> {
    type Command = ReceiverCommand;
    type CommandError = ReceiverCommandError;
    type Event = ReceiverEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        match datagram.by {
            Address::Channel(by) if self.control.owns(&by) => {
                self.on_control(now, by, datagram.payload);
            }
            Address::Channel(_) => self.on_packet(now, datagram.payload),
            Address::Session(session) if Some(session) == self.session => {
                self.on_server_message(now, datagram.payload);
            }
            Address::Session(_) | Address::Host(_) => self.drops.count(DropReason::Unexpected),
        }
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: ReceiverCommand,
    ) -> Result<(), ReceiverCommandError> {
        self.on_command(now, command)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.drive_control(now);
        self.end_silent_transmissions(now);
        self.send_due_naks(now);
        self.check_silence(now);
        self.probe_if_due(now);
        self.ask_again_if_due(now);
        self.leave_if_bored(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front().or_else(|| self.control.poll_membership())
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let session = self.session?;
        if let Some(transmit) = self.control.poll_transmit(now, buf) {
            return Some(transmit);
        }
        let message = self.next_message()?;
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        buf.push_message(bytes);
        Some(Transmit::control(Address::Session(session)))
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let ends = self.next_silent_end();
        let naks = self.naks.keys().next().map(|&(at, _)| at);
        let silence = self.fallback_time();
        let probe = match self.way {
            Way::Unicast { next_probe } => Some(next_probe),
            Way::Multicast => None,
        };
        let idle = self.listening.is_empty() && self.naks.is_empty() && !self.probing;
        let bored =
            (self.joined && idle && self.way == Way::Multicast).then_some(self.interest_until);
        let control = self.control.poll_timeout();
        [ends, naks, silence, probe, bored, self.next_ask_again, control]
            .into_iter()
            .flatten()
            .min()
    }
}
