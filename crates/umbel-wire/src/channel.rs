//! Encoding of channels and addresses in the values of TLVs.

use std::net::{IpAddr, SocketAddr};

use crate::codec::Reader;
use crate::{Channel, ParseError};

/// A flag: the addresses are IPv6.
pub(crate) const IPV6: u8 = 1;
/// A flag of a channel: it has a source.
pub(crate) const SOURCE: u8 = 2;

/// Appends flags, group, source if there is one, port.
pub(crate) fn put_channel(out: &mut Vec<u8>, channel: &Channel) {
    let ipv6 = if channel.group.is_ipv6() { IPV6 } else { 0 };
    out.push(ipv6 | if channel.source.is_some() { SOURCE } else { 0 });
    put_address(out, channel.group);
    if let Some(source) = channel.source {
        put_address(out, source);
    }
    out.extend_from_slice(&channel.port.to_be_bytes());
}

/// Appends the octets alone.
pub(crate) fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    }
}

/// Reads the output of [`put_channel`], which must fill the reader.
pub(crate) fn read_channel(mut reader: Reader<'_>) -> Result<Channel, ParseError> {
    let flags = reader.byte()?;
    if flags & !(IPV6 | SOURCE) != 0 {
        return Err(reader.bad("unknown flags"));
    }
    let group = read_address(&mut reader, flags)?;
    if !group.is_multicast() {
        return Err(reader.bad("a group address that is not multicast"));
    }
    let source = if flags & SOURCE != 0 { Some(read_address(&mut reader, flags)?) } else { None };
    if source.is_some_and(|source| source.is_multicast() || source.is_unspecified()) {
        return Err(reader.bad("a source address that is no host's"));
    }
    let port = u16::from_be_bytes(reader.array()?);
    if port == 0 {
        return Err(reader.bad("port 0"));
    }
    reader.finish()?;
    Ok(Channel { source, group, port })
}

fn read_address(reader: &mut Reader<'_>, flags: u8) -> Result<IpAddr, ParseError> {
    Ok(if flags & IPV6 != 0 {
        IpAddr::from(reader.array::<16>()?)
    } else {
        IpAddr::from(reader.array::<4>()?)
    })
}

/// Returns what [`put_host`] appends, for IPv4.
pub(crate) fn short_host(host: SocketAddr) -> Option<[u8; 7]> {
    let SocketAddr::V4(host) = host else { return None };
    let ([a, b, c, d], [high, low]) = (host.ip().octets(), host.port().to_be_bytes());
    Some([0, a, b, c, d, high, low])
}

/// Appends flags, address, port.
pub(crate) fn put_host(out: &mut Vec<u8>, host: SocketAddr) {
    out.push(if host.is_ipv6() { IPV6 } else { 0 });
    put_address(out, host.ip());
    out.extend_from_slice(&host.port().to_be_bytes());
}

/// Reads the output of [`put_host`]: the address and port of a single host.
pub(crate) fn read_host(reader: &mut Reader<'_>) -> Result<SocketAddr, ParseError> {
    let flags = reader.byte()?;
    if flags & !IPV6 != 0 {
        return Err(reader.bad("unknown flags"));
    }
    let address = read_address(reader, flags)?;
    if address.is_multicast() || address.is_unspecified() {
        return Err(reader.bad("an address that is no host's"));
    }
    let port = u16::from_be_bytes(reader.array()?);
    if port == 0 {
        return Err(reader.bad("port 0"));
    }
    Ok(SocketAddr::new(address, port))
}
