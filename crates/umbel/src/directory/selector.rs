//! Names of sessions as users write them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use umbel_net::session::{Pin, PinError};
use umbel_wire::session::SessionName;

use super::Session;

/// Characters that are not escaped: the unreserved ones [RFC 3986 §2.3].
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A kind of session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    /// A feed.
    Feed,
    /// A layered live stream.
    Stream,
}

impl Noun {
    const ALL: [Noun; 2] = [Noun::Feed, Noun::Stream];

    fn scheme(self) -> &'static str {
        match self {
            Noun::Feed => "umbel-feed://",
            Noun::Stream => "umbel-stream://",
        }
    }

    /// Returns the command that sends such a session.
    pub fn sender(self) -> &'static str {
        match self {
            Noun::Feed => "umbel send",
            Noun::Stream => "umbel stream",
        }
    }

    /// Returns the command that receives such a session.
    pub fn receiver(self) -> &'static str {
        match self {
            Noun::Feed => "umbel recv",
            Noun::Stream => "umbel watch",
        }
    }
}

impl fmt::Display for Noun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Noun::Feed => "feed",
            Noun::Stream => "stream",
        })
    }
}

/// A session as its user names it: `NAME`. `NAME@ADDRESS` or `NAME@ADDRESS:PORT` selects among
/// several sources with sessions of that name. `umbel-feed://NAME?pin=PIN`, as `umbel send` prints
/// it, or `umbel-stream://NAME?pin=PIN`, as `umbel stream` does, takes it from the holder of that
/// key alone; `NAME@ADDRESS` may stand there as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSelector {
    /// Name of the session.
    pub name: SessionName,
    /// Address of the source.
    pub address: Option<IpAddr>,
    /// Port of the source.
    pub port: Option<u16>,
    /// The key that must have signed the announcement.
    pub pin: Option<Pin>,
    /// Kind of the session, if its user gives a URL.
    pub noun: Option<Noun>,
    /// The least version that a session of this key may have. An earlier one is sent again.
    pub since: u64,
}

impl FromStr for SessionSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<SessionSelector, String> {
        let text = text.trim();
        if text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("umbel://")) {
            return Err(format!(
                "that is the URL of a server: get its items with `umbel get '{text}'`"
            ));
        }
        let split = |noun: &Noun| Some((*noun, text.strip_prefix(noun.scheme())?));
        let Some((noun, rest)) = Noun::ALL.iter().find_map(split) else {
            return select(text, None);
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let place = place.strip_suffix('/').unwrap_or(place);
        let place = percent_decode_str(place).decode_utf8();
        let place = place.map_err(|_| "the name in it is not UTF-8".to_owned())?;
        let mut pins = query.split('&').filter_map(|parameter| parameter.strip_prefix("pin="));
        match (pins.next(), pins.next()) {
            (Some(pin), None) => {
                let pin = pin.parse().map_err(|error: PinError| error.to_string())?;
                Ok(SessionSelector { noun: Some(noun), ..select(&place, Some(pin))? })
            }
            (None, _) => Err("it has no `pin`: copy the whole line that its sender printed, or \
                              give the name alone"
                .to_owned()),
            (Some(_), Some(_)) => Err("it has `pin` twice".to_owned()),
        }
    }
}

fn select(text: &str, pin: Option<Pin>) -> Result<SessionSelector, String> {
    let (name, at) = match text.rsplit_once('@') {
        Some((name, at)) => (name, Some(at)),
        None => (text, None),
    };
    let name = name.parse().map_err(|error: umbel_wire::ParseError| error.to_string())?;
    let Some(at) = at else { return Ok(chosen(name, None, None, pin)) };
    if let Ok(address) = at.parse::<SocketAddr>() {
        return Ok(chosen(name, Some(address.ip()), Some(address.port()), pin));
    }
    let bare = at.strip_prefix('[').and_then(|at| at.strip_suffix(']')).unwrap_or(at);
    let address = bare.parse().map_err(|_| {
        format!("`{at}` is no address: after `@` stands the source's, as in nightly@192.0.2.2")
    })?;
    Ok(chosen(name, Some(address), None, pin))
}

fn chosen(
    name: SessionName,
    address: Option<IpAddr>,
    port: Option<u16>,
    pin: Option<Pin>,
) -> SessionSelector {
    SessionSelector { name, address, port, pin, noun: None, since: 0 }
}

impl SessionSelector {
    /// Selects the sessions of a name, from anybody.
    pub(crate) fn of_name(name: SessionName) -> SessionSelector {
        chosen(name, None, None, None)
    }

    /// Returns whether a session is the selected one.
    pub fn matches(&self, session: &Session) -> bool {
        self.matches_but_for_version(session) && session.description.origin.version >= self.since
    }

    /// Returns whether a session is the selected one, or an earlier one of the same sender.
    pub(super) fn matches_but_for_version(&self, session: &Session) -> bool {
        self.matches_but_for_key(session) && self.pin.is_none_or(|pin| session.signer == Some(pin))
    }

    /// Returns whether a session is the selected one, by any signer.
    pub(super) fn matches_but_for_key(&self, session: &Session) -> bool {
        let source = session.source();
        session.description.name == self.name.as_str()
            && self.address.is_none_or(|address| source.is_some_and(|s| s.ip() == address))
            && self.port.is_none_or(|port| source.is_some_and(|s| s.port() == port))
    }
}

/// Everything that a receiver needs to know of a session: its name, and its sender's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionUrl<'a> {
    /// Kind of session.
    pub noun: Noun,
    /// Name of the session.
    pub name: &'a SessionName,
    /// Fingerprint of the sender's key.
    pub pin: Pin,
}

impl fmt::Display for SessionUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = utf8_percent_encode(self.name.as_str(), ESCAPED);
        write!(f, "{}{name}?pin={}", self.noun.scheme(), self.pin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_a_sender_prints_is_read() {
        let pin = Pin::from_digest([7; 32]);
        let names = ["nightly", "Stade de l'été 1", "a/b?c=d&e", "100%"];
        for (noun, name) in Noun::ALL.into_iter().flat_map(|noun| names.map(|name| (noun, name))) {
            let name: SessionName = name.parse().unwrap();
            let url = SessionUrl { noun, name: &name, pin }.to_string();
            assert!(!url.contains([' ', '\'']), "{url}");
            let selector: SessionSelector = url.parse().unwrap();
            assert_eq!((&selector.name, selector.pin), (&name, Some(pin)));
            assert_eq!(selector.noun, Some(noun), "which the command takes or refuses at once");
            let placed = url.replace('?', "@10.0.0.2:40?");
            let selector: SessionSelector = placed.parse().unwrap();
            assert_eq!((selector.address, selector.port), (Some([10, 0, 0, 2].into()), Some(40)));
        }
    }

    #[test]
    fn a_damaged_line_says_what_is_wrong() {
        let pin = Pin::from_digest([7; 32]);
        for (text, advice) in [
            ("umbel-feed://a".to_owned(), "no `pin`"),
            ("umbel://192.0.2.2:7700/?pin=x".to_owned(), "umbel get 'umbel://192.0.2.2"),
            ("umbel-feed://a?pin=short".to_owned(), "43 characters"),
            (format!("umbel-feed://a?pin={pin}&pin={pin}"), "twice"),
            (format!("umbel-feed://?pin={pin}"), "empty"),
            (format!("umbel-feed://a%ff?pin={pin}"), "UTF-8"),
            ("a@nowhere".to_owned(), "no address"),
            ("@10.0.0.2".to_owned(), "empty"),
        ] {
            let error = text.parse::<SessionSelector>().unwrap_err();
            assert!(error.contains(advice) && !error.contains('\n'), "{text}: {error}");
        }
        assert!("a@[2001:db8::2]".parse::<SessionSelector>().is_ok());
    }
}
