//! Addresses on the command line: `:8080`, `232.7.7.7:8080`, `232.7.7.7:8080@192.0.2.2`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use umbel_net::interface::{Family, Interface};
use umbel_wire::Channel;

/// Listening address of a server: one address, or any of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address; none takes that of the interface.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let wrong = || format!("`{text}` is no address such as 192.0.2.2:8080 or :8080");
        let listen = if let Some(port) = text.strip_prefix(':') {
            Listen { address: None, port: port.parse().map_err(|_| wrong())? }
        } else {
            let address: SocketAddr = text.parse().map_err(|_| wrong())?;
            let any = address.ip().is_unspecified();
            Listen { address: (!any).then_some(address.ip()), port: address.port() }
        };
        if listen.port == 0 { Err(wrong()) } else { Ok(listen) }
    }
}

/// A group and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(pub SocketAddr);

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Group, String> {
        let group: SocketAddr = text
            .parse()
            .map_err(|_| format!("`{text}` is no group and port such as 232.7.7.7:8080"))?;
        if !group.ip().is_multicast() {
            let ip = group.ip();
            return Err(format!(
                "{ip} is no multicast address: take one of 232.0.0.0/8 or ff3x::/32"
            ));
        }
        if group.port() == 0 {
            return Err("the port of a channel is not 0".to_owned());
        }
        Ok(Group(group))
    }
}

/// A server and the channel on which it multicasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Group and port.
    pub group: SocketAddr,
    /// Address and port of the server.
    pub server: SocketAddr,
}

impl Target {
    /// Returns the channel.
    pub fn channel(&self) -> Channel {
        let source = Some(self.server.ip());
        Channel { source, group: self.group.ip(), port: self.group.port() }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let wrong = || format!("`{text}` is no channel such as 232.7.7.7:8080@192.0.2.2");
        let (group, server) = text.split_once('@').ok_or_else(wrong)?;
        let Group(group) = group.parse()?;
        let bare = server.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let server = match bare.unwrap_or(server).parse::<IpAddr>() {
            Ok(address) => SocketAddr::new(address, group.port()),
            Err(_) => server.parse().map_err(|_| wrong())?,
        };
        if Family::of(group.ip()) != Family::of(server.ip()) {
            return Err(format!("{} and {} are of two families", group.ip(), server.ip()));
        }
        let bad = server.ip().is_multicast() || server.ip().is_unspecified() || server.port() == 0;
        if bad { Err(wrong()) } else { Ok(Target { group, server }) }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.group, self.server)
    }
}

/// Returns the server's address and its interface.
///
/// # Errors
///
/// If no interface suits.
pub(crate) fn local(
    listen: Listen,
    own: Option<IpAddr>,
    interface: Option<&str>,
    family: Family,
) -> anyhow::Result<(Interface, SocketAddr)> {
    let interface = match (interface, listen.address) {
        (Some(wanted), _) => Interface::resolve(wanted)?,
        (None, Some(address)) if own.is_none() => Interface::resolve(&address.to_string())?,
        (None, _) => crate::endpoint::interface::choose(None, Some(family))?,
    };
    let address = match own.or(listen.address) {
        Some(address) => address,
        None => interface.address(family)?,
    };
    if Family::of(address) != family {
        anyhow::bail!("the channel is an {family} address, but {address} is not");
    }
    if own.is_none() && !interface.has(address) {
        anyhow::bail!(
            "interface {} does not have the address {address}: give one that it has, or \
             --address {address} if nobody has it",
            interface.name
        );
    }
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    if any.contains(&address) || address.is_multicast() {
        anyhow::bail!("{address} is no address of a host");
    }
    Ok((interface, SocketAddr::new(address, listen.port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_listens_to_a_port_of_any_or_of_one_address() {
        let any = Listen { address: None, port: 8080 };
        assert_eq!(":8080".parse(), Ok(any));
        assert_eq!("0.0.0.0:8080".parse(), Ok(any));
        let one = Listen { address: Some("192.0.2.2".parse().unwrap()), port: 80 };
        assert_eq!("192.0.2.2:80".parse(), Ok(one));
        for text in ["", ":", ":0", "8080", "a:80", ":99999", "192.0.2.2"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_target_has_a_group_and_a_server_whose_port_may_be_left_out() {
        for (text, shown) in [
            ("232.7.7.7:80@192.0.2.2", "232.7.7.7:80@192.0.2.2:80"),
            ("232.7.7.7:80@192.0.2.2:81", "232.7.7.7:80@192.0.2.2:81"),
            ("[ff3e::7]:80@2001:db8::1", "[ff3e::7]:80@[2001:db8::1]:80"),
            ("[ff3e::7]:80@[2001:db8::1]", "[ff3e::7]:80@[2001:db8::1]:80"),
            ("[ff3e::7]:80@[2001:db8::1]:81", "[ff3e::7]:80@[2001:db8::1]:81"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), shown);
        }
        for text in [
            "",
            "232.7.7.7:80",
            "10.0.0.1:80@192.0.2.2",
            "232.7.7.7@192.0.2.2",
            "232.7.7.7:80@2001:db8::1",
            "232.7.7.7:80@0.0.0.0",
            "232.7.7.7:80@h",
            "232.7.7.7:0@192.0.2.2",
            "232.7.7.7:80@192.0.2.2:0",
            "232.7.7.7:80@232.7.7.7",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
