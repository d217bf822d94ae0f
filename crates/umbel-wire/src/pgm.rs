//! Messages of the PGM subset: SPM, ODATA, RDATA, NAK and NCF [RFC 3208 §8].
//!
//! They have the meaning and the names of RFC 3208, but are Umbel's control messages ([`control`])
//! in UDP datagrams, which no PGM implementation reads. Not supported are POLL and POLR, null NAKs,
//! NAK lists, fragments, and options other than the redirection to a designated local repairer.
//! Sequence numbers have 64 bits and never wrap. A channel carries one session, so it stands for
//! the TSI.
//!
//! Parsing accepts only values within the documented ranges, so an engine need not check again.

use std::net::{IpAddr, SocketAddr};

use crate::channel::{put_address, put_channel, read_channel};
use crate::codec::Reader;
use crate::control::{self, Field, Fields, Frame, Parsed};
use crate::{Channel, ParseError};

const SPM: u8 = 0x81;
const ODATA: u8 = 0x82;
const RDATA: u8 = 0x83;
const NAK: u8 = 0x84;
const NCF: u8 = 0x85;

const CHANNEL: Field = Field { number: 1, name: "channel" };
const SEQUENCE: Field = Field { number: 2, name: "sequence" };
const TRAIL: Field = Field { number: 3, name: "trailing edge" };
const NEXT: Field = Field { number: 4, name: "next sequence" };
const PATH: Field = Field { number: 5, name: "path" };
const PAYLOAD: Field = Field { number: 6, name: "payload" };

/// Maximum length of a data unit in bytes.
pub const MAX_PAYLOAD: usize = control::MAX_UNIT;

/// Type of a message, without its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// Source path message.
    Spm,
    /// Original data.
    Odata,
    /// A retransmission (repair data).
    Rdata,
    /// Negative acknowledgement.
    Nak,
    /// NAK confirmation.
    Ncf,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Source path message: the source's progress and the address of the next node upstream
    /// [RFC 3208 §8.1].
    Spm {
        /// Number of the SPM, by which an outdated one is recognized.
        number: u64,
        /// The first unit that can still be requested; at most `next`.
        trail: u64,
        /// One beyond the last unit sent: RFC 3208's lead, plus one.
        next: u64,
        /// Destination of NAKs: the last PGM node that forwarded the SPM.
        path: SocketAddr,
    },
    /// A data unit.
    Odata {
        /// Its sequence number.
        sequence: u64,
        /// The first unit that can still be requested; at most `sequence`.
        trail: u64,
        /// Its content; at most [`MAX_PAYLOAD`].
        payload: &'a [u8],
    },
    /// A retransmitted data unit.
    Rdata {
        /// The unit's channel, if the message does not travel on it: from a designated local
        /// repairer to a router.
        channel: Option<Channel>,
        /// Its sequence number.
        sequence: u64,
        /// The first unit that can still be requested; at most `sequence`.
        trail: u64,
        /// Its content; at most [`MAX_PAYLOAD`].
        payload: &'a [u8],
    },
    /// Asks for a unit.
    Nak {
        /// The channel from which the unit is missing; it has a source.
        channel: Channel,
        /// The unit.
        sequence: u64,
    },
    /// Confirms a NAK.
    Ncf {
        /// The channel, if the message does not travel on it.
        channel: Option<Channel>,
        /// The unit.
        sequence: u64,
    },
}

impl MessageType {
    /// Returns the type of a datagram's message if it is one of PGM's. Only the header is read.
    pub fn of(frame: &[u8]) -> Option<MessageType> {
        match control::peek(frame).ok()??.message_type {
            SPM => Some(MessageType::Spm),
            ODATA => Some(MessageType::Odata),
            RDATA => Some(MessageType::Rdata),
            NAK => Some(MessageType::Nak),
            NCF => Some(MessageType::Ncf),
            _ => None,
        }
    }
}

impl<'a> Message<'a> {
    /// Appends the message to `out` as one control message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let head = self.emit_head(out);
        if let Message::Odata { payload, .. } | Message::Rdata { payload, .. } = self {
            out.extend_from_slice(payload);
        }
        debug_assert!(out.len() >= head);
    }

    /// Appends the message without the payload of a data unit, which the caller appends. Returns
    /// the new length of `out`.
    pub fn emit_head(&self, out: &mut Vec<u8>) -> usize {
        match self {
            Message::Spm { number, trail, next, path } => {
                let mut frame = Frame::begin(out, SPM);
                frame.number(SEQUENCE, *number);
                frame.number(TRAIL, *trail);
                frame.number(NEXT, *next);
                frame.field(PATH, |out| put_path(out, *path));
                frame.end();
            }
            Message::Odata { sequence, trail, payload } => {
                let mut frame = Frame::begin(out, ODATA);
                put_unit(&mut frame, *sequence, *trail);
                frame.end_with(PAYLOAD, payload.len());
            }
            Message::Rdata { channel, sequence, trail, payload } => {
                let mut frame = Frame::begin(out, RDATA);
                put_optional_channel(&mut frame, channel.as_ref());
                put_unit(&mut frame, *sequence, *trail);
                frame.end_with(PAYLOAD, payload.len());
            }
            Message::Nak { channel, sequence } => {
                let mut frame = Frame::begin(out, NAK);
                put_optional_channel(&mut frame, Some(channel));
                frame.number(SEQUENCE, *sequence);
                frame.end();
            }
            Message::Ncf { channel, sequence } => {
                let mut frame = Frame::begin(out, NCF);
                put_optional_channel(&mut frame, channel.as_ref());
                frame.number(SEQUENCE, *sequence);
                frame.end();
            }
        }
        out.len()
    }

    /// Parses one message, which must be all of `frame`.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is malformed or exceeds a limit.
    pub fn parse(frame: &'a [u8]) -> Result<Parsed<Message<'a>>, ParseError> {
        control::parse(frame, |fields| {
            Ok(Some(match fields.message {
                SPM => read_spm(fields)?,
                ODATA => {
                    let (sequence, trail) = read_unit(fields)?;
                    Message::Odata { sequence, trail, payload: read_payload(fields)? }
                }
                RDATA => {
                    let channel = read_optional_channel(fields)?;
                    let (sequence, trail) = read_unit(fields)?;
                    Message::Rdata { channel, sequence, trail, payload: read_payload(fields)? }
                }
                NAK => {
                    let channel = read_nak_channel(fields)?;
                    Message::Nak { channel, sequence: fields.number(SEQUENCE)? }
                }
                NCF => {
                    let channel = read_optional_channel(fields)?;
                    Message::Ncf { channel, sequence: fields.number(SEQUENCE)? }
                }
                _ => return Ok(None),
            }))
        })
    }
}

fn put_unit(frame: &mut Frame<'_>, sequence: u64, trail: u64) {
    frame.number(SEQUENCE, sequence);
    frame.number(TRAIL, trail);
}

fn read_unit(fields: &mut Fields<'_>) -> Result<(u64, u64), ParseError> {
    let sequence = fields.number(SEQUENCE)?;
    let trail = fields.number(TRAIL)?;
    if trail > sequence {
        let problem = "a trailing edge beyond the unit";
        return Err(ParseError::Value { what: TRAIL.name, problem });
    }
    Ok((sequence, trail))
}

fn read_payload<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], ParseError> {
    let payload = fields.required(PAYLOAD)?;
    if payload.len() > MAX_PAYLOAD {
        return Err(ParseError::Value { what: PAYLOAD.name, problem: "more than fits a datagram" });
    }
    Ok(payload)
}

fn read_spm<'a>(fields: &mut Fields<'_>) -> Result<Message<'a>, ParseError> {
    let number = fields.number(SEQUENCE)?;
    let (trail, next) = (fields.number(TRAIL)?, fields.number(NEXT)?);
    if trail > next {
        let problem = "a trailing edge beyond the window";
        return Err(ParseError::Value { what: TRAIL.name, problem });
    }
    let mut reader = Reader::new(PATH.name, fields.required(PATH)?);
    let path = read_path(&mut reader)?;
    reader.finish()?;
    Ok(Message::Spm { number, trail, next, path })
}

fn put_optional_channel(frame: &mut Frame<'_>, channel: Option<&Channel>) {
    if let Some(channel) = channel {
        frame.field(CHANNEL, |out| put_channel(out, channel));
    }
}

fn read_optional_channel(fields: &mut Fields<'_>) -> Result<Option<Channel>, ParseError> {
    let value = fields.optional(CHANNEL)?;
    value.map(|value| read_channel(Reader::new(CHANNEL.name, value))).transpose()
}

fn read_nak_channel(fields: &mut Fields<'_>) -> Result<Channel, ParseError> {
    let channel = read_channel(Reader::new(CHANNEL.name, fields.required(CHANNEL)?))?;
    if channel.source.is_none() {
        let problem = "a NAK to nobody in particular";
        return Err(ParseError::Value { what: CHANNEL.name, problem });
    }
    Ok(channel)
}

/// Appends length of the address, the address, port.
fn put_path(out: &mut Vec<u8>, path: SocketAddr) {
    out.push(if path.is_ipv6() { 16 } else { 4 });
    put_address(out, path.ip());
    out.extend_from_slice(&path.port().to_be_bytes());
}

fn read_path(reader: &mut Reader<'_>) -> Result<SocketAddr, ParseError> {
    let ip = match reader.byte()? {
        4 => IpAddr::from(reader.array::<4>()?),
        16 => IpAddr::from(reader.array::<16>()?),
        _ => return Err(reader.bad("an address of unknown length")),
    };
    let port = u16::from_be_bytes(reader.array()?);
    if ip.is_multicast() || ip.is_unspecified() || port == 0 {
        return Err(reader.bad("an address that is no host's"));
    }
    Ok(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> Channel {
        Channel { source: Some([10, 0, 0, 1].into()), group: [232, 0, 0, 7].into(), port: 7702 }
    }

    fn all() -> Vec<Message<'static>> {
        vec![
            Message::Spm { number: 3, trail: 1, next: 9, path: "10.0.0.9:7702".parse().unwrap() },
            Message::Spm { number: 0, trail: 0, next: 0, path: "[2001:db8::1]:1".parse().unwrap() },
            Message::Odata { sequence: 300, trail: 4, payload: b"unit" },
            Message::Rdata { channel: None, sequence: 4, trail: 4, payload: b"" },
            Message::Rdata { channel: Some(channel()), sequence: 4, trail: 0, payload: b"again" },
            Message::Nak { channel: channel(), sequence: u64::MAX },
            Message::Ncf { channel: None, sequence: 7 },
            Message::Ncf { channel: Some(channel()), sequence: 7 },
        ]
    }

    fn bytes(message: &Message<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        message.emit(&mut out);
        out
    }

    #[test]
    fn messages_come_back() {
        for message in all() {
            let bytes = bytes(&message);
            let parsed = Message::parse(&bytes).unwrap();
            assert_eq!(parsed, Parsed::Message { message, skipped: 0 });
            for cut in 0..bytes.len() {
                assert!(Message::parse(&bytes[..cut]).is_err(), "{cut}");
            }
        }
    }

    #[test]
    fn the_type_is_told_without_reading_on() {
        for (message, expected) in all().iter().zip([
            MessageType::Spm,
            MessageType::Spm,
            MessageType::Odata,
            MessageType::Rdata,
            MessageType::Rdata,
            MessageType::Nak,
            MessageType::Ncf,
            MessageType::Ncf,
        ]) {
            assert_eq!(MessageType::of(&bytes(message)), Some(expected));
        }
        for other in [&b""[..], b"U", b"Um\x01\x41\0\0\0\0", b"some text"] {
            assert_eq!(MessageType::of(other), None);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let path = "10.0.0.9:7702".parse().unwrap();
        let any = Channel { source: None, ..channel() };
        let too_long = vec![0; MAX_PAYLOAD + 1];
        for message in [
            Message::Spm { number: 0, trail: 2, next: 1, path },
            Message::Spm { number: 0, trail: 0, next: 0, path: "0.0.0.0:1".parse().unwrap() },
            Message::Spm { number: 0, trail: 0, next: 0, path: "10.0.0.9:0".parse().unwrap() },
            Message::Spm { number: 0, trail: 0, next: 0, path: "232.0.0.1:1".parse().unwrap() },
            Message::Odata { sequence: 3, trail: 4, payload: b"" },
            Message::Odata { sequence: 3, trail: 0, payload: &too_long },
            Message::Nak { channel: any, sequence: 0 },
        ] {
            let error = Message::parse(&bytes(&message)).unwrap_err();
            assert!(matches!(error, ParseError::Value { .. }), "{message:?}: {error}");
        }
    }

    #[test]
    fn a_head_and_its_payload_are_the_message() {
        let message = Message::Odata { sequence: 1, trail: 0, payload: b"content" };
        let mut head = Vec::new();
        message.emit_head(&mut head);
        assert_eq!([&head[..], b"content"].concat(), bytes(&message));
    }
}
