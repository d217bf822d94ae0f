//! A child's data: received, lost, and sent again. This is SACK-based recovery [RFC 6675], with the
//! fall-back of [RFC 6582] for receivers without SACK.
//!
//! ```text
//!      una            lost_to                                     sent
//!       │▓▓ ░░ ▓▓▓ ░░░░░│                                           │
//!       ├──┬───┬────────┼────────── outstanding ────────────────────┤
//!     lost │  lost      └ below: what is not SACKed is lost
//!        SACKed    high_rxt: below, what is lost was sent again
//! ```

use std::ops::Range;

use crate::runs::Runs;

/// Duplicate ACKs, or SACKed segments above it, that make a segment count as lost
/// [RFC 6675 §2].
const DUP_THRESH: u32 = 3;
/// Number of SACKed runs that are kept. Ranges beyond are forgotten, and may be sent needlessly.
const MAX_RUNS: usize = 256;

/// Trigger of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By duplicate ACKs, or by a probe that shows a loss.
    Fast,
    /// By a retransmission time-out.
    Timeout,
}

/// State of retransmissions to a child.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    sacked: Runs<u64>,
    dup_acks: u32,
    /// Position at which the recovery ends, and how it began.
    recovery: Option<(u64, Kind)>,
    lost_to: u64,
    high_rxt: u64,
    /// Position of the next retransmission, if it was sent again before and lost another time.
    repeat: Option<u64>,
    /// Whether the recovery has sent nothing yet: the first segment needs no room.
    is_first: bool,
}

impl Scoreboard {
    /// Returns how the recovery that is under way began.
    pub(super) fn recovery(&self) -> Option<Kind> {
        self.recovery.map(|(_, kind)| kind)
    }

    /// Notes a block of bytes that the child has, above `una`. Returns whether any is new.
    pub(super) fn sack(&mut self, block: Range<u64>) -> bool {
        let new = self.sacked.gaps(block.clone()).next().is_some();
        if new && self.sacked.len() < MAX_RUNS {
            self.sacked.insert(block);
        }
        new
    }

    /// Returns the end of the last block, 0 without one.
    pub(super) fn highest(&self) -> u64 {
        self.sacked.end().unwrap_or(0)
    }

    /// Returns the number of SACKed bytes in a range.
    fn sacked_in(&self, range: Range<u64>) -> u64 {
        if self.sacked.is_empty() || range.is_empty() { 0 } else { self.sacked.count(range) }
    }

    /// Counts a duplicate ACK of a child without SACK.
    pub(super) fn on_duplicate(&mut self) {
        self.dup_acks += 1;
    }

    /// Notes that everything up to `una` was acknowledged. Returns whether this ended a recovery.
    /// `arrived` is the position up to which everything has arrived or is lost, as a
    /// retransmission shows that left later.
    pub(super) fn on_progress(&mut self, una: u64, has_sack: bool, mss: u64, arrived: u64) -> bool {
        (self.dup_acks, self.repeat) = (0, None);
        if !self.sacked.is_empty() {
            self.sacked.remove(0..una);
        }
        let Some((point, kind)) = self.recovery else { return false };
        if una >= point {
            (self.recovery, self.lost_to, self.high_rxt) = (None, 0, 0);
            return true;
        }
        if kind == Kind::Fast && !has_sack {
            // A partial ACK shows the next loss [RFC 6582 §3.2].
            self.lost_to = self.lost_to.max(una + mss);
        } else if kind == Kind::Fast && self.sacked.is_empty() {
            // The retransmission arrived, and nothing of what left before it.
            self.lost_to = self.lost_to.max(arrived.min(point));
        }
        false
    }

    /// Notes that what is not SACKed before a position is lost, of what the recovery concerns.
    pub(super) fn lose_to(&mut self, position: u64) {
        if let Some((point, _)) = self.recovery {
            self.lost_to = self.lost_to.max(position.min(point));
        }
    }

    /// Begins a recovery if the first segment that is outstanding is lost. Returns whether it did.
    pub(super) fn detect(&mut self, una: u64, sent: u64, mss: u64) -> bool {
        let lost_to = self.lost_boundary(mss);
        match self.recovery {
            Some(_) => {
                self.lost_to = self.lost_to.max(lost_to);
                false
            }
            None if lost_to > una || self.dup_acks >= DUP_THRESH => {
                self.begin(Kind::Fast, una, sent, lost_to.max((una + mss).min(sent)));
                true
            }
            None => false,
        }
    }

    /// Begins a recovery in which everything below `lost_to` that is not SACKed is lost.
    pub(super) fn begin(&mut self, kind: Kind, una: u64, sent: u64, lost_to: u64) {
        self.recovery = Some((sent, kind));
        (self.lost_to, self.high_rxt, self.repeat) = (lost_to, una, None);
        self.is_first = true;
    }

    /// Ends a recovery, since nothing was lost.
    pub(super) fn cancel(&mut self) {
        (self.recovery, self.lost_to, self.high_rxt) = (None, 0, 0);
    }

    /// Forgets everything: what is outstanding goes to the child on another way.
    pub(super) fn clear(&mut self) {
        *self = Scoreboard::default();
    }

    /// Forgets what was SACKed, which a receiver may take back, and what was sent again
    /// [RFC 2018 §8].
    pub(super) fn forget(&mut self) {
        self.sacked = Runs::default();
        self.dup_acks = 0;
    }

    /// Returns the position below which what is not SACKed is lost: three runs, or more than two
    /// segments, were SACKed above it [RFC 6675 §4].
    fn lost_boundary(&self, mss: u64) -> u64 {
        if self.sacked.is_empty() {
            return 0;
        }
        let mut bytes_above: u64 = self.sacked.iter().map(|run| run.end - run.start).sum();
        let mut runs_above = self.sacked.len();
        let mut boundary = 0;
        for run in self.sacked.iter() {
            if runs_above < DUP_THRESH as usize && bytes_above <= u64::from(DUP_THRESH - 1) * mss {
                break;
            }
            boundary = run.start;
            bytes_above -= run.end - run.start;
            runs_above -= 1;
        }
        boundary
    }

    /// Returns the bytes by which the right edge exceeds `una + cwnd`: what is outstanding and not
    /// in the network.
    pub(super) fn absent(&self, una: u64, sent: u64, mss: u64) -> u64 {
        if self.recovery.is_none() && self.sacked.is_empty() {
            return (u64::from(self.dup_acks) * mss).min(sent.saturating_sub(una));
        }
        let (lost_to, high_rxt) = (self.lost_to.min(sent), self.high_rxt.min(sent));
        let sacked = self.sacked_in(una..sent) + u64::from(self.dup_acks) * mss;
        let unsacked = |to: u64| to.saturating_sub(una) - self.sacked_in(una..to.max(una));
        (sacked + unsacked(lost_to)).saturating_sub(unsacked(high_rxt)).min(sent - una.min(sent))
    }

    /// Returns the bytes from a position on that were sent again and not reported since: the
    /// retransmissions that are under way.
    pub(super) fn again_under_way(&self, from: u64) -> u64 {
        let to = self.high_rxt.max(from);
        (to - from) - self.sacked_in(from..to)
    }

    /// Returns the next lost run to send again, at most `most` bytes.
    pub(super) fn next_lost(&self, una: u64, sent: u64, most: u64) -> Option<Range<u64>> {
        self.recovery?;
        let from = self.repeat.unwrap_or(self.high_rxt).max(una);
        let to = self.lost_to.min(sent);
        let gap = self.sacked.gaps(from..to.max(from)).next()?;
        Some(gap.start..gap.end.min(gap.start + most))
    }

    /// Returns whether the next retransmission needs no room in the congestion window.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Notes that a lost run is sent again.
    pub(super) fn on_sent_again(&mut self, run: &Range<u64>) {
        self.high_rxt = self.high_rxt.max(run.end);
        (self.is_first, self.repeat) = (false, None);
    }

    /// Gives up what is lost before a position, since it cannot be sent again.
    pub(super) fn give_up(&mut self, to: u64) {
        self.high_rxt = self.high_rxt.max(to);
        self.repeat = self.repeat.filter(|&at| at >= to);
    }

    /// Lets the first lost run from a position on be sent once more, since its retransmission was
    /// lost, too. Those behind it may still be under way.
    pub(super) fn again(&mut self, from: u64) {
        self.repeat = Some(from);
        self.is_first = true;
    }

    /// Plans all retransmissions anew.
    pub(super) fn again_all(&mut self, una: u64) {
        self.high_rxt = una;
        self.is_first = true;
    }

    /// Returns whether the child has this position.
    pub(super) fn has(&self, position: u64) -> bool {
        !self.sacked.is_empty() && self.sacked.contains(position)
    }

    /// Returns whether a receiver reports anything out of order.
    pub(super) fn is_clean(&self) -> bool {
        self.recovery.is_none() && self.sacked.is_empty() && self.dup_acks == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 100;

    #[test]
    fn three_segments_above_a_hole_make_it_lost() {
        let mut board = Scoreboard::default();
        assert!(board.sack(100..200) && !board.sack(100..200));
        assert!(!board.detect(0, 1000, MSS));
        assert!(board.sack(200..300));
        assert!(!board.detect(0, 1000, MSS));
        assert_eq!(board.absent(0, 1000, MSS), 200);
        assert!(board.sack(300..400));
        assert!(board.detect(0, 1000, MSS));
        assert_eq!(board.next_lost(0, 1000, MSS), Some(0..100));
        // Three SACKed, one lost and not sent again.
        assert_eq!(board.absent(0, 1000, MSS), 400);
        board.on_sent_again(&(0..100));
        assert_eq!((board.absent(0, 1000, MSS), board.next_lost(0, 1000, MSS)), (300, None));
        assert!(board.on_progress(1000, true, MSS, 1000));
        assert!(board.is_clean());
    }

    #[test]
    fn only_holes_are_sent_again_after_a_timeout() {
        let mut board = Scoreboard::default();
        board.sack(200..300);
        board.begin(Kind::Timeout, 0, 500, 500);
        let mut sent = Vec::new();
        while let Some(run) = board.next_lost(0, 500, MSS) {
            board.on_sent_again(&run);
            sent.push(run);
        }
        assert_eq!(sent, [0..100, 100..200, 300..400, 400..500]);
        assert!(!board.on_progress(300, true, MSS, 300));
        board.again(300);
        assert_eq!(board.next_lost(300, 500, MSS), Some(300..400));
        board.on_sent_again(&(300..400));
        assert_eq!(board.next_lost(300, 500, MSS), None);
        board.again_all(300);
        assert_eq!(board.next_lost(300, 500, MSS), Some(300..400));
        assert_eq!(board.recovery(), Some(Kind::Timeout));
    }

    #[test]
    fn without_sack_each_partial_ack_shows_one_loss() {
        let mut board = Scoreboard::default();
        (0..2).for_each(|_| board.on_duplicate());
        assert!(!board.detect(0, 500, MSS));
        board.on_duplicate();
        assert!(board.detect(0, 500, MSS));
        assert_eq!(board.next_lost(0, 500, MSS), Some(0..100));
        board.on_sent_again(&(0..100));
        assert_eq!(board.next_lost(0, 500, MSS), None);
        assert!(!board.on_progress(200, false, MSS, 200));
        assert_eq!(board.next_lost(200, 500, MSS), Some(200..300));
    }

    #[test]
    fn scattered_blocks_are_bounded() {
        let mut board = Scoreboard::default();
        for n in 0..1000 {
            board.sack(n * 20..n * 20 + 10);
        }
        assert_eq!(board.sacked.len(), MAX_RUNS);
    }
}
