//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
    /// It came on a channel or path on which none of its kind is expected. Examples are data from
    /// another source, a NAK from upstream, an SPM from downstream.
    Unexpected,
    /// It is not a message of this protocol and version.
    Malformed,
    /// It is about another channel.
    OtherSession,
    /// The unit was not sent yet, or is implausibly far ahead.
    FarAhead,
    /// The unit is no longer kept.
    Expired,
    /// It was received before.
    Duplicate,
    /// The window has no room for the unit yet.
    NoRoom,
    /// There is no memory for the state that it would set up, or for another answer.
    OverLimit,
    /// A retransmission or a confirmation that was not requested here.
    NotAsked,
}
