//! Frames around TCP segments: what is before them, and what is checked when one comes.

use std::net::{IpAddr, SocketAddr};

use umbel_wire::checksum::Sum;
use umbel_wire::ip::{TCP, be16};
use umbel_wire::tcp::{Packet, ip_len, pseudo_header};

use super::ring::{Checksum, Frame};

/// Length of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;

/// Length of a TCP header without options.
pub(super) const TCP_LEN: usize = 20;

/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: usize = 16;

/// Length of the header that tells the kernel what is left to do for a frame: `virtio_net_hdr`.
const VNET: usize = 10;

/// In that header: the checksum is to be completed.
const NEEDS_CHECKSUM: u8 = 1;
/// In that header: the frame is to be cut into TCP segments over IPv4, or over IPv6.
const SEGMENTED: [u8; 2] = [1, 4];

/// The address of a network card.
pub(crate) type Mac = [u8; 6];

/// The reason why a received frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It holds no whole segment, or one that cannot be for this server.
    Malformed,
    /// The checksum is wrong.
    Checksum,
}

/// A segment that came in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inbound<'a> {
    /// Address and port of its sender.
    pub(super) from: SocketAddr,
    /// The card that sent the frame: the peer's, or that of the last router.
    pub(super) mac: Mac,
    /// Remainder of its hop limit.
    pub(super) hop_limit: u8,
    /// TCP header and payload.
    pub(super) segment: &'a [u8],
}

impl<'a> Inbound<'a> {
    /// Finds the segment in a frame for `server`, which has passed the kernel's filter.
    pub(super) fn find(frame: Frame<'a>, server: SocketAddr) -> Result<Inbound<'a>, Unfit> {
        let packet = frame.bytes.get(ETHERNET..).and_then(Packet::find).ok_or(Unfit::Malformed)?;
        let segment = packet.segment();
        let address = packet.source;
        let port = be16(segment, 0).unwrap_or(0);
        let from = SocketAddr::new(address, port);
        let short = segment.len() < TCP_LEN;
        if short
            || address.is_multicast()
            || address.is_unspecified()
            || port == 0
            || from == server
        {
            return Err(Unfit::Malformed);
        }
        if frame.checksum == Checksum::Unknown && !packet.is_sound() {
            return Err(Unfit::Checksum);
        }
        let mac = frame.bytes.get(6..).and_then(|rest| rest.first_chunk().copied());
        let mac = mac.ok_or(Unfit::Malformed)?;
        Ok(Inbound { from, mac, hop_limit: packet.hop_limit, segment })
    }
}

/// The way of a packet: its addresses and its hop limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    /// The server's address.
    pub(crate) source: IpAddr,
    /// The peer, or the group.
    pub(crate) destination: IpAddr,
    /// Maximum number of hops.
    pub(crate) hop_limit: u8,
    /// Identification of an IPv4 packet, of which routers may make fragments.
    pub(crate) identification: u16,
}

impl Envelope {
    /// Returns the length of the IP header.
    pub(super) fn ip_len(&self) -> usize {
        ip_len(self.source)
    }

    /// Appends the IP header of a packet with this length of TCP header and payload.
    ///
    /// IPv4 packets may be fragmented. Nothing here learns the MTU of a path, and routers drop
    /// packets that they may not fragment. Linux routers drop even those that they would only have
    /// to cut after segmentation offload.
    fn push_ip(&self, out: &mut Vec<u8>, tcp_len: usize) {
        let start = out.len();
        match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                out.extend([0x45, 0]);
                out.extend(((tcp_len + 20) as u16).to_be_bytes());
                out.extend(self.identification.to_be_bytes());
                out.extend([0, 0, self.hop_limit, TCP, 0, 0]);
                out.extend(from.octets());
                out.extend(to.octets());
                let checksum = Sum::default().bytes(&out[start..]).checksum();
                out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
            }
            (from, to) => {
                out.extend([0x60, 0, 0, 0]);
                out.extend((tcp_len as u16).to_be_bytes());
                out.extend([TCP, self.hop_limit]);
                out.extend(v6_octets(from));
                out.extend(v6_octets(to));
            }
        }
    }

    /// Writes what precedes the payload of a frame whose checksum the kernel completes: the
    /// kernel's header, Ethernet, IP and TCP. With a `segment` length the kernel, or the card, cuts
    /// the frame into segments with payloads of this length.
    pub(super) fn frame_head(
        &self,
        out: &mut Vec<u8>,
        [to, from]: [Mac; 2],
        tcp: &[u8],
        payload: usize,
        segment: Option<usize>,
    ) {
        out.clear();
        let v6 = self.source.is_ipv6();
        let ip_len = self.ip_len();
        // Flags: there is a checksum to be completed. Then come the kind of segmentation, the
        // lengths of all headers and of a segment's payload, and the place where the checksum
        // begins and is stored.
        let kind = segment.map_or(0, |_| SEGMENTED[usize::from(v6)]);
        out.extend([NEEDS_CHECKSUM, kind]);
        for number in
            [ETHERNET + ip_len + tcp.len(), segment.unwrap_or(0), ETHERNET + ip_len, TCP_CHECKSUM]
        {
            out.extend((number as u16).to_ne_bytes());
        }
        debug_assert_eq!(out.len(), VNET);
        out.extend(to);
        out.extend(from);
        out.extend(if v6 { [0x86, 0xDD] } else { [0x08, 0x00] });
        let tcp_len = tcp.len() + payload;
        self.push_ip(out, tcp_len);
        let checksum = out.len() + TCP_CHECKSUM;
        out.extend(tcp);
        let sum = pseudo_header(self.source, self.destination, tcp_len).folded();
        out[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// Writes a whole IP packet with its checksum.
    pub(crate) fn packet(&self, out: &mut Vec<u8>, tcp: &[u8], payload: &[&[u8]]) {
        out.clear();
        let tcp_len = tcp.len() + payload.iter().map(|part| part.len()).sum::<usize>();
        self.push_ip(out, tcp_len);
        let start = out.len();
        out.extend(tcp);
        out[start + TCP_CHECKSUM..start + TCP_CHECKSUM + 2].fill(0);
        for part in payload {
            out.extend(*part);
        }
        let sum = pseudo_header(self.source, self.destination, tcp_len).bytes(&out[start..]);
        out[start + TCP_CHECKSUM..start + TCP_CHECKSUM + 2]
            .copy_from_slice(&sum.checksum().to_be_bytes());
    }
}

/// Returns the address of a group's frames [RFC 1112 §6.4, RFC 2464 §7].
pub(super) fn multicast_mac(group: IpAddr) -> Mac {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [0x01, 0x00, 0x5E, b & 0x7F, c, d]
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    }
}

/// Returns the octets of an address of which the family is known to be IPv6.
fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SERVERS: [&str; 2] = ["10.0.0.1:8080", "[fd00::1]:8080"];
    const PEERS: [&str; 2] = ["10.0.0.2", "fd00::2"];

    fn envelope(family: usize) -> (Envelope, SocketAddr) {
        let server: SocketAddr = SERVERS[family].parse().unwrap();
        let source = PEERS[family].parse().unwrap();
        let envelope =
            Envelope { source, destination: server.ip(), hop_limit: 9, identification: 7 };
        (envelope, server)
    }

    /// Returns a TCP header from port 4000 to 8080, the rest of it arbitrary.
    fn tcp() -> Vec<u8> {
        let mut tcp = vec![0xA5; 20];
        tcp[..4].copy_from_slice(&[0x0F, 0xA0, 0x1F, 0x90]);
        tcp[12] = 0x50;
        tcp
    }

    fn framed(packet: &[u8]) -> Vec<u8> {
        [&[2; 6][..], &[4; 6], &[0, 0], packet].concat()
    }

    fn find(
        frame: &[u8],
        checksum: Checksum,
        server: SocketAddr,
    ) -> Result<(SocketAddr, Vec<u8>), Unfit> {
        let found = Inbound::find(Frame { bytes: frame, checksum, outgoing: false }, server)?;
        assert_eq!((found.mac, found.hop_limit), ([4; 6], 9));
        Ok((found.from, found.segment.to_vec()))
    }

    #[test]
    fn what_is_written_is_found_and_a_wrong_checksum_noticed() {
        for (family, peer) in PEERS.iter().enumerate() {
            let (envelope, server) = envelope(family);
            let mut packet = Vec::new();
            envelope.packet(&mut packet, &tcp(), &[b"abc", b"de"]);
            let mut frame = framed(&packet);
            let (from, segment) = find(&frame, Checksum::Unknown, server).unwrap();
            assert_eq!(from, SocketAddr::new(peer.parse().unwrap(), 4000));
            assert_eq!(&segment[20..], b"abcde");
            *frame.last_mut().unwrap() ^= 1;
            assert_eq!(find(&frame, Checksum::Unknown, server), Err(Unfit::Checksum));
            // The kernel's word is taken.
            find(&frame, Checksum::Right, server).unwrap();
            find(&frame, Checksum::Partial, server).unwrap();
        }
    }

    #[test]
    fn a_frame_for_the_card_holds_the_sum_of_the_pseudo_header() {
        for family in 0..2 {
            let (envelope, server) = envelope(family);
            let mut head = Vec::new();
            envelope.frame_head(&mut head, [[2; 6], [4; 6]], &tcp(), 5, Some(3));
            let ip_len = envelope.ip_len();
            let numbers: Vec<_> =
                head[2..10].chunks(2).map(|n| u16::from_ne_bytes([n[0], n[1]])).collect();
            let at = (ETHERNET + ip_len) as u16;
            assert_eq!(numbers, [at + 20, 3, at, 16]);
            // Completed as a card would, it is a right segment.
            let mut frame = [&head[10..], b"abcde"].concat();
            let start = ETHERNET + ip_len;
            let checksum = Sum::default().bytes(&frame[start..]).checksum();
            frame[start + 16..start + 18].copy_from_slice(&checksum.to_be_bytes());
            find(&frame, Checksum::Unknown, server).unwrap();
        }
    }

    #[test]
    fn groups_have_the_addresses_of_the_rfcs() {
        let mac = |group: &str| multicast_mac(group.parse().unwrap());
        assert_eq!(mac("232.135.7.9"), [1, 0, 0x5E, 7, 7, 9]);
        assert_eq!(mac("ff3e::1234:5678"), [0x33, 0x33, 0x12, 0x34, 0x56, 0x78]);
    }

    #[test]
    fn a_segment_that_claims_to_come_from_the_server_or_a_group_is_dropped() {
        for source in ["10.0.0.1", "224.0.0.1", "0.0.0.0"] {
            let (envelope, server) = envelope(0);
            let envelope = Envelope { source: source.parse().unwrap(), ..envelope };
            let mut tcp = tcp();
            tcp[..2].copy_from_slice(&8080_u16.to_be_bytes());
            let mut packet = Vec::new();
            envelope.packet(&mut packet, &tcp, &[]);
            let found = find(&framed(&packet), Checksum::Right, server);
            assert_eq!(found, Err(Unfit::Malformed), "{source}");
        }
    }

    proptest! {
        #[test]
        fn no_frame_makes_it_fail(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120), family in 0..2_usize,
        ) {
            if let Some(first) = bytes.get_mut(ETHERNET) {
                *first = [0x45, 0x60][family];
            }
            let server: SocketAddr = SERVERS[family].parse().unwrap();
            let frame = Frame { bytes: &bytes, checksum: Checksum::Right, outgoing: false };
            if let Ok(found) = Inbound::find(frame, server) {
                prop_assert!(found.segment.len() >= TCP_LEN);
            }
        }
    }
}
