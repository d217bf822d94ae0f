//! Input that was discarded, by reason.

use std::fmt;

/// Why input was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// It came by a way on which nothing of its kind is expected: data from another source, a NAK
    /// from upstream, an SPM from downstream.
    Unexpected,
    /// It is not a message of this protocol and version.
    Malformed,
    /// It is about another channel.
    OtherChannel,
    /// The unit was not sent yet, or is absurdly far ahead.
    Ahead,
    /// The unit is no longer kept.
    Expired,
    /// It came before.
    Duplicate,
    /// There was no room for it, or for the state that it asks for.
    OverLimit,
    /// A retransmission or a confirmation that nobody here asked for.
    NotAsked,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [DropReason; 8] = [
        DropReason::Unexpected,
        DropReason::Malformed,
        DropReason::OtherChannel,
        DropReason::Ahead,
        DropReason::Expired,
        DropReason::Duplicate,
        DropReason::OverLimit,
        DropReason::NotAsked,
    ];
}

/// How often each reason occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    pub(super) fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// How often this reason occurred.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// How much input was discarded in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for reason in DropReason::ALL {
            if self.of(reason) > 0 {
                write!(f, "{separator}{reason:?} {}", self.of(reason))?;
                separator = ", ";
            }
        }
        Ok(())
    }
}
