//! The messages of BASEP, the sender-initiated protocol with which TMTP is compared
//! [TMTP "The Test Environment"]. It sends data to all, and each receiver acknowledges each packet.
//!
//! They are Umbel's control messages ([`control`]) in UDP datagrams. Sequence numbers have 64 bits
//! and never wrap. A channel carries one transmission.
//!
//! Parsing accepts only values within the documented ranges, so an engine need not check again.

use crate::channel::{put_channel, read_channel};
use crate::codec::Reader;
use crate::control::{self, Field, Fields, Frame, Parsed};
use crate::{Channel, ParseError};

const DATA: u8 = 0xB1;
const RETRANSMISSION: u8 = 0xB2;
const ACK: u8 = 0xB3;
const GOT_IT: u8 = 0xB4;

const CHANNEL: Field = Field { number: 1, name: "channel" };
const SEQUENCE: Field = Field { number: 2, name: "sequence" };
const LAST: Field = Field { number: 3, name: "last" };
const PAYLOAD: Field = Field { number: 4, name: "payload" };

/// Maximum length of a packet's content in bytes.
pub const MAX_PAYLOAD: usize = control::MAX_UNIT;

/// Type of a message, without its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// A packet, sent for the first time.
    Data,
    /// A retransmitted packet.
    Retransmission,
    /// Positive acknowledgement.
    Ack,
    /// The last acknowledgement of a receiver that has every packet.
    GotIt,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A packet of the transmission.
    Data {
        /// Sequence number, from 0.
        sequence: u64,
        /// Whether this is the last packet of the transmission.
        last: bool,
        /// Whether this is a retransmission.
        again: bool,
        /// Content; at most [`MAX_PAYLOAD`] bytes.
        payload: &'a [u8],
    },
    /// Acknowledges this packet.
    Ack {
        /// The channel; it has a source.
        channel: Channel,
        /// The acknowledged packet.
        sequence: u64,
    },
    /// Acknowledges this packet and reports that the receiver has all others.
    GotIt {
        /// The channel; it has a source.
        channel: Channel,
        /// The acknowledged packet; not always the last one.
        sequence: u64,
    },
}

impl MessageType {
    /// Returns the type of a datagram's message if it is one of BASEP's. Only the header is read.
    pub fn of(frame: &[u8]) -> Option<MessageType> {
        match control::peek(frame).ok()??.message_type {
            DATA => Some(MessageType::Data),
            RETRANSMISSION => Some(MessageType::Retransmission),
            ACK => Some(MessageType::Ack),
            GOT_IT => Some(MessageType::GotIt),
            _ => None,
        }
    }
}

impl<'a> Message<'a> {
    /// Appends the message to `out` as one control message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.emit_head(out);
        if let Message::Data { payload, .. } = self {
            out.extend_from_slice(payload);
        }
    }

    /// Appends the message without the content of a packet, which the caller appends.
    pub fn emit_head(&self, out: &mut Vec<u8>) {
        match self {
            Message::Data { sequence, last, again, payload } => {
                let mut frame = Frame::begin(out, if *again { RETRANSMISSION } else { DATA });
                frame.number(SEQUENCE, *sequence);
                if *last {
                    frame.field(LAST, |_| {});
                }
                frame.end_with(PAYLOAD, payload.len());
            }
            Message::Ack { channel, sequence } => put_ack(out, ACK, channel, *sequence),
            Message::GotIt { channel, sequence } => put_ack(out, GOT_IT, channel, *sequence),
        }
    }

    /// Parses one message, which must be all of `frame`.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is malformed or exceeds a limit.
    pub fn parse(frame: &'a [u8]) -> Result<Parsed<Message<'a>>, ParseError> {
        control::parse(frame, |fields| {
            Ok(Some(match fields.message {
                DATA => read_data(fields, false)?,
                RETRANSMISSION => read_data(fields, true)?,
                ACK => {
                    let (channel, sequence) = read_ack(fields)?;
                    Message::Ack { channel, sequence }
                }
                GOT_IT => {
                    let (channel, sequence) = read_ack(fields)?;
                    Message::GotIt { channel, sequence }
                }
                _ => return Ok(None),
            }))
        })
    }
}

fn put_ack(out: &mut Vec<u8>, message_type: u8, channel: &Channel, sequence: u64) {
    let mut frame = Frame::begin(out, message_type);
    frame.field(CHANNEL, |out| put_channel(out, channel));
    frame.number(SEQUENCE, sequence);
    frame.end();
}

fn read_data<'a>(fields: &mut Fields<'a>, again: bool) -> Result<Message<'a>, ParseError> {
    let sequence = fields.number(SEQUENCE)?;
    let last = fields.optional(LAST)?;
    if last.is_some_and(|value| !value.is_empty()) {
        return Err(ParseError::Value { what: LAST.name, problem: "a flag with a value" });
    }
    let payload = fields.required(PAYLOAD)?;
    if payload.len() > MAX_PAYLOAD {
        return Err(ParseError::Value { what: PAYLOAD.name, problem: "more than fits a datagram" });
    }
    Ok(Message::Data { sequence, last: last.is_some(), again, payload })
}

fn read_ack(fields: &mut Fields<'_>) -> Result<(Channel, u64), ParseError> {
    let channel = read_channel(Reader::new(CHANNEL.name, fields.required(CHANNEL)?))?;
    if channel.source.is_none() {
        let problem = "an acknowledgement to nobody in particular";
        return Err(ParseError::Value { what: CHANNEL.name, problem });
    }
    Ok((channel, fields.number(SEQUENCE)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> Channel {
        Channel { source: Some([10, 0, 0, 1].into()), group: [232, 0, 0, 7].into(), port: 7702 }
    }

    fn all() -> Vec<Message<'static>> {
        vec![
            Message::Data { sequence: 300, last: false, again: false, payload: b"content" },
            Message::Data { sequence: 0, last: true, again: true, payload: b"" },
            Message::Ack { channel: channel(), sequence: u64::MAX },
            Message::GotIt { channel: channel(), sequence: 7 },
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
        let types =
            all().iter().map(|message| MessageType::of(&bytes(message))).collect::<Vec<_>>();
        let expected =
            [MessageType::Data, MessageType::Retransmission, MessageType::Ack, MessageType::GotIt];
        assert_eq!(types, expected.map(Some));
        for other in [&b""[..], b"U", b"Um\x01\x81\0\0\0\0", b"some text"] {
            assert_eq!(MessageType::of(other), None);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let any = Channel { source: None, ..channel() };
        let too_long = vec![0; MAX_PAYLOAD + 1];
        for message in [
            Message::Data { sequence: 3, last: false, again: false, payload: &too_long },
            Message::Ack { channel: any, sequence: 0 },
            Message::GotIt { channel: any, sequence: 0 },
        ] {
            let error = Message::parse(&bytes(&message)).unwrap_err();
            assert!(matches!(error, ParseError::Value { .. }), "{message:?}: {error}");
        }
        let mut frame = Vec::new();
        let mut odd = Frame::begin(&mut frame, DATA);
        odd.number(SEQUENCE, 1_u64);
        odd.string(LAST, "yes");
        odd.string(PAYLOAD, "");
        odd.end();
        assert!(matches!(Message::parse(&frame), Err(ParseError::Value { what: "last", .. })));
    }

    #[test]
    fn a_head_and_its_content_are_the_message() {
        let message = &all()[0];
        let mut head = Vec::new();
        message.emit_head(&mut head);
        assert_eq!([&head[..], b"content"].concat(), bytes(message));
    }
}
