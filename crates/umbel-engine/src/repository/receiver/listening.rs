//! Announced transmissions: listening to them, noticing their end, and answering with a NAK.

use std::ops::Range;
use std::time::Duration;

use rand_core::Rng;
use umbel_wire::Toi;
use umbel_wire::repository::{Announcement, ClientMessage, Nak};

use super::{Overrun, Receiver, ReceiverStats, Way};
use crate::Instant;
use crate::repository::drops::DropReason;
use crate::symbols::SymbolSink;

/// A packet may be overtaken by others for this long before its transmission counts as over.
const REORDER_GUARD: Duration = Duration::from_millis(1);

/// After the server has said that the channel is idle, silence of this long means that the last
/// packet has come: packets may still wait in the socket when that message is read.
const QUIET: Duration = Duration::from_millis(2);

/// A transmission that was announced and is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Listening {
    id: u32,
    toi: Toi,
    blocks: Range<u32>,
    packets: u32,
    /// When its last packet should have come.
    expected_end: Instant,
    /// How long nothing must have come after that for it to count as over.
    slack: Duration,
    nak_spread: Duration,
    /// The client had joined before it was announced, so that silence is loss. One that joins for
    /// it may come late, above all if the announcement was delayed on a lossy session.
    from_start: bool,
    /// The announcement came when packets of it, or of a later transmission, had come: what came
    /// before is neither received nor lost.
    late: bool,
    received: u32,
    /// Number of the first packet that was heard, and of the highest.
    heard: Option<(u32, u32)>,
    /// The server was told how much of it came.
    told: bool,
}

/// Packets that came, and that did not.
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

impl Listening {
    /// Packets that did not come since the client listened.
    fn lost(&self) -> u32 {
        let first = match self.heard {
            _ if self.from_start => 0,
            Some((first, _)) => first,
            None => self.packets,
        };
        (self.packets.saturating_sub(first)).saturating_sub(self.received)
    }

    /// Packets that did not come while the client could tell, for its user. Where it needs nothing
    /// more, those behind the last that came may never have been sent.
    fn missed(&self, settled: bool) -> u32 {
        let from_start = self.from_start && !self.late;
        let (first, end) = match self.heard {
            None if from_start && !settled => (0, self.packets),
            None => return 0,
            Some((first, highest)) => (
                if from_start { 0 } else { first },
                if settled { highest.saturating_add(1) } else { self.packets },
            ),
        };
        end.saturating_sub(first).saturating_sub(self.received)
    }

    /// What has not been told.
    fn reception(&self) -> Reception {
        if self.told { Reception::default() } else { self.so_far() }
    }

    /// Only what is before the last packet that came counts as lost: the transmission may be cut
    /// short where nobody needs the rest.
    fn so_far(&self) -> Reception {
        let Some((first, highest)) = self.heard else { return Reception::default() };
        let first = if self.from_start { 0 } else { first };
        let sent = u64::from(highest - first) + 1;
        let lost = u32::try_from(sent.saturating_sub(self.received.into())).unwrap_or(u32::MAX);
        Reception { received: self.received, lost }
    }
}

impl<K: SymbolSink> Receiver<K> {
    /// Transmission numbers as they would be if they did not wrap.
    fn unwrap_transmission(&self, id: u32) -> u64 {
        let near = self.highest_transmission;
        let candidate = (near & !0xffff_ffff) | u64::from(id);
        if candidate + (1 << 31) < near {
            candidate + (1 << 32)
        } else if candidate > near + (1 << 31) {
            candidate - (1 << 32)
        } else {
            candidate
        }
    }

    pub(super) fn on_announce(
        &mut self,
        now: Instant,
        starts_in: Duration,
        nak_spread: Duration,
        announcements: &[Announcement],
    ) {
        let starts = now + starts_in;
        let mut expected_end = self
            .listening
            .values()
            .next_back()
            .map_or(starts, |last| last.expected_end.max(starts));
        let mut wanted = false;
        for announcement in announcements {
            let number = self.unwrap_transmission(announcement.transmission);
            let Some(item) = self.items.get_mut(&announcement.toi) else {
                if !self.control.remember(starts, nak_spread, announcement) {
                    self.drops.count(DropReason::NotWanted);
                }
                continue;
            };
            wanted = true;
            item.last_heard = now;
            let time = self.packet_time.saturating_mul(announcement.packets);
            expected_end += time;
            let end = announcement.first_block.saturating_add(announcement.blocks);
            let listening = Listening {
                id: announcement.transmission,
                toi: announcement.toi,
                blocks: announcement.first_block..end.min(item.partition.blocks()),
                packets: announcement.packets,
                expected_end,
                slack: self.config.end_slack,
                nak_spread,
                from_start: self.joined,
                late: number <= self.highest_transmission,
                received: 0,
                heard: None,
                told: false,
            };
            self.stats.announced += 1;
            self.stats.announced_late += u64::from(number <= self.highest_transmission);
            self.listening.entry(number).or_insert(listening);
        }
        if wanted && self.way == Way::Multicast {
            self.interest_until = expected_end.max(now) + self.config.linger;
            self.silent_since.get_or_insert(starts);
            self.join();
        }
    }

    /// Notes that a packet of a transmission came. Those before it are over.
    pub(super) fn note_heard(&mut self, now: Instant, transmission: u32, index: u32) {
        let number = self.unwrap_transmission(transmission);
        if number > self.highest_transmission {
            self.highest_transmission = number;
        }
        while let Some((&first, _)) = self.listening.first_key_value() {
            if first >= number {
                break;
            }
            self.on_transmission_over(now, first);
        }
        let Some(listening) = self.listening.get_mut(&number) else { return };
        listening.received += 1;
        let (first, highest) = listening.heard.unwrap_or((index, index));
        self.stats.reordered += u64::from(index < highest);
        listening.heard = Some((first.min(index), highest.max(index)));
        if index + 1 >= listening.packets {
            self.on_transmission_over(now, number);
        }
    }

    pub(super) fn on_end(&mut self, now: Instant, transmission: u32) {
        let number = self.unwrap_transmission(transmission);
        for (_, listening) in self.listening.range_mut(..=number) {
            listening.expected_end = listening.expected_end.min(now);
            listening.slack = QUIET;
        }
    }

    /// Puts a NAK into the line if the transmission left something missing.
    fn on_transmission_over(&mut self, now: Instant, number: u64) {
        let Some(listening) = self.listening.remove(&number) else { return };
        self.interest_until = self.interest_until.max(now + self.config.linger);
        let item = self.items.get(&listening.toi);
        let settled = item.is_none_or(|item| item.need(listening.blocks.clone()).is_empty());
        self.stats.heard += u64::from(listening.received);
        self.stats.lost += u64::from(listening.missed(settled));
        if settled {
            return self.untold.add(listening.reception());
        }
        let spread = listening.nak_spread.as_nanos() as u64;
        let delay = if spread == 0 { 0 } else { self.random.next_u64() % spread };
        let least = REORDER_GUARD + self.config.nak_delay_min;
        let due = now + least + Duration::from_nanos(delay);
        self.naks.insert((due, number), listening);
    }

    /// Adds what came and what did not of the transmissions that are not over.
    pub(super) fn add_running(&self, stats: &mut ReceiverStats) {
        for listening in self.listening.range(..=self.highest_transmission).map(|(_, one)| one) {
            stats.heard += u64::from(listening.received);
            stats.lost += u64::from(listening.missed(true));
        }
    }

    /// What came and what did not of transmissions of which no NAK tells, so far.
    pub(super) fn take_reception(&mut self) -> Reception {
        for listening in self.listening.values_mut() {
            if !self.items.contains_key(&listening.toi) {
                self.untold.add(listening.reception());
                listening.told = true;
            }
        }
        std::mem::take(&mut self.untold)
    }

    pub(super) fn send_due_naks(&mut self, now: Instant) {
        while let Some((&(due, number), _)) = self.naks.first_key_value() {
            if due > now {
                break;
            }
            let Some(listening) = self.naks.remove(&(due, number)) else { break };
            let Some(item) = self.items.get_mut(&listening.toi) else {
                self.untold.add(listening.reception());
                continue;
            };
            item.last_heard = now;
            let need = item.need(listening.blocks.clone());
            if self.way != Way::Multicast || need.is_empty() {
                self.untold.add(listening.reception());
                continue;
            }
            self.stats.naks += 1;
            self.interest_until = self.interest_until.max(now + self.config.linger);
            let Overrun { before, no_room } = std::mem::take(&mut self.overrun);
            self.outbox.push_back(ClientMessage::Nak(Nak {
                transmission: listening.id,
                toi: listening.toi,
                need,
                received: listening.received.saturating_sub(no_room),
                lost: listening.lost().saturating_sub(before),
                overrun: before.saturating_add(no_room),
            }));
        }
    }

    /// When the first transmission in line counts as over though nothing says so.
    pub(super) fn next_silent_end(&self) -> Option<Instant> {
        let first = self.listening.values().next()?;
        Some(first.expected_end.max(self.last_packet) + first.slack)
    }

    pub(super) fn end_silent_transmissions(&mut self, now: Instant) {
        while self.next_silent_end().is_some_and(|end| end <= now) {
            let Some((&first, _)) = self.listening.first_key_value() else { break };
            self.on_transmission_over(now, first);
        }
    }
}
