//! Input that was discarded, by reason.

use std::fmt;

/// Why input was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// It is not a message of LMS, of this version, that is expected here.
    Malformed,
    /// It came by a way on which nothing like it is expected.
    Unexpected,
    /// It is about another channel or another session of the source.
    OtherSession,
    /// A data unit so far ahead that no source can have sent it, or a request for one.
    FarAhead,
    /// A data unit from before the first one that counts, or one that was given up.
    BeforeHorizon,
    /// The window has no room for the data unit yet.
    NoRoom,
    /// More requests, repairs or advertisements than are allowed.
    Flood,
    /// A request, report or advertisement that came by an interface that is not on the tree.
    OffTree,
    /// A request or report for which there is no replier.
    NoReplier,
    /// A DMCAST with a turning point that this router did not write, or wrote long ago.
    ForgedTurningPoint,
    /// A DMCAST to an interface that does not exist or is not on the tree.
    NoSuchInterface,
    /// A DMCAST of something else than a repair.
    NotARepair,
    /// More channels, services or rounds than there is memory for.
    TooMany,
    /// It was passed on too often: it goes round in circles.
    Hops,
    /// A request that crossed the reply [LMS §III-A].
    LateRequest,
    /// A request for what the replier lacks itself and has asked for [LMS §II-F].
    AlreadyAsked,
    /// A request for what nobody keeps any more.
    Purged,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [DropReason; 17] = [
        DropReason::Malformed,
        DropReason::Unexpected,
        DropReason::OtherSession,
        DropReason::FarAhead,
        DropReason::BeforeHorizon,
        DropReason::NoRoom,
        DropReason::Flood,
        DropReason::OffTree,
        DropReason::NoReplier,
        DropReason::ForgedTurningPoint,
        DropReason::NoSuchInterface,
        DropReason::NotARepair,
        DropReason::TooMany,
        DropReason::Hops,
        DropReason::LateRequest,
        DropReason::AlreadyAsked,
        DropReason::Purged,
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
