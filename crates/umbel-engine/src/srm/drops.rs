//! Input that was discarded, by reason.

use std::fmt;

/// Why input was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// It came by a way on which nothing is expected, or the member is not in the group.
    Unexpected,
    /// It is not a message of this protocol and version.
    Malformed,
    /// It is this member's own, or says it is.
    Own,
    /// A data unit that [`UnitCheck`](super::UnitCheck) refuses.
    Forged,
    /// A repair or request about a source that is not known.
    UnknownSource,
    /// One source more than is allowed.
    TooManySources,
    /// A data unit that came before.
    Duplicate,
    /// A data unit from before the horizon.
    BeforeHorizon,
    /// A data unit for which there is no room yet.
    NoRoom,
    /// A sequence number that makes no sense.
    FarAhead,
    /// A timestamp that this member did not send, or one that would make it farther than can be.
    AbsurdTimestamp,
    /// A request for what was repaired a moment ago.
    HeldDown,
    /// A request for a repair when too many wait already.
    OverLimit,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [DropReason; 13] = [
        DropReason::Unexpected,
        DropReason::Malformed,
        DropReason::Own,
        DropReason::Forged,
        DropReason::UnknownSource,
        DropReason::TooManySources,
        DropReason::Duplicate,
        DropReason::BeforeHorizon,
        DropReason::NoRoom,
        DropReason::FarAhead,
        DropReason::AbsurdTimestamp,
        DropReason::HeldDown,
        DropReason::OverLimit,
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
        for reason in DropReason::ALL.into_iter().filter(|&reason| self.of(reason) > 0) {
            write!(f, "{separator}{reason:?} {}", self.of(reason))?;
            separator = ", ";
        }
        Ok(())
    }
}
