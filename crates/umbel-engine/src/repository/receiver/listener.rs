//! Announced transmissions: hearing their packets, noticing their end, and answering with a NAK.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rand_core::Rng;
use umbel_wire::Toi;
use umbel_wire::repository::{Announcement, Nak};

use super::ReceiverStats;
use super::items::Items;
use crate::Instant;
use crate::chance::Generator;
use crate::repository::config::ReceiverConfig;
use crate::units::Rate;

/// Time by which others may overtake a packet before its transmission counts as over.
const REORDER_GUARD: Duration = Duration::from_millis(1);

/// Silence of this long, after the server has said that the channel is idle, means that the last
/// packet has come. Packets may still wait in the socket when that message is read.
const QUIET: Duration = Duration::from_millis(2);

/// UDP payload size assumed when computing announced durations.
const NOMINAL_PACKET: u64 = 1_400;

/// Longest time for which packets that come late put off the end of a transmission, in times of the
/// silence that ends it. Otherwise packets that somebody forges would do so for ever.
const PUT_OFF_MOST: u32 = 4;

/// Greatest number of transmissions whose packets may come before their announcement.
const AHEAD_MOST: u64 = 1_024;

/// Greatest number of transmissions that are over and may turn out not to be.
const OVER_MOST: usize = 16;

/// Number of the first transmission of a session, as if numbers did not wrap.
const FIRST: u64 = 1 << 32;

/// An announced transmission that is not answered yet.
#[derive(Clone, Debug)]
struct Listening {
    id: u32,
    toi: Toi,
    blocks: Range<u32>,
    packets: u32,
    /// Time at which its last packet should have come.
    expected_end: Instant,
    /// Silence after that time after which it counts as over.
    slack: Duration,
    nak_spread: Duration,
    /// Whether the client had joined before the announcement and had heard nothing of this or a
    /// later transmission, so that silence is loss. A client that joins for it may come late. After
    /// a late announcement, the earlier packets were not counted.
    from_start: bool,
    received: u32,
    /// Numbers of the first packet heard, and of the highest.
    heard: Option<(u32, u32)>,
    /// Highest number before the last packet, once that has come.
    before_last: Option<u32>,
    /// Whether the server was told the numbers of packets received and lost.
    told: bool,
}

/// Numbers of packets that came, and that did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reception {
    pub(super) received: u32,
    pub(super) lost: u32,
}

impl Reception {
    fn add(&mut self, other: Reception) {
        self.received = self.received.saturating_add(other.received);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

/// Numbers of packets that came too fast since the last NAK.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overrun {
    /// Packets that never reached the engine.
    before: u32,
    /// Packets for which the sink had no room.
    no_room: u32,
}

impl Overrun {
    /// Notes packets that never reached the engine.
    pub(super) fn note_before(&mut self, packets: u32) {
        self.before = self.before.saturating_add(packets);
    }

    /// Notes a packet for which the sink had no room.
    pub(super) fn note_no_room(&mut self) {
        self.no_room = self.no_room.saturating_add(1);
    }
}

/// Facts common to transmissions that are announced together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    pub(super) nak_spread: Duration,
    /// Whether the client has joined the channel.
    pub(super) joined: bool,
}

impl Listening {
    /// Returns the number of packets that did not come while the client listened.
    fn lost(&self) -> u32 {
        let first = match self.heard {
            _ if self.from_start => 0,
            Some((first, _)) => first,
            None => self.packets,
        };
        (self.packets.saturating_sub(first)).saturating_sub(self.received)
    }

    /// Returns the number of packets known not to have come, for the user. If the client needs
    /// nothing more, packets after the last received one may never have been sent.
    fn missed(&self, settled: bool) -> u32 {
        let (first, end) = match self.heard {
            None if self.from_start && !settled => (0, self.packets),
            None => return 0,
            Some((first, highest)) => (
                if self.from_start { 0 } else { first },
                if settled { highest.saturating_add(1) } else { self.packets },
            ),
        };
        end.saturating_sub(first).saturating_sub(self.received)
    }

    /// Returns the counts that the server was not told.
    fn reception(&self) -> Reception {
        if self.told { Reception::default() } else { self.so_far() }
    }

    /// Counts as lost only packets before the last received one. The transmission may be cut short
    /// once no client needs the rest.
    fn so_far(&self) -> Reception {
        let Some((first, highest)) = self.heard else { return Reception::default() };
        let first = if self.from_start { 0 } else { first };
        let sent = u64::from(highest - first) + 1;
        let lost = u32::try_from(sent.saturating_sub(self.received.into())).unwrap_or(u32::MAX);
        Reception { received: self.received, lost }
    }
}

/// Listens to announced transmissions.
#[derive(Debug)]
pub(super) struct Listener {
    end_slack: Duration,
    nak_delay_min: Duration,
    random: Generator,
    /// Channel time of a full packet.
    packet_time: Duration,
    /// Boxed, as the items of a client are.
    listening: BTreeMap<u64, Box<Listening>>,
    /// Finished transmissions that left something missing, by the time of their NAKs.
    naks: BTreeMap<(Instant, u64), Box<Listening>>,
    /// The last transmissions that were answered with a NAK. A packet of one shows that it goes on:
    /// whatever seemed to end it was out of order, or forged.
    over: BTreeMap<u64, Box<Listening>>,
    /// The highest number of a packet, by which announcements are known to be late.
    highest: u64,
    /// The highest number that was announced.
    announced: u64,
    last_packet: Instant,
    pub(super) overrun: Overrun,
    /// Counts of transmissions that ended without a NAK.
    untold: Reception,
    stats: ReceiverStats,
}

impl Listener {
    pub(super) fn new(config: &ReceiverConfig, random: Generator) -> Listener {
        Listener {
            end_slack: config.end_slack,
            nak_delay_min: config.nak_delay_min,
            random,
            packet_time: Duration::ZERO,
            listening: BTreeMap::new(),
            naks: BTreeMap::new(),
            over: BTreeMap::new(),
            highest: FIRST,
            announced: FIRST,
            last_packet: Instant::EPOCH,
            overrun: Overrun::default(),
            untold: Reception::default(),
            stats: ReceiverStats::default(),
        }
    }

    /// Sets the rate of the channel.
    pub(super) fn set_rate(&mut self, bits_per_s: u64) {
        let rate = Rate::from_bits_per_s(bits_per_s);
        self.packet_time = rate.map_or(Duration::ZERO, |rate| rate.time_for(NOMINAL_PACKET));
    }

    /// Forgets all transmissions.
    pub(super) fn stop(&mut self) {
        self.listening.clear();
        self.naks.clear();
        self.over.clear();
    }

    /// Forgets all state of a session.
    pub(super) fn reset(&mut self) {
        self.stop();
        self.untold = Reception::default();
        (self.highest, self.announced) = (FIRST, FIRST);
    }

    /// Notes the number of an announced transmission, whoever wants its item.
    pub(super) fn note_announced(&mut self, transmission: u32) {
        self.announced = self.announced.max(self.unwrap(transmission));
    }

    /// Returns whether no transmission awaits packets or a NAK.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.listening.is_empty() && self.naks.is_empty()
    }

    /// Returns the transmission number as it would be if numbers did not wrap.
    fn unwrap(&self, id: u32) -> u64 {
        let near = self.announced;
        let candidate = (near & !0xffff_ffff) | u64::from(id);
        if candidate + (1 << 31) < near {
            candidate + (1 << 32)
        } else if candidate > near + (1 << 31) {
            candidate - (1 << 32)
        } else {
            candidate
        }
    }

    /// Returns the blocks of an item's announced transmissions that are not over.
    pub(super) fn coming(&self, toi: Toi) -> impl Iterator<Item = Range<u32>> {
        let of_item = self.listening.values().filter(move |listening| listening.toi == toi);
        of_item.map(|listening| listening.blocks.clone())
    }

    /// Returns the end of the last announced transmission, or `starts` if that is later.
    pub(super) fn busy_until(&self, starts: Instant) -> Instant {
        let last = self.listening.values().next_back();
        last.map_or(starts, |last| last.expected_end.max(starts))
    }

    /// Listens to a transmission that begins at `after`. Returns its expected end.
    pub(super) fn listen(
        &mut self,
        announcement: &Announcement,
        outlook: &Outlook,
        after: Instant,
        blocks: u32,
    ) -> Instant {
        let expected_end = after + self.packet_time.saturating_mul(announcement.packets);
        let end = announcement.first_block.saturating_add(announcement.blocks);
        let number = self.unwrap(announcement.transmission);
        let late = number <= self.highest;
        let listening = Listening {
            id: announcement.transmission,
            toi: announcement.toi,
            blocks: announcement.first_block..end.min(blocks),
            packets: announcement.packets,
            expected_end,
            slack: self.end_slack,
            nak_spread: outlook.nak_spread,
            from_start: outlook.joined && !late,
            received: 0,
            heard: None,
            before_last: None,
            told: false,
        };
        self.announced = self.announced.max(number);
        self.stats.announced += 1;
        self.stats.announced_late += u64::from(late);
        self.listening.entry(number).or_insert_with(|| Box::new(listening));
        expected_end
    }

    /// Notes a packet of any transmission.
    #[inline]
    pub(super) fn note_packet(&mut self, now: Instant) {
        self.last_packet = now;
    }

    /// Notes a packet of a transmission. Earlier transmissions are over, if this one was announced;
    /// otherwise only those that should be. Returns whether the client was listening to any that
    /// has ended.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        items: &Items,
        (toi, transmission, index): (Toi, u32, u32),
    ) -> bool {
        let number = self.unwrap(transmission);
        if self.listening.get(&number).is_some_and(|one| one.toi != toi || index >= one.packets) {
            return false;
        }
        let is_announced = number <= self.announced;
        if number <= self.announced + AHEAD_MOST {
            self.highest = self.highest.max(number);
        }
        self.go_on(now, number, (toi, index));
        let mut over = false;
        while let Some(first) = self.first().filter(|&first| first < number)
            && (is_announced || self.listening[&first].expected_end <= now)
        {
            self.end(now, items, first);
            over = true;
        }
        let Some(listening) = self.listening.get_mut(&number) else { return over };
        listening.received += 1;
        let (first, highest) = listening.heard.unwrap_or((index, index));
        self.stats.reordered += u64::from(index < highest);
        listening.heard = Some((first.min(index), highest.max(index)));
        if index + 1 >= listening.packets {
            listening.before_last = Some(highest);
            self.end(now, items, number);
            over = true;
        }
        over
    }

    /// Listens to a transmission again that seemed to be over, since a later packet of it comes.
    fn go_on(&mut self, now: Instant, number: u64, (toi, index): (Toi, u32)) {
        if self.naks.is_empty() && self.over.is_empty() {
            return;
        }
        let is_later = |one: &Listening| {
            let highest = one.before_last.or(one.heard.map(|(_, highest)| highest));
            toi == one.toi && index < one.packets && highest.is_none_or(|highest| index > highest)
        };
        let waiting = self.naks.keys().find(|(_, waiting)| *waiting == number).copied();
        let over = match waiting.filter(|key| is_later(&self.naks[key])) {
            Some(key) => self.naks.remove(&key),
            None if self.over.get(&number).is_some_and(|one| is_later(one)) => {
                self.over.remove(&number)
            }
            None => None,
        };
        if let Some(mut listening) = over {
            listening.expected_end = listening.expected_end.max(now);
            if listening.before_last.take().is_some() {
                listening.heard = listening.heard.map(|(first, _)| (first, index));
            }
            self.listening.insert(number, listening);
        }
    }

    fn first(&self) -> Option<u64> {
        self.listening.first_key_value().map(|(&first, _)| first)
    }

    /// Notes the server's message that a transmission and those before it are over.
    pub(super) fn hear_end(&mut self, now: Instant, transmission: u32) {
        let number = self.unwrap(transmission);
        for (_, listening) in self.listening.range_mut(..=number) {
            listening.expected_end = listening.expected_end.min(now);
            listening.slack = QUIET;
        }
    }

    /// Ends a transmission, and schedules a NAK if it left something missing.
    fn end(&mut self, now: Instant, items: &Items, number: u64) {
        let Some(listening) = self.listening.remove(&number) else { return };
        let item = items.get(listening.toi);
        let settled = item.is_none_or(|item| item.need(listening.blocks.clone()).is_empty());
        self.stats.heard += u64::from(listening.received);
        self.stats.lost += u64::from(listening.missed(settled));
        if settled {
            return self.untold.add(listening.reception());
        }
        let spread = listening.nak_spread.as_nanos() as u64;
        let delay = if spread == 0 { 0 } else { self.random.next_u64() % spread };
        let least = REORDER_GUARD + self.nak_delay_min;
        let due = now + least + Duration::from_nanos(delay);
        self.naks.insert((due, number), listening);
    }

    /// Ends transmissions that fell silent. Returns whether any did.
    pub(super) fn end_silent(&mut self, now: Instant, items: &Items) -> bool {
        let mut over = false;
        while let Some(first) =
            self.first().filter(|_| self.next_silent_end().is_some_and(|end| end <= now))
        {
            self.end(now, items, first);
            over = true;
        }
        over
    }

    /// Returns the time at which the first transmission in line counts as over for its silence.
    #[inline]
    pub(super) fn next_silent_end(&self) -> Option<Instant> {
        let (_, first) = self.listening.first_key_value()?;
        if self.last_packet <= first.expected_end {
            return Some(first.expected_end + first.slack);
        }
        let latest = first.expected_end + first.slack * PUT_OFF_MOST;
        Some(self.last_packet.min(latest) + first.slack)
    }

    /// Returns the next NAK that is due, if the client is still missing anything and `may` allows
    /// it.
    pub(super) fn next_nak(&mut self, now: Instant, items: &mut Items, may: bool) -> Option<Nak> {
        while let Some((&(due, number), _)) = self.naks.first_key_value()
            && due <= now
        {
            let listening = self.naks.remove(&(due, number))?;
            let need = items.get_mut(listening.toi).map(|item| {
                item.last_heard = now;
                item.need(listening.blocks.clone())
            });
            let Some(need) = need.filter(|need| may && !need.is_empty()) else {
                self.untold.add(listening.reception());
                continue;
            };
            self.stats.naks += 1;
            let Overrun { before, no_room } = std::mem::take(&mut self.overrun);
            let nak = Nak {
                transmission: listening.id,
                toi: listening.toi,
                need,
                received: listening.received.saturating_sub(no_room),
                lost: listening.lost().saturating_sub(before),
            };
            self.over.insert(number, listening);
            while self.over.len() > OVER_MOST {
                self.over.pop_first();
            }
            return Some(nak);
        }
        None
    }

    /// Returns the time of the next NAK.
    #[inline]
    pub(super) fn next_nak_due(&self) -> Option<Instant> {
        self.naks.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Returns the counts, so far, of transmissions that no NAK reports.
    pub(super) fn take_reception(&mut self, items: &Items) -> Reception {
        for listening in self.listening.values_mut() {
            if items.get(listening.toi).is_none() {
                self.untold.add(listening.reception());
                listening.told = true;
            }
        }
        std::mem::take(&mut self.untold)
    }

    /// Returns the counters of all transmissions, including those that are not over.
    pub(super) fn stats(&self) -> ReceiverStats {
        let mut stats = self.stats;
        for listening in self.listening.range(..=self.highest).map(|(_, one)| one) {
            stats.heard += u64::from(listening.received);
            stats.lost += u64::from(listening.missed(true));
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use crate::chance::generator;
    use umbel_fec::Partition;
    use umbel_wire::{Oti, Scheme};

    use super::*;
    use crate::repository::receiver::item::{Held, Item};

    const TOI: Toi = Toi(3);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn items() -> Items {
        let oti = Oti {
            scheme: Scheme::ReedSolomon,
            object_len: 100 * 10,
            symbol_len: 10,
            max_block_symbols: 20,
            max_encoding_symbols: 255,
        };
        let item = Item::new(oti, Partition::new(&oti).unwrap(), &Held::default(), at(0));
        let mut items = Items::new();
        items.insert(TOI, Box::new(item));
        items
    }

    const ANNOUNCEMENT: Announcement = Announcement {
        transmission: 7,
        toi: TOI,
        channel: 0,
        first_block: 0,
        blocks: 5,
        packets: 10,
    };
    const JOINED: Outlook = Outlook { nak_spread: Duration::ZERO, joined: true };

    fn listener() -> Listener {
        let random = generator(1);
        Listener::new(&ReceiverConfig::default(), random)
    }

    /// Hears packets 0 to 5 and 9 of 10, and the announcement before the packet of this number.
    fn nak(announced_before: u32) -> Nak {
        let mut listener = listener();
        let mut items = items();
        for index in [0, 1, 2, 3, 4, 5, 9] {
            if index == announced_before {
                listener.listen(&ANNOUNCEMENT, &JOINED, at(1), 5);
            }
            listener.hear(at(1), &items, (TOI, 7, index));
        }
        listener.next_nak(at(10), &mut items, true).unwrap()
    }

    /// Passes a client announcements of transmissions 7 and 8, and all packets of 7 but the fifth,
    /// with forged packets in between. Returns the number of NAKs about 7, and what the last says
    /// was received and lost.
    fn naks_with(forged: &[(u32, u32)]) -> (u32, Nak) {
        let mut listener = listener();
        let mut items = items();
        // A packet each 10 ms.
        listener.set_rate(1_120_000);
        listener.listen(&ANNOUNCEMENT, &JOINED, at(1), 5);
        let next = Announcement { transmission: 8, ..ANNOUNCEMENT };
        listener.listen(&next, &JOINED, at(100), 5);
        let (mut naks, mut last) = (0, None);
        for index in (0..10).filter(|&index| index != 4) {
            let now = at(10 + 10 * u64::from(index));
            listener.hear(now, &items, (TOI, 7, index));
            for &forged in forged.iter().filter(|_| index < 9) {
                listener.hear(now, &items, (TOI, forged.0, forged.1));
            }
            let nak = listener.next_nak(now + Duration::from_millis(5), &mut items, true);
            naks += u32::from(nak.is_some());
            last = nak.or(last);
        }
        (naks, last.unwrap())
    }

    #[test]
    fn a_transmission_ends_with_a_nak_whatever_somebody_forges() {
        let (honest, nak) = naks_with(&[]);
        assert_eq!((honest, nak.transmission, nak.received, nak.lost), (1, 7, 9, 1));
        // None of these was announced.
        for forged in
            [(9, 0), (10_000, 5), (7 + (1 << 31), 0), (u32::MAX, 1), (7, 10), (7, 1 << 31)]
        {
            assert_eq!(naks_with(&[forged]), (1, nak.clone()), "{forged:?}");
        }
        // The next one, and the last packet: NAKs that come too early are taken back.
        for forged in [(8, 0), (7, 9)] {
            let (_, last) = naks_with(&[forged]);
            assert_eq!(last.transmission, 7);
            assert!(last.received >= 9, "{forged:?}: {last:?}");
        }
    }

    #[test]
    fn packets_without_end_do_not_keep_a_transmission_from_ending() {
        let mut listener = listener();
        listener.listen(&ANNOUNCEMENT, &JOINED, at(1), 5);
        let mut now = at(1);
        while listener.next_silent_end().is_some_and(|end| end > now) {
            now += Duration::from_millis(1);
            listener.note_packet(now);
            assert!(now < at(6_000));
        }
        assert!(listener.end_silent(now, &items()));
    }

    #[test]
    fn what_came_before_its_announcement_does_not_count_as_lost() {
        let in_time = nak(0);
        assert_eq!((in_time.received, in_time.lost), (7, 3));
        let late = nak(4);
        assert_eq!((late.received, late.lost), (3, 3));
        let last = nak(9);
        assert_eq!((last.received, last.lost), (1, 0));
    }

    #[test]
    fn the_rest_of_a_transmission_that_nobody_needs_does_not_count_as_lost() {
        for (items, lost) in [(items(), 5), (Items::new(), 1)] {
            let mut listener = listener();
            listener.listen(&ANNOUNCEMENT, &JOINED, at(1), 5);
            for (transmission, index) in [(7, 0), (7, 1), (7, 3), (7, 4), (7, 5), (8, 0)] {
                listener.hear(at(1), &items, (TOI, transmission, index));
            }
            let stats = listener.stats();
            assert_eq!((stats.heard, stats.lost), (5, lost));
        }
    }
}
