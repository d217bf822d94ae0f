//! A receiver's way to the source by unicast, where multicast brings nothing or nearly nothing.
//!
//! ```text
//!             5 s brought too little                     the source confirms
//! by multicast ─────────────────────▶ asks the source ─────────────────────▶ by unicast
//!      ▲                              to serve it alone                          │
//!      └──────── data come again by multicast, for 5 s; later each time ─────────┘
//! ```
//!
//! It remains in the groups, so that what comes there is of use, and shows that they work again. By
//! unicast it hears heartbeats, and fetches everything. Where answers do not come though
//! heartbeats do, full packets do not pass. It then asks for symbols in pieces, first for the least
//! MTU of IPv6, and then for that of IPv4.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::small_block::{Piece, SmallBlockPacket};
use umbel_wire::tmtp::limits;

use super::Receiver;
use super::measure::Measure;
use crate::chance::Generator;
use crate::symbols::SymbolSink;
use crate::tmtp::api::{Brought, ReceiverEvent, TooLittle};
use crate::tmtp::drops::DropReason;
use crate::{Instant, Membership};

/// Time over which the channel is judged. A switch that forgets a membership is reminded of it in
/// that time, if it can be.
const WINDOW: Duration = Duration::from_secs(5);
/// Least share of the packets that must come for multicast to be worth it, and packets by which
/// that is judged, as for `get`.
const LEAST_SHARE: f64 = 0.05;
const LEAST_JUDGED: u64 = 100;
/// Requests of which none was answered for repairs to be no hope either.
const LEAST_ASKED: u64 = 4;
/// Share of packets that come, and their number, by which multicast works again.
const GOOD_SHARE: f64 = 0.5;
const GOOD_PACKETS: u64 = 32;
/// Most times that the wait for a return to multicast doubles, since returns were in vain.
const DOUBLED_MOST: u32 = 6;
/// Time on multicast after which a return was not in vain.
const STEADY: Duration = Duration::from_mins(1);
/// FETCHes in a row without an answer, and the time that they take, after which shorter packets are
/// asked for.
const UNANSWERED: u32 = 4;
const UNANSWERED_FOR: Duration = Duration::from_secs(1);
/// Payloads to try in turn: those of the least MTU of IPv6, which most tunnels have, and of IPv4.
const PAYLOADS: [u16; 2] = [1232, limits::SHORTEST_PAYLOAD];
/// Most symbols of which some pieces are held.
const MOST_IN_PIECES: usize = 64;

/// Counts of what came, of which differences tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Packets of the channel that were sent for the first time, and those that are missing.
    data: u64,
    lost: u64,
    /// Symbols that came by multicast, as repairs or not, and were kept.
    useful: u64,
    /// Requests of this node and its siblings.
    asked: u64,
    /// First block that is missing.
    gap: u32,
}

/// What a time of multicast shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It works again.
    Works,
    /// It is to be given up.
    TooLittle(TooLittle),
}

/// Way by which the feed comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Multicast,
    /// By unicast, once the source `confirmed` it. Returns to multicast are in vain before a time.
    Unicast {
        why: TooLittle,
        brought: Brought,
        confirmed: bool,
        until: Instant,
    },
}

/// Symbols of which pieces came.
#[derive(Debug, Default)]
struct Pieces {
    symbols: BTreeMap<(u32, u32), InPieces>,
}

#[derive(Debug)]
struct InPieces {
    bytes: Vec<u8>,
    /// Offsets and lengths of the pieces.
    held: BTreeMap<u16, u16>,
}

/// Decides between multicast and unicast.
#[derive(Debug)]
pub(super) struct Unicast {
    way: Way,
    /// Beginning of the window, and the counts at that time.
    window: Option<(Instant, Counts)>,
    useful: u64,
    /// Time at which multicast last brought something.
    last: Instant,
    /// Time of the last return to multicast, and the number of returns in a row that were in vain.
    returned: Option<Instant>,
    in_vain: u32,
    /// FETCHes since something fetched came, and the first of them.
    unanswered: u32,
    unanswered_since: Option<Instant>,
    /// Time of the last heartbeat by unicast.
    heard: Option<Instant>,
    payload: Option<usize>,
    pieces: Pieces,
    pub(super) measure: Measure,
}

impl Unicast {
    pub(super) fn new(mut random: Generator) -> Unicast {
        // The channel's reports have the first stream.
        random.long_jump();
        Unicast {
            way: Way::Multicast,
            window: None,
            useful: 0,
            last: Instant::EPOCH,
            returned: None,
            in_vain: 0,
            unanswered: 0,
            unanswered_since: None,
            heard: None,
            payload: None,
            pieces: Pieces::default(),
            measure: Measure::new(random),
        }
    }

    /// Returns whether everything is fetched by unicast, or is to be.
    pub(super) fn is_on(&self) -> bool {
        self.way != Way::Multicast
    }

    /// Begins to judge what comes.
    pub(super) fn begin(&mut self, now: Instant) {
        self.window = Some((now, Counts::default()));
        self.last = now;
    }

    /// Returns when the channel is judged.
    pub(super) fn next(&self) -> Option<Instant> {
        let at = self.window.map(|(since, _)| since + WINDOW)?;
        Some(if self.is_on() { at } else { at.min(self.last + WINDOW) })
    }

    /// Notes a data packet that came by multicast, and whether it was of use.
    #[inline]
    pub(super) fn on_data(&mut self, now: Instant, is_useful: bool) {
        self.last = now;
        self.useful += u64::from(is_useful);
    }

    /// Notes a heartbeat on the channel.
    pub(super) fn on_heartbeat(&mut self, now: Instant) {
        self.last = now;
    }

    /// Notes a heartbeat by unicast.
    pub(super) fn on_heartbeat_alone(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Notes that the source serves this node alone. Returns why it asked for that, and what
    /// multicast brought, if that is news.
    pub(super) fn on_confirmed(&mut self) -> Option<(TooLittle, Brought)> {
        match &mut self.way {
            Way::Unicast { why, brought, confirmed, .. } if !*confirmed => {
                *confirmed = true;
                Some((*why, *brought))
            }
            _ => None,
        }
    }

    /// Notes that a packet of the length came that was asked for.
    pub(super) fn on_fetched(&mut self) {
        (self.unanswered, self.unanswered_since) = (0, None);
    }

    /// Notes that a FETCH leaves which is to be answered by symbols. Returns the longest payload
    /// that seems to pass.
    pub(super) fn on_fetch(&mut self, now: Instant) -> Option<u16> {
        let since = *self.unanswered_since.get_or_insert(now);
        self.unanswered += 1;
        let heard = self.heard.is_some_and(|heard| heard > since);
        if heard && self.unanswered > UNANSWERED && now.since(since) >= UNANSWERED_FOR {
            let next = self.payload.map_or(0, |at| at + 1);
            self.payload = Some(next.min(PAYLOADS.len() - 1));
            (self.unanswered, self.unanswered_since) = (0, None);
        }
        self.payload.map(|at| PAYLOADS[at])
    }

    fn give_up(&mut self, now: Instant, why: TooLittle, brought: Brought) {
        let in_vain = self.returned.take().is_some_and(|at| now.since(at) < STEADY);
        self.in_vain = if in_vain { (self.in_vain + 1).min(DOUBLED_MOST) } else { 0 };
        let until = now + WINDOW * (1 << self.in_vain);
        self.way = Way::Unicast { why, brought, confirmed: false, until };
        self.on_fetched();
        self.heard = None;
    }

    /// Returns what the window has brought.
    fn brought(&self, now: Instant, counts: Counts) -> Brought {
        let (since, before) = self.window.unwrap_or((now, counts));
        Brought {
            within: now.since(since),
            packets: counts.data - before.data,
            lost: counts.lost.saturating_sub(before.lost),
        }
    }

    /// Returns what the window shows, if that changes anything. `lacks` tells whether something is
    /// missing that could come.
    fn judge(&self, now: Instant, counts: Counts, lacks: bool) -> Option<Verdict> {
        let (since, before) = self.window?;
        let is_over = now.since(since) >= WINDOW;
        let data = counts.data - before.data;
        let all = data + counts.lost.saturating_sub(before.lost);
        let share = data as f64 / all.max(1) as f64;
        match self.way {
            Way::Unicast { until, .. } => {
                let works = data >= GOOD_PACKETS && share >= GOOD_SHARE && now >= until;
                works.then_some(Verdict::Works)
            }
            Way::Multicast => {
                let useful = counts.useful - before.useful;
                let enough = (useful as f64) >= all as f64 * LEAST_SHARE;
                let stands = lacks && counts.gap == before.gap;
                let asked = counts.asked - before.asked >= LEAST_ASKED;
                if now.since(self.last) >= WINDOW {
                    Some(Verdict::TooLittle(TooLittle::Nothing))
                } else if !is_over {
                    None
                } else if stands && useful == 0 && asked {
                    Some(Verdict::TooLittle(TooLittle::NoData))
                } else if lacks && all >= LEAST_JUDGED && share < LEAST_SHARE && !enough {
                    Some(Verdict::TooLittle(TooLittle::FewPackets))
                } else {
                    None
                }
            }
        }
    }
}

impl Pieces {
    /// Adds a piece of a symbol. Returns the symbol if it is whole.
    fn add(&mut self, name: (u32, u32), piece: Piece<'_>) -> Option<Vec<u8>> {
        let Piece { offset, of, bytes } = piece;
        if self.symbols.get(&name).is_none_or(|known| known.bytes.len() != usize::from(of)) {
            self.symbols.remove(&name);
            if self.symbols.len() >= MOST_IN_PIECES {
                self.symbols.pop_first();
            }
            let (bytes, held) = (vec![0; of.into()], BTreeMap::new());
            self.symbols.insert(name, InPieces { bytes, held });
        }
        let symbol = self.symbols.get_mut(&name)?;
        let from = usize::from(offset);
        symbol.bytes.get_mut(from..from + bytes.len())?.copy_from_slice(bytes);
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let longest = symbol.held.entry(offset).or_default();
        *longest = len.max(*longest);
        let mut end = 0;
        for (&offset, &len) in &symbol.held {
            if offset > end {
                return None;
            }
            end = end.max(offset.saturating_add(len));
        }
        if end < of {
            return None;
        }
        self.symbols.remove(&name).map(|symbol| symbol.bytes)
    }
}

impl<K: SymbolSink> Receiver<K> {
    fn counts(&self) -> Counts {
        Counts {
            data: self.stats.data_received,
            lost: self.stats.data_lost,
            useful: self.unicast.useful,
            asked: self.stats.nacks_sent + self.stats.nacks_suppressed + self.stats.fetches_sent,
            gap: self.delivery.reception().first_gap(0),
        }
    }

    /// Judges what multicast brought.
    pub(super) fn judge_channel(&mut self, now: Instant) {
        if self.unicast.next().is_none_or(|at| at > now) {
            return;
        }
        let counts = self.counts();
        let lacks = counts.gap < self.delivery.known()
            && !self.recovery.is_slow()
            && !self.delivery.room.is_refusing()
            && !self.is_buffer_full();
        // The paper has no way past the tree.
        let wants =
            self.config.repair.fetches && self.stage.needs_blocks() && !self.source.is_gone();
        if !wants {
            (self.unicast.window, self.unicast.last) = (Some((now, counts)), now);
            return;
        }
        let judgement = self.unicast.judge(now, counts, lacks);
        let brought = self.unicast.brought(now, counts);
        let is_over = self.unicast.window.is_some_and(|(since, _)| now.since(since) >= WINDOW);
        if is_over || judgement.is_some() {
            self.unicast.window = Some((now, counts));
        }
        match judgement {
            Some(Verdict::TooLittle(why)) => self.go_by_unicast(now, why, brought),
            Some(Verdict::Works) => self.return_to_multicast(now),
            None => {}
        }
    }

    fn go_by_unicast(&mut self, now: Instant, why: TooLittle, brought: Brought) {
        self.unicast.give_up(now, why, brought);
        self.recovery.fetch_all(true);
        // A switch may have forgotten the memberships.
        for channel in [Some(self.config.node.data), self.config.node.group()].into_iter().flatten()
        {
            self.memberships.extend([Membership::Leave(channel), Membership::Join(channel)]);
        }
        if !self.authentic.is_waiting() {
            self.tree.set_by_unicast(now, Some(self.config.shape.id));
        }
    }

    fn return_to_multicast(&mut self, now: Instant) {
        self.unicast.way = Way::Multicast;
        (self.unicast.returned, self.unicast.last) = (Some(now), now);
        self.recovery.fetch_all(false);
        self.tree.set_by_unicast(now, None);
        self.events.push_back(ReceiverEvent::ByMulticast);
    }

    /// Handles a piece of a symbol, which the source has sent by unicast. Returns whether its block
    /// is complete now.
    pub(super) fn on_piece(
        &mut self,
        now: Instant,
        packet: &SmallBlockPacket<'_>,
    ) -> Result<bool, DropReason> {
        let piece = Piece::parse(packet.symbol).map_err(|_| DropReason::Malformed)?;
        if piece.of > self.config.shape.symbol_len {
            return Err(DropReason::AbsurdBlock);
        }
        let header = packet.header;
        if self.delivery.reception().is_complete(header.sbn) {
            return Err(DropReason::Duplicate);
        }
        let name = (header.sbn, header.esi.into());
        let Some(symbol) = self.unicast.pieces.add(name, piece) else { return Ok(false) };
        let packet = SmallBlockPacket { header, symbol: &symbol };
        self.take_symbol(now, &packet, super::Purpose::Fetched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::generator;
    use crate::testing::ms;

    fn unicast() -> Unicast {
        let mut unicast = Unicast::new(generator(1));
        unicast.begin(ms(0));
        unicast
    }

    #[test]
    fn multicast_is_given_up_if_it_brings_next_to_nothing() {
        let mut unicast = unicast();
        let counts = |data, lost, useful, asked| Counts { data, lost, useful, asked, gap: 0 };
        let silent = unicast.judge(ms(5_000), counts(0, 0, 0, 0), false);
        assert_eq!(silent, Some(Verdict::TooLittle(TooLittle::Nothing)));
        unicast.last = ms(1);
        let judge = |counts, lacks| match unicast.judge(ms(5_000), counts, lacks) {
            Some(Verdict::TooLittle(why)) => Some(why),
            _ => None,
        };
        assert_eq!(judge(counts(0, 0, 50, 0), true), None, "repairs come");
        assert_eq!(judge(counts(0, 0, 0, 0), false), None, "the source waits");
        assert_eq!(judge(counts(0, 0, 0, 4), true), Some(TooLittle::NoData));
        assert_eq!(judge(counts(0, 0, 0, 3), true), None, "too few requests");
        assert_eq!(judge(counts(4, 96, 4, 9), true), Some(TooLittle::FewPackets));
        assert_eq!(judge(counts(4, 96, 30, 9), true), None, "repairs make up for it");
        assert_eq!(judge(counts(6, 94, 6, 9), true), None);
    }

    #[test]
    fn only_data_lead_back_and_later_each_time_that_it_was_in_vain() {
        let mut unicast = unicast();
        let good = Counts { data: 50, lost: 50, ..Counts::default() };
        let few = Counts { data: 31, ..Counts::default() };
        let mut waits = Vec::new();
        let mut now = ms(0);
        for _ in 0..9 {
            let brought = unicast.brought(now, Counts::default());
            unicast.give_up(now, TooLittle::Nothing, brought);
            let since = now;
            assert_eq!(unicast.judge(now + WINDOW * 1000, few, true), None);
            while unicast.judge(now, good, true).is_none() {
                now += WINDOW;
            }
            waits.push(now.since(since).as_secs());
            (unicast.way, unicast.returned) = (Way::Multicast, Some(now));
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 320, 320]);
    }

    #[test]
    fn shorter_packets_are_asked_for_if_only_heartbeats_come() {
        let mut unicast = unicast();
        let mut fetch = |at: u64, heartbeat: bool, fetched: bool| {
            if heartbeat {
                unicast.on_heartbeat_alone(ms(at));
            }
            if fetched {
                unicast.on_fetched();
            }
            unicast.on_fetch(ms(at))
        };
        // Nothing comes at all: the path is cut.
        assert!((0..100).all(|n| fetch(n * 100, false, false).is_none()));
        assert!((100..200).all(|n| fetch(n * 100, true, true).is_none()));
        let asked: Vec<_> = (200..240).filter_map(|n| fetch(n * 100, true, false)).collect();
        assert_eq!((asked[0], asked.last()), (1232, Some(&548)));
    }

    #[test]
    fn pieces_make_a_symbol_in_any_order_and_their_number_is_bounded() {
        let mut pieces = Pieces::default();
        let piece = |offset, bytes| Piece { offset, of: 5, bytes };
        assert_eq!(pieces.add((1, 2), piece(3, b"de")), None);
        assert_eq!(pieces.add((1, 2), piece(3, b"de")), None);
        assert_eq!(pieces.add((1, 3), piece(0, b"abc")), None, "another symbol");
        assert_eq!(pieces.add((1, 2), piece(0, b"abc")), Some(b"abcde".to_vec()));
        for block in 0..1_000 {
            pieces.add((block, 0), piece(0, b"a"));
        }
        assert_eq!(pieces.symbols.len(), MOST_IN_PIECES);
    }
}
