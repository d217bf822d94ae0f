//! Damages frames as links do.

use umbel_wire::checksum;
use umbel_wire::ip::{Segment, UDP, be16};

/// Length of an Ethernet header without tags.
const ETHERNET: usize = 14;

/// Flips one bit of the frame, selected by `draw`. It is a bit of the UDP or TCP payload if there
/// is one, else of the bytes after the Ethernet header. With `repair_checksum` the transport
/// checksum is made to fit again [RFC 1624 §3]. A frame without payload then stays as it is, since
/// a flip of any of its bits would be noticed.
pub fn corrupt(frame: &mut [u8], draw: u64, repair_checksum: bool) {
    let kind = be16(frame, 12);
    let Some(packet) = frame.get_mut(ETHERNET..).filter(|packet| !packet.is_empty()) else {
        return;
    };
    let found = ip_segment(kind, packet).and_then(|segment| {
        let (payload, checksum) = segment.payload_and_checksum(packet)?;
        (payload < segment.place.end).then_some((segment, payload, checksum))
    });
    match found {
        Some((segment, payload, checksum)) => {
            let bit = draw % ((segment.place.end - payload) as u64 * 8);
            let index = payload + (bit / 8) as usize;
            let before = packet[index];
            packet[index] ^= 1 << (bit % 8);
            if repair_checksum {
                repair(packet, checksum, &segment, index, before);
            }
        }
        None if !repair_checksum => {
            let bit = draw % (packet.len() as u64 * 8);
            packet[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        None => {}
    }
}

/// Returns the segment of an IP packet in a frame of this kind.
fn ip_segment(kind: Option<u16>, packet: &[u8]) -> Option<Segment> {
    match (kind?, packet.first()? >> 4) {
        (0x0800, 4) | (0x86dd, 6) => Segment::find(packet),
        _ => None,
    }
}

/// Makes the checksum at `checksum` of the segment fit after the byte at `index` changed from
/// `before`.
fn repair(packet: &mut [u8], checksum: usize, segment: &Segment, index: usize, before: u8) {
    let udp = segment.protocol == UDP;
    let Some(old) = be16(packet, checksum) else { return };
    if udp && old == 0 {
        // IPv4 UDP without a checksum.
        return;
    }
    let shift = if (index - segment.place.start).is_multiple_of(2) { 8 } else { 0 };
    let (was, is) = (u16::from(before) << shift, u16::from(packet[index]) << shift);
    let sum = checksum::updated(old, was, is);
    let new = if udp { sum.udp_checksum() } else { sum.checksum() };
    packet[checksum..checksum + 2].copy_from_slice(&new.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbel_wire::ip::TCP;

    use super::*;

    /// Returns the Internet checksum over pseudo header and segment, which is 0xffff when the
    /// packet is intact.
    fn sum(frame: &[u8], v6: bool, protocol: u8) -> u16 {
        let (addresses, header) = if v6 { (22..54, 54) } else { (26..34, 34) };
        let segment = &frame[header..];
        let mut bytes = frame[addresses].to_vec();
        bytes.extend([0, protocol]);
        bytes.extend((segment.len() as u16).to_be_bytes());
        bytes.extend(segment);
        if bytes.len() % 2 == 1 {
            bytes.push(0);
        }
        let mut total: u32 =
            bytes.chunks(2).map(|p| u32::from(u16::from_be_bytes([p[0], p[1]]))).sum();
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    fn frame(v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header = if protocol == UDP { 8 } else { 20 };
        let length = header + payload.len();
        let mut frame = vec![2; 12];
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((length as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend([0xfd; 32]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + length as u16).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2]);
        }
        let start = frame.len();
        frame.extend(vec![0; header]);
        frame[start..start + 4].copy_from_slice(&[1, 2, 3, 4]);
        if protocol == TCP {
            frame[start + 12] = 0x50;
        } else {
            frame[start + 4..start + 6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        frame.extend(payload);
        let checksum = !sum(&frame, v6, protocol);
        let at = start + if protocol == UDP { 6 } else { 16 };
        let checksum = if checksum == 0 && protocol == UDP { 0xffff } else { checksum };
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    fn flipped_bits(a: &[u8], b: &[u8]) -> u32 {
        a.iter().zip(b).map(|(x, y)| (x ^ y).count_ones()).sum()
    }

    proptest! {
        #[test]
        fn one_payload_bit_is_flipped_and_the_checksum_fits_only_if_repaired(
            v6: bool, tcp: bool, draw: u64, payload in proptest::collection::vec(any::<u8>(), 1..64),
        ) {
            let protocol = if tcp { TCP } else { UDP };
            let original = frame(v6, protocol, &payload);
            prop_assert_eq!(sum(&original, v6, protocol), 0xffff);
            let start = original.len() - payload.len();

            let mut loud = original.clone();
            corrupt(&mut loud, draw, false);
            prop_assert_eq!(flipped_bits(&loud, &original), 1);
            prop_assert_eq!(flipped_bits(&loud[start..], &payload), 1);
            prop_assert_ne!(sum(&loud, v6, protocol), 0xffff);

            let mut silent = original.clone();
            corrupt(&mut silent, draw, true);
            prop_assert_eq!(flipped_bits(&silent[start..], &payload), 1);
            prop_assert_eq!(sum(&silent, v6, protocol), 0xffff);
        }

        #[test]
        fn no_frame_makes_it_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), draw: u64, repair: bool, v6: bool) {
            if bytes.len() > 15 {
                let kind: [u8; 3] = if v6 { [0x86, 0xdd, 0x60] } else { [8, 0, 0x45] };
                bytes[12..15].copy_from_slice(&kind);
            }
            corrupt(&mut bytes, draw, repair);
        }
    }

    #[test]
    fn an_address_request_is_damaged_loudly_but_never_silently() {
        let mut frame = vec![2; 12];
        frame.extend([8, 6]);
        frame.extend([0; 28]);
        let original = frame.clone();
        corrupt(&mut frame, 99, true);
        assert_eq!(frame, original);
        corrupt(&mut frame, 99, false);
        assert_eq!(flipped_bits(&frame, &original), 1);
    }
}
