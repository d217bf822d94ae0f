//! The kinds of sessions that commands receive.

use umbel_wire::feed::Feed;
use umbel_wire::session::SessionKind;
use umbel_wire::stream::Stream;

use super::Noun;

/// A kind of session that a command receives.
pub trait Sought: Clone + Into<SessionKind> {
    /// What people call it.
    const NOUN: Noun;

    /// Returns the session, if it is of this kind.
    fn of(session: &SessionKind) -> Option<&Self>;
}

macro_rules! sought {
    ($kind:ident) => {
        impl Sought for $kind {
            const NOUN: Noun = Noun::$kind;

            fn of(session: &SessionKind) -> Option<&$kind> {
                let SessionKind::$kind(session) = session else { return None };
                Some(session)
            }
        }
    };
}

sought!(Feed);
sought!(Stream);
