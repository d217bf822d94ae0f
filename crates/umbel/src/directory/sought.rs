//! The kinds of sessions that commands receive.

use umbel_wire::feed::Feed;
use umbel_wire::session::SessionKind;
use umbel_wire::stream::Stream;

use super::Noun;

/// A kind of session that a command receives.
pub trait Sought: Clone + Into<SessionKind> {
    /// Word for it in messages.
    const NOUN: Noun;

    /// Returns the session, if it is of this kind.
    fn of(session: &SessionKind) -> Option<&Self>;

    /// Returns its version, if nothing earlier of the same sender is to be received later.
    fn version(&self) -> Option<u64>;
}

macro_rules! sought {
    ($kind:ident, $version:expr) => {
        impl Sought for $kind {
            const NOUN: Noun = Noun::$kind;

            fn of(session: &SessionKind) -> Option<&$kind> {
                let SessionKind::$kind(session) = session else { return None };
                Some(session)
            }

            fn version(&self) -> Option<u64> {
                let version: fn(&$kind) -> Option<u64> = $version;
                version(self)
            }
        }
    };
}

sought!(Feed, |feed| Some(feed.version));
sought!(Stream, |_| None);
