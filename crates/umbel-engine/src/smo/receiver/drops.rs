//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
    /// It came by another way than from the source or its channel.
    Unexpected,
    /// It is no TCP segment, or has malformed options.
    Malformed,
    /// It is for another port.
    OtherSession,
    /// It belongs to no connection. A unicast segment is answered with RST.
    NoConnection,
    /// A multicast segment while there is no helper, or while the connection takes no data.
    NotReady,
    /// A multicast segment of a stream that this connection does not take.
    NotMember,
    /// A multicast segment of what was received before, which the helper does not deliver.
    Stale,
    /// Data that was received before. It is answered with an ACK.
    Duplicate,
    /// It is outside of the window. A unicast segment is answered with an ACK; a helper does not
    /// deliver a multicast one.
    OutOfWindow,
    /// It acknowledges what was never sent. It is answered with an ACK.
    FarAhead,
    /// A SYN or RST that does not fit the connection. It is answered with an ACK
    /// [RFC 5961 §3, §4].
    Challenged,
    /// Data for which there is no room. The part that fits is taken.
    NoRoom,
}
