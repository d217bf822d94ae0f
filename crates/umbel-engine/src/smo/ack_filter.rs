//! Acknowledgements that a source can do without, and the rule by which they are dropped before it
//! takes them.
//!
//! A later cumulative acknowledgement says all that an earlier one said. A source tells the rule
//! for each child ([`SourceEvent::AckFilter`](super::SourceEvent::AckFilter)), and its host has it
//! applied where that costs least: `umbel-net` by a program at the server's interface.
//! [`AckFilter`] is the same rule for networks in tests and in the simulator.
//!
//! A segment is dropped if all of this is true:
//!
//! - It is a plain ACK: no other flag, no option, no payload, the expected sequence number. Thus
//!   everything passes that reports a loss (SACK), a duplicate (D-SACK), data, or an end.
//! - It acknowledges less than what is wanted from everyone: the last few segments that the source
//!   may send without another acknowledgement. A source that waits for one hears of the last of
//!   what is under way.
//! - It acknowledges less than [`AckRule::step`] bytes more than the last that passed.
//! - Less than [`AckRule::period`] has gone by since then.
//!
//! Whatever else comes of a connection turns its rule off, until the source tells one again. So
//! nothing is dropped from a loss until its repair is over, however late the source learns of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::tcp::{Flags, Head, Seq};

use super::child::{Child, Served};
use super::config::SourceConfig;
use super::view::View;
use crate::Instant;

/// Segments before the last that may be multicast whose acknowledgements are always wanted.
/// Receivers may wait for a second segment, or 40 ms, before they acknowledge the last.
const FRONT: u64 = 4;
/// Segments after which the next front is told. What is told late drops less.
const FRONT_STEP: u64 = 16;
/// Segments that a step has at least. Below, there is little to drop.
const LEAST_STEP: u64 = 4;
/// Factor of a step where the window is twice what the path holds: its queue hides the delay, as
/// long as less than half of a window waits.
const QUEUED: u64 = 4;
/// Least period. It is shorter than the shortest time-out.
const LEAST_PERIOD: Duration = Duration::from_millis(5);
/// Change of a step that is told: by half.
const STEP_CHANGE: (u64, u64) = (3, 2);
/// Change of a period that is told.
const PERIOD_CHANGE: u32 = 2;

/// Rule by which a child's acknowledgements are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckRule {
    /// Place of its master, below the number of masters.
    pub master: u32,
    /// Sequence number that its plain ACKs have.
    pub seq: Seq,
    /// Sequence number up to which it has acknowledged everything.
    pub last: Seq,
    /// Bytes of progress with which an acknowledgement passes.
    pub step: u32,
    /// Time after an acknowledgement that passed, after which the next passes.
    pub period: Duration,
}

/// Change of what a source wants to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckFilterChange {
    /// A child's acknowledgements may be dropped by a rule.
    Set {
        /// Address of the child.
        peer: SocketAddr,
        /// The rule.
        rule: AckRule,
    },
    /// Everything of a child is wanted.
    Clear {
        /// Address of the child.
        peer: SocketAddr,
    },
    /// From this number on, acknowledgements of all children of a master are wanted.
    Wanted {
        /// Place of the master.
        master: u32,
        /// The number.
        from: Seq,
    },
}

/// Position from which on acknowledgements of everyone are wanted, as it was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Front(Option<u64>);

impl Front {
    /// Notes that everything before a position is sent without another acknowledgement. Returns the
    /// front if it is to be told. It goes back where a window becomes smaller.
    pub(super) fn advance(&mut self, sure: u64, mss: u16) -> Option<u64> {
        let mss = u64::from(mss);
        let front = sure.saturating_sub(FRONT * mss);
        if self.0.is_some_and(|told| told <= front && front < told + FRONT_STEP * mss) {
            return None;
        }
        self.0 = Some(front);
        self.0
    }
}

/// What is known of the rule of a child, as it was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Whether there is a rule.
    is_set: bool,
    /// 0 if it is off.
    step: u32,
    period: Duration,
}

impl Told {
    /// Notes a segment of the child.
    pub(super) fn on_segment(&mut self, head: &Head, len: u32, expected: Seq) {
        if !is_plain(head, len, expected) {
            self.step = 0;
        }
    }

    /// Takes the rule back. Returns whether that is to be told.
    pub(super) fn clear(&mut self) -> bool {
        std::mem::take(self).is_set
    }

    /// Notes what a rule should be. Returns whether it is to be told.
    fn set(&mut self, step: u32, period: Duration) -> bool {
        let (more, less) = STEP_CHANGE;
        let (old, new) = (u64::from(self.step), u64::from(step));
        let is_near = new * less <= old * more && old * less <= new * more;
        let is_like =
            period <= self.period * PERIOD_CHANGE && self.period <= period * PERIOD_CHANGE;
        if self.is_set && is_near && is_like {
            return false;
        }
        *self = Told { is_set: true, step, period };
        true
    }
}

/// Returns whether a segment says nothing but up to where everything has arrived.
fn is_plain(head: &Head, len: u32, expected: Seq) -> bool {
    let has_options = head.options != umbel_wire::tcp::Options::default();
    head.flags == Flags::ACK && len == 0 && !has_options && head.seq == expected
}

impl Child {
    /// Returns what is to be told of its rule, if anything is.
    pub(super) fn ack_rule(
        &mut self,
        base: Seq,
        view: &View,
        config: &SourceConfig,
    ) -> Option<AckFilterChange> {
        let peer = self.peer;
        let Some((master, step, period)) = self.wanted_acks(view, config) else {
            return self.told.clear().then_some(AckFilterChange::Clear { peer });
        };
        if !self.told.set(step, period) {
            return None;
        }
        let (seq, last) = (self.inbox.next(), base.plus(self.una as u32));
        Some(AckFilterChange::Set { peer, rule: AckRule { master, seq, last, step, period } })
    }

    /// Returns its master, and of which step and period acknowledgements are wanted. `None` if all
    /// are: where something is missing or late, where its window is small, and where other rules
    /// than its own windows say how far the master goes.
    fn wanted_acks(&self, view: &View, config: &SourceConfig) -> Option<(u32, u32, Duration)> {
        let Served::Master(master, _) = self.served else { return None };
        let each = config.acks_per_window.filter(|_| config.real_time.is_none())?;
        let is_quiet = self.board.is_clean() && !self.is_probing && self.rtt.backoff() == 0;
        let may_skip = self.hearing.hears && self.own_end.is_none() && self.has_sack;
        let is_permitted = self.una >= view.start && view.sent <= self.permitted_to();
        if !is_quiet || !may_skip || !is_permitted {
            return None;
        }
        let window = self.window.bytes().min(self.permits.size()).min(config.buffer as u64 / 2);
        let step = window / u64::from(each.get()) * if self.rtt.is_queued() { QUEUED } else { 1 };
        let period = self.rtt.smoothed()?.max(LEAST_PERIOD);
        let is_worth_it = step >= LEAST_STEP * u64::from(self.mss);
        is_worth_it.then(|| (master, step.min(u64::from(u32::MAX / 4)) as u32, period))
    }
}

/// The rule of a child, and how it stands.
#[derive(Clone, Copy, Debug)]
struct Entry {
    rule: AckRule,
    /// When the next acknowledgement passes.
    next: Instant,
}

/// Drops what a source does not want to hear.
#[derive(Clone, Debug, Default)]
pub struct AckFilter {
    children: BTreeMap<SocketAddr, Entry>,
    wanted: BTreeMap<u32, Seq>,
    dropped: u64,
}

impl AckFilter {
    /// Takes a change.
    pub fn apply(&mut self, change: AckFilterChange) {
        match change {
            AckFilterChange::Set { peer, rule } => {
                self.children.insert(peer, Entry { rule, next: Instant::EPOCH });
            }
            AckFilterChange::Clear { peer } => {
                self.children.remove(&peer);
            }
            AckFilterChange::Wanted { master, from } => {
                self.wanted.insert(master, from);
            }
        }
    }

    /// Returns whether a segment passes, TCP header and payload, which has come from `peer`.
    pub fn passes(&mut self, now: Instant, peer: SocketAddr, segment: &[u8]) -> bool {
        let Some(Entry { rule, next }) = self.children.get_mut(&peer) else { return true };
        let number = |at: usize| {
            let bytes = segment.get(at..)?.first_chunk()?;
            Some(Seq(u32::from_be_bytes(*bytes)))
        };
        let is_plain = segment.len() == Head::MIN_LEN
            && segment[12..14] == [0x50, Flags::ACK.0]
            && number(4) == Some(rule.seq);
        let (true, Some(ack)) = (is_plain, number(8)) else {
            rule.step = 0;
            return true;
        };
        let is_wanted = self.wanted.get(&rule.master).is_none_or(|from| ack.since(*from) >= 0);
        if rule.step == 0 || is_wanted {
            return true;
        }
        let progress = ack.since(rule.last);
        if progress < rule.step as i32 && now < *next {
            self.dropped += 1;
            return false;
        }
        if progress > 0 {
            rule.last = ack;
        }
        *next = now + rule.period;
        true
    }

    /// Returns the number of segments that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the number of children that have a rule.
    pub fn len(&self) -> usize {
        self.children.len()
    }

    /// Returns whether no child has a rule.
    pub fn is_empty(&self) -> bool {
        self.children.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ms;

    const PEER: ([u8; 4], u16) = ([10, 0, 0, 2], 4000);

    fn ack(number: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let head = Head { seq: Seq(7), ack: Seq(number), flags: Flags::ACK, ..Head::default() };
        head.emit(&mut bytes);
        bytes
    }

    /// A filter with a step of 1,000, a period of 10 ms, and everything wanted from 9,000 on.
    fn filter() -> AckFilter {
        let mut filter = AckFilter::default();
        let period = Duration::from_millis(10);
        let rule = AckRule { master: 3, seq: Seq(7), last: Seq(u32::MAX), step: 1000, period };
        filter.apply(AckFilterChange::Set { peer: PEER.into(), rule });
        filter.apply(AckFilterChange::Wanted { master: 3, from: Seq(9000) });
        filter
    }

    fn passes(filter: &mut AckFilter, at_ms: u64, number: u32) -> bool {
        filter.passes(ms(at_ms), PEER.into(), &ack(number))
    }

    #[test]
    fn an_ack_passes_with_a_step_after_a_period_and_at_the_front() {
        let mut filter = filter();
        assert!(passes(&mut filter, 1, 100));
        assert!(!passes(&mut filter, 2, 1000));
        assert!(passes(&mut filter, 2, 1100));
        assert!(!passes(&mut filter, 3, 1200));
        assert!(!passes(&mut filter, 11, 1300));
        assert!(passes(&mut filter, 12, 1400));
        // One that was overtaken.
        assert!(!passes(&mut filter, 12, 1200));
        assert!(passes(&mut filter, 12, 9000));
        // It does not count as the last.
        assert!(passes(&mut filter, 12, 2400));
        assert_eq!(filter.dropped(), 4);
    }

    #[test]
    fn whatever_is_no_plain_ack_turns_the_rule_off() {
        let damages: [fn(&mut Vec<u8>); 4] = [
            |segment| segment.push(1),
            |segment| segment[13] |= Flags::FIN.0,
            |segment| segment[7] = 8,
            |segment| {
                segment[12] = 0x60;
                segment.extend([1; 4]);
            },
        ];
        for damage in damages {
            let mut filter = filter();
            assert!(passes(&mut filter, 1, 100) && !passes(&mut filter, 1, 200));
            let mut segment = ack(200);
            damage(&mut segment);
            assert!(filter.passes(ms(1), PEER.into(), &segment));
            assert!(passes(&mut filter, 1, 200) && passes(&mut filter, 1, 200));
        }
    }

    #[test]
    fn a_child_without_a_rule_is_heard() {
        let mut filter = filter();
        passes(&mut filter, 1, 100);
        filter.apply(AckFilterChange::Clear { peer: PEER.into() });
        assert!(passes(&mut filter, 1, 100) && filter.is_empty());
    }

    #[test]
    fn the_front_goes_back_where_less_may_be_sent() {
        let mut front = Front::default();
        assert_eq!(front.advance(100_000, 1000), Some(96_000));
        assert_eq!(front.advance(115_999, 1000), None);
        assert_eq!(front.advance(116_000, 1000), Some(112_000));
        assert_eq!(front.advance(115_000, 1000), Some(111_000));
        assert_eq!(front.advance(115_000, 1000), None);
    }

    #[test]
    fn small_changes_are_not_told() {
        let mut told = Told::default();
        let period = Duration::from_millis(10);
        assert!(told.set(1000, period) && !told.set(1000, period));
        assert!(!told.set(1400, period) && told.set(1600, period));
        assert!(!told.set(1600, period * 2) && told.set(1600, period * 3));
        let head = Head { flags: Flags::ACK, ..Head::default() };
        told.on_segment(&head, 0, Seq(0));
        assert!(!told.set(1600, period * 3));
        told.on_segment(&head, 1, Seq(0));
        assert!(told.set(1600, period * 3));
        assert!(told.clear() && !told.clear());
    }
}
