//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
    /// It is not a message of this version of LMS that is expected here.
    Malformed,
    /// It came on a channel or path on which no such message is expected.
    Unexpected,
    /// It is about another channel or another session of the source.
    OtherSession,
    /// A data unit so far ahead that no source can have sent it, or a request for one. Also a
    /// repair of a unit that the source has not announced.
    FarAhead,
    /// A data unit from before the first wanted one, or one that was given up.
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
    /// A DMCAST of anything other than a repair.
    NotARepair,
    /// More channels, services or rounds than there is memory for.
    OverLimit,
    /// It was passed on too often, so it is going round in circles.
    Hops,
    /// A request that crossed the reply [LMS §III-A].
    LateRequest,
    /// A request for a unit that the replier is missing too and has requested [LMS §II-F].
    AlreadyAsked,
    /// A request for a unit that is no longer kept anywhere.
    Expired,
}
