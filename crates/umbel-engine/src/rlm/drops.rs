//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
    /// It came by a way on which none of its kind is expected.
    Unexpected,
    /// It is not a packet or message of this protocol and version.
    Malformed,
    /// It is about another stream.
    OtherSession,
    /// It is a packet of a layer that was left.
    LeftLayer,
    /// It is this receiver's own, or claims to be.
    Own,
    /// It was received before.
    Duplicate,
    /// It came after it had been given up.
    TooLate,
    /// More control messages came than are handled.
    Flood,
    /// There was no room for it.
    OverLimit,
    /// It contradicts what is known of its block or object.
    Contradiction,
    /// It has no signature, and the source signs.
    Unsigned,
    /// Its signature is wrong.
    Forged,
    /// More packets with wrong signatures came than are checked.
    Unchecked,
}
