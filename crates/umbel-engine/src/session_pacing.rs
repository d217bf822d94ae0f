//! Pacing of the session messages of a group, as in RTCP.

use std::time::Duration;

use crate::Instant;
use crate::bucket::Bucket;
use crate::units::Rate;

/// Rate of the session messages of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SessionRate {
    /// Rate of all members' messages together.
    pub(crate) rate: Rate,
    /// Share of the rate reserved for sources, while they are less than this share of the members.
    pub(crate) source_share: f64,
    /// The shortest mean interval between two messages of a member.
    pub(crate) min_interval: Duration,
}

/// Schedules session messages [RFC 3550 §6.3]. The mean interval keeps those of the whole group to
/// their rate, and randomness keeps members out of step.
#[derive(Clone, Debug)]
pub(crate) struct SessionPacer {
    config: SessionRate,
    /// Whether no message has left yet, so that half the shortest interval suffices
    /// [RFC 3550 §6.2].
    first: bool,
    /// Time at which the last message left, or the member joined.
    last: Instant,
    next: Instant,
    /// Average length of a message, headers included, in bytes.
    average_len: f64,
    /// Session messages of all members, as a bucket that drains at the group's rate.
    crowd: Bucket,
}

/// IPv4 and UDP headers.
const HEADERS: usize = 28;
/// Shortens intervals by as much as deferring messages lengthens them: e − 3/2 [RFC 3550 §6.3.1].
const COMPENSATION: f64 = 1.218_28;

/// Members wait when more session messages came than this time holds at the group's rate. Many
/// members have then come at once, and their number is not known yet.
const CROWD: Duration = Duration::from_secs(2);

/// The group's members, as far as the interval depends on them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    /// Number of members, including this one.
    pub(crate) members: u64,
    /// Number of sources, including this member if it is one.
    pub(crate) sources: u64,
    /// Whether this member is a source.
    pub(crate) is_source: bool,
}

impl SessionPacer {
    /// Creates a pacer that has sent nothing yet.
    pub(crate) fn new(config: SessionRate) -> SessionPacer {
        let (last, next) = (Instant::EPOCH, Instant::EPOCH);
        let crowd = Bucket::new(Duration::ZERO);
        SessionPacer { config, first: true, last, next, average_len: 100.0, crowd }
    }

    /// Returns the time at which the next message may leave.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Schedules the first message of a member that joins now.
    pub(crate) fn start(&mut self, now: Instant, group: Group, uniform: f64) {
        (self.first, self.last) = (true, now);
        self.next = now + self.randomized(group, uniform);
    }

    /// Counts a session message of this length, sent or received.
    pub(crate) fn count(&mut self, now: Instant, len: usize) {
        self.crowd.spend(now, self.config.rate.time_for((len + HEADERS) as u64));
    }

    /// Averages the length of a session message of the usual kind, which has echoes.
    pub(crate) fn average(&mut self, len: usize) {
        self.average_len += ((len + HEADERS) as f64 - self.average_len) / 16.0;
    }

    /// Returns whether a message may leave now that its time has come. If the group has grown since
    /// that time was chosen, the message is put off [RFC 3550 §6.3.6]. The same holds in a crowd,
    /// for about as long as the received messages exceed the rate. Sources tolerate twice the
    /// excess.
    pub(crate) fn is_due(&mut self, now: Instant, group: Group, uniform: f64) -> bool {
        let next = self.last + self.randomized(group, uniform);
        if next > now {
            self.next = next;
            return false;
        }
        let crowd = self.crowd.ready_at() - now;
        if crowd > if group.is_source { 2 * CROWD } else { CROWD } {
            self.next = now + crowd.mul_f64(0.5 + uniform);
            return false;
        }
        true
    }

    /// Schedules the next message after one has left.
    pub(crate) fn sent(&mut self, now: Instant, group: Group, uniform: f64) {
        (self.first, self.last) = (false, now);
        self.next = now + self.randomized(group, uniform);
    }

    /// Returns the mean interval between two messages of a member.
    pub(crate) fn interval(&self, group: Group) -> Duration {
        let Group { members, sources, is_source } = group;
        let share = self.config.source_share;
        let few = sources > 0 && (sources as f64) < members as f64 * share;
        let (senders, share) = match (few, is_source) {
            (false, _) => (members, 1.0),
            (true, true) => (sources, share),
            (true, false) => (members.saturating_sub(sources), 1.0 - share),
        };
        let bytes_per_s = self.config.rate.bits_per_s() as f64 / 8.0 * share;
        let seconds = senders as f64 * self.average_len / bytes_per_s;
        // A day is as good as never, and keeps the numbers small.
        let shortest = self.config.min_interval / if self.first { 2 } else { 1 };
        Duration::from_secs_f64(seconds.min(86_400.0)).max(shortest)
    }

    fn randomized(&self, group: Group, uniform: f64) -> Duration {
        self.interval(group).mul_f64((0.5 + uniform) / COMPENSATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: SessionRate = SessionRate {
        rate: Rate::from_bits_per_s(50_000).unwrap(),
        source_share: 0.25,
        min_interval: Duration::from_secs(1),
    };

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn group(members: u64) -> Group {
        Group { members, sources: 1, is_source: false }
    }

    #[test]
    fn the_groups_rate_does_not_grow_with_the_group() {
        let mut pacer = SessionPacer::new(RATE);
        (0..100).for_each(|_| pacer.average(72));
        for members in [100, 1_000, 10_000, 100_000] {
            let receivers = (members - 1) as f64 * 100.0 * 8.0;
            let rate = receivers / pacer.interval(group(members)).as_secs_f64();
            assert!(rate <= 37_500.1, "{members} members send {rate} bit/s");
        }
        pacer.sent(at(0), group(1), 0.5);
        let source = Group { is_source: true, ..group(10_000) };
        assert_eq!(pacer.interval(source), Duration::from_secs(1));
    }

    #[test]
    fn a_member_of_a_group_that_has_grown_puts_its_message_off() {
        let mut pacer = SessionPacer::new(RATE);
        pacer.start(at(0), group(1), 0.5);
        let due = pacer.next();
        assert!(due < at(500));
        assert!(!pacer.is_due(due, group(10_000), 0.5));
        assert!(pacer.next() > at(80_000));
        let mut small = SessionPacer::new(RATE);
        small.start(at(0), group(1), 0.9);
        assert!(small.is_due(small.next(), group(1), 0.0));
    }

    #[test]
    fn a_crowd_that_comes_at_once_keeps_to_the_rate_before_it_is_counted() {
        // 5,000 members that know of no others; all hear each other at once.
        let new = || SessionPacer::new(RATE);
        let mut pacers: Vec<SessionPacer> = std::iter::repeat_with(new).take(5_000).collect();
        let uniform = |n: usize, ms: u64| ((n as u64 * 7_919 + ms * 31) % 1_000) as f64 / 1_000.0;
        for (n, pacer) in pacers.iter_mut().enumerate() {
            pacer.start(at(0), group(1), uniform(n, 0));
        }
        let mut bytes = 0;
        for ms in (0..30_000).step_by(10) {
            for n in 0..pacers.len() {
                if pacers[n].next() > at(ms) {
                    continue;
                }
                if pacers[n].is_due(at(ms), group(1), uniform(n, ms)) {
                    pacers[n].sent(at(ms), group(1), uniform(n, ms));
                    for other in &mut pacers {
                        other.count(at(ms), 172);
                    }
                    bytes += 200;
                }
            }
        }
        let rate = f64::from(bytes) * 8.0 / 30.0;
        assert!((20_000.0..70_000.0).contains(&rate), "{rate} bit/s");
    }
}
