//! The window: sent blocks, cut into intervals of T_ack [TMTP Figure 4].

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::Instant;

/// Blocks that were sent during one T_ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    began: Instant,
    /// One beyond its last block. It begins where the one before ends.
    end: u32,
}

/// The intervals that not every child has acknowledged.
///
/// ```text
///   first interval                            T_ack
///  ├──────┼──────┼──────┼──────┤            ├──────┤
///  ▲                           ▲
///  start: all before it is     end: the next block to be sent
///  acknowledged
/// ```
///
/// T_retrans runs from the start of the first interval. When it is over, blocks of that interval
/// that are not acknowledged are sent again. The window advances by the interval once all are
/// acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Intervals {
    start: u32,
    unacknowledged: VecDeque<Interval>,
    /// Time at which the unacknowledged blocks of the first interval were last sent again.
    again: Option<Instant>,
}

impl Intervals {
    /// Creates a window in which nothing was sent; the first block will be `start`.
    pub(super) fn new(start: u32) -> Intervals {
        Intervals { start, unacknowledged: VecDeque::new(), again: None }
    }

    /// Returns the first block that is not acknowledged by all, as far as intervals tell.
    pub(super) fn start(&self) -> u32 {
        self.start
    }

    /// Returns one beyond the last block that was sent.
    pub(super) fn end(&self) -> u32 {
        self.unacknowledged.back().map_or(self.start, |interval| interval.end)
    }

    /// Notes that all blocks before `end` have been sent (by a manager: received) by now.
    pub(super) fn extend(&mut self, now: Instant, end: u32, t_ack: Duration) {
        if end <= self.end() {
            return;
        }
        match self.unacknowledged.back_mut() {
            Some(last) if now.since(last.began) < t_ack => last.end = end,
            _ => self.unacknowledged.push_back(Interval { began: now, end }),
        }
    }

    /// Notes that all children have acknowledged all blocks before `block`.
    pub(super) fn acknowledge(&mut self, block: u32) {
        while let Some(first) = self.unacknowledged.front().copied()
            && first.end <= block
        {
            self.start = first.end;
            self.unacknowledged.pop_front();
            self.again = None;
        }
        if self.unacknowledged.is_empty() {
            self.start = self.start.max(block);
        }
    }

    /// Returns when T_retrans of the first interval is over, or was for the first time.
    pub(super) fn expires(&self, t_retrans: Duration) -> Option<Instant> {
        self.unacknowledged.front().map(|first| first.began + t_retrans)
    }

    /// Returns when the unacknowledged blocks of the first interval are to be sent again.
    pub(super) fn next_retransmission(
        &self,
        t_retrans: Duration,
        pause: Duration,
    ) -> Option<Instant> {
        let expires = self.expires(t_retrans)?;
        Some(self.again.map_or(expires, |again| again + pause))
    }

    /// Returns the blocks of the first interval, which are being sent again now.
    pub(super) fn retransmit(&mut self, now: Instant) -> Range<u32> {
        self.again = Some(now);
        self.start..self.unacknowledged.front().map_or(self.start, |first| first.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T_ACK: Duration = Duration::from_millis(1100);
    const T_RETRANS: Duration = Duration::from_millis(3300);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    /// Creates the window of the paper's figures: ten packets a second, T_ack = 1.1 s, n = 3.
    fn window() -> Intervals {
        let mut window = Intervals::new(0);
        for block in 0..40 {
            window.extend(at(u64::from(block) * 100), block + 1, T_ACK);
        }
        window
    }

    #[test]
    fn an_interval_has_the_blocks_of_one_t_ack() {
        let mut window = window();
        assert_eq!(window.end(), 40);
        assert_eq!(window.expires(T_RETRANS), Some(at(3300)));
        assert_eq!(window.retransmit(at(3300)), 0..11);
        window.acknowledge(11);
        assert_eq!(window.expires(T_RETRANS), Some(at(1100 + 3300)));
        assert_eq!(window.retransmit(at(4400)), 11..22);
    }

    #[test]
    fn the_window_advances_by_whole_intervals() {
        let mut window = window();
        window.acknowledge(10);
        assert_eq!(window.start(), 0);
        window.acknowledge(25);
        assert_eq!(window.start(), 22);
        window.acknowledge(40);
        assert_eq!((window.start(), window.end(), window.expires(T_RETRANS)), (40, 40, None));
    }

    #[test]
    fn retransmissions_go_on_until_the_interval_is_acknowledged() {
        let mut window = window();
        let pause = Duration::from_millis(1100);
        assert_eq!(window.next_retransmission(T_RETRANS, pause), Some(at(3300)));
        window.retransmit(at(3350));
        assert_eq!(window.next_retransmission(T_RETRANS, pause), Some(at(4450)));
        window.acknowledge(11);
        // The next interval has waited for longer than T_retrans by then, or soon will have.
        assert_eq!(window.next_retransmission(T_RETRANS, pause), Some(at(4400)));
    }

    #[test]
    fn what_is_acknowledged_before_it_is_sent_again_leaves_nothing_to_do() {
        let mut window = Intervals::new(7);
        window.extend(at(0), 7, T_ACK);
        assert_eq!(window.expires(T_RETRANS), None);
        window.extend(at(5), 9, T_ACK);
        window.acknowledge(9);
        window.acknowledge(3);
        assert_eq!((window.start(), window.end()), (9, 9));
    }
}
