//! The URL that `umbel serve` prints.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::pin::{Pin, PinError};

/// Default port of the session endpoint.
pub const DEFAULT_PORT: u16 = 7700;

/// Maximum length of a network interface's name [`if_nametoindex(3)`, IFNAMSIZ less the final
/// zero].
const MAX_ZONE: usize = 15;

/// Maximum length of a host name [RFC 1035 §2.3.4].
const MAX_NAME: usize = 253;

/// Characters that are escaped in a query: all but the unreserved ones [RFC 3986 §2.3].
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address of a server, its key, and the token for admission.
///
/// `umbel://HOST[:PORT]/?pin=PIN[&token=TOKEN]`, with HOST an IPv4 address, an IPv6 address in
/// brackets, or a name. A link-local IPv6 address has its zone, `[fe80::1%25eth0]` [RFC 6874]. The
/// `25` may be left out if the zone does not begin with it. Parameters of other names are ignored.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SessionUrl {
    /// Address or name of the server.
    pub host: Host,
    /// UDP port.
    pub port: u16,
    /// The key that the server must have.
    pub pin: Option<Pin>,
    /// Admission token, if the server requires one. Secret.
    pub token: Option<String>,
}

/// Address or name of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// An IPv6 address that is valid only on one interface, with the interface's name or index.
    Zoned(Ipv6Addr, String),
    /// A name, which is resolved when the session is opened.
    Name(String),
}

/// An error of parsing a server's URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Another scheme, or none.
    #[error(
        "`{0}` does not begin with `umbel://`: give the line that `umbel serve` printed; what a \
         sender calls by a name is for `umbel recv` or `umbel watch`"
    )]
    Scheme(String),
    /// The URL of a feed or stream.
    #[error("that is no server but a {what}: run `{command} '{url}'`")]
    Session {
        /// What it is.
        what: &'static str,
        /// The command that takes it.
        command: &'static str,
        /// The URL.
        url: String,
    },
    /// No host, or an invalid one.
    #[error("`{0}` is not a host: give a name, an IPv4 address, or an IPv6 address in brackets")]
    Host(String),
    /// An invalid port.
    #[error("`{0}` is not a port: give a number from 1 to 65535, or none for 7700")]
    Port(String),
    /// More than `/` between the host and the parameters.
    #[error("`{0}` does not belong into the URL of a server: name items beside it, not in it")]
    Path(String),
    /// An invalid `pin` parameter.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// A duplicate parameter.
    #[error("the URL has `{0}` twice: copy the whole line that `umbel serve` printed")]
    Twice(&'static str),
    /// The token is empty or not text.
    #[error("the token in the URL is empty or not UTF-8: ask the server's operator for it")]
    Token,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Ip(IpAddr::V4(address)) => write!(f, "{address}"),
            Host::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Host::Zoned(address, zone) => write!(f, "[{address}%25{zone}]"),
            Host::Name(name) => f.write_str(name),
        }
    }
}

impl Host {
    /// Returns how certificates name the host: its name, or its address without a zone.
    pub(super) fn in_certificates(&self) -> String {
        match self {
            Host::Ip(address) => address.to_string(),
            Host::Zoned(address, _) => address.to_string(),
            Host::Name(name) => name.clone(),
        }
    }
}

impl fmt::Display for SessionUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "umbel://{}:{}/", self.host, self.port)?;
        let mut separator = '?';
        if let Some(pin) = self.pin {
            write!(f, "{separator}pin={pin}")?;
            separator = '&';
        }
        if let Some(token) = &self.token {
            write!(f, "{separator}token={}", utf8_percent_encode(token, UNRESERVED))?;
        }
        Ok(())
    }
}

impl fmt::Debug for SessionUrl {
    /// Shows all fields but the token, which is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("SessionUrl")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("pin", &self.pin)
            .field("token", &token)
            .finish()
    }
}

/// Returns the error for a text without the scheme.
fn not_ours(text: &str) -> UrlError {
    let others =
        [("umbel-feed://", "feed", "umbel recv"), ("umbel-stream://", "stream", "umbel watch")];
    let found = others.into_iter().find(|(scheme, ..)| text.starts_with(scheme));
    match found {
        Some((_, what, command)) => UrlError::Session { what, command, url: clip(text) },
        None => UrlError::Scheme(clip(text)),
    }
}

impl FromStr for SessionUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<SessionUrl, UrlError> {
        let text = text.trim();
        let rest = strip_scheme(text).ok_or_else(|| not_ours(text))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        if !matches!(path, "" | "/") {
            return Err(UrlError::Path(clip(path)));
        }
        let (host, port) = split_port(authority);
        let mut url =
            SessionUrl { host: parse_host(host)?, port: parse_port(port)?, pin: None, token: None };
        for parameter in query.split('&') {
            url.take_parameter(parameter)?;
        }
        Ok(url)
    }
}

impl SessionUrl {
    /// Returns host and port, for messages.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn take_parameter(&mut self, parameter: &str) -> Result<(), UrlError> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "pin" => match self.pin.replace(value.parse()?) {
                Some(_) => Err(UrlError::Twice("pin")),
                None => Ok(()),
            },
            "token" => {
                let token = percent_decode_str(value).decode_utf8().map_err(|_| UrlError::Token)?;
                if token.is_empty() {
                    return Err(UrlError::Token);
                }
                match self.token.replace(token.into_owned()) {
                    Some(_) => Err(UrlError::Twice("token")),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Returns the text after `umbel://`. Schemes are case-insensitive [RFC 3986 §3.1].
fn strip_scheme(text: &str) -> Option<&str> {
    const SCHEME: &str = "umbel://";
    let scheme = text.get(..SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| &text[SCHEME.len()..])
}

/// Splits into the host and the text behind the colon after it.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let host_end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    match authority[host_end..].split_once(':') {
        Some((host, port)) => (&authority[..host_end + host.len()], Some(port)),
        None => (authority, None),
    }
}

fn parse_port(port: Option<&str>) -> Result<u16, UrlError> {
    let Some(text) = port else { return Ok(DEFAULT_PORT) };
    // `parse` accepts a sign, which a port may not have.
    match text.parse() {
        Ok(port) if port != 0 && !text.starts_with('+') => Ok(port),
        _ => Err(UrlError::Port(clip(text))),
    }
}

fn parse_host(text: &str) -> Result<Host, UrlError> {
    let bad = || UrlError::Host(clip(text));
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or_else(bad)?;
        return parse_v6(inner).ok_or_else(bad);
    }
    if let Ok(address) = text.parse() {
        return Ok(Host::Ip(IpAddr::V4(address)));
    }
    // Letters beyond ASCII are left to the resolver.
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    let number = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    if text.is_empty() || text.len() > MAX_NAME || number || !text.chars().all(fits) {
        return Err(bad());
    }
    Ok(Host::Name(text.to_owned()))
}

fn parse_v6(inner: &str) -> Option<Host> {
    let Some((address, zone)) = inner.split_once('%') else {
        return Some(Host::Ip(IpAddr::V6(inner.parse().ok()?)));
    };
    let zone = match zone.strip_prefix("25") {
        Some(rest) if !rest.is_empty() => rest,
        _ => zone,
    };
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '?' | '#' | '%' | '[' | ']');
    if zone.is_empty() || zone.len() > MAX_ZONE || !zone.chars().all(fits) {
        return None;
    }
    Some(Host::Zoned(address.parse().ok()?, zone.to_owned()))
}

/// Returns enough of an invalid text to recognise it, on one line.
fn clip(text: &str) -> String {
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut clipped: String = text.chars().take(60).map(clean).collect();
    if text.chars().nth(60).is_some() {
        clipped.push('…');
    }
    clipped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pin() -> Pin {
        Pin::from_digest([7; 32])
    }

    fn host() -> impl Strategy<Value = Host> {
        let zone = "[a-zA-Z0-9._:@-]{1,15}";
        prop_oneof![
            any::<[u8; 4]>().prop_map(|octets| Host::Ip(IpAddr::from(octets))),
            any::<[u8; 16]>().prop_map(|octets| Host::Ip(IpAddr::from(octets))),
            (any::<[u8; 16]>(), zone).prop_map(|(octets, zone)| Host::Zoned(octets.into(), zone)),
            "[a-z][a-z0-9.-]{0,40}".prop_map(Host::Name),
        ]
    }

    prop_compose! {
        fn url()(
            host in host(),
            port in 1u16..,
            pin in proptest::option::of(any::<[u8; 32]>().prop_map(Pin::from_digest)),
            token in proptest::option::of("\\PC{1,30}"),
        ) -> SessionUrl {
            SessionUrl { host, port, pin, token }
        }
    }

    proptest! {
        #[test]
        fn a_url_is_read_as_it_is_written(url in url()) {
            prop_assert_eq!(url.to_string().parse::<SessionUrl>(), Ok(url));
        }

        #[test]
        fn any_text_is_read_or_refused_in_one_line(text in "(umbel://)?\\PC{0,60}") {
            if let Err(error) = text.parse::<SessionUrl>() {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }
    }

    #[test]
    fn the_url_of_something_else_names_the_command_that_takes_it() {
        let error = |text: &str| text.parse::<SessionUrl>().unwrap_err().to_string();
        assert!(error("umbel-feed://a?pin=x").contains("run `umbel recv 'umbel-feed://a?pin=x'`"));
        assert!(error("umbel-stream://a?pin=x").contains("umbel watch"));
        assert!(error("nightly").contains("umbel recv"));
    }

    #[test]
    fn what_serve_prints_is_read() {
        let url: SessionUrl = format!("umbel://192.0.2.2:7700/?pin={}", pin()).parse().unwrap();
        assert_eq!(url.host, Host::Ip(IpAddr::from([192, 0, 2, 2])));
        assert_eq!((url.port, url.pin, url.token), (7700, Some(pin()), None));
    }

    #[test]
    fn what_people_type_is_read() {
        let read = |text: &str| text.parse::<SessionUrl>().unwrap();
        assert_eq!(read("umbel://server.example").port, DEFAULT_PORT);
        assert_eq!(read(" UMBEL://server.example/\n").host, Host::Name("server.example".into()));
        let link_local = "fe80::1".parse().unwrap();
        for text in ["umbel://[fe80::1%eth0]", "umbel://[fe80::1%25eth0]:7700/"] {
            assert_eq!(read(text).host, Host::Zoned(link_local, "eth0".into()), "{text}");
        }
        assert_eq!(read("umbel://[::1]:99").port, 99);
        assert_eq!(read("umbel://h/?colour=red&token=a%20b").token.as_deref(), Some("a b"));
    }

    #[test]
    fn bad_urls_say_what_to_do() {
        let pin = pin();
        for (text, advice) in [
            ("http://192.0.2.2/".to_owned(), "does not begin with `umbel://`"),
            (String::new(), "does not begin with `umbel://`"),
            ("umbel://".to_owned(), "is not a host"),
            ("umbel://[::1".to_owned(), "is not a host"),
            ("umbel://::1/".to_owned(), "is not a "),
            ("umbel://999.1.1.1/".to_owned(), "is not a host"),
            ("umbel://[fe80::1%]/".to_owned(), "is not a host"),
            ("umbel://h:0/".to_owned(), "is not a port"),
            ("umbel://h:+1/".to_owned(), "is not a port"),
            ("umbel://h:65536/".to_owned(), "is not a port"),
            ("umbel://h:/".to_owned(), "is not a port"),
            ("umbel://h/images".to_owned(), "name items beside it"),
            ("umbel://h/?pin=".to_owned(), "43 characters"),
            (format!("umbel://h/?pin={pin}&pin={pin}"), "twice"),
            ("umbel://h/?token=%ff".to_owned(), "not UTF-8"),
        ] {
            let error = text.parse::<SessionUrl>().unwrap_err().to_string();
            assert!(error.contains(advice), "{text}: {error}");
        }
    }

    #[test]
    fn a_token_is_not_shown_in_a_log() {
        let url: SessionUrl = "umbel://h/?token=secret".parse().unwrap();
        assert!(!format!("{url:?}").contains("secret"));
    }
}
