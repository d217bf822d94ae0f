//! Input that was discarded, by reason.

use crate::drops::drop_reasons;

drop_reasons! {
    /// It came by a way on which nothing is expected.
    Unexpected,
    /// It is not a packet or message of this protocol and version.
    Malformed,
    /// It belongs to another session's source.
    OtherSession,
    /// A message before the session was opened properly.
    NotAdmitted,
    /// It names an item that nobody here wants.
    NotWanted,
    /// It names a block or symbol that the item does not have, or has a wrong length.
    OutsideItem,
    /// The symbol is already held.
    Duplicate,
    /// The sink had no room.
    NoRoom,
    /// A NAK about a transmission that is not known or still runs.
    StaleNak,
    /// A client asked for more than it may.
    OverLimit,
}
