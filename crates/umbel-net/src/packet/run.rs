//! Successive segments that leave as one frame, which the kernel or the card cuts.

use super::frame::TCP_LEN;
use umbel_wire::ip::be16;

/// Maximum number of segments of one frame, which every kernel accepts.
pub(super) const MAX_SEGMENTS: usize = 64;

/// Maximum length of an IP packet.
const MAX_PACKET: usize = 0xFFFF;

/// FIN and PSH, which only the last segment of a frame may have: the kernel clears them in the
/// others.
const LAST_ONLY: u8 = 0x09;

/// Place of the flags in a TCP header.
const FLAGS: usize = 13;

/// A segment as the engine wrote it: its header, and its payload in up to two parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split<'a> {
    pub(super) tcp: &'a [u8],
    pub(super) payload: [&'a [u8]; 2],
}

impl<'a> Split<'a> {
    /// Splits a segment. Returns `None` if its header is not in one piece.
    pub(super) fn new(head: &'a [u8], body: &'a [u8]) -> Option<Split<'a>> {
        let (first, second) = if head.is_empty() { (body, &[][..]) } else { (head, body) };
        let length = usize::from(first.get(12)? >> 4) * 4;
        let tcp = first.get(..length).filter(|tcp| tcp.len() >= TCP_LEN)?;
        Some(Split { tcp, payload: [&first[length..], second] })
    }

    pub(super) fn payload_len(&self) -> usize {
        self.payload[0].len() + self.payload[1].len()
    }

    fn seq(&self) -> u32 {
        let half = |at| u32::from(be16(self.tcp, at).unwrap_or(0));
        half(4) << 16 | half(6)
    }
}

/// Segments whose headers differ in what the kernel fills in alone: the sequence number.
#[derive(Debug)]
pub(super) struct Run<'a> {
    first: Split<'a>,
    last_flags: u8,
    /// Parts of the payload.
    pub(super) parts: Vec<&'a [u8]>,
    /// Number of segments.
    pub(super) count: usize,
    /// Length of the whole payload.
    pub(super) payload: usize,
    last_payload: usize,
    /// Length of the headers that precede the payload in an IP packet.
    headers: usize,
}

impl<'a> Run<'a> {
    /// Creates a run of one segment, in IP packets with headers of this length.
    pub(super) fn new(first: Split<'a>, ip_len: usize) -> Run<'a> {
        let mut run = Run {
            first,
            last_flags: first.tcp[FLAGS],
            parts: Vec::new(),
            count: 1,
            payload: first.payload_len(),
            last_payload: first.payload_len(),
            headers: ip_len + first.tcp.len(),
        };
        run.add_parts(first);
        run
    }

    /// Adds a segment if it continues the run. Returns whether it does.
    pub(super) fn extend(&mut self, next: Split<'a>) -> bool {
        let length = next.payload_len();
        let same_head = next.tcp.len() == self.first.tcp.len()
            && next.tcp[..4] == self.first.tcp[..4]
            && next.tcp[8..FLAGS] == self.first.tcp[8..FLAGS]
            && next.tcp[FLAGS] & !LAST_ONLY == self.first.tcp[FLAGS] & !LAST_ONLY
            && next.tcp[14..16] == self.first.tcp[14..16]
            && next.tcp[18..] == self.first.tcp[18..];
        let continues = same_head
            && self.count < MAX_SEGMENTS
            && self.last_flags & LAST_ONLY == 0
            && self.last_payload == self.first.payload_len()
            && (1..=self.last_payload).contains(&length)
            && self.headers + self.payload + length <= MAX_PACKET
            && next.seq() == self.first.seq().wrapping_add(self.payload as u32);
        if continues {
            self.last_flags = next.tcp[FLAGS];
            self.last_payload = length;
            self.count += 1;
            self.payload += length;
            self.add_parts(next);
        }
        continues
    }

    fn add_parts(&mut self, segment: Split<'a>) {
        self.parts.extend(segment.payload.iter().filter(|part| !part.is_empty()));
    }

    /// Returns the TCP header of the whole: that of the first segment, with the flags of the last.
    pub(super) fn tcp(&self) -> ([u8; 60], usize) {
        let length = self.first.tcp.len();
        let mut tcp = [0; 60];
        tcp[..length].copy_from_slice(self.first.tcp);
        tcp[FLAGS] = self.last_flags;
        (tcp, length)
    }

    /// Returns the number of bytes of all segments.
    pub(super) fn bytes(&self) -> usize {
        self.first.tcp.len() * self.count + self.payload
    }

    /// Returns the payload's length of each segment but the last.
    pub(super) fn segment(&self) -> usize {
        self.first.payload_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a segment with this sequence number, flags and length of payload.
    fn segment(seq: u32, flags: u8, payload: usize) -> Vec<u8> {
        let mut segment = vec![0; 20 + payload];
        segment[4..8].copy_from_slice(&seq.to_be_bytes());
        segment[12] = 0x50;
        segment[FLAGS] = flags;
        segment
    }

    /// Returns how many of the segments make one frame.
    fn merged(segments: &[Vec<u8>]) -> usize {
        let split = |n: usize| Split::new(&segments[n][..20], &segments[n][20..]).unwrap();
        let mut run = Run::new(split(0), 20);
        (1..segments.len()).take_while(|n| run.extend(split(*n))).count() + 1
    }

    #[test]
    fn successive_segments_of_one_length_are_one_run() {
        const ACK: u8 = 0x10;
        let all: Vec<_> =
            (0..10).map(|n| segment((n * 100_u32).wrapping_sub(5), ACK, 100)).collect();
        assert_eq!(merged(&all), 10);
        let shorter = [segment(0, ACK, 100), segment(100, ACK, 50), segment(150, ACK, 50)];
        assert_eq!(merged(&shorter), 2);
        assert_eq!(merged(&[segment(0, ACK, 100), segment(100, ACK, 101)]), 1);
        assert_eq!(merged(&[segment(0, ACK, 100), segment(101, ACK, 100)]), 1);
        assert_eq!(merged(&[segment(0, ACK, 0), segment(0, ACK, 0)]), 1);
        let long: Vec<_> = (0..60).map(|n| segment(n * 1460, ACK, 1460)).collect();
        assert_eq!(merged(&long), 44);
    }

    #[test]
    fn only_the_last_of_a_run_pushes_or_ends_the_stream() {
        let pushed = [segment(0, 0x18, 10), segment(10, 0x10, 10)];
        assert_eq!(merged(&pushed), 1);
        let last = [segment(0, 0x10, 10), segment(10, 0x19, 10), segment(20, 0x10, 10)];
        assert_eq!(merged(&last), 2);
        let splits: Vec<_> = last.iter().map(|s| Split::new(&[], s).unwrap()).collect();
        let mut run = Run::new(splits[0], 20);
        assert!(run.extend(splits[1]));
        assert_eq!(run.tcp().0[FLAGS], 0x19);
        assert_eq!(merged(&[segment(0, 0x10, 10), segment(10, 0x12, 10)]), 1);
    }

    #[test]
    fn a_header_may_be_in_the_head_or_in_the_body_but_in_one_piece() {
        let whole = segment(1, 0x10, 3);
        for (head, body) in [(20, 3), (23, 0), (0, 23), (22, 1)] {
            let (head, rest) = whole.split_at(head);
            assert_eq!(rest.len(), body);
            assert_eq!(Split::new(head, rest).unwrap().payload_len(), 3);
        }
        assert!(Split::new(&whole[..10], &whole[10..]).is_none());
        assert!(Split::new(&[], &[]).is_none());
        let mut short = whole.clone();
        short[12] = 0x40;
        assert!(Split::new(&short, &[]).is_none());
    }
}
