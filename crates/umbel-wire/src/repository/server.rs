//! Emits and parses the server's messages.

use std::time::Duration;

use super::client::{read_rate, read_toi};
use super::{
    Announcement, ControlGroup, ControlKey, GroupKey, GroupSecret, ServerMessage, SymbolDigest,
    field, item, limits,
};
use crate::channel::{put_channel, read_channel};
use crate::codec::{Reader, put_signed, put_varint};
use crate::control::{self, Field, Fields, Frame, Parsed};
use crate::reception::ReportSchedule;
use crate::srm::MemberId;
use crate::{Channel, Digest, ParseError, Toi, Tsi};

const WELCOME: u8 = 0x21;
const REFUSED: u8 = 0x22;
const PAGE: u8 = 0x23;
const FAILED: u8 = 0x24;
const ANNOUNCE: u8 = 0x25;
const END: u8 = 0x26;
const GONE: u8 = 0x27;
const DIGESTS: u8 = 0x28;
const PROBED: u8 = 0x29;
const KEY: u8 = 0x2A;
const SYMBOL_DIGESTS: u8 = 0x2B;
const REPORTS: u8 = 0x2C;
const ASIDE: u8 = 0x2D;

impl ServerMessage {
    /// Appends the message to `out` as one control message. Durations are truncated to
    /// microseconds.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut frame = Frame::begin(out, self.message_type());
        self.emit_fields(&mut frame);
        frame.end();
    }

    /// Parses one control message, which must be all of `frame`. Returns [`Parsed::UnknownType`]
    /// for a message type that servers do not send.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is malformed or exceeds a limit.
    pub fn parse(frame: &[u8]) -> Result<Parsed<ServerMessage>, ParseError> {
        control::parse(frame, ServerMessage::read)
    }

    fn message_type(&self) -> u8 {
        match self {
            ServerMessage::Welcome { .. } => WELCOME,
            ServerMessage::Refused { .. } => REFUSED,
            ServerMessage::Page { .. } => PAGE,
            ServerMessage::Failed { .. } => FAILED,
            ServerMessage::Announce { .. } => ANNOUNCE,
            ServerMessage::End { .. } => END,
            ServerMessage::Gone { .. } => GONE,
            ServerMessage::Digests { .. } => DIGESTS,
            ServerMessage::Probed { .. } => PROBED,
            ServerMessage::Key(_) => KEY,
            ServerMessage::SymbolDigests { .. } => SYMBOL_DIGESTS,
            ServerMessage::Reports(_) => REPORTS,
            ServerMessage::Aside { .. } => ASIDE,
        }
    }

    fn emit_fields(&self, frame: &mut Frame<'_>) {
        match self {
            ServerMessage::Welcome { agent, tsi, channels, rate_bits_per_s, control, keys } => {
                frame.string(field::AGENT, agent);
                frame.number(field::TSI, tsi.0);
                for channel in channels {
                    frame.field(field::CHANNEL, |out| put_channel(out, channel));
                }
                frame.number(field::RATE, *rate_bits_per_s);
                if let Some(control) = control {
                    let sealed = control.key.is_none();
                    let field = if sealed { field::SEALED_CONTROL } else { field::CONTROL };
                    frame.field(field, |out| put_control(out, control));
                }
                for key in keys {
                    frame.field(field::KEY, |out| put_key(out, key));
                }
            }
            ServerMessage::Refused { reason } => frame.string(field::REASON, reason),
            ServerMessage::Page { query, items, total, next } => {
                frame.number(field::QUERY, *query);
                frame.field(field::PAGE, |out| item::put(out, items));
                frame.number(field::TOTAL, *total);
                if let Some(next) = next {
                    frame.number(field::NEXT, *next);
                }
            }
            ServerMessage::Failed { query, reason } => {
                frame.number(field::QUERY, *query);
                frame.string(field::REASON, reason);
            }
            ServerMessage::Announce { rate_bits_per_s, starts_in, nak_spread, announcements } => {
                frame.number(field::RATE, *rate_bits_per_s);
                emit_duration(frame, field::STARTS_IN, *starts_in);
                emit_duration(frame, field::NAK_SPREAD, *nak_spread);
                frame.field(field::ANNOUNCEMENTS, |out| put_announcements(out, announcements));
            }
            ServerMessage::End { transmission } => {
                frame.number(field::TRANSMISSION, *transmission);
            }
            ServerMessage::Gone { toi, reason } => {
                frame.number(field::TOI, toi.0);
                frame.string(field::REASON, reason);
            }
            ServerMessage::Digests { toi, first_block, digests, more } => {
                frame.number(field::TOI, toi.0);
                frame.number(field::FIRST_BLOCK, *first_block);
                frame.field(field::DIGESTS, |out| {
                    for digest in digests {
                        out.extend_from_slice(&digest.0);
                    }
                });
                frame.number(field::MORE, *more);
            }
            ServerMessage::SymbolDigests { toi, block, first_esi, digests } => {
                frame.number(field::TOI, toi.0);
                frame.number(field::FIRST_BLOCK, *block);
                frame.number(field::FIRST_SYMBOL, *first_esi);
                frame.field(field::SYMBOL_DIGESTS, |out| {
                    for digest in digests {
                        out.extend_from_slice(&digest.0);
                    }
                });
            }
            ServerMessage::Key(key) => frame.field(field::KEY, |out| put_key(out, key)),
            ServerMessage::Reports(schedule) => {
                frame.field(field::SCHEDULE, |out| schedule.put(out));
            }
            ServerMessage::Aside { carries_bits_per_s, rate_bits_per_s } => {
                frame.number(field::CARRIES, *carries_bits_per_s);
                frame.number(field::RATE, *rate_bits_per_s);
            }
            ServerMessage::Probed { probe, packets } => {
                frame.number(field::PROBE, *probe);
                frame.number(field::PACKETS, *packets);
            }
        }
    }

    fn read(fields: &mut Fields<'_>) -> Result<Option<ServerMessage>, ParseError> {
        Ok(Some(match fields.message {
            WELCOME => ServerMessage::Welcome {
                agent: fields.string(field::AGENT, limits::AGENT_LEN)?,
                tsi: Tsi(fields.number(field::TSI)?),
                channels: read_channels(fields)?,
                rate_bits_per_s: read_rate(fields)?,
                control: read_control_group(fields)?,
                keys: read_keys(fields)?,
            },
            REFUSED => ServerMessage::Refused { reason: read_reason(fields)? },
            PAGE => ServerMessage::Page {
                query: fields.number(field::QUERY)?,
                items: item::read(fields.required(field::PAGE)?)?,
                total: fields.number(field::TOTAL)?,
                next: fields.optional_number(field::NEXT)?,
            },
            FAILED => ServerMessage::Failed {
                query: fields.number(field::QUERY)?,
                reason: read_reason(fields)?,
            },
            ANNOUNCE => ServerMessage::Announce {
                rate_bits_per_s: read_rate(fields)?,
                starts_in: read_duration(fields, field::STARTS_IN)?,
                nak_spread: read_duration(fields, field::NAK_SPREAD)?,
                announcements: read_announcements(fields.required(field::ANNOUNCEMENTS)?)?,
            },
            END => ServerMessage::End { transmission: fields.number(field::TRANSMISSION)? },
            GONE => ServerMessage::Gone { toi: read_toi(fields)?, reason: read_reason(fields)? },
            DIGESTS => read_digests(fields)?,
            PROBED => ServerMessage::Probed {
                probe: fields.number(field::PROBE)?,
                packets: fields.number(field::PACKETS)?,
            },
            SYMBOL_DIGESTS => read_symbol_digests(fields)?,
            REPORTS => ServerMessage::Reports(read_schedule(fields)?),
            ASIDE => ServerMessage::Aside {
                carries_bits_per_s: fields.number(field::CARRIES)?,
                rate_bits_per_s: read_rate(fields)?,
            },
            KEY => ServerMessage::Key(read_key(fields.required(field::KEY)?)?),
            _ => return Ok(None),
        }))
    }
}

fn read_schedule(fields: &mut Fields<'_>) -> Result<ReportSchedule, ParseError> {
    let mut reader = Reader::new(field::SCHEDULE.name, fields.required(field::SCHEDULE)?);
    let schedule = ReportSchedule::read(&mut reader)?;
    reader.finish()?;
    Ok(schedule)
}

fn read_reason(fields: &mut Fields<'_>) -> Result<String, ParseError> {
    fields.string(field::REASON, limits::REASON_LEN)
}

fn emit_duration(frame: &mut Frame<'_>, field: Field, duration: Duration) {
    frame.number(field, u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
}

fn read_duration(fields: &mut Fields<'_>, field: Field) -> Result<Duration, ParseError> {
    let duration = Duration::from_micros(fields.number(field)?);
    if duration > limits::DURATION {
        return Err(ParseError::Value { what: field.name, problem: "more than a day" });
    }
    Ok(duration)
}

fn read_channels(fields: &mut Fields<'_>) -> Result<Vec<Channel>, ParseError> {
    let mut channels = Vec::new();
    for value in fields.all(field::CHANNEL) {
        let reader = Reader::new(field::CHANNEL.name, value?);
        if channels.len() == limits::CHANNELS {
            return Err(reader.bad("too many channels"));
        }
        channels.push(read_channel(reader)?);
    }
    Ok(channels)
}

/// Appends server, client, key (none if the group is sealed), channel.
fn put_control(out: &mut Vec<u8>, control: &ControlGroup) {
    put_varint(out, control.server.0);
    put_varint(out, control.client.0);
    if let Some(key) = control.key {
        out.extend_from_slice(&key.0);
    }
    put_channel(out, &control.channel);
}

fn read_control_group(fields: &mut Fields<'_>) -> Result<Option<ControlGroup>, ParseError> {
    let sealed = fields.optional(field::SEALED_CONTROL)?;
    let open = fields.optional(field::CONTROL)?;
    let groups = [(sealed, true), (open, false)].into_iter();
    let mut groups = groups.filter_map(|(value, sealed)| value.map(|value| (value, sealed)));
    groups.next().map(|(value, sealed)| read_control(value, sealed)).transpose()
}

fn read_control(value: &[u8], sealed: bool) -> Result<ControlGroup, ParseError> {
    let mut reader = Reader::new(field::CONTROL.name, value);
    let (server, client) = (MemberId(reader.varint()?), MemberId(reader.varint()?));
    let key = if sealed { None } else { Some(ControlKey(reader.array()?)) };
    let channel = read_channel(reader)?;
    if channel.source.is_some() {
        let problem = "a channel of one source";
        return Err(ParseError::Value { what: field::CONTROL.name, problem });
    }
    Ok(ControlGroup { channel, server, client, key })
}

/// Appends number and secret.
fn put_key(out: &mut Vec<u8>, key: &GroupKey) {
    out.extend_from_slice(&key.id.to_be_bytes());
    out.extend_from_slice(&key.secret.0);
}

fn read_key(value: &[u8]) -> Result<GroupKey, ParseError> {
    let bad = ParseError::Value { what: field::KEY.name, problem: "not 34 bytes" };
    let (id, secret) = value.split_first_chunk().ok_or(bad)?;
    let secret = <[u8; 32]>::try_from(secret)
        .map_err(|_| ParseError::Value { what: field::KEY.name, problem: "not 34 bytes" })?;
    Ok(GroupKey { id: u16::from_be_bytes(*id), secret: GroupSecret(secret) })
}

fn read_keys(fields: &mut Fields<'_>) -> Result<Vec<GroupKey>, ParseError> {
    let mut keys = Vec::new();
    for value in fields.all(field::KEY) {
        if keys.len() == limits::KEYS {
            return Err(ParseError::Value { what: field::KEY.name, problem: "too many keys" });
        }
        keys.push(read_key(value?)?);
    }
    Ok(keys)
}

/// Appends each announcement relative to the previous one. Its fields are transmission (wrapping,
/// from one more; 0 at first), TOI (signed difference from the previous one), channel, first block,
/// blocks, packets.
fn put_announcements(out: &mut Vec<u8>, announcements: &[Announcement]) {
    let (mut transmission, mut toi) = (0_u32, 0_u32);
    for announcement in announcements {
        put_varint(out, u64::from(announcement.transmission.wrapping_sub(transmission)));
        put_signed(out, i64::from(announcement.toi.0) - i64::from(toi));
        out.push(announcement.channel);
        put_varint(out, u64::from(announcement.first_block));
        put_varint(out, u64::from(announcement.blocks));
        put_varint(out, u64::from(announcement.packets));
        (transmission, toi) = (announcement.transmission.wrapping_add(1), announcement.toi.0);
    }
}

fn read_announcements(value: &[u8]) -> Result<Vec<Announcement>, ParseError> {
    let mut reader = Reader::new(field::ANNOUNCEMENTS.name, value);
    let mut announcements = Vec::new();
    let (mut transmission, mut toi) = (0_u32, 0_u32);
    while !reader.is_empty() {
        if announcements.len() == limits::ANNOUNCEMENTS {
            return Err(reader.bad("too many announcements"));
        }
        transmission = transmission.wrapping_add(reader.number()?);
        let difference = reader.signed()?;
        let next = i64::from(toi).checked_add(difference).and_then(|toi| u32::try_from(toi).ok());
        toi = next.ok_or_else(|| reader.bad("a TOI above 32 bits"))?;
        let announcement = Announcement {
            transmission,
            toi: Toi(toi),
            channel: reader.byte()?,
            first_block: reader.number()?,
            blocks: reader.number()?,
            packets: reader.number()?,
        };
        if announcement.first_block.checked_add(announcement.blocks).is_none() {
            return Err(reader.bad("a source block number above 32 bits"));
        }
        announcements.push(announcement);
        transmission = transmission.wrapping_add(1);
    }
    Ok(announcements)
}

fn read_symbol_digests(fields: &mut Fields<'_>) -> Result<ServerMessage, ParseError> {
    let first_esi: u32 = fields.number(field::FIRST_SYMBOL)?;
    let value = fields.required(field::SYMBOL_DIGESTS)?;
    let bad = |problem| ParseError::Value { what: field::SYMBOL_DIGESTS.name, problem };
    let (digests, rest) = value.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(bad("no whole number of digests"));
    }
    if digests.len() > limits::SYMBOL_DIGESTS {
        return Err(bad("too many digests"));
    }
    if first_esi.checked_add(digests.len() as u32).is_none() {
        return Err(bad("an encoding symbol ID above 32 bits"));
    }
    Ok(ServerMessage::SymbolDigests {
        toi: read_toi(fields)?,
        block: fields.number(field::FIRST_BLOCK)?,
        first_esi,
        digests: digests.iter().copied().map(SymbolDigest).collect(),
    })
}

fn read_digests(fields: &mut Fields<'_>) -> Result<ServerMessage, ParseError> {
    let first_block: u32 = fields.number(field::FIRST_BLOCK)?;
    let value = fields.required(field::DIGESTS)?;
    let bad = |problem| ParseError::Value { what: field::DIGESTS.name, problem };
    let (digests, rest) = value.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(bad("no whole number of digests"));
    }
    if digests.len() > limits::DIGESTS {
        return Err(bad("too many digests"));
    }
    if first_block.checked_add(digests.len() as u32).is_none() {
        return Err(bad("a source block number above 32 bits"));
    }
    Ok(ServerMessage::Digests {
        toi: read_toi(fields)?,
        first_block,
        digests: digests.iter().copied().map(Digest).collect(),
        more: match fields.number::<u8>(field::MORE)? {
            0 => false,
            1 => true,
            _ => {
                return Err(ParseError::Value {
                    what: field::MORE.name,
                    problem: "neither 0 nor 1",
                });
            }
        },
    })
}
