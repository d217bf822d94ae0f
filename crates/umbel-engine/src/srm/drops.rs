//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
    /// The datagram came on a channel on which none is expected, or the member is not in the group.
    Unexpected,
    /// It is not a message of this protocol and version.
    Malformed,
    /// It comes from this member itself, or claims to.
    Own,
    /// A repair or request about a source that is not known.
    UnknownSource,
    /// It would add more sources than are allowed.
    TooManySources,
    /// A data unit that was received before.
    Duplicate,
    /// A data unit from before the horizon.
    BeforeHorizon,
    /// A data unit for which there is no room yet.
    NoRoom,
    /// An implausible sequence number, too far ahead.
    FarAhead,
    /// A timestamp that this member did not send, or one that implies an impossible distance.
    AbsurdTimestamp,
    /// A request for a unit that was repaired a moment ago.
    HeldDown,
    /// A request for a repair when too many wait already.
    OverLimit,
}
