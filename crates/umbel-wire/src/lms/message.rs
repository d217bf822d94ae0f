//! Emits and parses messages of LMS.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Message, Request, Summary, TurningPoint, UnitSet, limits};
use crate::channel::{put_channel, put_host, read_channel, read_host, short_host};
use crate::codec::{Reader, put_varint};
use crate::control::{self, Field, Fields, Frame, Parsed};
use crate::{Channel, ParseError, Tsi};

const DATA: u8 = 0x61;
const HEARTBEAT: u8 = 0x62;
const REPAIR: u8 = 0x63;
pub(super) const REQUEST: u8 = 0x64;
pub(super) const DMCAST: u8 = 0x65;
const ADVERTISEMENT: u8 = 0x66;
const SOLICIT: u8 = 0x67;
const PING: u8 = 0x68;
const PONG: u8 = 0x69;
const ELECTION: u8 = 0x6A;
const COLLECT: u8 = 0x6B;
const REPORT: u8 = 0x6C;
const ANYCAST_ADVERTISEMENT: u8 = 0x6D;
const ANYCAST_REQUEST: u8 = 0x6E;
const ANYCAST_REPLY: u8 = 0x6F;

pub(super) const TSI: Field = Field { number: 1, name: "session" };
pub(super) const CHANNEL: Field = Field { number: 2, name: "channel" };
pub(super) const SEQUENCE: Field = Field { number: 3, name: "sequence number" };
pub(super) const FOLLOWING: Field = Field { number: 4, name: "following units" };
const LEAD: Field = Field { number: 5, name: "lead" };
const TRAIL: Field = Field { number: 6, name: "trail" };
pub(super) const NUMBER: Field = Field { number: 7, name: "request number" };
pub(super) const FLAGS: Field = Field { number: 8, name: "flags" };
pub(super) const REQUESTOR: Field = Field { number: 9, name: "requestor" };
pub(super) const TURNING_POINT: Field = Field { number: 10, name: "turning point" };
const COST: Field = Field { number: 11, name: "cost" };
const NONCE: Field = Field { number: 12, name: "nonce" };
const ROUND: Field = Field { number: 13, name: "round" };
const QUESTION: Field = Field { number: 14, name: "question" };
const SPREAD: Field = Field { number: 15, name: "spread" };
const SUMMARY: Field = Field { number: 16, name: "summary" };
pub(super) const PAYLOAD: Field = Field { number: 17, name: "payload" };
pub(super) const HOPS: Field = Field { number: 18, name: "hops" };

/// A flag: the replier did not answer.
pub(super) const REPLIER_FAILED: u8 = 1;
/// A flag: the reply is to be sent by unicast, or was sent so.
pub(super) const UNICAST: u8 = 2;

impl<'a> Message<'a> {
    /// Appends the message to `out` as one control message. Durations are truncated to
    /// microseconds.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut frame = Frame::begin(out, self.message_type());
        self.emit_fields(&mut frame);
        frame.end();
    }

    /// Parses one control message, which must be all of `frame`.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is malformed or exceeds a limit.
    pub fn parse(frame: &'a [u8]) -> Result<Parsed<Message<'a>>, ParseError> {
        control::parse(frame, Message::read)
    }

    /// Returns whether these bytes begin like a message of LMS.
    pub fn is_lms(bytes: &[u8]) -> bool {
        starts_with_type(bytes, |message_type| (DATA..=ANYCAST_REPLY).contains(&message_type))
    }

    /// Returns whether these bytes begin like a message for routers. Data, repairs and messages
    /// between endpoints are not.
    pub fn is_for_routers(bytes: &[u8]) -> bool {
        starts_with_type(bytes, |message_type| {
            matches!(
                message_type,
                REQUEST
                    | DMCAST
                    | ADVERTISEMENT
                    | SOLICIT
                    | REPORT
                    | ANYCAST_ADVERTISEMENT
                    | ANYCAST_REQUEST
            )
        })
    }

    /// Returns whether these bytes begin like a repair.
    pub fn is_repair(bytes: &[u8]) -> bool {
        starts_with_type(bytes, |message_type| message_type == REPAIR)
    }

    fn message_type(&self) -> u8 {
        match self {
            Message::Data { .. } => DATA,
            Message::Heartbeat { .. } => HEARTBEAT,
            Message::Repair { .. } => REPAIR,
            Message::Request(_) => REQUEST,
            Message::Dmcast { .. } => DMCAST,
            Message::Advertisement { .. } => ADVERTISEMENT,
            Message::Solicit { .. } => SOLICIT,
            Message::Ping { .. } => PING,
            Message::Pong { .. } => PONG,
            Message::Election { .. } => ELECTION,
            Message::Collect { .. } => COLLECT,
            Message::Report { .. } => REPORT,
            Message::AnycastAdvertisement { .. } => ANYCAST_ADVERTISEMENT,
            Message::AnycastRequest { .. } => ANYCAST_REQUEST,
            Message::AnycastReply { .. } => ANYCAST_REPLY,
        }
    }

    fn emit_fields(&self, frame: &mut Frame<'_>) {
        match *self {
            Message::Data { tsi, sequence, payload } => {
                frame.number(TSI, tsi.0);
                frame.number(SEQUENCE, sequence);
                emit_bytes(frame, payload);
            }
            Message::Heartbeat { tsi, lead, trail } => {
                frame.number(TSI, tsi.0);
                frame.number(LEAD, lead);
                frame.number(TRAIL, trail);
            }
            Message::Repair { tsi, sequence, number, unicast, payload } => {
                frame.number(TSI, tsi.0);
                frame.number(SEQUENCE, sequence);
                frame.number(NUMBER, number);
                emit_flags(frame, if unicast { UNICAST } else { 0 });
                emit_bytes(frame, payload);
            }
            Message::Request(ref request) => request.emit_fields(frame),
            Message::Dmcast { channel, turning_point, repair } => {
                emit_channel(frame, &channel);
                turning_point.emit(frame);
                emit_bytes(frame, repair);
            }
            Message::Advertisement { channel, cost } | Message::Election { channel, cost } => {
                emit_channel(frame, &channel);
                emit_cost(frame, cost);
            }
            Message::Solicit { channel } => emit_channel(frame, &channel),
            Message::Ping { tsi, nonce } | Message::Pong { tsi, nonce } => {
                frame.number(TSI, tsi.0);
                frame.number(NONCE, nonce);
            }
            Message::Collect { tsi, round, question, spread } => {
                frame.number(TSI, tsi.0);
                frame.number(ROUND, round);
                frame.number(QUESTION, question);
                frame.number(SPREAD, u64::try_from(spread.as_micros()).unwrap_or(u64::MAX));
            }
            Message::Report { channel, tsi, round, summary, hops } => {
                emit_channel(frame, &channel);
                frame.number(TSI, tsi.0);
                frame.number(ROUND, round);
                frame.field(SUMMARY, |out| {
                    for number in [summary.count, summary.sum, summary.min, summary.max] {
                        put_varint(out, number);
                    }
                });
                frame.number(HOPS, hops);
            }
            Message::AnycastAdvertisement { service, cost, hops } => {
                emit_channel(frame, &service);
                emit_cost(frame, cost);
                frame.number(HOPS, hops);
            }
            Message::AnycastRequest { service, requestor, nonce, hops, payload } => {
                emit_channel(frame, &service);
                emit_requestor(frame, requestor);
                frame.number(NONCE, nonce);
                frame.number(HOPS, hops);
                emit_bytes(frame, payload);
            }
            Message::AnycastReply { service, nonce, payload } => {
                emit_channel(frame, &service);
                frame.number(NONCE, nonce);
                emit_bytes(frame, payload);
            }
        }
    }

    fn read(fields: &mut Fields<'a>) -> Result<Option<Message<'a>>, ParseError> {
        Ok(Some(match fields.message {
            DATA => Message::Data {
                tsi: read_tsi(fields)?,
                sequence: read_sequence(fields)?,
                payload: read_bytes(fields)?,
            },
            HEARTBEAT => {
                let (lead, trail) = (fields.number(LEAD)?, fields.number(TRAIL)?);
                if trail > lead {
                    return Err(bad(TRAIL, "beyond the lead"));
                }
                Message::Heartbeat { tsi: read_tsi(fields)?, lead, trail }
            }
            REPAIR => Message::Repair {
                tsi: read_tsi(fields)?,
                sequence: read_sequence(fields)?,
                number: read_number(fields)?,
                unicast: read_flags(fields, UNICAST)? != 0,
                payload: read_bytes(fields)?,
            },
            REQUEST => Message::Request(Request::read(fields)?),
            DMCAST => Message::Dmcast {
                channel: read_source_channel(fields)?,
                turning_point: TurningPoint::read(fields.required(TURNING_POINT)?)?,
                repair: fields.required(PAYLOAD)?,
            },
            ADVERTISEMENT => Message::Advertisement {
                channel: read_source_channel(fields)?,
                cost: fields.optional_number(COST)?,
            },
            SOLICIT => Message::Solicit { channel: read_source_channel(fields)? },
            PING => Message::Ping { tsi: read_tsi(fields)?, nonce: fields.number(NONCE)? },
            PONG => Message::Pong { tsi: read_tsi(fields)?, nonce: fields.number(NONCE)? },
            ELECTION => Message::Election {
                channel: read_source_channel(fields)?,
                cost: fields.optional_number(COST)?,
            },
            COLLECT => {
                let spread = Duration::from_micros(fields.number(SPREAD)?);
                if spread > limits::DURATION {
                    return Err(bad(SPREAD, "too long"));
                }
                Message::Collect {
                    tsi: read_tsi(fields)?,
                    round: fields.number(ROUND)?,
                    question: fields.number(QUESTION)?,
                    spread,
                }
            }
            REPORT => Message::Report {
                channel: read_source_channel(fields)?,
                tsi: read_tsi(fields)?,
                round: fields.number(ROUND)?,
                summary: Summary::read(fields.required(SUMMARY)?)?,
                hops: read_hops(fields)?,
            },
            ANYCAST_ADVERTISEMENT => Message::AnycastAdvertisement {
                service: read_service(fields)?,
                cost: fields.optional_number(COST)?,
                hops: read_hops(fields)?,
            },
            ANYCAST_REQUEST => Message::AnycastRequest {
                service: read_service(fields)?,
                requestor: read_requestor(fields)?,
                nonce: fields.number(NONCE)?,
                hops: read_hops(fields)?,
                payload: read_bytes(fields)?,
            },
            ANYCAST_REPLY => Message::AnycastReply {
                service: read_service(fields)?,
                nonce: fields.number(NONCE)?,
                payload: read_bytes(fields)?,
            },
            _ => return Ok(None),
        }))
    }
}

impl Request {
    fn emit_fields(&self, frame: &mut Frame<'_>) {
        self.emit_head(frame);
        self.way().emit(frame);
    }

    /// Writes what no router changes.
    pub(super) fn emit_head(&self, frame: &mut Frame<'_>) {
        emit_channel(frame, &self.channel);
        frame.number(TSI, self.tsi.0);
        frame.number(SEQUENCE, self.units.first);
        if self.units.following != 0 {
            frame.number(FOLLOWING, self.units.following);
        }
        frame.number(NUMBER, self.number);
    }

    pub(super) fn way(&self) -> Way {
        let failed = if self.replier_failed { REPLIER_FAILED } else { 0 };
        Way {
            requestor: self.requestor,
            turning_point: self.turning_point,
            flags: failed | if self.unicast_reply { UNICAST } else { 0 },
            hops: self.hops,
        }
    }

    fn read(fields: &mut Fields<'_>) -> Result<Request, ParseError> {
        let units = UnitSet {
            first: read_sequence(fields)?,
            following: fields.optional_number(FOLLOWING)?.unwrap_or(0),
        };
        let furthest = u64::from(u32::BITS - units.following.leading_zeros());
        if units.first >= u64::MAX - furthest {
            return Err(bad(FOLLOWING, "beyond 64 bits"));
        }
        let flags = read_flags(fields, REPLIER_FAILED | UNICAST)?;
        Ok(Request {
            channel: read_source_channel(fields)?,
            tsi: read_tsi(fields)?,
            units,
            number: read_number(fields)?,
            requestor: read_requestor(fields)?,
            turning_point: fields.optional(TURNING_POINT)?.map(TurningPoint::read).transpose()?,
            replier_failed: flags & REPLIER_FAILED != 0,
            unicast_reply: flags & UNICAST != 0,
            hops: read_hops(fields)?,
        })
    }
}

/// State that routers write into a request, and read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) requestor: Option<SocketAddr>,
    pub(super) turning_point: Option<TurningPoint>,
    pub(super) flags: u8,
    pub(super) hops: u8,
}

impl Way {
    pub(super) fn emit(&self, frame: &mut Frame<'_>) {
        emit_requestor(frame, self.requestor);
        if let Some(turning_point) = &self.turning_point {
            turning_point.emit(frame);
        }
        emit_flags(frame, self.flags);
        frame.number(HOPS, self.hops);
    }
}

impl TurningPoint {
    fn emit(&self, frame: &mut Frame<'_>) {
        let (interface, tag) = (self.interface.to_be_bytes(), self.tag.to_be_bytes());
        let Some(host) = short_host(self.router) else {
            return frame.field(TURNING_POINT, |out| {
                put_host(out, self.router);
                out.extend_from_slice(&interface);
                out.extend_from_slice(&tag);
            });
        };
        let mut short = [0; 19];
        short[..7].copy_from_slice(&host);
        short[7..11].copy_from_slice(&interface);
        short[11..].copy_from_slice(&tag);
        frame.short(TURNING_POINT, short);
    }

    fn read(value: &[u8]) -> Result<TurningPoint, ParseError> {
        let mut reader = Reader::new(TURNING_POINT.name, value);
        let router = read_host(&mut reader)?;
        let interface = u32::from_be_bytes(reader.array()?);
        let tag = u64::from_be_bytes(reader.array()?);
        reader.finish()?;
        Ok(TurningPoint { router, interface, tag })
    }
}

impl Summary {
    fn read(value: &[u8]) -> Result<Summary, ParseError> {
        let mut reader = Reader::new(SUMMARY.name, value);
        let summary = Summary {
            count: reader.varint()?,
            sum: reader.varint()?,
            min: reader.varint()?,
            max: reader.varint()?,
        };
        if summary.count == 0 || summary.min > summary.max {
            return Err(reader.bad("of nobody, or with its least value above its greatest"));
        }
        reader.finish()?;
        Ok(summary)
    }
}

fn starts_with_type(bytes: &[u8], is: impl FnOnce(u8) -> bool) -> bool {
    matches!(bytes, &[m0, m1, _, message_type, ..]
        if [m0, m1] == control::MAGIC && is(message_type))
}

fn bad(field: Field, problem: &'static str) -> ParseError {
    ParseError::Value { what: field.name, problem }
}

fn emit_channel(frame: &mut Frame<'_>, channel: &Channel) {
    frame.field(CHANNEL, |out| put_channel(out, channel));
}

fn emit_bytes(frame: &mut Frame<'_>, bytes: &[u8]) {
    frame.field(PAYLOAD, |out| out.extend_from_slice(bytes));
}

fn emit_cost(frame: &mut Frame<'_>, cost: Option<u32>) {
    if let Some(cost) = cost {
        frame.number(COST, cost);
    }
}

fn emit_flags(frame: &mut Frame<'_>, flags: u8) {
    if flags != 0 {
        frame.short(FLAGS, [flags]);
    }
}

fn emit_requestor(frame: &mut Frame<'_>, requestor: Option<SocketAddr>) {
    match requestor.map(|requestor| (requestor, short_host(requestor))) {
        None => {}
        Some((_, Some(short))) => frame.short(REQUESTOR, short),
        Some((requestor, None)) => frame.field(REQUESTOR, |out| put_host(out, requestor)),
    }
}

fn read_tsi(fields: &mut Fields<'_>) -> Result<Tsi, ParseError> {
    fields.number(TSI).map(Tsi)
}

/// Reads a sequence number. The greatest number is refused, so that the number after it is valid.
fn read_sequence(fields: &mut Fields<'_>) -> Result<u64, ParseError> {
    match fields.number(SEQUENCE)? {
        u64::MAX => Err(bad(SEQUENCE, "beyond every stream")),
        sequence => Ok(sequence),
    }
}

fn read_number(fields: &mut Fields<'_>) -> Result<u8, ParseError> {
    match fields.number(NUMBER)? {
        0 => Err(bad(NUMBER, "0; requests count from 1")),
        number => Ok(number),
    }
}

fn read_flags(fields: &mut Fields<'_>, known: u8) -> Result<u8, ParseError> {
    match fields.optional_number(FLAGS)? {
        None => Ok(0),
        Some(flags) if flags & !known == 0 => Ok(flags),
        Some(_) => Err(bad(FLAGS, "unknown")),
    }
}

fn read_hops(fields: &mut Fields<'_>) -> Result<u8, ParseError> {
    match fields.number(HOPS)? {
        hops if hops > limits::HOPS => Err(bad(HOPS, "too many")),
        hops => Ok(hops),
    }
}

fn read_bytes<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], ParseError> {
    let bytes = fields.required(PAYLOAD)?;
    if bytes.len() > limits::PAYLOAD_LEN {
        return Err(bad(PAYLOAD, "too long"));
    }
    Ok(bytes)
}

fn read_requestor(fields: &mut Fields<'_>) -> Result<Option<SocketAddr>, ParseError> {
    let Some(value) = fields.optional(REQUESTOR)? else { return Ok(None) };
    let mut reader = Reader::new(REQUESTOR.name, value);
    let requestor = read_host(&mut reader)?;
    reader.finish()?;
    Ok(Some(requestor))
}

fn read_source_channel(fields: &mut Fields<'_>) -> Result<Channel, ParseError> {
    let channel = read_channel(Reader::new(CHANNEL.name, fields.required(CHANNEL)?))?;
    if channel.source.is_none() {
        return Err(bad(CHANNEL, "without a source"));
    }
    Ok(channel)
}

fn read_service(fields: &mut Fields<'_>) -> Result<Channel, ParseError> {
    let service = read_channel(Reader::new(CHANNEL.name, fields.required(CHANNEL)?))?;
    if service.source.is_some() {
        return Err(bad(CHANNEL, "of one source, where it names a service"));
    }
    Ok(service)
}
