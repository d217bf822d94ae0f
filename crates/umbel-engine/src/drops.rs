//! Counters of discarded input, by reason, for all engines.
//!
//! Reasons that several engines have are called alike:
//!
//! | reason | the input |
//! |---|---|
//! | `Unexpected` | came by a way, or at a time, where none of its kind is expected |
//! | `Malformed` | is no message of this protocol and version |
//! | `OtherSession` | is about another channel, session or feed |
//! | `Own` | is this node's own, or claims to be |
//! | `Duplicate` | was received before |
//! | `FarAhead`, `BeforeHorizon` | lies beyond what can have been sent, before what is wanted |
//! | `NotAsked`, `NotWanted` | answers no question, is content that nobody here wants |
//! | `NoRoom` | does not fit the window or the sink; it is sent again |
//! | `OverLimit`, `Flood` | exceeds what is kept, exceeds a rate |
//! | `Expired` | asks for what is no longer kept |
//! | `HeldDown` | asks for what was sent a moment ago |

use std::fmt;
use std::marker::PhantomData;

/// Reason for which an engine discards input. Implemented by `drop_reasons!`.
pub trait Reason: Copy + fmt::Debug + 'static {
    /// Every reason, in the order of their indices.
    const ALL: &'static [Self];

    /// Returns its place in [`ALL`](Reason::ALL).
    fn index(self) -> usize;
}

/// Number of occurrences of each of an engine's `N` reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops<R, const N: usize> {
    counts: [u64; N],
    reasons: PhantomData<R>,
}

impl<R, const N: usize> Default for Drops<R, N> {
    fn default() -> Drops<R, N> {
        Drops { counts: [0; N], reasons: PhantomData }
    }
}

impl<R: Reason, const N: usize> Drops<R, N> {
    /// Counts one more occurrence of a reason.
    pub fn count(&mut self, reason: R) {
        self.counts[reason.index()] += 1;
    }

    /// Returns the reasons that occurred, with the number of their occurrences.
    pub fn iter(&self) -> impl Iterator<Item = (R, u64)> + '_ {
        R::ALL.iter().copied().zip(self.counts).filter(|&(_, count)| count > 0)
    }

    /// Returns the number of occurrences of this reason.
    pub fn of(&self, reason: R) -> u64 {
        self.counts[reason.index()]
    }

    /// Returns the total number of discarded inputs.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl<R: Reason, const N: usize> fmt::Display for Drops<R, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (reason, count) in self.iter() {
            write!(f, "{separator}{reason:?} {count}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Defines an engine's `DropReason`, and the `Drops` that count its occurrences.
#[macro_export]
macro_rules! drop_reasons {
    ($($(#[$doc:meta])+ $reason:ident,)+) => {
        /// Reason for which input was discarded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum DropReason {
            $($(#[$doc])+ $reason,)+
        }

        impl DropReason {
            /// Every reason.
            pub const ALL: [DropReason; [$(DropReason::$reason),+].len()] =
                [$(DropReason::$reason),+];
        }

        impl $crate::drops::Reason for DropReason {
            const ALL: &'static [DropReason] = &DropReason::ALL;

            fn index(self) -> usize {
                self as usize
            }
        }

        /// Number of occurrences of each reason.
        pub type Drops = $crate::drops::Drops<DropReason, { DropReason::ALL.len() }>;
    };
}

pub use drop_reasons;
