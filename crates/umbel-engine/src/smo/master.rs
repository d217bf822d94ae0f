//! The master-TCB: what the children of a channel share [SMO §II-B].

use std::collections::VecDeque;
use std::time::Duration;

use umbel_wire::Channel;

use super::ack_filter::Front;
use super::api::MasterId;
use super::buffer::Buffer;
use super::config::{Fairness, Release, RttChoice, SourceConfig};
use super::repairs::Repairs;
use super::tournament::Tournament;
use crate::Instant;
use crate::units::Rate;

/// Longest time for which what is computed over all children may be out of date.
const STALE: Duration = Duration::from_millis(5);
/// Number of children up to a few times of which a change of one is surveyed at once.
const SMALL: usize = 64;
/// Share of the children that hold up a master that releases bytes when the buffer is full: half of
/// them may be slower.
const BUFFER_SHARE: f64 = 0.5;
/// Factor of the pace on the window in an RTT, in slow start and later, so that pacing does not
/// bound the window.
const PACE_GAIN: (f64, f64) = (2.0, 1.25);
/// Change of the pace that is worth telling.
const PACE_STEP: f64 = 0.125;

/// Values of a child that the master computes with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// Position up to which it has acknowledged everything.
    pub(super) una: u64,
    /// Right edge that its congestion window permits, while the stream is held from `from` on at
    /// most. `None` if new data does not reach it by multicast.
    pub(super) edge: Option<u64>,
    /// First position that it lacks and that may still be sent to it.
    pub(super) from: u64,
    /// Right edge of its receive window.
    pub(super) window: u64,
    /// Smoothed RTT in nanoseconds; 0 if unknown.
    pub(super) rtt: u64,
    /// Average congestion window in bytes.
    pub(super) average: f64,
    pub(super) slow_start: bool,
}

/// Time at which the segment before each position was sent, of what is outstanding.
#[derive(Clone, Debug, Default)]
pub(super) struct SendLog(VecDeque<(u64, Instant)>);

impl SendLog {
    pub(super) fn push(&mut self, end: u64, at: Instant) {
        self.0.push_back((end, at));
    }

    /// Returns the end of the last segment that ends at or before a position, and when it was sent.
    pub(super) fn sent(&self, position: u64) -> Option<(u64, Instant)> {
        let after = self.0.partition_point(|(end, _)| *end <= position);
        self.0.get(after.checked_sub(1)?).copied()
    }

    /// Returns the position up to which everything was sent at this time.
    pub(super) fn sent_until(&self, at: Instant) -> u64 {
        let after = self.0.partition_point(|(_, sent)| *sent <= at);
        after.checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |(end, _)| *end)
    }

    fn release(&mut self, trail: u64) {
        // One stays, for the ACK that moved the trail.
        while self.0.get(1).is_some_and(|(end, _)| *end <= trail) {
            self.0.pop_front();
        }
    }
}

/// Seat of a child.
#[derive(Clone, Copy, Debug)]
struct Seat {
    slot: u32,
    standing: Standing,
}

/// A stream that is multicast.
#[derive(Clone, Debug)]
pub(super) struct Master {
    pub(super) id: MasterId,
    pub(super) channel: Channel,
    pub(super) buffer: Buffer,
    /// Whether each child that hears bounds what is multicast.
    pub(super) is_bound: bool,
    /// Next position to be multicast: `SND.NXT`. FIN has a position.
    pub(super) nxt: u64,
    pub(super) log: SendLog,
    pub(super) repairs: Repairs,
    /// Children that wait for data: their time-outs are not running.
    pub(super) idle: Vec<u32>,
    /// Whether there was little room, or too little for a write, and it has not been told that
    /// there is more.
    pub(super) was_full: bool,
    seats: Vec<Option<Seat>>,
    free: Vec<u32>,
    count: usize,
    una: Tournament,
    edge: Tournament,
    window: Tournament,
    /// Changes of standings since the last survey of all.
    changes: usize,
    surveyed: Instant,
    survey: Survey,
    /// Last pace told.
    pace: Option<f64>,
    front: Front,
}

/// Values that are computed over all children, now and then.
#[derive(Clone, Copy, Debug, Default)]
struct Survey {
    /// Position that the configured share of children has acknowledged.
    una: u64,
    /// Right edge that the configured share permits, or that is essentially fair.
    edge: u64,
    rtt: u64,
    slow_start: bool,
    hearing: usize,
}

impl Master {
    /// Creates a master without children.
    pub(super) fn new(id: MasterId, channel: Channel, config: &SourceConfig) -> Master {
        Master {
            id,
            channel,
            // Half is kept for those who are behind: while they connect, or for good.
            buffer: Buffer::new(config.buffer, config.buffer / 2),
            is_bound: config.fairness == Fairness::Strict && share_of(config) >= 1.0,
            nxt: 0,
            log: SendLog::default(),
            repairs: Repairs::default(),
            idle: Vec::new(),
            was_full: false,
            seats: Vec::new(),
            free: Vec::new(),
            count: 0,
            una: Tournament::default(),
            edge: Tournament::default(),
            window: Tournament::default(),
            changes: 0,
            surveyed: Instant::EPOCH,
            survey: Survey::default(),
            pace: None,
            front: Front::default(),
        }
    }

    /// Returns the number of children.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Takes in a child. Returns its seat.
    pub(super) fn enter(&mut self, slot: u32, standing: Standing) -> u32 {
        let seat = self.free.pop().unwrap_or_else(|| {
            self.seats.push(None);
            self.seats.len() as u32 - 1
        });
        self.count += 1;
        self.seats[seat as usize] = Some(Seat { slot, standing });
        self.put(seat as usize, Some(standing));
        self.on_other_children();
        seat
    }

    /// Lets a child go.
    pub(super) fn leave(&mut self, seat: u32) {
        self.seats[seat as usize] = None;
        self.free.push(seat);
        self.count -= 1;
        self.put(seat as usize, None);
        self.on_other_children();
    }

    /// Notes that a child came or went. A small group is surveyed at once, a large one after a few.
    fn on_other_children(&mut self) {
        self.changes += self.count.clamp(1, SMALL);
    }

    /// Notes the standing of a child.
    pub(super) fn note(&mut self, seat: u32, standing: Standing) {
        let Some(Some(place)) = self.seats.get_mut(seat as usize) else { return };
        place.standing = standing;
        self.changes += 1;
        self.put(seat as usize, Some(standing));
    }

    fn put(&mut self, seat: usize, standing: Option<Standing>) {
        self.una.put(seat, standing.map(|standing| standing.una));
        self.edge.put(seat, standing.and_then(|standing| standing.edge));
        self.window.put(seat, standing.map(|standing| standing.window));
    }

    /// Returns the seat of the child that holds up the others, if any does.
    fn slowest(&self) -> Option<&Seat> {
        let tree = if self.edge.least() <= self.window.least() { &self.edge } else { &self.window };
        self.seats.get(tree.winner()?)?.as_ref()
    }

    /// Returns the child that holds up the others, if any does.
    pub(super) fn bottleneck(&self) -> Option<u32> {
        Some(self.slowest()?.slot)
    }

    /// Returns the window of the child that bounds the others: from what it has to the limit.
    /// `None` if no single child does.
    pub(super) fn bound_window(&self, limit: u64) -> Option<u64> {
        let slowest = self.slowest().filter(|_| self.is_bound)?;
        Some(limit.saturating_sub(slowest.standing.una))
    }

    /// Returns a child that needs bytes before this position.
    pub(super) fn behind(&self, position: u64) -> Option<u32> {
        self.una.least().filter(|&una| una < position)?;
        Some(self.seats.get(self.una.winner()?)?.as_ref()?.slot)
    }

    /// Returns the number of children that new data reaches by multicast. Costs O(n).
    pub(super) fn hearing(&self) -> usize {
        self.seats.iter().flatten().filter(|seat| seat.standing.edge.is_some()).count()
    }

    /// Returns the slots of its children.
    pub(super) fn children(&self) -> Vec<u32> {
        self.seats.iter().flatten().map(|seat| seat.slot).collect()
    }

    /// Returns when bytes that are not sent have waited for as long as they may.
    pub(super) fn waited_at(&self, config: &SourceConfig) -> Option<Instant> {
        Some(self.buffer.written_at(self.nxt)? + config.removal.wait?)
    }

    /// Drops what was not sent before a position. It is held as what was released is, for those who
    /// are being connected.
    pub(super) fn skip_to(&mut self, position: u64) {
        self.nxt = self.nxt.max(position.min(self.buffer.end()));
        self.buffer.release(self.nxt);
        self.log.release(self.buffer.trail());
        self.repairs.release(self.buffer.start());
    }

    /// Drops everything that was not sent, and forgets everything.
    pub(super) fn skip_all(&mut self) {
        self.buffer.forget(self.buffer.end());
        self.skip_to(self.buffer.end());
    }

    /// Returns whether new data reaches any child by multicast.
    pub(super) fn is_heard(&self) -> bool {
        self.edge.least().is_some()
    }

    /// Returns the group's RTT, or 0 if none is known.
    pub(super) fn rtt(&self) -> Duration {
        Duration::from_nanos(self.survey.rtt)
    }

    /// Returns the time for which retransmissions are gathered.
    pub(super) fn gather(&self, config: &SourceConfig) -> Duration {
        let (least, most) = config.gather;
        (self.rtt() / 4).clamp(least, most.max(least))
    }

    /// Computes what concerns all children, unless little has changed since. Costs O(1) for each
    /// change in the long run.
    pub(super) fn refresh(&mut self, now: Instant, config: &SourceConfig) {
        let is_due = self.changes > self.count / 4 || now >= self.surveyed + STALE;
        if self.changes > 0 && is_due {
            self.survey_all(now, config);
        }
    }

    /// Computes what concerns all children.
    pub(super) fn survey_all(&mut self, now: Instant, config: &SourceConfig) {
        self.changes = 0;
        self.surveyed = now;
        self.survey = self.compute(config);
    }

    /// Returns when [`refresh`](Master::refresh) is due for what changed lately.
    pub(super) fn refresh_at(&self) -> Option<Instant> {
        (self.changes > 0).then_some(self.surveyed + STALE)
    }

    fn compute(&self, config: &SourceConfig) -> Survey {
        let all = || self.seats.iter().flatten().map(|seat| &seat.standing);
        let hearing = || all().filter(|standing| standing.edge.is_some());
        let mut rtts: Vec<u64> = hearing().map(|standing| standing.rtt).collect();
        if rtts.is_empty() {
            // Nobody hears. Those who are served by unicast must not wait for the pace either.
            rtts.extend(all().map(|standing| standing.rtt));
        }
        let rtt = match config.rtt {
            RttChoice::Maximum => rtts.iter().copied().max().unwrap_or(0),
            RttChoice::Percentile(share) => at_share(&mut rtts, share),
        };
        let trail = self.buffer.trail();
        let share = share_of(config);
        // Those that are left behind hold up nobody: what they lack counts as received. In
        // real-time mode what was forgotten does. Their windows do not move on with it.
        let edge_of = |standing: &Standing| {
            let behind = trail.saturating_sub(standing.from);
            let edge = standing.edge.unwrap_or(u64::MAX).saturating_add(behind);
            let beyond = if config.real_time.is_some() { 0 } else { behind };
            edge.min(standing.window.saturating_add(beyond))
        };
        let una = match config.release {
            Release::Percentile(_) => {
                let mut all: Vec<u64> = all().map(|standing| standing.una).collect();
                at_share(&mut all, 1.0 - share)
            }
            Release::Slowest | Release::Buffer => self.una.least().unwrap_or(self.nxt),
        };
        let edge = match config.fairness {
            Fairness::Strict if share >= 1.0 && config.real_time.is_none() => 0,
            Fairness::Strict => {
                let mut edges: Vec<u64> = hearing().map(edge_of).collect();
                at_share(&mut edges, 1.0 - share)
            }
            Fairness::Essential { a, b } => {
                let windows = || hearing().map(|standing| standing.average);
                let least = windows().fold(f64::INFINITY, f64::min);
                let mut sizes: Vec<u64> = windows().map(|window| window as u64).collect();
                let median = at_share(&mut sizes, 0.5) as f64;
                let size = median.clamp(a * least, (b * least).max(a * least));
                una.max(trail) + if size.is_finite() { size as u64 } else { 0 }
            }
        };
        let slow_start = hearing().all(|standing| standing.slow_start);
        Survey { una, edge, rtt, slow_start, hearing: hearing().count() }
    }

    /// Returns the position up to which new data may be multicast: the function G.
    pub(super) fn limit(&self, config: &SourceConfig) -> u64 {
        if self.count == 0 {
            return self.nxt;
        }
        let by_all = self.window.least().unwrap_or(u64::MAX);
        let is_surveyed = share_of(config) < 1.0 || config.real_time.is_some();
        match config.fairness {
            Fairness::Strict if !is_surveyed => self.edge.least().unwrap_or(u64::MAX).min(by_all),
            _ if self.survey.hearing == 0 => by_all,
            Fairness::Essential { .. } if !is_surveyed => self.survey.edge.min(by_all),
            _ => self.survey.edge,
        }
    }

    /// Returns the bytes that may be under way: up to the limit, and a buffer more than was sent.
    pub(super) fn window(&self, config: &SourceConfig) -> u64 {
        let limit = self.limit(config).min(self.nxt + config.buffer as u64);
        limit.saturating_sub(self.buffer.trail())
    }

    /// Returns the position before which bytes may be forgotten at their age. The last segment in
    /// the window of the child that is furthest behind stays. Nothing else could show that child
    /// that the stream has gone on, as segments beyond its window are dropped.
    fn in_reach(&self, config: &SourceConfig) -> u64 {
        let (Some(una), Some(window)) = (self.una.least(), self.window.least()) else {
            return u64::MAX;
        };
        let mss = u64::from(config.mss);
        let last = window.saturating_sub(mss).max(una + mss);
        // Bytes that were written at once stay together, where there is room for them.
        self.buffer.beginning(last).filter(|&at| at > una).unwrap_or(last)
    }

    /// Returns when bytes that are not released reach the age at which they are forgotten.
    pub(super) fn age_at(&self, config: &SourceConfig) -> Option<Instant> {
        let age = config.real_time?;
        // Otherwise it is an acknowledgement that lets go of them.
        let may_forget = self.buffer.trail() < self.in_reach(config);
        may_forget.then(|| Some(self.buffer.oldest()? + age)).flatten()
    }

    /// Releases what the function F permits. Returns whether there is more room.
    pub(super) fn release(&mut self, now: Instant, config: &SourceConfig) -> bool {
        let before = self.buffer.trail();
        if let Some(age) = config.real_time
            && let Some(moment) = now.as_nanos().checked_sub(age.as_nanos() as u64)
        {
            let old = self.buffer.written_until(Instant::from_nanos(moment));
            self.buffer.forget(old.min(self.in_reach(config)));
            self.nxt = self.nxt.max(self.buffer.trail());
            // How far the children permit to go on depends on it, also while none says anything.
            self.changes += usize::from(self.buffer.trail() > before);
        }
        let to = match config.release {
            _ if self.count == 0 => self.nxt,
            // With a bounded buffer, more is released when its room is needed.
            Release::Slowest | Release::Buffer => self.una.least().unwrap_or(0),
            Release::Percentile(_) => self.survey.una,
        };
        if to > before {
            self.buffer.release(to.min(self.nxt));
        }
        let trail = self.buffer.trail();
        if trail > before {
            self.log.release(trail);
            self.repairs.release(self.buffer.start());
        }
        trail > before
    }

    /// Makes room for this number of bytes by releasing what was sent [SMO §II-C 3].
    pub(super) fn make_room(&mut self, len: usize) {
        if self.count == 0 {
            // Nobody receives it.
            self.nxt = self.nxt.max(self.buffer.end());
        }
        let lacking = len.saturating_sub(self.buffer.room()) as u64;
        self.buffer.release((self.buffer.trail() + lacking).min(self.nxt));
        self.log.release(self.buffer.trail());
        self.repairs.release(self.buffer.start());
    }

    /// Returns the pace in bits a second if it changed: the window in an RTT, and some more.
    pub(super) fn new_pace(&mut self, config: &SourceConfig) -> Option<Rate> {
        if self.survey.rtt == 0 || self.count == 0 {
            return None;
        }
        let window = self.window(config).max(config.mss.into());
        let gain = if self.survey.slow_start { PACE_GAIN.0 } else { PACE_GAIN.1 };
        let bits = gain * window as f64 * 8e9 / self.survey.rtt as f64;
        let known = self.pace.unwrap_or(0.0);
        if (bits - known).abs() <= known * PACE_STEP {
            return None;
        }
        self.pace = Some(bits);
        Rate::from_bits_per_s(bits as u64)
    }

    /// Returns the position from which on acknowledgements are wanted from everyone, if that is to
    /// be told. `sendable` bytes may be sent before another acknowledgement comes.
    pub(super) fn new_front(&mut self, sendable: u64, mss: u16) -> Option<u64> {
        self.front.advance(self.nxt + sendable, mss)
    }

    /// Returns the last pace in bits a second.
    pub(super) fn pace(&self) -> f64 {
        self.pace.unwrap_or(0.0)
    }
}

/// Returns the share of the children that may hold up the master.
fn share_of(config: &SourceConfig) -> f64 {
    match config.release {
        Release::Slowest => 1.0,
        Release::Percentile(share) => share.clamp(0.0, 1.0),
        Release::Buffer => BUFFER_SHARE,
    }
}

/// Returns the value at a share of the sorted values, 0 if there are none.
fn at_share(values: &mut [u64], share: f64) -> u64 {
    let Some(last) = values.len().checked_sub(1) else { return 0 };
    let rank = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
    *values.select_nth_unstable(rank).1
}
