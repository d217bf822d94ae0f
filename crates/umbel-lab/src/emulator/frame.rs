//! Damages frames the way links do.

/// Length of an Ethernet header without tags.
const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where a frame's transport header is, and how long the IP packet says that it is.
struct Transport {
    protocol: u8,
    header: usize,
    end: usize,
}

/// Flips one bit of the frame, selected by `draw`: of the UDP or TCP payload if there is one,
/// else of whatever follows the Ethernet header. With `repair_checksum` the transport checksum
/// is made to fit again [RFC 1624 §3]; a frame without payload then stays as it is, since every
/// bit of it would be noticed.
pub fn corrupt(frame: &mut [u8], draw: u64, repair_checksum: bool) {
    let found = transport(frame).and_then(|t| {
        let (payload, checksum) = payload_and_checksum(frame, &t)?;
        (payload < t.end).then_some((t, payload, checksum))
    });
    match found {
        Some((t, payload, checksum)) => {
            let bit = draw % ((t.end - payload) as u64 * 8);
            let index = payload + (bit / 8) as usize;
            let before = frame[index];
            frame[index] ^= 1 << (bit % 8);
            if repair_checksum {
                repair(frame, checksum, t.header, index, before, t.protocol == UDP);
            }
        }
        None if !repair_checksum && frame.len() > ETHERNET => {
            let bit = draw % ((frame.len() - ETHERNET) as u64 * 8);
            frame[ETHERNET + (bit / 8) as usize] ^= 1 << (bit % 8);
        }
        None => {}
    }
}

/// The transport header of a whole, unfragmented IPv4 or IPv6 packet without options that hide it.
fn transport(frame: &[u8]) -> Option<Transport> {
    let ip = frame.get(ETHERNET..)?;
    let (protocol, header, length) = match (be16(frame, 12)?, ip.first()? >> 4) {
        (0x0800, 4) => {
            let more_fragments_or_offset = be16(ip, 6)? & 0x3fff;
            if more_fragments_or_offset != 0 {
                return None;
            }
            (*ip.get(9)?, usize::from(ip[0] & 15) * 4, usize::from(be16(ip, 2)?))
        }
        (0x86dd, 6) => (*ip.get(6)?, 40, 40 + usize::from(be16(ip, 4)?)),
        _ => return None,
    };
    let end = ETHERNET + length;
    (end <= frame.len()).then_some(Transport { protocol, header: ETHERNET + header, end })
}

/// Where the payload begins and where the checksum stands.
fn payload_and_checksum(frame: &[u8], t: &Transport) -> Option<(usize, usize)> {
    match t.protocol {
        UDP => Some((t.header + 8, t.header + 6)),
        TCP => {
            let words = frame.get(t.header + 12)? >> 4;
            Some((t.header + usize::from(words) * 4, t.header + 16))
        }
        _ => None,
    }
}

/// Makes the checksum at `checksum` of the segment that begins at `header` fit after the byte at
/// `index` changed from `before`.
fn repair(frame: &mut [u8], checksum: usize, header: usize, index: usize, before: u8, udp: bool) {
    let Some(old) = be16(frame, checksum) else { return };
    if udp && old == 0 {
        // IPv4 UDP without a checksum.
        return;
    }
    let shift = if (index - header).is_multiple_of(2) { 8 } else { 0 };
    let (was, is) = (u16::from(before) << shift, u16::from(frame[index]) << shift);
    let mut sum = u32::from(!old) + u32::from(!was) + u32::from(is);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let new = match !(sum as u16) {
        // Zero would mean "no checksum".
        0 if udp => 0xffff,
        new => new,
    };
    frame[checksum..checksum + 2].copy_from_slice(&new.to_be_bytes());
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The Internet checksum over pseudo header and segment; 0xffff when the packet is intact.
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
