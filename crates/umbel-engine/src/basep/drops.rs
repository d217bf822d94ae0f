//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
    /// It came on a channel or path on which none of its kind is expected: data from another
    /// source, an ACK on the channel.
    Unexpected,
    /// It is not a message of this protocol and version.
    Malformed,
    /// It is about another channel.
    OtherSession,
    /// An ACK from a host that is not one of the receivers.
    Stranger,
    /// An ACK of a packet that was not sent yet, or data implausibly far ahead.
    FarAhead,
    /// It was received before.
    Duplicate,
    /// The window has no room for the packet yet.
    NoRoom,
    /// Too many acknowledgements wait already.
    OverLimit,
    /// Data after the end, or a contradictory end.
    Contradiction,
}
