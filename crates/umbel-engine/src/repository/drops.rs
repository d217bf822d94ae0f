//! Input that was discarded, by reason.

use std::fmt;

/// Why input was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// It came by a way on which nothing is expected.
    Unexpected,
    /// It is not a packet or message of this protocol and version.
    Malformed,
    /// It belongs to another session's source.
    OtherSession,
    /// A message before the session was opened properly.
    NotAdmitted,
    /// It names an item that nobody here wants.
    NotWanted,
    /// It names a block or symbol that the item does not have, or has a wrong length.
    OutsideItem,
    /// The symbol is already held.
    Duplicate,
    /// The sink had no room.
    NoRoom,
    /// A NAK about a transmission that is not known or still runs.
    StaleNak,
    /// A client asked for more than it may.
    OverLimit,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [DropReason; 10] = [
        DropReason::Unexpected,
        DropReason::Malformed,
        DropReason::OtherSession,
        DropReason::NotAdmitted,
        DropReason::NotWanted,
        DropReason::OutsideItem,
        DropReason::Duplicate,
        DropReason::NoRoom,
        DropReason::StaleNak,
        DropReason::OverLimit,
    ];
}

/// How often each reason occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    pub(crate) fn count(&mut self, reason: DropReason) {
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
