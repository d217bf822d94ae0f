//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
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
    OverLimit,
    /// It was passed on too often: it goes round in circles.
    Hops,
    /// A request that crossed the reply [LMS §III-A].
    LateRequest,
    /// A request for what the replier lacks itself and has asked for [LMS §II-F].
    AlreadyAsked,
    /// A request for what nobody keeps any more.
    Expired,
}
