//! Receivers that multicast does not reach. They are children of the source, get its heartbeats by
//! unicast, and fetch everything.
//!
//! ```text
//! receiver                                                  source
//!    │ JOIN_REQUEST, by unicast ──────────────────────────▶ │ a line is opened for its address,
//!    │ ◀──────────────────────────────────── JOIN_CONFIRM   │ which the handshake has proved
//!    │ FETCH: blocks, and how many symbols of each ───────▶ │ the line has them to send
//!    │ ◀── heartbeats; symbols with numbers of the line     │ at the rate of the line's path
//!    │ RECEPTION: how they arrive ────────────────────────▶ │ and finds that by the reports
//! ```
//!
//! A line has a [congestion control](crate::congestion) of its own, with its own numbers. It sends
//! only what was asked for. All lines together take a share of the rate at most. The feed does not
//! wait for these receivers, unless it is a pipe, but does not end before them either: each
//! acknowledges what it holds. They fetch whatever the application has extended the feed with,
//! wherever the channel is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use umbel_wire::reception::ReceptionReport;
use umbel_wire::small_block::PIECE_LEN;
use umbel_wire::tmtp::{BlockRun, Body, NodeId, Portion};

use super::Source;
use super::pace::Reporter;
use crate::bounds::BY_UNICAST;
use crate::chance::Generator;
use crate::congestion::{CongestionConfig, Controller, Event, PaceTo};
use crate::recovery::reception::MAX_SYMBOLS;
use crate::recovery::{ChannelNumbers, Stock, head_len, push_packet, push_piece};
use crate::shares::{Origin, Shares};
use crate::symbols::{Load, SymbolSource};
use crate::tmtp::api::{Purpose, SourceEvent};
use crate::tmtp::catch_up::{Asker, index_of};
use crate::tmtp::drops::DropReason;
use crate::tmtp::tree::Way;
use crate::units::Rate;
use crate::{Address, Instant, RateClass, Transmit, TransmitBuf};

/// Most blocks that a line has to send.
const MOST_WANTED: usize = 2048;
/// Blocks of which a line remembers the next symbol.
const MOST_REMEMBERED: usize = 4096;
/// Most packets that a line sends together, and the time for which they are enough. Waking up for
/// fewer costs too much.
const TOGETHER: u32 = 64;
const TOGETHER_FOR: Duration = Duration::from_millis(1);
/// Time by which a line that is late catches up.
const CATCH_UP: Duration = Duration::from_millis(2);
/// Time between two heartbeats of a line, so that signing them costs little.
const BEAT_EVERY: Duration = Duration::from_millis(150);

/// What is owed of a block.
#[derive(Clone, Copy, Debug)]
struct Sending {
    block: u32,
    esi: u32,
    left: u32,
    /// Bytes of the symbol that have left in pieces.
    sent: usize,
}

/// One receiver.
#[derive(Debug)]
struct Line {
    node: NodeId,
    controller: Controller<()>,
    numbers: ChannelNumbers,
    /// Nonce of its last FETCH.
    fetch: u64,
    /// Nonce of its reports, once it reports.
    reports: Option<u64>,
    /// Whether it is to be told when to report.
    tells: bool,
    /// Whether its host has asked for the same too often.
    is_without_credit: bool,
    /// Longest payload that seems to pass.
    payload: Option<u16>,
    /// Symbols to send of each block.
    wanted: BTreeMap<u32, u8>,
    sending: Option<Sending>,
    /// First symbol of the next sending of a block. Who lost some of the last gets others.
    next_esi: BTreeMap<u32, u8>,
    /// Time of the next packets.
    next: Instant,
    beat: Option<Instant>,
    beats: bool,
}

/// All receivers that are served by unicast.
#[derive(Debug)]
pub(super) struct Unicast {
    config: CongestionConfig,
    /// Rate of all lines together.
    most: Rate,
    random: Generator,
    places: Shares<SocketAddr>,
    lines: BTreeMap<SocketAddr, Line>,
    /// Time of the next packets of any line, and of those whose hosts have no credit.
    next: Instant,
    next_without_credit: Instant,
    /// Rate of these together.
    without_credit: Rate,
    /// Whether there ever was a line.
    ever: bool,
}

impl Unicast {
    /// Creates no lines yet. All together send at most at the rate `most`, in packets of at most
    /// `packet_len` bytes, and those without credit at `without_credit`; `of_channel` is how the
    /// channel's rate is found, if it is.
    pub(super) fn new(
        (most, without_credit): (Rate, Rate),
        packet_len: u32,
        of_channel: Option<CongestionConfig>,
        random: Generator,
    ) -> Unicast {
        let config = CongestionConfig {
            most,
            pace_to: PaceTo::All,
            min_rate: None,
            ..of_channel.unwrap_or_else(|| CongestionConfig::new(most, packet_len))
        };
        Unicast {
            config: CongestionConfig { least: config.least.min(most), ..config },
            most,
            random,
            places: BY_UNICAST.shares(),
            lines: BTreeMap::new(),
            next: Instant::EPOCH,
            next_without_credit: Instant::EPOCH,
            without_credit,
            ever: false,
        }
    }

    /// Returns whether there is a line to this address.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        self.lines.contains_key(&address)
    }

    /// Returns whether there is a line, or room for one.
    pub(super) fn has_place(&self, address: SocketAddr) -> bool {
        let is_free = self.places.len() < BY_UNICAST.all;
        self.has(address) || is_free && self.places.has_place(Origin::of(address.ip()))
    }

    /// Returns whether there ever was a line, so that receivers may hold what was not sent yet.
    pub(super) fn was_ever(&self) -> bool {
        self.ever
    }

    /// Opens a line, or begins anew with one.
    fn open(&mut self, now: Instant, node: NodeId, address: SocketAddr) {
        let _ = self.places.enter(Origin::of(address.ip()), address);
        let controller = Controller::new(self.config, None, self.random.clone());
        self.random.jump();
        self.ever = true;
        let line = Line {
            node,
            controller,
            numbers: ChannelNumbers::default(),
            fetch: 0,
            reports: None,
            tells: false,
            is_without_credit: false,
            payload: None,
            wanted: BTreeMap::new(),
            sending: None,
            next_esi: BTreeMap::new(),
            next: now,
            beat: None,
            beats: true,
        };
        self.lines.insert(address, line);
    }

    /// Closes the line of a node. Returns whether it had one.
    pub(super) fn close(&mut self, node: NodeId) -> bool {
        let of_node = self.lines.iter().filter(|(_, line)| line.node == node);
        let addresses: Vec<SocketAddr> = of_node.map(|(&address, _)| address).collect();
        for address in &addresses {
            self.lines.remove(address);
            self.places.leave(*address);
        }
        !addresses.is_empty()
    }

    /// Sends a heartbeat to everyone soon.
    pub(super) fn beat(&mut self) {
        for line in self.lines.values_mut() {
            line.beats = true;
        }
    }

    /// Returns the address to which a heartbeat is due.
    pub(super) fn poll_beat(&mut self, now: Instant) -> Option<SocketAddr> {
        let due =
            |line: &Line| line.beats && line.beat.is_none_or(|last| now.since(last) >= BEAT_EVERY);
        let (&address, line) = self.lines.iter_mut().find(|(_, line)| due(line))?;
        (line.beats, line.beat) = (false, Some(now));
        Some(address)
    }

    /// Notes blocks that the receiver wants, with what it takes of them.
    ///
    /// # Errors
    ///
    /// If there is no room for all of them.
    pub(super) fn want(
        &mut self,
        asker: Asker,
        blocks: Range<u32>,
        portion: Portion,
        symbols: impl Fn(u32) -> Option<u8>,
    ) -> Result<(), DropReason> {
        let line = self.lines.get_mut(&asker.address).ok_or(DropReason::Unexpected)?;
        line.fetch = asker.nonce;
        if line.payload != portion.payload {
            // What was learned was about packets that do not pass, and the rest of a symbol would not
            // fit the pieces before.
            line.payload = portion.payload;
            line.controller = Controller::new(self.config, None, self.random.clone());
            self.random.jump();
            line.controller.start_at(line.numbers.next());
            if let Some(sending) = &mut line.sending {
                sending.sent = 0;
            }
        }
        for block in blocks {
            let Some(k) = symbols(block) else { continue };
            let count = portion.symbols.unwrap_or(k).min(k);
            if line.sending.is_some_and(|sending| sending.block == block) {
                continue;
            }
            if line.wanted.len() >= MOST_WANTED && !line.wanted.contains_key(&block) {
                return Err(DropReason::OverLimit);
            }
            let wanted = line.wanted.entry(block).or_default();
            *wanted = count.max(*wanted);
        }
        Ok(())
    }

    /// Takes a report of how a line's packets arrive.
    ///
    /// # Errors
    ///
    /// If it is about packets that the line has not sent.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        who: Reporter,
        report: &ReceptionReport,
    ) -> Result<(), DropReason> {
        let line = self.lines.get_mut(&who.address).ok_or(DropReason::Unexpected)?;
        let ahead = report.newest.number.wrapping_sub(line.numbers.next()).cast_signed();
        if ahead >= 0 {
            // It is about the channel, which it heard before.
            return Err(DropReason::NotAsked);
        }
        line.tells |= line.reports != Some(who.nonce);
        line.reports = Some(who.nonce);
        line.controller.hear(now, &(), Origin::of(who.address.ip()), report);
        line.heed();
        Ok(())
    }

    /// Returns the next message to a receiver about its reports; `cookie` returns its cookie.
    pub(super) fn poll_message(
        &mut self,
        cookie: impl FnOnce(SocketAddr) -> u64,
    ) -> Option<(Way, Body)> {
        let (&address, line) =
            self.lines.iter_mut().find(|(_, line)| line.tells && line.reports.is_some())?;
        line.tells = false;
        let (nonce, schedule) = (line.reports?, line.controller.schedule(&()));
        Some((Way::Host(address), Body::Reports { nonce, cookie: cookie(address), schedule }))
    }

    /// Returns when there is something to do.
    pub(super) fn next_timeout(&self, waits: bool) -> Option<Instant> {
        let sends = |line: &&Line| !waits && line.any_due() && line.controller.may_send();
        let packets = self.lines.values().filter(sends).map(|line| self.next_of(line));
        let beats = self.lines.values().filter(|line| line.beats);
        let beats = beats.filter_map(|line| line.beat.map(|last| last + BEAT_EVERY));
        let controllers = self.lines.values().filter_map(|line| line.controller.next());
        packets.chain(beats).chain(controllers).min()
    }

    /// Does what is due.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        for line in self.lines.values_mut() {
            if line.controller.next().is_some_and(|at| at <= now) {
                line.controller.on_timeout(now);
                line.heed();
            }
        }
    }

    /// Returns the time of a line's next packets.
    fn next_of(&self, line: &Line) -> Instant {
        let next = line.next.max(self.next);
        if line.is_without_credit { next.max(self.next_without_credit) } else { next }
    }

    /// Returns the line that may send now, and waited longest.
    fn due(&mut self, now: Instant) -> Option<(SocketAddr, &mut Line)> {
        if self.next > now {
            return None;
        }
        let waits = self.next_without_credit > now;
        let due = |line: &Line| {
            let has_turn = line.next <= now && !(line.is_without_credit && waits);
            has_turn && line.any_due() && line.controller.may_send()
        };
        let lines = self.lines.iter_mut().filter(|(_, line)| due(line));
        lines.min_by_key(|(_, line)| line.next).map(|(&address, line)| (address, line))
    }
}

impl Line {
    fn any_due(&self) -> bool {
        self.sending.is_some() || !self.wanted.is_empty()
    }

    /// Follows its congestion control.
    fn heed(&mut self) {
        while let Some(event) = self.controller.poll_event() {
            self.tells |= matches!(event, Event::Schedule { .. } | Event::ScheduleOthers(_));
        }
    }

    /// Returns the most packets of this length that leave together now.
    fn together(&self, packet_len: usize) -> usize {
        let most = self.controller.most_together().unwrap_or(TOGETHER).clamp(1, TOGETHER);
        let bytes = self.controller.rate().bits_per_s() as f64 / 8.0 * TOGETHER_FOR.as_secs_f64();
        (bytes / packet_len as f64).clamp(1.0, f64::from(most)) as usize
    }

    /// Returns what is sent next, and the block after it if a block begins. With FEC all 255 symbols
    /// come round.
    fn peek(&mut self, symbols: impl Fn(u32) -> Option<u8>, fec: bool) -> Option<Sending> {
        while self.sending.is_none() {
            let (block, count) = self.wanted.pop_first()?;
            let Some(k) = symbols(block) else { continue };
            let most = if fec { MAX_SYMBOLS } else { u32::from(k) };
            let count = if fec { count } else { k };
            let esi = self.next_esi.get(&block).map_or(0, |&esi| u32::from(esi)) % most;
            self.sending = Some(Sending { block, esi, left: count.into(), sent: 0 });
        }
        self.sending
    }

    /// Notes that the symbol of [`peek`](Line::peek) has left. Returns its block if that was the last.
    fn sent(&mut self, most: u32) -> Option<u32> {
        let sending = self.sending.as_mut()?;
        sending.esi = (sending.esi + 1) % most;
        (sending.left, sending.sent) = (sending.left - 1, 0);
        let Sending { block, esi, left, .. } = *sending;
        if left > 0 {
            return None;
        }
        if self.next_esi.len() >= MOST_REMEMBERED {
            self.next_esi.pop_first();
        }
        self.next_esi.insert(block, u8::try_from(esi).unwrap_or(0));
        self.sending = None;
        Some(block)
    }
}

impl<S: SymbolSource> Source<S> {
    /// Serves a child by unicast from now on. It does not count for the pace, and for the window of a
    /// pipe only, which has nothing else for it.
    pub(super) fn serve_by_unicast(&mut self, now: Instant, node: NodeId, address: SocketAddr) {
        self.pace.forget(node);
        self.domain.serve_apart(node, self.config.history.is_some());
        self.unicast.open(now, node, address);
        self.events.push_back(SourceEvent::ByUnicast { node, address });
    }

    /// Notes blocks that a receiver wants which is served by unicast. Whoever asks for the same again
    /// and again beyond its credit is served slowly.
    pub(super) fn want_by_unicast(
        &mut self,
        now: Instant,
        asker: Asker,
        blocks: Range<u32>,
        portion: Portion,
    ) -> Result<(), DropReason> {
        let symbol_len = u64::from(self.config.shape.symbol_len);
        let most = blocks.start.saturating_add(MOST_WANTED as u32);
        let blocks = blocks.start..blocks.end.min(most);
        let mut has_credit = true;
        for block in blocks.clone() {
            let k = self.shelf.len_of(block).unwrap_or(0);
            let bytes = symbol_len * u64::from(portion.symbols.unwrap_or(k).min(k));
            has_credit &= self.fetched.take_credit(now, asker.address.ip(), block, bytes);
        }
        if let Some(line) = self.unicast.lines.get_mut(&asker.address) {
            line.is_without_credit = !has_credit;
        }
        let shelf = &self.shelf;
        self.unicast.want(asker, blocks, portion, |block| shelf.len_of(block))
    }

    /// Fills `buf` with packets for one receiver that is served by unicast.
    pub(super) fn poll_unicast(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if self.waits.unicast {
            return None;
        }
        let (feed, fec) = (self.config.node.feed, self.config.shape.fec);
        let full = head_len(true) + usize::from(self.config.shape.symbol_len);
        let (most_of_all, without_credit) = (self.unicast.most, self.unicast.without_credit);
        let (address, line) = self.unicast.due(now)?;
        let room = line.together(full);
        while buf.len() < room && buf.has_room(RateClass::SelfClocked) {
            let shelf = &self.shelf;
            let begins = line.sending.is_none();
            let Some(sending) = line.peek(|block| shelf.len_of(block), fec) else { break };
            let Sending { block, esi, left, sent } = sending;
            let k = shelf.len_of(block).unwrap_or(1);
            let most = if fec { MAX_SYMBOLS } else { u32::from(k) };
            if begins {
                self.shelf.prefetch(block, esi..(esi + left).min(most));
            }
            let symbol = match self.shelf.symbol(block, esi) {
                Load::Ready(symbol) => symbol,
                Load::Pending => {
                    self.waits.unicast = true;
                    break;
                }
                Load::Gone(_) => {
                    line.sending = None;
                    self.shelf.release_fetched(block);
                    let runs = vec![BlockRun { first: block, count: 1 }];
                    let gone = Body::FetchGone { nonce: line.fetch, runs };
                    self.outbox.push_back((Way::Host(address), gone));
                    continue;
                }
            };
            let payload = line.payload.map_or(usize::MAX, usize::from);
            let head = head_len(true);
            let name = (block, k, esi);
            let index = index_of(line.fetch);
            let is_whole = if head + symbol.len() <= payload {
                if !buf.admits(head + symbol.len()) {
                    break;
                }
                let why = (Purpose::Fetched, index);
                push_packet((now, buf), Some(&mut line.numbers), feed, why, name, symbol);
                true
            } else {
                let most = payload.saturating_sub(head + PIECE_LEN).max(1);
                let piece = symbol.slice(sent..symbol.len().min(sent + most));
                if !buf.admits(head + PIECE_LEN + piece.len()) {
                    break;
                }
                let (numbers, end) = (&mut line.numbers, sent + piece.len());
                push_piece((now, buf), numbers, feed, index, name, (sent, symbol.len()), piece);
                if let Some(sending) = &mut line.sending {
                    sending.sent = end;
                }
                end == symbol.len()
            };
            if is_whole && let Some(block) = line.sent(most) {
                self.shelf.release_fetched(block);
                // A pipe has it only once.
                if self.config.history.is_none() {
                    self.shelf.release_ahead(block);
                }
            }
        }
        if buf.is_empty() {
            return None;
        }
        let bytes = buf.bytes() as u64;
        let late = Instant::from_nanos(
            now.as_nanos().saturating_sub(u64::try_from(CATCH_UP.as_nanos()).unwrap_or(0)),
        );
        line.next = line.next.max(late) + line.controller.rate().time_for(bytes);
        line.controller.on_sent(now, line.numbers.next());
        let is_without_credit = line.is_without_credit;
        self.unicast.next = self.unicast.next.max(late) + most_of_all.time_for(bytes);
        if is_without_credit {
            let next = &mut self.unicast.next_without_credit;
            *next = (*next).max(late) + without_credit.time_for(bytes);
        }
        self.stats.fetched_sent += buf.len() as u64;
        Some(Transmit::self_clocked(Address::Host(address)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::generator;
    use crate::testing::ms;

    fn unicast() -> Unicast {
        let most = Rate::from_bits_per_s(50_000_000).unwrap();
        Unicast::new((most, most), 1_400, None, generator(1))
    }

    #[test]
    fn one_host_has_a_share_of_the_lines() {
        let mut unicast = unicast();
        let mut opened = |net: u8, port: u16| {
            let address = SocketAddr::from(([10, 0, 0, net], port));
            let has_place = unicast.has_place(address);
            if has_place {
                unicast.open(ms(1), NodeId(port.into()), address);
            }
            has_place
        };
        let most = BY_UNICAST.most_of_host();
        assert_eq!((1..=10 * most as u16).filter(|&port| opened(1, port)).count(), most);
        assert!(opened(2, 1), "another host");
        let others = (3..=250).flat_map(|net| (0..2).map(move |port| (net, port + 1)));
        let others = others.filter(|&(net, port)| opened(net, port)).count();
        assert_eq!(others, BY_UNICAST.all - most - 1);
        assert_eq!(unicast.lines.len(), BY_UNICAST.all);
        unicast.close(NodeId(1));
        assert_eq!(unicast.lines.len(), unicast.places.len());
    }

    #[test]
    fn what_a_receiver_wants_is_bounded_and_asked_for_once() {
        let mut unicast = unicast();
        let address = SocketAddr::from(([10, 0, 0, 1], 9));
        let asker = Asker { address, nonce: 5 };
        let k = |_| Some(8);
        let all = Portion::default();
        assert_eq!(unicast.want(asker, 0..1, all, k), Err(DropReason::Unexpected));
        unicast.open(ms(1), NodeId(1), address);
        let few = Portion { symbols: Some(2), payload: None };
        unicast.want(asker, 0..2, few, k).unwrap();
        unicast.want(asker, 1..2, all, k).unwrap();
        let line = unicast.lines.get_mut(&address).unwrap();
        let mut sent = Vec::new();
        while let Some(Sending { block, esi, .. }) = line.peek(k, true) {
            sent.push((block, esi));
            line.sent(MAX_SYMBOLS);
        }
        let expected: Vec<_> = [(0, 0), (0, 1)].into_iter().chain((0..8).map(|i| (1, i))).collect();
        assert_eq!(sent, expected);
        let much = unicast.want(asker, 0..u32::MAX, all, k);
        assert_eq!(much, Err(DropReason::OverLimit));
        assert_eq!(unicast.lines[&address].wanted.len(), MOST_WANTED);
    }
}
