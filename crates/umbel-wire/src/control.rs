//! The common format of all control messages: a versioned header and a body of TLVs.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+---------------+---------------+
//! |      'U'      |      'm'      |  version = 1  |  message type |
//! +---------------+---------------+---------------+---------------+
//! |                    length of the body in bytes                |
//! +---------------------------------------------------------------+
//! |            TLV type           |  length of the value …        |
//! +-------------------------------+-------------------------------+
//! |  … in bytes                   |  value …                      |
//! +-------------------------------+-------------------------------+
//! |  more TLVs …
//! ```
//!
//! Header and TLV numbers are big-endian. TLVs stand in any order. A reader skips and counts
//! unknown message types and TLV types ([`Parsed`]), so that a newer peer can send more than an
//! older one understands. Changes that an older peer would misunderstand need another version,
//! which is refused ([`ParseError::Version`]).

use crate::ParseError;
use crate::codec::{Reader, put_varint};

/// The first two bytes of every control message: `Um`.
pub const MAGIC: [u8; 2] = *b"Um";
/// The version of the control protocol that this implementation uses.
pub const VERSION: u8 = 1;
/// Maximum length of a body: 4 MiB.
pub const MAX_BODY: u32 = 4 << 20;
/// Maximum length of a data unit in a message in bytes; with all other fields it still fits a UDP
/// datagram.
pub const MAX_UNIT: usize = 65_000;
/// Number of TLV types that can be looked up.
const TYPES: usize = 64;
/// Length of a TLV's type and length fields in bytes.
pub(crate) const TLV_HEADER_LEN: usize = 6;

/// The header of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Type of the message; each protocol assigns its own numbers.
    pub message_type: u8,
    /// Length of the body in bytes; at most [`MAX_BODY`].
    pub body_len: u32,
}

impl FrameHeader {
    /// Length of the header in bytes.
    pub const LEN: usize = 8;

    /// Returns the length of the whole message in bytes, header and body.
    pub fn frame_len(&self) -> usize {
        FrameHeader::LEN + self.body_len as usize
    }
}

/// Parses the header at the start of a control message on a stream. Returns `None` if more bytes
/// are needed. Garbage and other versions are detected at the first wrong byte.
///
/// # Errors
///
/// Returns an error if the bytes are not a control message, are of another version, or announce a
/// body of more than [`MAX_BODY`] bytes. The stream cannot be read any further then.
pub fn peek(bytes: &[u8]) -> Result<Option<FrameHeader>, ParseError> {
    let magic_len = bytes.len().min(MAGIC.len());
    if bytes[..magic_len] != MAGIC[..magic_len] {
        let second = bytes.get(1).copied().unwrap_or_default();
        return Err(ParseError::Magic([bytes[0], second]));
    }
    if let Some(&theirs) = bytes.get(2)
        && theirs != VERSION
    {
        return Err(ParseError::Version { theirs, ours: VERSION });
    }
    let &[_, _, _, message_type, a, b, c, d, ..] = bytes else {
        return Ok(None);
    };
    let body_len = u32::from_be_bytes([a, b, c, d]);
    if body_len > MAX_BODY {
        return Err(ParseError::BodyLen { len: body_len, limit: MAX_BODY });
    }
    Ok(Some(FrameHeader { message_type, body_len }))
}

/// The result of parsing a control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// A message of a known type.
    Message {
        /// The message.
        message: T,
        /// Number of unknown TLVs in it, which were skipped.
        skipped: u32,
    },
    /// A message of an unknown type, or of one that does not travel in this direction. Its body was
    /// not read.
    UnknownType(u8),
}

impl<T> Parsed<T> {
    /// Returns the message if its type is known.
    pub fn message(self) -> Option<T> {
        match self {
            Parsed::Message { message, .. } => Some(message),
            Parsed::UnknownType(_) => None,
        }
    }
}

/// Parses a control message, which must be exactly `frame`. `read` builds the message from its type
/// and fields, or returns `None` for an unknown type.
pub(crate) fn parse<'a, T>(
    frame: &'a [u8],
    read: impl FnOnce(&mut Fields<'a>) -> Result<Option<T>, ParseError>,
) -> Result<Parsed<T>, ParseError> {
    let truncated =
        |need| ParseError::Truncated { what: "control message", need, have: frame.len() };
    let header = peek(frame)?.ok_or_else(|| truncated(FrameHeader::LEN))?;
    let body = &frame[FrameHeader::LEN..];
    let body_len = header.body_len as usize;
    if body.len() < body_len {
        return Err(truncated(header.frame_len()));
    }
    if body.len() > body_len {
        return Err(ParseError::Trailing(body.len() - body_len));
    }
    let mut fields = Fields::index(header.message_type, body);
    let Some(message) = read(&mut fields)? else {
        return Ok(Parsed::UnknownType(header.message_type));
    };
    Ok(Parsed::Message { message, skipped: fields.finish()? })
}

/// A kind of TLV.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// TLV type; below 64.
    pub(crate) number: u16,
    /// Name in errors.
    pub(crate) name: &'static str,
}

/// The fields of a message: TLVs that are looked up by type.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    /// Message type.
    pub(crate) message: u8,
    body: &'a [u8],
    /// Place in the body of the first value of each TLV type: its beginning. Its length is before
    /// it.
    first: [u32; TYPES],
    /// A bit for each TLV type that is there.
    present: u64,
    /// A bit for each TLV type that is there more than once.
    repeated: u64,
    /// Whether there are types that cannot be looked up.
    others: bool,
    /// A bit for each TLV type that was looked up.
    known: u64,
    /// The first TLV that is cut off.
    error: Option<ParseError>,
}

impl<'a> Fields<'a> {
    /// Finds the TLVs of a body, in one pass.
    fn index(message: u8, body: &'a [u8]) -> Fields<'a> {
        let (mut first, mut present, mut repeated) = ([0; TYPES], 0_u64, 0_u64);
        let mut others = false;
        let mut tlvs = Tlvs(body);
        let error = loop {
            match tlvs.next() {
                None => break None,
                Some(Err(error)) => break Some(error),
                Some(Ok((found, value))) => {
                    let Some(place) = first.get_mut(usize::from(found)) else {
                        others = true;
                        continue;
                    };
                    let bit = 1 << found;
                    repeated |= present & bit;
                    if present & bit == 0 {
                        // Bodies are shorter than 4 MiB.
                        *place = (body.len() - tlvs.0.len() - value.len()) as u32;
                    }
                    present |= bit;
                }
            }
        };
        Fields { message, body, first, present, repeated, others, known: 0, error }
    }

    /// Returns the values of all TLVs of a type, in order.
    pub(crate) fn all(
        &mut self,
        field: Field,
    ) -> impl Iterator<Item = Result<&'a [u8], ParseError>> {
        self.known |= 1 << field.number;
        Tlvs(self.body).filter_map(move |tlv| match tlv {
            Ok((found, value)) => (found == field.number).then_some(Ok(value)),
            Err(error) => Some(Err(error)),
        })
    }

    /// Returns the value of the TLV of a type, which may occur at most once.
    pub(crate) fn optional(&mut self, field: Field) -> Result<Option<&'a [u8]>, ParseError> {
        let bit = 1 << field.number;
        self.known |= bit;
        if self.repeated & bit != 0 {
            return Err(ParseError::Duplicate { message: self.message, field: field.name });
        }
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if self.present & bit == 0 {
            return Ok(None);
        }
        let start = self.first[usize::from(field.number)] as usize;
        let len = self.body[start - 4..start].first_chunk::<4>();
        let len = len.map_or(0, |len| u32::from_be_bytes(*len)) as usize;
        Ok(self.body.get(start..start + len))
    }

    /// Returns the value of the TLV of a type, which must occur exactly once.
    pub(crate) fn required(&mut self, field: Field) -> Result<&'a [u8], ParseError> {
        let message = self.message;
        self.optional(field)?.ok_or(ParseError::Missing { message, field: field.name })
    }

    /// Returns a required number.
    pub(crate) fn number<T: TryFrom<u64>>(&mut self, field: Field) -> Result<T, ParseError> {
        number(field, self.required(field)?)
    }

    /// Returns an optional number.
    pub(crate) fn optional_number<T: TryFrom<u64>>(
        &mut self,
        field: Field,
    ) -> Result<Option<T>, ParseError> {
        self.optional(field)?.map(|value| number(field, value)).transpose()
    }

    /// Returns a required string of at most `limit` bytes.
    pub(crate) fn string(&mut self, field: Field, limit: usize) -> Result<String, ParseError> {
        Reader::new(field.name, self.required(field)?).rest_string(limit)
    }

    /// Checks the TLVs to the end and counts those that were not looked up.
    fn finish(self) -> Result<u32, ParseError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.others && self.present & !self.known == 0 {
            return Ok(0);
        }
        let mut skipped = 0;
        for tlv in Tlvs(self.body) {
            let (field, _) = tlv?;
            if usize::from(field) >= TYPES || self.known & 1 << field == 0 {
                skipped += 1;
            }
        }
        Ok(skipped)
    }
}

/// Reads the value of a TLV that is one number.
fn number<T: TryFrom<u64>>(field: Field, value: &[u8]) -> Result<T, ParseError> {
    let mut reader = Reader::new(field.name, value);
    let number = reader.number()?;
    reader.finish()?;
    Ok(number)
}

/// Iterates over the types and values of a body's TLVs. Ends after the first error.
struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    fn split(&self) -> Result<(u16, &'a [u8], &'a [u8]), ParseError> {
        let have = self.0.len();
        let truncated = |need| ParseError::Truncated { what: "TLV", need, have };
        let (&[t0, t1, l0, l1, l2, l3], rest) = self
            .0
            .split_first_chunk::<TLV_HEADER_LEN>()
            .ok_or_else(|| truncated(TLV_HEADER_LEN))?;
        let len = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let (value, rest) = rest
            .split_at_checked(len)
            .ok_or_else(|| truncated(len.saturating_add(TLV_HEADER_LEN)))?;
        Ok((u16::from_be_bytes([t0, t1]), value, rest))
    }
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<(u16, &'a [u8]), ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        match self.split() {
            Ok((field, value, rest)) => {
                self.0 = rest;
                Some(Ok((field, value)))
            }
            Err(error) => {
                self.0 = &[];
                Some(Err(error))
            }
        }
    }
}

/// Appends a control message to a buffer.
pub(crate) struct Frame<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Frame<'a> {
    /// Begins a message of a type.
    pub(crate) fn begin(out: &'a mut Vec<u8>, message_type: u8) -> Frame<'a> {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, message_type, 0, 0, 0, 0]);
        Frame { out, start }
    }

    /// Goes on with a message that begins with these bytes: its header and some TLVs.
    pub(crate) fn resume(out: &'a mut Vec<u8>, head: &[u8]) -> Frame<'a> {
        let start = out.len();
        out.extend_from_slice(head);
        Frame { out, start }
    }

    /// Adds a TLV with a value of fewer than 256 bytes.
    pub(crate) fn short<const N: usize>(&mut self, field: Field, value: [u8; N]) {
        const { assert!(N < 256) };
        let [high, low] = field.number.to_be_bytes();
        self.out.extend_from_slice(&[high, low, 0, 0, 0, N as u8]);
        self.out.extend_from_slice(&value);
    }

    /// Adds a TLV with the value that `write` appends.
    pub(crate) fn field(&mut self, field: Field, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend_from_slice(&field.number.to_be_bytes());
        let at = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        write(self.out);
        put_len(self.out, at);
    }

    /// Adds a TLV with one number.
    pub(crate) fn number(&mut self, field: Field, value: impl Into<u64>) {
        match value.into() {
            small @ ..0x80 => self.short(field, [small as u8]),
            value => self.field(field, |out| put_varint(out, value)),
        }
    }

    /// Adds a TLV with one string.
    pub(crate) fn string(&mut self, field: Field, value: &str) {
        self.field(field, |out| out.extend_from_slice(value.as_bytes()));
    }

    /// Ends the message with a TLV of `len` bytes, which the caller appends.
    pub(crate) fn end_with(self, field: Field, len: usize) {
        self.out.extend_from_slice(&field.number.to_be_bytes());
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.out.extend_from_slice(&len.to_be_bytes());
        let at = self.start + FrameHeader::LEN - 4;
        let body = (self.out.len() - at - 4).saturating_add(len as usize);
        let body = u32::try_from(body).unwrap_or(u32::MAX);
        self.out[at..at + 4].copy_from_slice(&body.to_be_bytes());
    }

    /// Ends the message and fills in its length.
    pub(crate) fn end(self) {
        put_len(self.out, self.start + FrameHeader::LEN - 4);
    }
}

/// Writes to the four bytes at `at` the number of bytes that follow them. A length above 32 bits
/// becomes the greatest one, which every reader refuses.
fn put_len(out: &mut [u8], at: usize) {
    let len = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn field(number: u16) -> Field {
        Field { number, name: "test field" }
    }

    /// Returns a message of type 9 with the fields 1 = `ab`, 2 = ``, 1 = `c`, 70 = `z`.
    fn frame() -> Vec<u8> {
        let mut out = Vec::new();
        let mut frame = Frame::begin(&mut out, 9);
        for (number, value) in [(1, "ab"), (2, ""), (1, "c"), (70, "z")] {
            frame.string(field(number), value);
        }
        frame.end();
        out
    }

    #[test]
    fn a_frame_is_laid_out_as_drawn() {
        let expected = b"Um\x01\x09\0\0\0\x1c\0\x01\0\0\0\x02ab\0\x02\0\0\0\0\0\x01\0\0\0\x01c\0\x46\0\0\0\x01z";
        assert_eq!(frame(), expected);
    }

    #[test]
    fn fields_are_found_by_their_type_and_the_rest_is_counted() {
        let frame = frame();
        let parsed = parse(&frame, |fields| {
            let ones: Vec<_> = fields.all(field(1)).collect::<Result<_, _>>()?;
            assert_eq!(ones, [&b"ab"[..], b"c"]);
            assert_eq!(fields.required(field(2))?, b"");
            assert_eq!(fields.optional(field(3))?, None);
            Ok(Some(()))
        });
        assert_eq!(parsed.unwrap(), Parsed::Message { message: (), skipped: 1 });
    }

    #[test]
    fn a_missing_and_a_repeated_field_are_told_apart() {
        let frame = frame();
        let read = |number| parse(&frame, move |fields| fields.required(field(number)).map(Some));
        assert_eq!(read(3), Err(ParseError::Missing { message: 9, field: "test field" }));
        assert_eq!(read(1), Err(ParseError::Duplicate { message: 9, field: "test field" }));
    }

    #[test]
    fn an_unknown_message_type_is_not_an_error() {
        let parsed = parse::<()>(&frame(), |_| Ok(None));
        assert_eq!(parsed.unwrap(), Parsed::UnknownType(9));
    }

    #[test]
    fn a_frame_must_be_there_to_the_byte() {
        let mut frame = frame();
        for len in 0..frame.len() {
            let error = parse(&frame[..len], |_| Ok(Some(()))).unwrap_err();
            assert!(
                matches!(error, ParseError::Truncated { what: "control message", .. }),
                "{len}"
            );
        }
        frame.push(0);
        assert_eq!(parse(&frame, |_| Ok(Some(()))), Err(ParseError::Trailing(1)));
    }

    #[test]
    fn a_tlv_that_reaches_beyond_the_body_is_refused() {
        let mut frame = frame();
        let last_length = frame.len() - 2;
        frame[last_length] = 2;
        let error = parse(&frame, |_| Ok(Some(()))).unwrap_err();
        assert_eq!(error, ParseError::Truncated { what: "TLV", need: 8, have: 7 });
    }

    #[test]
    fn peek_waits_for_the_whole_header() {
        let frame = frame();
        for len in 0..FrameHeader::LEN {
            assert_eq!(peek(&frame[..len]), Ok(None), "{len}");
        }
        let header = peek(&frame[..FrameHeader::LEN]).unwrap().unwrap();
        assert_eq!(header, FrameHeader { message_type: 9, body_len: 28 });
        assert_eq!(header.frame_len(), frame.len());
    }

    #[test]
    fn peek_finds_garbage_and_other_versions_early() {
        assert_eq!(peek(b"G"), Err(ParseError::Magic([b'G', 0])));
        assert_eq!(peek(b"UM"), Err(ParseError::Magic(*b"UM")));
        assert_eq!(peek(b"Um\x02"), Err(ParseError::Version { theirs: 2, ours: 1 }));
        let text = peek(b"Um\x02").unwrap_err().to_string();
        assert!(text.contains("version 2") && text.contains("version 1"), "{text}");
    }

    #[test]
    fn peek_refuses_a_body_above_the_limit() {
        assert!(peek(&[b'U', b'm', 1, 1, 0, 0x40, 0, 0]).unwrap().is_some());
        let error = peek(&[b'U', b'm', 1, 1, 0, 0x40, 0, 1]).unwrap_err();
        assert_eq!(error, ParseError::BodyLen { len: MAX_BODY + 1, limit: MAX_BODY });
    }
}
