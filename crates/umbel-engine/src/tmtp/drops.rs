//! Reasons for discarding input.

use crate::drops::drop_reasons;
use crate::recovery::Unfounded;

drop_reasons! {
    /// It came by a way on which nothing is expected, or the node is not in the group now.
    Unexpected,
    /// It is not a message or packet of this protocol and version.
    Malformed,
    /// It is this node's own, or claims to be.
    Own,
    /// It is about another feed.
    OtherSession,
    /// It answers no question of this node, or comes from another node than was asked.
    NotAsked,
    /// It claims to be from a child, without the child's token or address.
    ForgedChild,
    /// It claims to be from the parent and is not.
    ForgedParent,
    /// It claims to be from the source and contradicts what is known of it.
    ForgedSource,
    /// The seal of a symbol, or its digest, shows that it is not its source's.
    ForgedSymbol,
    /// Its block was wrong before, and is taken in a surer way only.
    Suspect,
    /// The number of hops or the path is impossible.
    AbsurdHops,
    /// The epoch is in the future.
    AbsurdEpoch,
    /// The parent would not stand above the node, so that a loop might form.
    Loop,
    /// The node was barred for what it did before.
    Barred,
    /// Too many searches or requests came to answer this one.
    OverLimit,
    /// Its stamp is missing or wrong.
    NotAuthentic,
    /// The source has not given this node the key of the tree yet.
    NoKey,
    /// It came before.
    Replayed,
    /// It was said too long ago.
    Stale,
    /// An acknowledgement names blocks that were never sent.
    AbsurdAck,
    /// The block or symbol is impossible.
    AbsurdBlock,
    /// A symbol or an acknowledgement is a duplicate, or of no use after a later one.
    Duplicate,
    /// The symbol's block is not wanted.
    NotWanted,
    /// There is no room for a symbol. The parent will send it again.
    NoRoom,
    /// The block is too far beyond the first incomplete one.
    FarAhead,
    /// A NACK asks for what was repaired a moment ago.
    HeldDown,
    /// A NACK is from a child whose path carries much less than is sent now.
    Behind,
    /// A FETCH has no good cookie.
    NoCookie,
}

impl From<Unfounded> for DropReason {
    fn from(unfounded: Unfounded) -> DropReason {
        match unfounded {
            Unfounded::NeverSent => DropReason::AbsurdAck,
            Unfounded::Old => DropReason::Duplicate,
            Unfounded::NotLacking => DropReason::HeldDown,
            Unfounded::TooMany => DropReason::OverLimit,
            Unfounded::Behind => DropReason::Behind,
        }
    }
}
