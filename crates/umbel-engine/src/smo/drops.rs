//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
    /// It came by another way than from a host.
    Unexpected,
    /// It is no TCP segment, or has malformed options.
    Malformed,
    /// It is for another port.
    OtherSession,
    /// It belongs to no connection. It is answered with RST.
    NoConnection,
    /// Its sequence numbers are outside the receive window. It is answered with an ACK.
    OutOfWindow,
    /// It acknowledges what was never sent. It is answered with an ACK.
    FarAhead,
    /// It acknowledges what was left out on purpose. Its connection is reset.
    Optimistic,
    /// It acknowledges what was acknowledged long ago.
    OldAck,
    /// A SYN or RST that does not fit the connection. It is answered with an ACK
    /// [RFC 5961 §3, §4].
    Challenged,
    /// It has neither ACK nor SYN nor RST.
    NoAck,
    /// Data for which there is no room.
    NoRoom,
    /// Data that was received before.
    Duplicate,
    /// A SYN while there are as many children as allowed, or while nobody listens. It is answered
    /// with RST.
    OverLimit,
    /// A half-open connection that gave way to a newer one.
    Flood,
    /// A SYN that came while too many answers to others waited.
    Backlog,
    /// An answer that was held back, since too many were sent.
    HeldDown,
}
