//! Messages of receivers to the control group.
//!
//! They are Umbel's control messages ([`control`]) in UDP datagrams. Parsing accepts only values
//! within the documented ranges, so an engine need not check again.

use crate::control::{self, Field, Fields, Frame, Parsed};
use crate::{ParseError, Tsi};

const JOIN_EXPERIMENT: u8 = 0xC1;
const SESSION: u8 = 0xC2;

const TSI: Field = Field { number: 1, name: "stream" };
const RECEIVER: Field = Field { number: 2, name: "receiver" };
const LEVEL: Field = Field { number: 3, name: "level" };
const LOSS: Field = Field { number: 4, name: "loss" };

/// Type of a message, without its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// A receiver begins a join-experiment.
    JoinExperiment,
    /// A receiver says that it is there.
    Session,
}

/// A share of lost packets, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loss(u16);

impl Loss {
    /// Creates the share of `lost` among `expected` packets; 0 if none was expected.
    pub fn of(lost: u64, expected: u64) -> Loss {
        if expected == 0 {
            return Loss(0);
        }
        Loss((u128::from(lost.min(expected)) * 1000 / u128::from(expected)) as u16)
    }

    /// Creates a share of this many thousandths. Returns `None` above 1000.
    pub const fn from_thousandths(thousandths: u16) -> Option<Loss> {
        if thousandths <= 1000 { Some(Loss(thousandths)) } else { None }
    }

    /// Returns the thousandths, at most 1000.
    pub const fn thousandths(self) -> u16 {
        self.0
    }
}

/// A message of a receiver to the control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The receiver begins a join-experiment [RLM §3.3].
    JoinExperiment {
        /// The stream.
        tsi: Tsi,
        /// The receiver, by a number that it drew at random.
        receiver: u64,
        /// The experimental level: the number of layers, from the base on, that it then receives.
        /// At least 1.
        level: u8,
    },
    /// The receiver is there, or leaves [RLM §3.5].
    Session {
        /// The stream.
        tsi: Tsi,
        /// The receiver.
        receiver: u64,
        /// Its level; 0 if it leaves.
        level: u8,
        /// Its loss since its last message of this type.
        loss: Loss,
    },
}

impl MessageType {
    /// Returns the type of a datagram's message if it is one of these. Only the header is read.
    pub fn of(frame: &[u8]) -> Option<MessageType> {
        match control::peek(frame).ok()??.message_type {
            JOIN_EXPERIMENT => Some(MessageType::JoinExperiment),
            SESSION => Some(MessageType::Session),
            _ => None,
        }
    }
}

impl Message {
    /// Appends the message to `out` as one control message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Message::JoinExperiment { tsi, receiver, level } => {
                put(out, JOIN_EXPERIMENT, tsi, receiver, level).end();
            }
            Message::Session { tsi, receiver, level, loss } => {
                let mut frame = put(out, SESSION, tsi, receiver, level);
                frame.number(LOSS, loss.0);
                frame.end();
            }
        }
    }

    /// Parses one message, which must be all of `frame`.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is malformed or exceeds a limit.
    pub fn parse(frame: &[u8]) -> Result<Parsed<Message>, ParseError> {
        control::parse(frame, |fields| {
            Ok(Some(match fields.message {
                JOIN_EXPERIMENT => {
                    let (tsi, receiver, level) = read(fields)?;
                    if level == 0 {
                        let problem = "an experiment with no layer";
                        return Err(ParseError::Value { what: LEVEL.name, problem });
                    }
                    Message::JoinExperiment { tsi, receiver, level }
                }
                SESSION => {
                    let (tsi, receiver, level) = read(fields)?;
                    let problem = "more than all packets";
                    let loss = Loss::from_thousandths(fields.number(LOSS)?)
                        .ok_or(ParseError::Value { what: LOSS.name, problem })?;
                    Message::Session { tsi, receiver, level, loss }
                }
                _ => return Ok(None),
            }))
        })
    }
}

fn put(out: &mut Vec<u8>, kind: u8, tsi: Tsi, receiver: u64, level: u8) -> Frame<'_> {
    let mut frame = Frame::begin(out, kind);
    frame.number(TSI, tsi.0);
    frame.number(RECEIVER, receiver);
    frame.number(LEVEL, level);
    frame
}

fn read(fields: &mut Fields<'_>) -> Result<(Tsi, u64, u8), ParseError> {
    Ok((Tsi(fields.number(TSI)?), fields.number(RECEIVER)?, fields.number(LEVEL)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Message; 3] {
        let (tsi, receiver) = (Tsi(7), u64::MAX);
        [
            Message::JoinExperiment { tsi, receiver, level: 3 },
            Message::Session { tsi, receiver, level: 2, loss: Loss::of(1, 8) },
            Message::Session { tsi, receiver, level: 0, loss: Loss::of(5, 4) },
        ]
    }

    fn bytes(message: &Message) -> Vec<u8> {
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
        let types = all().map(|message| MessageType::of(&bytes(&message)));
        let expected = [MessageType::JoinExperiment, MessageType::Session, MessageType::Session];
        assert_eq!(types, expected.map(Some));
        assert_eq!(MessageType::of(b"Um\x01\x41\0\0\0\0"), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let nothing = Message::JoinExperiment { tsi: Tsi(1), receiver: 2, level: 0 };
        let absurd = Message::Session { tsi: Tsi(1), receiver: 2, level: 1, loss: Loss(1001) };
        for message in [nothing, absurd] {
            let error = Message::parse(&bytes(&message)).unwrap_err();
            assert!(matches!(error, ParseError::Value { .. }), "{message:?}: {error}");
        }
    }

    #[test]
    fn a_share_is_rounded_down_and_never_above_all() {
        let shares = [(0, 0), (1, 3), (3, 3), (9, 3), (u64::MAX, u64::MAX)];
        assert_eq!(shares.map(|(l, e)| Loss::of(l, e).thousandths()), [0, 333, 1000, 1000, 1000]);
    }
}
