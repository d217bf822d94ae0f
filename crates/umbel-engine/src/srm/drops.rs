//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
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
