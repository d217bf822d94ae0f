//! Input that was discarded, by reason.

use super::domain::Unfounded;
use crate::drops::drop_reasons;

drop_reasons! {
    /// It came by a way on which nothing is expected, or the node takes no part now.
    Unexpected,
    /// It is not a message or packet of this protocol and version.
    Malformed,
    /// It is this node's own, or says it is.
    Own,
    /// It is about another feed.
    OtherFeed,
    /// It answers what was not asked, or not of the node that answers.
    Unasked,
    /// It says it is from a child and has not the child's token or address.
    ForgedChild,
    /// It says it is from the parent and is not.
    ForgedParent,
    /// It says it is from the source and contradicts what is known of it.
    ForgedSource,
    /// A symbol that is not its source's, as its seal shows.
    ForgedSymbol,
    /// Hops that cannot be, or a path that cannot be.
    AbsurdHops,
    /// An epoch from the future.
    AbsurdEpoch,
    /// A parent that would not stand above the node: it might make a loop.
    Loop,
    /// From a node that was barred for what it did before.
    Barred,
    /// A search or request that is not answered, since too many came.
    OverLimit,
    /// A JOIN_REQUEST without a proof of admission.
    NotAdmitted,
    /// An acknowledgement of what was never sent.
    AbsurdAck,
    /// A block or symbol that cannot be.
    AbsurdBlock,
    /// A symbol or an acknowledgement that came before, or is of no use after a later one.
    Duplicate,
    /// A symbol of a block that is not wanted.
    Unwanted,
    /// A symbol for which there is no room: the parent will send it again.
    NoRoom,
    /// A block that is too far beyond the first incomplete one.
    FarAhead,
    /// A NACK for what was repaired a moment ago.
    HeldDown,
    /// A FETCH without a good cookie.
    NoCookie,
}

impl From<Unfounded> for DropReason {
    fn from(unfounded: Unfounded) -> DropReason {
        match unfounded {
            Unfounded::NeverSent => DropReason::AbsurdAck,
            Unfounded::Old => DropReason::Duplicate,
            Unfounded::NotLacking => DropReason::HeldDown,
            Unfounded::TooMany => DropReason::OverLimit,
        }
    }
}
