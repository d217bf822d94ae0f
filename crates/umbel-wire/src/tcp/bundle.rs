//! Acknowledgements of several connections of one host in one UDP datagram.
//!
//! A host with many connections to one server acknowledges each segment of a multicast stream on
//! each of them. What such an acknowledgement costs is to send, carry and receive it, not what it
//! says. So a helper may collect those that say nothing else, and send them together to the
//! server's address and port number, by UDP:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+---------------+---------------+
//! |      'U'      |      'A'      |   version 1   |     kind      |
//! +---------------+---------------+---------------+---------------+
//! |                             nonce                             |
//! +---------------------------------------------------------------+
//! |  0 ACKs, 1 ACKs and a question: TCP headers of 20 bytes each  |
//! |  2 answer: port that the server saw, 16 bits, and address     |
//! +---------------------------------------------------------------+
//! ```
//!
//! Each header is that of a segment with the flag ACK alone, and with neither options nor payload.
//! Its sender is the sender of the datagram. Its checksum means nothing, as UDP has one.
//!
//! A question asks whether the server takes bundles, and whether it sees the sender's own address.
//! It would not behind a translator of addresses, where the ports in the headers would be wrong,
//! too.

use std::net::{IpAddr, SocketAddr};

use super::{Flags, Head, Segment};
use crate::ParseError;
use crate::codec::Reader;

/// Beginning of a bundle, with its version.
const MAGIC: [u8; 3] = [b'U', b'A', 1];

/// Kinds.
const ACKS: u8 = 0;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;

/// Acknowledgements of one host, or what is said about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bundle<'a> {
    /// From a helper to a server.
    Acks {
        /// Number that the answer is to have, if the server should answer.
        question: Option<u32>,
        /// The acknowledgements.
        heads: BundledHeads<'a>,
    },
    /// From a server to a helper.
    Answer {
        /// Number of the question.
        nonce: u32,
        /// Address and port from which the question came.
        seen: SocketAddr,
    },
}

/// TCP headers of a bundle: plain acknowledgements, all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundledHeads<'a>(&'a [u8]);

impl<'a> BundledHeads<'a> {
    /// Returns the headers, each a whole segment.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        self.0.chunks_exact(Head::MIN_LEN)
    }
}

impl<'a> Bundle<'a> {
    /// Maximum number of acknowledgements, so that a bundle fits a frame of Ethernet.
    pub const MAX_ACKS: usize = 64;

    /// Parses the payload of a UDP datagram.
    ///
    /// # Errors
    ///
    /// If it is of another version or no bundle, or a header is not that of a plain
    /// acknowledgement.
    pub fn parse(bytes: &'a [u8]) -> Result<Bundle<'a>, ParseError> {
        let mut reader = Reader::new("bundle of ACKs", bytes);
        if reader.array()? != MAGIC {
            return Err(reader.bad("not of version 1"));
        }
        let kind = reader.byte()?;
        let nonce = u32::from_be_bytes(reader.array()?);
        if kind == ANSWER {
            let port = u16::from_be_bytes(reader.array()?);
            let address = reader.rest();
            let ip = match address.len() {
                4 => address.first_chunk::<4>().map(|octets| IpAddr::from(*octets)),
                _ => address.first_chunk::<16>().map(|octets| IpAddr::from(*octets)),
            };
            let ip = ip.filter(|_| matches!(address.len(), 4 | 16));
            let ip = ip.ok_or_else(|| reader.bad("an address of neither family"))?;
            return Ok(Bundle::Answer { nonce, seen: SocketAddr::new(ip, port) });
        }
        if kind != ACKS && kind != QUESTION {
            return Err(reader.bad("an unknown kind"));
        }
        let heads = reader.rest();
        let is_whole = heads.len() % Head::MIN_LEN == 0;
        if !is_whole || heads.len() > Bundle::MAX_ACKS * Head::MIN_LEN {
            return Err(reader.bad("a length that no headers have"));
        }
        let heads = BundledHeads(heads);
        if !heads.iter().all(is_plain_ack) {
            return Err(reader.bad("a header that says more than an ACK"));
        }
        Ok(Bundle::Acks { question: (kind == QUESTION).then_some(nonce), heads })
    }

    /// Writes a bundle of headers, which are those of plain acknowledgements, up to
    /// [`MAX_ACKS`](Bundle::MAX_ACKS) of them.
    pub fn emit_acks<'b>(
        out: &mut Vec<u8>,
        question: Option<u32>,
        heads: impl IntoIterator<Item = &'b [u8; Head::MIN_LEN]>,
    ) {
        begin(out, if question.is_some() { QUESTION } else { ACKS }, question.unwrap_or(0));
        out.extend(heads.into_iter().take(Bundle::MAX_ACKS).flatten());
    }

    /// Writes an answer.
    pub fn emit_answer(out: &mut Vec<u8>, nonce: u32, seen: SocketAddr) {
        begin(out, ANSWER, nonce);
        out.extend(seen.port().to_be_bytes());
        match seen.ip() {
            IpAddr::V4(v4) => out.extend(v4.octets()),
            IpAddr::V6(v6) => out.extend(v6.octets()),
        }
    }
}

fn begin(out: &mut Vec<u8>, kind: u8, nonce: u32) {
    out.clear();
    out.extend(MAGIC);
    out.push(kind);
    out.extend(nonce.to_be_bytes());
}

/// Returns whether a segment says nothing but what has arrived.
pub fn is_plain_ack(segment: &[u8]) -> bool {
    segment.len() == Head::MIN_LEN
        && Segment::parse(segment).is_ok_and(|segment| segment.head.flags == Flags::ACK)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tcp::Seq;

    fn head(source_port: u16, ack: u32, flags: Flags) -> [u8; Head::MIN_LEN] {
        let head = Head { source_port, ack: Seq(ack), flags, ..Head::default() };
        let mut out = Vec::new();
        head.emit(&mut out);
        *out.first_chunk().unwrap()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            question: Option<u32>, acks in proptest::collection::vec(any::<(u16, u32)>(), 0..70),
        ) {
            let heads: Vec<_> = acks.iter().map(|(p, ack)| head(*p, *ack, Flags::ACK)).collect();
            let mut out = Vec::new();
            Bundle::emit_acks(&mut out, question, &heads);
            let Ok(Bundle::Acks { question: read, heads: found }) = Bundle::parse(&out) else {
                panic!("{out:?}");
            };
            prop_assert_eq!(read, question);
            let kept = heads.len().min(Bundle::MAX_ACKS);
            prop_assert!(found.iter().eq(heads[..kept].iter().map(|head| &head[..])));
        }

        #[test]
        fn an_answer_is_read(nonce: u32, v6: bool, octets: [u8; 16], port: u16) {
            let [a, b, c, d, ..] = octets;
            let ip = if v6 { IpAddr::from(octets) } else { [a, b, c, d].into() };
            let seen = SocketAddr::new(ip, port);
            let mut out = Vec::new();
            Bundle::emit_answer(&mut out, nonce, seen);
            prop_assert_eq!(Bundle::parse(&out), Ok(Bundle::Answer { nonce, seen }));
            out.push(0);
            prop_assert!(Bundle::parse(&out).is_err());
        }
    }

    #[test]
    fn a_header_that_says_more_is_refused() {
        let mut out = Vec::new();
        for flags in [Flags::ACK | Flags::FIN, Flags::RST, Flags::SYN, Flags(0)] {
            Bundle::emit_acks(&mut out, None, &[head(1, 2, Flags::ACK), head(1, 2, flags)]);
            assert!(Bundle::parse(&out).is_err(), "{flags:?}");
        }
        Bundle::emit_acks(&mut out, None, &[head(1, 2, Flags::ACK)]);
        assert!(Bundle::parse(&out[..out.len() - 1]).is_err());
        // A header that would be longer than it is.
        out[8 + 12] = 0x60;
        assert!(Bundle::parse(&out).is_err());
    }

    #[test]
    fn other_versions_and_too_many_headers_are_refused() {
        let mut out = Vec::new();
        Bundle::emit_acks(&mut out, None, &[[0; 20]; 0]);
        assert!(Bundle::parse(&out).is_ok());
        out[2] = 2;
        assert!(Bundle::parse(&out).is_err());
        let ack = head(1, 2, Flags::ACK);
        Bundle::emit_acks(&mut out, None, &vec![ack; Bundle::MAX_ACKS]);
        assert!(Bundle::parse(&out).is_ok());
        out.extend(ack);
        assert!(Bundle::parse(&out).is_err());
    }
}
