//! Processing cost of a protocol on its host.

use std::iter::Sum;
use std::ops::Add;

/// Events that cost processing time, as TMTP's paper counts them. Each counts as one, whatever its
/// cost [TMTP "Performance Measures"].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessingLoad {
    /// Positive acknowledgements received and processed.
    pub acks: u64,
    /// Negative acknowledgements received and processed.
    pub nacks: u64,
    /// Timers that expired and had an effect, such as time-outs of retransmission.
    pub timers: u64,
    /// Retransmissions sent.
    pub retransmissions: u64,
}

impl ProcessingLoad {
    /// Returns the number of all events.
    pub const fn total(&self) -> u64 {
        self.acks + self.nacks + self.timers + self.retransmissions
    }

    /// Returns the events added since the load was `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: ProcessingLoad) -> ProcessingLoad {
        ProcessingLoad {
            acks: self.acks.saturating_sub(earlier.acks),
            nacks: self.nacks.saturating_sub(earlier.nacks),
            timers: self.timers.saturating_sub(earlier.timers),
            retransmissions: self.retransmissions.saturating_sub(earlier.retransmissions),
        }
    }
}

impl Add for ProcessingLoad {
    type Output = ProcessingLoad;

    fn add(self, other: ProcessingLoad) -> ProcessingLoad {
        ProcessingLoad {
            acks: self.acks + other.acks,
            nacks: self.nacks + other.nacks,
            timers: self.timers + other.timers,
            retransmissions: self.retransmissions + other.retransmissions,
        }
    }
}

impl Sum for ProcessingLoad {
    fn sum<I: Iterator<Item = ProcessingLoad>>(loads: I) -> ProcessingLoad {
        loads.fold(ProcessingLoad::default(), ProcessingLoad::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_all_kinds_count_alike() {
        let load = ProcessingLoad { acks: 1, nacks: 20, timers: 300, retransmissions: 4_000 };
        assert_eq!(load.total(), 4_321);
        let sum: ProcessingLoad = [load; 3].into_iter().sum();
        assert_eq!(sum.total(), 3 * 4_321);
        assert_eq!(sum.since(load), load + load);
    }
}
