//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
    /// The datagram came on a channel on which none is expected.
    Unexpected,
    /// It is not a packet or message of this protocol and version.
    Malformed,
    /// It is not sealed, though the session is, or was forged or altered.
    Forged,
    /// It is sealed with a key that is not held, no longer or not yet.
    UnknownKey,
    /// The sealed packet came before, or is older than the replay window.
    Replayed,
    /// It belongs to another session's source.
    OtherSession,
    /// A message before the session was opened properly.
    NotAdmitted,
    /// It names an item that is not wanted here.
    NotWanted,
    /// It names a block or symbol that the item does not have, or has a wrong length.
    OutsideItem,
    /// Symbols of the block were wrong too often.
    Damaging,
    /// The symbol is not the server's, as the server's digest says.
    WrongSymbol,
    /// The symbol's digest is not there yet, and others of the item were wrong.
    Unverified,
    /// Another symbol is held under its number.
    Contradicting,
    /// The symbol is already held.
    Duplicate,
    /// The sink had no room.
    NoRoom,
    /// A NAK about a transmission that is not known or is still running.
    StaleNak,
    /// A client asked for more than its limit.
    OverLimit,
}
