//! Messages of SRM: data units, requests, repairs and session messages [SRM §III].
//!
//! Each is one control message ([`control`]) in one datagram to the group. A data unit is
//! identified by its source and a sequence number that never wraps.
//!
//! Parsing accepts only values within the documented ranges, so an engine need not check again.
//! Emitting does not check; the peer refuses a message that exceeds [`limits`].

use std::time::Duration;

use crate::ParseError;
use crate::codec::{Reader, put_varint};
use crate::control::{self, Field, Fields, Frame, Parsed};

const DATA: u8 = 0x41;
const REPAIR: u8 = 0x42;
const REQUEST: u8 = 0x43;
const SESSION: u8 = 0x44;

const SENDER: Field = Field { number: 1, name: "sender" };
const UNIT: Field = Field { number: 2, name: "data unit" };
const HORIZON: Field = Field { number: 3, name: "horizon" };
const PAYLOAD: Field = Field { number: 4, name: "payload" };
const REQUESTER: Field = Field { number: 5, name: "requester" };
const DISTANCE: Field = Field { number: 6, name: "distance" };
const SCOPE: Field = Field { number: 7, name: "scope" };
const SOURCE: Field = Field { number: 8, name: "source" };
const RUNS: Field = Field { number: 9, name: "missing units" };
const TIMESTAMP: Field = Field { number: 10, name: "timestamp" };
const SOURCES: Field = Field { number: 11, name: "sources" };
const ECHOES: Field = Field { number: 12, name: "echoes" };
const LEAVING: Field = Field { number: 13, name: "leaving" };

/// Limits of messages. Parsing refuses a message that exceeds one.
pub mod limits {
    use std::time::Duration;

    /// Maximum length of a data unit in bytes.
    pub const PAYLOAD_LEN: usize = crate::control::MAX_UNIT;
    /// Maximum number of runs in a request.
    pub const RUNS: usize = 128;
    /// Maximum number of units that a request asks for.
    pub const UNITS: u64 = 1024;
    /// Maximum number of sources in a session message.
    pub const SOURCES: usize = 64;
    /// Maximum number of echoes in a session message.
    pub const ECHOES: usize = 256;
    /// Maximum of any distance or time in a message.
    pub const DURATION: Duration = Duration::from_hours(24);
}

/// Identifier of a group's member, source or receiver; SRM does not tell them apart. Unique within
/// the group for as long as any other member remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u64);

/// A run of neighbouring data units of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRun {
    /// First sequence number.
    pub first: u64,
    /// Number of units; at least 1. `first + count` fits 64 bits.
    pub count: u64,
}

/// Progress of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceState {
    /// The source.
    pub source: MemberId,
    /// The first unit that late joiners recover; at most `next`.
    pub horizon: u64,
    /// One beyond the last unit that it sent, as far as the sender of the message knows.
    pub next: u64,
}

/// A member's timestamp, sent back so that the member learns its distance to the echo's sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The member that wrote the timestamp.
    pub member: MemberId,
    /// The timestamp of its last session message, by its own clock.
    pub timestamp_ns: u64,
    /// Time from the arrival of that message to the sending of this one.
    pub held: Duration,
}

/// A message to the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A data unit, sent by its source.
    Data {
        /// The source, which is also the sender.
        source: MemberId,
        /// Its sequence number.
        sequence: u64,
        /// The first unit that late joiners recover; at most `sequence`.
        horizon: u64,
        /// Its content.
        payload: &'a [u8],
    },
    /// A data unit, sent by any member that holds it.
    Repair {
        /// The sender of the repair.
        sender: MemberId,
        /// Source of the unit.
        source: MemberId,
        /// Sequence number of the unit.
        sequence: u64,
        /// The sender of the request that this repair answers.
        requester: MemberId,
        /// One-way distance from the sender to the requester.
        distance: Duration,
        /// Maximum number of hops of the repair, from the request [SRM §VII-B].
        scope: Option<u8>,
        /// Content of the unit, as its source sent it.
        payload: &'a [u8],
    },
    /// Asks for data units.
    Request {
        /// The sender of the request.
        sender: MemberId,
        /// Source of the units.
        source: MemberId,
        /// The units: ascending, not overlapping, not empty, at most [`limits::RUNS`] runs and
        /// [`limits::UNITS`] units.
        runs: Vec<UnitRun>,
        /// One-way distance from the sender to the source.
        distance: Duration,
        /// Maximum number of hops of the request [SRM §VII-B].
        scope: Option<u8>,
    },
    /// The state of a member, from which others learn losses and distances.
    Session {
        /// The sender of the message.
        sender: MemberId,
        /// Time of sending, by the sender's own clock.
        timestamp_ns: u64,
        /// Progress of sources; at most [`limits::SOURCES`].
        sources: Vec<SourceState>,
        /// Timestamps of others; at most [`limits::ECHOES`].
        echoes: Vec<Echo>,
        /// Whether the sender leaves the group.
        leaving: bool,
    },
}

impl<'a> Message<'a> {
    /// Appends the message to `out` as one control message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Message::Data { source, sequence, horizon, payload } => {
                let mut frame = Frame::begin(out, DATA);
                put_unit(&mut frame, *source, *sequence);
                frame.number(HORIZON, *horizon);
                frame.field(PAYLOAD, |out| out.extend_from_slice(payload));
                frame.end();
            }
            Message::Repair { sender, source, sequence, requester, distance, scope, payload } => {
                let mut frame = Frame::begin(out, REPAIR);
                frame.number(SENDER, sender.0);
                put_unit(&mut frame, *source, *sequence);
                frame.number(REQUESTER, requester.0);
                put_distance(&mut frame, *distance);
                put_scope(&mut frame, *scope);
                frame.field(PAYLOAD, |out| out.extend_from_slice(payload));
                frame.end();
            }
            Message::Request { sender, source, runs, distance, scope } => {
                let mut frame = Frame::begin(out, REQUEST);
                frame.number(SENDER, sender.0);
                frame.number(SOURCE, source.0);
                frame.field(RUNS, |out| put_runs(out, runs));
                put_distance(&mut frame, *distance);
                put_scope(&mut frame, *scope);
                frame.end();
            }
            Message::Session { sender, timestamp_ns, sources, echoes, leaving } => {
                let mut frame = Frame::begin(out, SESSION);
                frame.number(SENDER, sender.0);
                frame.number(TIMESTAMP, *timestamp_ns);
                if !sources.is_empty() {
                    frame.field(SOURCES, |out| put_sources(out, sources));
                }
                if !echoes.is_empty() {
                    frame.field(ECHOES, |out| put_echoes(out, echoes));
                }
                if *leaving {
                    frame.number(LEAVING, 1_u8);
                }
                frame.end();
            }
        }
    }

    /// Parses one message, which must be all of `frame`.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is malformed or exceeds a limit.
    pub fn parse(frame: &'a [u8]) -> Result<Parsed<Message<'a>>, ParseError> {
        control::parse(frame, Message::read)
    }

    fn read(fields: &mut Fields<'a>) -> Result<Option<Message<'a>>, ParseError> {
        Ok(Some(match fields.message {
            DATA => {
                let (source, sequence) = read_unit(fields)?;
                let horizon = fields.number(HORIZON)?;
                if horizon > sequence {
                    return Err(bad(HORIZON, "beyond the unit itself"));
                }
                Message::Data { source, sequence, horizon, payload: read_payload(fields)? }
            }
            REPAIR => {
                let (source, sequence) = read_unit(fields)?;
                Message::Repair {
                    sender: MemberId(fields.number(SENDER)?),
                    source,
                    sequence,
                    requester: MemberId(fields.number(REQUESTER)?),
                    distance: read_distance(fields)?,
                    scope: read_scope(fields)?,
                    payload: read_payload(fields)?,
                }
            }
            REQUEST => Message::Request {
                sender: MemberId(fields.number(SENDER)?),
                source: MemberId(fields.number(SOURCE)?),
                runs: read_runs(fields.required(RUNS)?)?,
                distance: read_distance(fields)?,
                scope: read_scope(fields)?,
            },
            SESSION => Message::Session {
                sender: MemberId(fields.number(SENDER)?),
                timestamp_ns: fields.number(TIMESTAMP)?,
                sources: fields.optional(SOURCES)?.map_or(Ok(Vec::new()), read_sources)?,
                echoes: fields.optional(ECHOES)?.map_or(Ok(Vec::new()), read_echoes)?,
                leaving: fields.optional(LEAVING)?.is_some(),
            },
            _ => return Ok(None),
        }))
    }
}

fn bad(field: Field, problem: &'static str) -> ParseError {
    ParseError::Value { what: field.name, problem }
}

fn put_unit(frame: &mut Frame<'_>, source: MemberId, sequence: u64) {
    frame.field(UNIT, |out| {
        put_varint(out, source.0);
        put_varint(out, sequence);
    });
}

fn read_unit(fields: &mut Fields<'_>) -> Result<(MemberId, u64), ParseError> {
    let mut reader = Reader::new(UNIT.name, fields.required(UNIT)?);
    let unit = (MemberId(reader.varint()?), reader.varint()?);
    reader.finish()?;
    Ok(unit)
}

fn read_payload<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], ParseError> {
    let payload = fields.required(PAYLOAD)?;
    if payload.len() > limits::PAYLOAD_LEN {
        return Err(bad(PAYLOAD, "too many bytes"));
    }
    Ok(payload)
}

/// Adds a distance in whole nanoseconds.
fn put_distance(frame: &mut Frame<'_>, distance: Duration) {
    frame.number(DISTANCE, nanoseconds(distance));
}

fn read_distance(fields: &mut Fields<'_>) -> Result<Duration, ParseError> {
    let distance = Duration::from_nanos(fields.number(DISTANCE)?);
    if distance > limits::DURATION {
        return Err(bad(DISTANCE, "too long"));
    }
    Ok(distance)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn put_scope(frame: &mut Frame<'_>, scope: Option<u8>) {
    if let Some(scope) = scope {
        frame.number(SCOPE, scope);
    }
}

fn read_scope(fields: &mut Fields<'_>) -> Result<Option<u8>, ParseError> {
    match fields.optional_number(SCOPE)? {
        Some(0) => Err(bad(SCOPE, "of no hop")),
        scope => Ok(scope),
    }
}

/// Appends each run: its distance from the end of the previous one (from 0 at first), and its
/// length less one.
fn put_runs(out: &mut Vec<u8>, runs: &[UnitRun]) {
    let mut end = 0;
    for run in runs {
        put_varint(out, run.first.wrapping_sub(end));
        put_varint(out, run.count.wrapping_sub(1));
        end = run.first.wrapping_add(run.count);
    }
}

fn read_runs(value: &[u8]) -> Result<Vec<UnitRun>, ParseError> {
    let mut reader = Reader::new(RUNS.name, value);
    let mut runs = Vec::new();
    let (mut end, mut units) = (0_u64, 0_u64);
    while !reader.is_empty() {
        let overflow = reader.bad("a sequence number above 64 bits");
        let first = end.checked_add(reader.varint()?).ok_or_else(|| overflow.clone())?;
        let count = reader.varint()?.checked_add(1).ok_or_else(|| overflow.clone())?;
        end = first.checked_add(count).ok_or(overflow)?;
        units = units.saturating_add(count);
        if runs.len() == limits::RUNS || units > limits::UNITS {
            return Err(reader.bad("too many units"));
        }
        runs.push(UnitRun { first, count });
    }
    if runs.is_empty() {
        return Err(reader.bad("no unit"));
    }
    Ok(runs)
}

/// Appends each state: source, horizon, and the distance from there to `next`.
fn put_sources(out: &mut Vec<u8>, sources: &[SourceState]) {
    for state in sources {
        put_varint(out, state.source.0);
        put_varint(out, state.horizon);
        put_varint(out, state.next.wrapping_sub(state.horizon));
    }
}

fn read_sources(value: &[u8]) -> Result<Vec<SourceState>, ParseError> {
    let mut reader = Reader::new(SOURCES.name, value);
    let mut sources = Vec::new();
    while !reader.is_empty() {
        if sources.len() == limits::SOURCES {
            return Err(reader.bad("too many sources"));
        }
        let (source, horizon) = (MemberId(reader.varint()?), reader.varint()?);
        let next = horizon.checked_add(reader.varint()?);
        let next = next.ok_or_else(|| reader.bad("a sequence number above 64 bits"))?;
        sources.push(SourceState { source, horizon, next });
    }
    Ok(sources)
}

/// Appends each echo: member, timestamp, time held in nanoseconds.
fn put_echoes(out: &mut Vec<u8>, echoes: &[Echo]) {
    for echo in echoes {
        put_varint(out, echo.member.0);
        put_varint(out, echo.timestamp_ns);
        put_varint(out, nanoseconds(echo.held));
    }
}

fn read_echoes(value: &[u8]) -> Result<Vec<Echo>, ParseError> {
    let mut reader = Reader::new(ECHOES.name, value);
    let mut echoes = Vec::new();
    while !reader.is_empty() {
        if echoes.len() == limits::ECHOES {
            return Err(reader.bad("too many echoes"));
        }
        let (member, timestamp_ns) = (MemberId(reader.varint()?), reader.varint()?);
        let held = Duration::from_nanos(reader.varint()?);
        if held > limits::DURATION {
            return Err(reader.bad("held too long"));
        }
        echoes.push(Echo { member, timestamp_ns, held });
    }
    Ok(echoes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(message: &Message<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        message.emit(&mut out);
        out
    }

    fn request(runs: Vec<UnitRun>) -> Message<'static> {
        let (sender, source) = (MemberId(1), MemberId(2));
        Message::Request { sender, source, runs, distance: Duration::ZERO, scope: None }
    }

    #[track_caller]
    fn refused(message: &Message<'_>, what: &str) {
        let error = Message::parse(&bytes(message)).unwrap_err();
        assert!(matches!(error, ParseError::Value { what: w, .. } if w == what), "{error}");
    }

    #[test]
    fn a_horizon_beyond_its_unit_is_refused() {
        let data = |horizon| Message::Data {
            source: MemberId(1),
            sequence: 5,
            horizon,
            payload: b"payload",
        };
        assert!(Message::parse(&bytes(&data(5))).is_ok());
        refused(&data(6), "horizon");
    }

    #[test]
    fn a_request_for_nothing_or_for_too_much_is_refused() {
        let run = |first, count| UnitRun { first, count };
        refused(&request(vec![]), "missing units");
        refused(&request(vec![run(7, limits::UNITS + 1)]), "missing units");
        refused(&request(vec![run(u64::MAX, 1)]), "missing units");
        refused(
            &request((0..=limits::RUNS as u64).map(|n| run(2 * n, 1)).collect()),
            "missing units",
        );
        assert!(Message::parse(&bytes(&request(vec![run(u64::MAX - 1, 1)]))).is_ok());
    }

    #[test]
    fn a_list_that_is_too_long_is_refused() {
        let session = |sources, echoes| Message::Session {
            sender: MemberId(1),
            timestamp_ns: 0,
            sources,
            echoes,
            leaving: false,
        };
        let state = SourceState { source: MemberId(3), horizon: 4, next: 5 };
        refused(&session(vec![state; limits::SOURCES + 1], vec![]), "sources");
        let echo = Echo { member: MemberId(3), timestamp_ns: 4, held: Duration::ZERO };
        refused(&session(vec![], vec![echo; limits::ECHOES + 1]), "echoes");
        let held = limits::DURATION + Duration::from_nanos(1);
        refused(&session(vec![], vec![Echo { held, ..echo }]), "echoes");
    }

    #[test]
    fn a_scope_of_no_hop_is_refused() {
        let Message::Request { sender, source, runs, distance, .. } =
            request(vec![UnitRun { first: 0, count: 1 }])
        else {
            unreachable!()
        };
        refused(&Message::Request { sender, source, runs, distance, scope: Some(0) }, "scope");
    }
}
