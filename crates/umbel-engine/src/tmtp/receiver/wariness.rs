//! Wariness after a wrong block: complete blocks are acknowledged only once they had time to turn
//! out wrong.
//!
//! An acknowledged block is let go by the parent, so that a wrong one would have to come from the
//! source as a whole. A T_ack after it is complete, a block was looked at. Until then it counts as
//! lacking one symbol. With the wait for the next acknowledgement that is shorter than T_retrans,
//! so that the parent neither sends anything nor stops because of it.
//!
//! A wary receiver takes no repairs of a block that is still being sent: nobody can have asked for
//! them.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::tmtp::{AckRun, BlockRun};

use crate::Instant;

/// Time after a wrong block for which the receiver is wary.
const WARY: Duration = Duration::from_secs(10);
/// Most blocks that are looked at. Earlier ones are acknowledged.
const MOST: usize = 1024;

/// Blocks that are complete and may turn out wrong.
#[derive(Debug, Default)]
pub(super) struct Wariness {
    until: Option<Instant>,
    /// The blocks, and when they count as right.
    unsure: BTreeMap<u32, Instant>,
}

impl Wariness {
    /// Notes that a block was wrong.
    pub(super) fn on_wrong(&mut self, now: Instant, block: u32) {
        self.until = Some(now + WARY);
        self.unsure.remove(&block);
    }

    /// Returns whether a block was wrong lately.
    pub(super) fn is_wary(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Notes a complete block.
    pub(super) fn on_complete(&mut self, now: Instant, block: u32, t_ack: Duration) {
        if !self.is_wary(now) {
            return;
        }
        self.unsure.insert(block, now + t_ack);
        if self.unsure.len() > MOST {
            self.unsure.pop_first();
        }
    }

    /// Returns the first complete block that is not acknowledged yet.
    pub(super) fn first_unsure(&mut self, now: Instant) -> Option<u32> {
        self.unsure.retain(|_, sure_at| *sure_at > now);
        self.unsure.first_key_value().map(|(&block, _)| block)
    }

    /// Makes runs of an acknowledgement, at most `most`, say that unsure blocks lack a symbol.
    pub(super) fn mark(&self, runs: Vec<AckRun>, most: usize) -> Vec<AckRun> {
        let mut marked = Vec::new();
        for AckRun { run, lacks } in runs {
            let (mut first, end) = (run.first, run.end());
            let mut push = |first: u32, end: u32, lacks| {
                if first < end && marked.len() < most {
                    marked.push(AckRun { run: BlockRun { first, count: end - first }, lacks });
                }
            };
            for (&block, _) in self.unsure.range(first..end).take(most) {
                push(first, block, lacks);
                push(block, block + 1, lacks.max(1));
                first = block + 1;
            }
            push(first, end, lacks);
        }
        marked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ms;

    const T_ACK: Duration = Duration::from_millis(50);

    fn run(first: u32, count: u32, lacks: u8) -> AckRun {
        AckRun { run: BlockRun { first, count }, lacks }
    }

    #[test]
    fn only_after_a_wrong_block_others_are_looked_at_before_they_are_acknowledged() {
        let mut wariness = Wariness::default();
        wariness.on_complete(ms(0), 3, T_ACK);
        assert_eq!(wariness.first_unsure(ms(0)), None);
        wariness.on_wrong(ms(10), 3);
        wariness.on_complete(ms(20), 5, T_ACK);
        wariness.on_complete(ms(60), 4, T_ACK);
        wariness.on_complete(ms(60), 8, T_ACK);
        assert_eq!(wariness.first_unsure(ms(69)), Some(4));
        wariness.on_wrong(ms(70), 8);
        assert_eq!(wariness.first_unsure(ms(70)), Some(4), "5 is right");
        wariness.on_wrong(ms(80), 4);
        assert_eq!(wariness.first_unsure(ms(80)), None, "they are missing again");
        assert!(wariness.is_wary(ms(10_079)) && !wariness.is_wary(ms(10_080)));
    }

    #[test]
    fn unsure_blocks_count_as_lacking_one_symbol() {
        let mut wariness = Wariness::default();
        wariness.on_wrong(ms(0), 0);
        for block in [2, 5, 7] {
            wariness.on_complete(ms(1), block, T_ACK);
        }
        let marked = wariness.mark(vec![run(2, 5, 0), run(7, 1, 4), run(9, 2, 0)], 9);
        let expected =
            [run(2, 1, 1), run(3, 2, 0), run(5, 1, 1), run(6, 1, 0), run(7, 1, 4), run(9, 2, 0)];
        assert_eq!(marked, expected);
        assert_eq!(wariness.mark(vec![run(2, 5, 0)], 2), expected[..2]);
    }

    #[test]
    fn ten_times_as_many_blocks_take_no_more_memory() {
        let mut wariness = Wariness::default();
        wariness.on_wrong(ms(0), 0);
        for block in 0..10 * MOST as u32 {
            wariness.on_complete(ms(1), block, T_ACK);
        }
        assert_eq!(wariness.unsure.len(), MOST);
        assert_eq!(wariness.first_unsure(ms(1)), Some(9 * MOST as u32));
    }
}
