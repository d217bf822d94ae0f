//! Answers for an address that the kernel does not own: ARP, and neighbour discovery.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use umbel_wire::checksum::Sum;

use super::filter::Program;
use super::frame::{ETHERNET, Mac};
use super::sys;
use crate::sys::{Change, change_membership};

/// Longest question that is looked at: an IPv6 packet with some options.
const LONGEST: usize = 256;

/// Maximum number of questions that one look answers.
const AT_ONCE: usize = 64;

/// A socket that answers for an address.
#[derive(Debug)]
pub(super) struct OwnAddress {
    socket: OwnedFd,
    /// Keeps the membership in the group to which solicitations for an IPv6 address go, so that
    /// card and switches let them through.
    _group: Option<socket2::Socket>,
    address: IpAddr,
    mac: Mac,
}

impl OwnAddress {
    /// Starts to answer on an interface, whose card has this address.
    pub(super) fn open(interface: u32, address: IpAddr, mac: Mac) -> io::Result<OwnAddress> {
        let (protocol, filter) = match address {
            IpAddr::V4(_) => (libc::ETH_P_ARP, Program::arp_requests()),
            IpAddr::V6(_) => (libc::ETH_P_IPV6, Program::solicitations()),
        };
        let group = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => {
                let socket =
                    socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None)?;
                let group = solicited_node(v6).into();
                change_membership(socket.as_fd(), Change::Join, interface, group, None)?;
                Some(socket)
            }
        };
        let socket = sys::packet_socket()?;
        sys::attach_filter(socket.as_fd(), &filter)?;
        sys::bind(socket.as_fd(), interface, protocol)?;
        Ok(OwnAddress { socket, _group: group, address, mac })
    }

    /// Answers the questions that wait.
    pub(super) fn answer(&mut self) {
        let mut frame = [0; LONGEST];
        for _ in 0..AT_ONCE {
            let length = match recv(self.socket.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => length,
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            if let Some(answer) = answer(&frame[..length], self.address, self.mac) {
                // A question that finds no room is asked again.
                let _ = send(self.socket.as_raw_fd(), &answer, MsgFlags::MSG_DONTWAIT);
            }
        }
    }
}

impl AsFd for OwnAddress {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the group to which solicitations for an address go [RFC 4291 §2.7.1].
fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 1, 0xFF00 | u16::from(a), u16::from_be_bytes([b, c]))
}

/// Returns the answer to a frame that asks who has `address`.
fn answer(frame: &[u8], address: IpAddr, mac: Mac) -> Option<Vec<u8>> {
    match address {
        IpAddr::V4(v4) => arp_reply(frame, v4.octets(), mac),
        IpAddr::V6(v6) => advertisement(frame, v6, mac),
    }
}

/// Returns the reply to a request of ARP [RFC 826, "Packet Reception"].
fn arp_reply(frame: &[u8], own: [u8; 4], mac: Mac) -> Option<Vec<u8>> {
    let arp = frame.get(ETHERNET..ETHERNET + 28)?;
    // Ethernet, IPv4, lengths of their addresses, a request.
    if arp[..8] != [0, 1, 8, 0, 6, 4, 0, 1] || arp[24..28] != own || arp[14..18] == own {
        return None;
    }
    let asker = &arp[8..14];
    let mut out = [asker, &mac, &[8, 6], &arp[..7], &[2], &mac, &own].concat();
    out.extend(&arp[8..18]);
    Some(out)
}

/// Returns the answer to a neighbour solicitation [RFC 4861 §7.2.3, §7.2.4].
fn advertisement(frame: &[u8], own: Ipv6Addr, mac: Mac) -> Option<Vec<u8>> {
    const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    /// Solicited, and overriding what is known.
    const FLAGS: u8 = 0x60;
    let asker_mac = frame.get(6..12)?;
    let ip = frame.get(ETHERNET..)?;
    let length = usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]));
    let message = ip.get(40..40 + length)?;
    // Not forwarded by anybody, and for this address.
    if ip[7] != 255 || message.len() < 24 || message[1] != 0 || message[8..24] != own.octets() {
        return None;
    }
    let asker: [u8; 16] = ip[8..24].try_into().ok()?;
    let pseudo = |from: &[u8], to: &[u8], length: usize| {
        Sum::default().bytes(from).bytes(to).number(58).number(length as u16)
    };
    if pseudo(&asker, &ip[24..40], length).bytes(message).folded() != 0xFFFF {
        return None;
    }
    // One that is about to take the address hears that it is taken, with all others on the link.
    let probe = asker == [0; 16];
    let to = if probe { Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1).octets() } else { asker };
    let to_mac = if probe { &[0x33, 0x33, 0, 0, 0, 1][..] } else { asker_mac };
    let flags = if probe { FLAGS & 0x20 } else { FLAGS };
    let mut body = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
    body.extend(own.octets());
    // Option: the target's link-layer address, in units of eight bytes.
    body.extend([2, 1]);
    body.extend(mac);
    let checksum = pseudo(&own.octets(), &to, body.len()).bytes(&body).checksum();
    body[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut out =
        [to_mac, &mac, &[0x86, 0xDD, 0x60, 0, 0, 0, 0, body.len() as u8, 58, 255]].concat();
    out.extend(own.octets());
    out.extend(to);
    out.extend(body);
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 9];
    const ASKER: Mac = [2, 0, 0, 0, 0, 1];

    fn request(target: [u8; 4]) -> Vec<u8> {
        let mut frame = [&[0xFF; 6][..], &ASKER, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &ASKER].concat();
        frame.extend([10, 0, 0, 2]);
        frame.extend([0; 6]);
        frame.extend(target);
        frame
    }

    fn solicitation(from: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        let to = solicited_node(target).octets();
        let mut body = vec![135, 0, 0, 0, 0, 0, 0, 0];
        body.extend(target.octets());
        let sum = Sum::default().bytes(&from.octets()).bytes(&to).number(58);
        let checksum = sum.number(body.len() as u16).bytes(&body).checksum();
        body[2..4].copy_from_slice(&checksum.to_be_bytes());
        let mut frame =
            [&[0x33; 6][..], &ASKER, &[0x86, 0xDD, 0x60, 0, 0, 0, 0, 24, 58, 255]].concat();
        frame.extend(from.octets());
        frame.extend(to);
        frame.extend(body);
        frame
    }

    #[test]
    fn a_request_for_the_address_is_answered_to_the_asker() {
        let own = IpAddr::from([10, 0, 0, 1]);
        let reply = answer(&request([10, 0, 0, 1]), own, MAC).unwrap();
        assert_eq!(reply.len(), 42);
        assert_eq!((&reply[..6], &reply[6..12]), (&ASKER[..], &MAC[..]));
        assert_eq!(reply[20..22], [0, 2]);
        assert_eq!((&reply[22..28], &reply[28..32]), (&MAC[..], &[10, 0, 0, 1][..]));
        assert_eq!((&reply[32..38], &reply[38..42]), (&ASKER[..], &[10, 0, 0, 2][..]));
        assert_eq!(answer(&request([10, 0, 0, 3]), own, MAC), None);
    }

    #[test]
    fn a_solicitation_for_the_address_is_answered_to_the_asker() {
        let (own, asker): (Ipv6Addr, Ipv6Addr) =
            ("fd00::12:3456".parse().unwrap(), "fd00::2".parse().unwrap());
        assert_eq!(solicited_node(own), "ff02::1:ff12:3456".parse::<Ipv6Addr>().unwrap());
        let reply = answer(&solicitation(asker, own), own.into(), MAC).unwrap();
        assert_eq!(reply[..6], ASKER);
        assert_eq!(reply[38..54], asker.octets());
        let sum = Sum::default().bytes(&reply[22..54]).number(58).number(32).bytes(&reply[54..]);
        assert_eq!(sum.folded(), 0xFFFF);
        assert_eq!(answer(&solicitation(asker, asker), own.into(), MAC), None);
        // A host that asks without its own address hears it with everybody.
        let probe = solicitation(Ipv6Addr::UNSPECIFIED, own);
        assert_eq!(answer(&probe, own.into(), MAC).unwrap()[..2], [0x33, 0x33]);
    }

    proptest! {
        #[test]
        fn no_frame_makes_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = answer(&bytes, IpAddr::from([10, 0, 0, 1]), MAC);
            let _ = answer(&bytes, "fd00::1".parse().unwrap(), MAC);
        }

        #[test]
        fn no_change_of_a_solicitation_makes_it_fail(
            at in 0..78_usize, byte: u8, cut in 0..79_usize,
        ) {
            let own: Ipv6Addr = "fd00::1".parse().unwrap();
            let mut frame = solicitation("fd00::2".parse().unwrap(), own);
            frame[at] = byte;
            let _ = answer(&frame[..cut.min(frame.len())], own.into(), MAC);
        }
    }
}
