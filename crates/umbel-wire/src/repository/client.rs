//! Emits and parses the client's messages.

use super::{ClientMessage, Nak, Need, SymbolKey, SymbolRun, field, limits};
use crate::codec::{Reader, put_varint};
use crate::control::{self, Fields, Frame, Parsed};
use crate::reception::ReceptionReport;
use crate::{ParseError, Toi};

const HELLO: u8 = 0x01;
const LIST: u8 = 0x02;
const REQUEST: u8 = 0x03;
const WANT: u8 = 0x04;
const NAK: u8 = 0x05;
const DONE: u8 = 0x06;
const CANCEL: u8 = 0x07;
const UNICAST: u8 = 0x08;
const DIGESTS: u8 = 0x09;
const PROBE: u8 = 0x0A;
const CONTROL: u8 = 0x0B;
const HAS_KEY: u8 = 0x0C;
const SYMBOL_DIGESTS: u8 = 0x0D;
const RECEPTION: u8 = 0x0E;

impl ClientMessage {
    /// Appends the message to `out` as one control message.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut frame = Frame::begin(out, self.message_type());
        self.emit_fields(&mut frame);
        frame.end();
    }

    /// Parses one control message, which must be all of `frame`. Returns [`Parsed::UnknownType`]
    /// for a message type that clients do not send.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is malformed or exceeds a limit.
    pub fn parse(frame: &[u8]) -> Result<Parsed<ClientMessage>, ParseError> {
        control::parse(frame, ClientMessage::read)
    }

    fn message_type(&self) -> u8 {
        match self {
            ClientMessage::Hello { .. } => HELLO,
            ClientMessage::List { .. } => LIST,
            ClientMessage::Request { .. } => REQUEST,
            ClientMessage::Want { .. } => WANT,
            ClientMessage::Nak(_) => NAK,
            ClientMessage::Done { .. } => DONE,
            ClientMessage::Cancel { .. } => CANCEL,
            ClientMessage::Unicast { .. } => UNICAST,
            ClientMessage::Digests { .. } => DIGESTS,
            ClientMessage::Probe { .. } => PROBE,
            ClientMessage::Control { .. } => CONTROL,
            ClientMessage::HasKey { .. } => HAS_KEY,
            ClientMessage::SymbolDigests { .. } => SYMBOL_DIGESTS,
            ClientMessage::Reception(_) => RECEPTION,
        }
    }

    fn emit_fields(&self, frame: &mut Frame<'_>) {
        match self {
            ClientMessage::Hello { agent, token } => {
                frame.string(field::AGENT, agent);
                if let Some(token) = token {
                    frame.string(field::TOKEN, token);
                }
            }
            ClientMessage::List { query, patterns, cursor, limit } => {
                emit_query(frame, *query, patterns);
                frame.number(field::CURSOR, *cursor);
                frame.number(field::LIMIT, *limit);
            }
            ClientMessage::Request { query, patterns, hold } => {
                emit_query(frame, *query, patterns);
                if *hold {
                    frame.number(field::HOLD, 1_u8);
                }
            }
            ClientMessage::Want { toi, need } | ClientMessage::Unicast { toi, need } => {
                frame.number(field::TOI, toi.0);
                frame.field(field::NEED, |out| need.put(out));
            }
            ClientMessage::Nak(nak) => {
                frame.number(field::TRANSMISSION, nak.transmission);
                frame.number(field::TOI, nak.toi.0);
                frame.field(field::NEED, |out| nak.need.put(out));
                frame.number(field::RECEIVED, nak.received);
                frame.number(field::LOST, nak.lost);
            }
            ClientMessage::Done { tois, received, lost } => {
                emit_tois(frame, tois);
                if (*received, *lost) != (0, 0) {
                    frame.number(field::RECEIVED, *received);
                    frame.number(field::LOST, *lost);
                }
            }
            ClientMessage::Cancel { tois } => emit_tois(frame, tois),
            ClientMessage::Digests { toi } => frame.number(field::TOI, toi.0),
            ClientMessage::SymbolDigests { toi, key, symbols } => {
                frame.number(field::TOI, toi.0);
                frame.field(field::SYMBOL_KEY, |out| out.extend_from_slice(&key.0));
                frame.number(field::FIRST_BLOCK, symbols.block);
                frame.number(field::FIRST_SYMBOL, symbols.first_esi);
                frame.number(field::SYMBOLS, symbols.count);
            }
            ClientMessage::HasKey { key } => frame.number(field::KEY_ID, *key),
            ClientMessage::Reception(report) => {
                frame.field(field::RECEPTION, |out| report.put(out));
            }
            ClientMessage::Control { hears } => frame.number(field::HEARS, *hears),
            ClientMessage::Probe { probe, channel, packets, packet_len, rate_bits_per_s } => {
                frame.number(field::PROBE, *probe);
                frame.number(field::CHANNEL_INDEX, *channel);
                frame.number(field::PACKETS, *packets);
                frame.number(field::PACKET_LEN, *packet_len);
                frame.number(field::RATE, *rate_bits_per_s);
            }
        }
    }

    fn read(fields: &mut Fields<'_>) -> Result<Option<ClientMessage>, ParseError> {
        Ok(Some(match fields.message {
            HELLO => ClientMessage::Hello {
                agent: fields.string(field::AGENT, limits::AGENT_LEN)?,
                token: fields
                    .optional(field::TOKEN)?
                    .map(|token| Reader::new("token", token).rest_string(limits::TOKEN_LEN))
                    .transpose()?,
            },
            LIST => ClientMessage::List {
                query: fields.number(field::QUERY)?,
                patterns: read_patterns(fields)?,
                cursor: fields.number(field::CURSOR)?,
                limit: fields.number(field::LIMIT)?,
            },
            REQUEST => ClientMessage::Request {
                query: fields.number(field::QUERY)?,
                patterns: read_patterns(fields)?,
                hold: fields.optional(field::HOLD)?.is_some(),
            },
            WANT => ClientMessage::Want { toi: read_toi(fields)?, need: read_need(fields)? },
            NAK => ClientMessage::Nak(Nak {
                transmission: fields.number(field::TRANSMISSION)?,
                toi: read_toi(fields)?,
                need: read_need(fields)?,
                received: fields.number(field::RECEIVED)?,
                lost: fields.number(field::LOST)?,
            }),
            DONE => ClientMessage::Done {
                tois: read_tois(fields)?,
                received: fields.optional_number(field::RECEIVED)?.unwrap_or(0),
                lost: fields.optional_number(field::LOST)?.unwrap_or(0),
            },
            CANCEL => ClientMessage::Cancel { tois: read_tois(fields)? },
            UNICAST => ClientMessage::Unicast { toi: read_toi(fields)?, need: read_need(fields)? },
            DIGESTS => ClientMessage::Digests { toi: read_toi(fields)? },
            PROBE => read_probe(fields)?,
            HAS_KEY => ClientMessage::HasKey { key: fields.number(field::KEY_ID)? },
            SYMBOL_DIGESTS => read_symbol_digests(fields)?,
            RECEPTION => ClientMessage::Reception(read_reception(fields)?),
            CONTROL => ClientMessage::Control { hears: fields.number::<u8>(field::HEARS)? != 0 },
            _ => return Ok(None),
        }))
    }
}

fn emit_query(frame: &mut Frame<'_>, query: u32, patterns: &[String]) {
    frame.number(field::QUERY, query);
    for pattern in patterns {
        frame.string(field::PATTERN, pattern);
    }
}

fn emit_tois(frame: &mut Frame<'_>, tois: &[Toi]) {
    frame.field(field::TOIS, |out| {
        for toi in tois {
            put_varint(out, u64::from(toi.0));
        }
    });
}

fn read_patterns(fields: &mut Fields<'_>) -> Result<Vec<String>, ParseError> {
    let mut patterns = Vec::new();
    for value in fields.all(field::PATTERN) {
        let reader = &mut Reader::new(field::PATTERN.name, value?);
        if patterns.len() == limits::PATTERNS {
            return Err(reader.bad("too many patterns"));
        }
        patterns.push(reader.rest_string(limits::PATTERN_LEN)?);
    }
    Ok(patterns)
}

/// Reads the item that a message is about.
pub(super) fn read_toi(fields: &mut Fields<'_>) -> Result<Toi, ParseError> {
    fields.number(field::TOI).map(Toi)
}

fn read_need(fields: &mut Fields<'_>) -> Result<Need, ParseError> {
    Need::read(fields.required(field::NEED)?)
}

fn read_tois(fields: &mut Fields<'_>) -> Result<Vec<Toi>, ParseError> {
    let mut reader = Reader::new(field::TOIS.name, fields.required(field::TOIS)?);
    let mut tois = Vec::new();
    while !reader.is_empty() {
        if tois.len() == limits::TOIS {
            return Err(reader.bad("too many items"));
        }
        tois.push(Toi(reader.number()?));
    }
    Ok(tois)
}

fn read_symbol_digests(fields: &mut Fields<'_>) -> Result<ClientMessage, ParseError> {
    let key = fields.required(field::SYMBOL_KEY)?.try_into().map(SymbolKey);
    let bad = |what, problem| ParseError::Value { what, problem };
    let (first_esi, count): (u32, u32) =
        (fields.number(field::FIRST_SYMBOL)?, fields.number(field::SYMBOLS)?);
    if count == 0 || count as usize > limits::SYMBOL_DIGESTS {
        return Err(bad(field::SYMBOLS.name, "none, or too many"));
    }
    if first_esi.checked_add(count).is_none() {
        return Err(bad(field::FIRST_SYMBOL.name, "an encoding symbol ID above 32 bits"));
    }
    Ok(ClientMessage::SymbolDigests {
        toi: read_toi(fields)?,
        key: key.map_err(|_| bad(field::SYMBOL_KEY.name, "not 32 bytes"))?,
        symbols: SymbolRun { block: fields.number(field::FIRST_BLOCK)?, first_esi, count },
    })
}

fn read_reception(fields: &mut Fields<'_>) -> Result<ReceptionReport, ParseError> {
    let mut reader = Reader::new(field::RECEPTION.name, fields.required(field::RECEPTION)?);
    let report = ReceptionReport::read(&mut reader)?;
    reader.finish()?;
    Ok(report)
}

fn read_probe(fields: &mut Fields<'_>) -> Result<ClientMessage, ParseError> {
    let packet_len = fields.number(field::PACKET_LEN)?;
    if !(limits::PROBE_PACKET_MIN..=limits::PROBE_PACKET_MAX).contains(&packet_len) {
        let what = field::PACKET_LEN.name;
        return Err(ParseError::Value { what, problem: "no length that a packet can have" });
    }
    Ok(ClientMessage::Probe {
        probe: fields.number(field::PROBE)?,
        channel: fields.number(field::CHANNEL_INDEX)?,
        packets: fields.number(field::PACKETS)?,
        packet_len,
        rate_bits_per_s: read_rate(fields)?,
    })
}

/// Reads a rate, which is never 0.
pub(super) fn read_rate(fields: &mut Fields<'_>) -> Result<u64, ParseError> {
    match fields.number(field::RATE)? {
        0 => Err(ParseError::Value { what: field::RATE.name, problem: "0 bit/s" }),
        rate => Ok(rate),
    }
}
