//! Input that was discarded, by reason: what all engines count alike.

use std::fmt;
use std::marker::PhantomData;

/// Why an engine discards input. Made by `drop_reasons!`.
pub trait Reason: Copy + fmt::Debug + 'static {
    /// Every reason, in the order of their indices.
    const ALL: &'static [Self];

    /// Its place in [`ALL`](Reason::ALL).
    fn index(self) -> usize;
}

/// How often each of an engine's `N` reasons occurred.
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
    pub(crate) fn count(&mut self, reason: R) {
        self.counts[reason.index()] += 1;
    }

    /// How often this reason occurred.
    pub fn of(&self, reason: R) -> u64 {
        self.counts[reason.index()]
    }

    /// How much input was discarded in all.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl<R: Reason, const N: usize> fmt::Display for Drops<R, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (reason, count) in R::ALL.iter().zip(self.counts).filter(|&(_, count)| count > 0) {
            write!(f, "{separator}{reason:?} {count}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Defines an engine's `DropReason`, and its `Drops` that count them.
macro_rules! drop_reasons {
    ($($(#[$doc:meta])+ $reason:ident,)+) => {
        /// Why input was discarded.
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

        /// How often each reason occurred.
        pub type Drops = $crate::drops::Drops<DropReason, { DropReason::ALL.len() }>;
    };
}

pub(crate) use drop_reasons;
