//! Measures at a receiver how a channel's packets arrive.

use std::time::Duration;

use umbel_wire::reception::{ChannelStamp, ReceptionReport};

use crate::Instant;

/// Packets that are further ahead or behind than this are not of this channel, or forged.
const MOST_APART: i32 = 1 << 20;
/// Time after which the least delay is forgotten, at the latest twice this. Clocks drift apart by
/// up to 0.1 ms in a second, and routes change.
const LEAST_LASTS: Duration = Duration::from_secs(15);
/// Time and packets after which a stretch begins anew that nobody has asked for.
const STRETCH_TIME: Duration = Duration::from_secs(2);
/// See above.
const LEAST_STRETCH: u32 = 10;
/// Longest pause after which times of sending can be compared.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time by which a packet may seem to be later than is possible, since clocks are read one after
/// another.
const MOST_LATER: Duration = Duration::from_millis(500);
/// Shortest time over which the arrival of trains says anything. Interrupts and reads take several
/// packets at once.
const LEAST_TRAIN_TIME: Duration = Duration::from_micros(20);

/// Measures how the packets of a channel arrive, between two reports.
///
/// Packets that leave together have the same time of sending, though all but the first wait for
/// each other. A stretch therefore begins and ends with the first packet of a batch that arrives,
/// its *lead*, and delays are told by those that were the first to leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    least: LeastDelay,
    /// The newest lead.
    lead: Option<Arrival>,
    /// The lead with which the last report ended, or one later, and counts since.
    older: Option<Stretch>,
    /// A later lead, so that a report never covers more than the last seconds.
    newer: Option<Stretch>,
    /// Counts since the newest lead.
    batch: Counts,
    /// The newest packet of the batch, by its number.
    last: Option<(u32, Instant)>,
    /// Number after the newest packet.
    next: Option<u32>,
    /// Time under way of the leads before the newest one, above the least.
    before: Option<(Duration, Duration)>,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    stamp: ChannelStamp,
    at: Instant,
    /// Time under way above the least that is known.
    queue: Duration,
}

/// What arrived since a lead, up to the newest.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: Arrival,
    counts: Counts,
}

/// The packets of late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) received: u32,
    pub(crate) lost: u32,
    pub(crate) overrun: u32,
    pub(crate) queue_least: Duration,
}

/// Counts of packets.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    received: u32,
    overrun: u32,
    marked: u32,
    gaps: u32,
    tails: u32,
    jitter: Duration,
    queue_least: Option<Duration>,
    /// Bits of trains and the time that they took to arrive.
    train_bits: u64,
    train_time: Duration,
}

/// The least one-way delay of late, by two clocks that need not agree.
#[derive(Clone, Copy, Debug, Default)]
struct LeastDelay {
    /// Delay of the first packet, from which the others are told.
    zero: Option<u32>,
    /// Least delays of the present period and of the one before.
    present: Option<i32>,
    before: Option<i32>,
    since: Instant,
}

impl Meter {
    /// Counts a packet of `bytes` bytes that arrived at `now`.
    #[inline]
    pub(crate) fn on_packet(
        &mut self,
        now: Instant,
        stamp: ChannelStamp,
        bytes: usize,
        marked: bool,
    ) {
        // Numbers are those of the first packets of batches.
        let batch = stamp.number.wrapping_sub(stamp.place.into());
        let apart = self.lead.map(|lead| ahead(batch, lead.stamp.number));
        if apart.is_some_and(|apart| apart.abs() > MOST_APART) {
            return;
        }
        self.count_gap(stamp);
        if apart.is_none_or(|apart| apart > 0) {
            self.end_batch();
            let mut queue = self.least.hear(now, stamp.sent_us, stamp.place == 0);
            if self.is_impossible(now, queue) {
                self.least = LeastDelay::default();
                (self.older, self.newer) = (None, None);
                queue = self.least.hear(now, stamp.sent_us, stamp.place == 0);
            }
            let lead = Arrival { stamp: ChannelStamp { number: batch, ..stamp }, at: now, queue };
            self.begin_stretch(lead);
            if stamp.place == 0 {
                self.batch.jitter = self.vary(queue);
                self.batch.queue_least = Some(queue);
            }
        } else if let Some((number, at)) = self.last
            && stamp.number == number.wrapping_add(1)
        {
            // What is missing may have taken the link's time or not: only neighbours tell.
            self.batch.train_bits += bytes as u64 * 8;
            self.batch.train_time += now.since(at);
        }
        self.last = Some((stamp.number, now));
        self.batch.received += 1;
        self.batch.marked += u32::from(marked);
    }

    /// Returns whether a lead cannot have been under way for so much longer than the one before: both
    /// arrived too soon after each other. Then those before waited while this machine stood still,
    /// and the source's clock has gone round meanwhile.
    fn is_impossible(&self, now: Instant, queue: Duration) -> bool {
        self.lead.is_some_and(|last| queue > last.queue + now.since(last.at) + MOST_LATER)
    }

    /// Counts packets that reached the machine and were dropped there.
    pub(crate) fn on_overrun(&mut self, packets: u32) {
        self.batch.overrun = self.batch.overrun.saturating_add(packets);
    }

    /// Counts the last packet as dropped in the machine, too.
    pub(crate) fn on_no_room(&mut self) {
        self.batch.received = self.batch.received.saturating_sub(1);
        self.on_overrun(1);
    }

    /// Returns the number of packets that can be reported, with those that were dropped here.
    #[inline]
    pub(crate) fn received(&self) -> u32 {
        let stretches = [self.older, self.newer].into_iter().flatten();
        let counts = stretches.map(|stretch| stretch.counts);
        counts.fold(0, |sum, of| sum.saturating_add(of.received).saturating_add(of.overrun))
    }

    /// Returns what was seen in the last seconds.
    pub(crate) fn seen(&self) -> Seen {
        let (Some(lead), Some(stretch)) = (self.lead, self.newer.or(self.older)) else {
            return Seen::default();
        };
        let passed = ahead(lead.stamp.number, stretch.from.stamp.number).max(0).cast_unsigned();
        let Counts { received, overrun, queue_least, .. } = stretch.counts;
        let arrived = received.saturating_add(overrun).min(passed);
        let queue_least = queue_least.unwrap_or_default();
        Seen { received: arrived, lost: passed - arrived, overrun, queue_least }
    }

    /// Reports on the packets since the last report. `None` if there are none.
    pub(crate) fn report(&mut self, now: Instant) -> Option<ReceptionReport> {
        let (lead, older) = (self.lead?, self.older?);
        let from = older.from;
        let passed = ahead(lead.stamp.number, from.stamp.number).max(0).cast_unsigned();
        if passed == 0 {
            return None;
        }
        let mut stretch = older.counts;
        if let Some(newer) = self.newer.take() {
            stretch.add(&newer.counts);
        }
        self.older = Some(Stretch { from: lead, counts: Counts::default() });
        let received = stretch.received.saturating_add(stretch.overrun).min(passed);
        let train_rate = stretch.train_bits as f64 / stretch.train_time.as_secs_f64().max(1e-9);
        let sent_over = lead.stamp.us_since(from.stamp);
        Some(ReceptionReport {
            newest: lead.stamp,
            held: now.since(lead.at),
            received,
            lost: passed - received,
            overrun: stretch.overrun.min(received),
            marked: stretch.marked.min(received),
            gaps: stretch.gaps.min(passed - received),
            tails: stretch.tails.min(passed - received),
            // The newest lead ends the stretch: how late it is counts.
            jitter: stretch.jitter.max(self.batch.jitter),
            sent_over: Duration::from_micros(u64::from(sent_over)),
            arrived_over: lead.at.since(from.at),
            queue_least: stretch.queue_least.unwrap_or(lead.queue),
            queue: lead.queue,
            train_bits_per_s: (stretch.train_time >= LEAST_TRAIN_TIME).then_some(train_rate as u64),
        })
    }

    /// Counts what is missing before a packet.
    fn count_gap(&mut self, stamp: ChannelStamp) {
        let missing = self.next.map_or(0, |next| ahead(stamp.number, next));
        if missing >= 0 {
            self.next = Some(stamp.number.wrapping_add(1));
        }
        if missing > 0 {
            if stamp.place == 0 && self.batch.received >= 4 {
                self.batch.tails = self.batch.tails.saturating_add(missing.cast_unsigned());
            } else {
                self.batch.gaps += 1;
            }
        }
    }

    /// Returns by how much the time under way of a lead differs from that which the two before
    /// would have made one expect. A queue that grows evenly makes no difference.
    fn vary(&mut self, queue: Duration) -> Duration {
        let before = self.before.replace((queue, self.before.map_or(queue, |before| before.0)));
        let Some((last, before_last)) = before else { return Duration::ZERO };
        (queue + before_last).abs_diff(last * 2) / 2
    }

    /// Adds the batch before the newest lead to the stretch.
    fn end_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if let Some(stretch) = self.newer.as_mut().or(self.older.as_mut()) {
            stretch.counts.add(&batch);
        }
    }

    /// Goes on at a new lead.
    fn begin_stretch(&mut self, lead: Arrival) {
        let new = Stretch { from: lead, counts: Counts::default() };
        if self.lead.is_some_and(|last| lead.at.since(last.at) > LONGEST_PAUSE) {
            // The times of sending may have begun again since.
            (self.older, self.newer) = (None, None);
        }
        self.lead = Some(lead);
        let Some(newest) = self.newer.or(self.older) else {
            self.older = Some(new);
            return;
        };
        let enough = newest.counts.received >= LEAST_STRETCH;
        if enough && lead.at.since(newest.from.at) >= STRETCH_TIME {
            self.older = Some(newest);
            self.newer = Some(new);
        }
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.received = self.received.saturating_add(other.received);
        self.overrun = self.overrun.saturating_add(other.overrun);
        self.marked = self.marked.saturating_add(other.marked);
        self.gaps = self.gaps.saturating_add(other.gaps);
        self.tails = self.tails.saturating_add(other.tails);
        self.jitter = self.jitter.max(other.jitter);
        self.queue_least = [self.queue_least, other.queue_least].into_iter().flatten().min();
        self.train_bits += other.train_bits;
        self.train_time += other.train_time;
    }
}

/// Returns how far the number of a packet is ahead of another.
fn ahead(number: u32, of: u32) -> i32 {
    number.wrapping_sub(of).cast_signed()
}

impl LeastDelay {
    /// Returns the delay of a packet above the least of late. Of packets that waited for others of
    /// their batch, it is no new least.
    fn hear(&mut self, now: Instant, sent_us: u32, counts: bool) -> Duration {
        let now_us = (now.as_nanos() / 1_000) as u32;
        let delay = now_us.wrapping_sub(sent_us);
        let zero = *self.zero.get_or_insert(delay);
        // The clock of the source has 24 bits.
        let delay = (delay.wrapping_sub(zero) << 8).cast_signed() >> 8;
        if now.since(self.since) >= LEAST_LASTS {
            self.since = now;
            self.before = self.present.take();
        }
        let present = self.present.map_or(delay, |least| least.min(delay));
        if counts {
            self.present = Some(present);
        }
        let least = self.before.map_or(present, |before| before.min(present));
        Duration::from_micros(delay.saturating_sub(least).max(0).cast_unsigned().into())
    }
}
