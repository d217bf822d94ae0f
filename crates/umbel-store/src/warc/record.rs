//! One record: its header, and the content of its block.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};

use super::arc;
use super::block::Block;
use super::fields::{MAX_HEADER, is_blank};
use super::header::{Format, Header, Kind, media_type};
use super::transfer::Codings;

/// The first bytes of a record.
pub(super) const RECORD: &[u8] = b"WARC/";

/// Location of an item's content in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Offset of the member that holds the record, in a compressed archive.
    pub(super) member: Option<u64>,
    /// Offset of the record in the inflated member, or in the archive.
    pub(super) start: u64,
    /// Bytes of the record's own header, and their CRC-32.
    pub(super) header_len: u32,
    pub(super) header_crc: u32,
    /// Bytes of the HTTP header that follows.
    pub(super) http_len: u32,
    /// Bytes of the body as stored.
    pub(super) stored_len: u64,
    /// How the body is stored.
    pub(super) codings: Codings,
}

/// An item in a record.
#[derive(Clone, Debug)]
pub(super) struct Response {
    pub(super) uri: String,
    /// Date in nanoseconds since the Unix epoch.
    pub(super) date_ns: Option<i64>,
    pub(super) media_type: Cow<'static, str>,
    /// Bytes of the content.
    pub(super) size: u64,
    /// Status of an HTTP response.
    pub(super) status: Option<u16>,
    /// Names the content; see [`Header::payload`].
    pub(super) payload: Option<[u8; 20]>,
    pub(super) record: Record,
}

/// A capture whose content is in another record.
#[derive(Clone, Debug)]
pub(super) struct Revisit {
    pub(super) uri: String,
    pub(super) date_ns: Option<i64>,
    pub(super) payload: Option<[u8; 20]>,
}

/// Reason why no record can be read here.
#[derive(Debug)]
pub(super) enum Problem {
    /// The record is damaged, so the offset of the next one is unknown. The URI is included if it
    /// is known.
    Corrupt(&'static str, Option<String>),
    /// The system cannot read the file.
    Io(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        // These errors come from the inflater, the others from the system.
        match error.kind() {
            io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidData
            | io::ErrorKind::UnexpectedEof => Problem::Corrupt("it cannot be inflated", None),
            _ => Problem::Io(error),
        }
    }
}

impl Problem {
    /// Adds the URI of the item, if there is none yet.
    pub(super) fn with_uri(self, uri: Option<String>) -> Problem {
        match self {
            Problem::Corrupt(what, None) => Problem::Corrupt(what, uri),
            other => other,
        }
    }
}

pub(super) fn corrupt(what: &'static str) -> Problem {
    Problem::Corrupt(what, None)
}

/// A reader that counts the bytes read.
pub(super) struct Counted<R> {
    pub(super) reader: R,
    /// Offset of the next byte of `reader`.
    position: u64,
    /// First bytes of the next record, read to see that one follows.
    ahead: Vec<u8>,
}

impl<R> Counted<R> {
    pub(super) fn new(reader: R, position: u64) -> Counted<R> {
        Counted { reader, position, ahead: Vec::new() }
    }

    /// Counts bytes that somebody else reads. Returns `None` if no file could have so many.
    pub(super) fn pass(&mut self, len: u64) -> Option<()> {
        self.position = self.position.checked_add(len)?;
        Some(())
    }

    /// Returns the offset of the next record.
    pub(super) fn offset(&self) -> u64 {
        self.position - self.ahead.len() as u64
    }
}

impl<R: BufRead> Counted<R> {
    /// Appends bytes up to and including the end of a line, at most `limit`.
    pub(super) fn line(&mut self, limit: u64, line: &mut Vec<u8>) -> Result<u64, Problem> {
        let read = self.reader.by_ref().take(limit).read_until(b'\n', line)? as u64;
        self.position += read;
        Ok(read)
    }

    /// Calls `take` with the bytes that are available at once, at most `limit`. Returns their
    /// number, 0 at the end.
    pub(super) fn piece(&mut self, limit: u64, take: impl FnOnce(&[u8])) -> Result<usize, Problem> {
        let piece = self.reader.fill_buf()?;
        let len = piece.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
        take(&piece[..len]);
        self.reader.consume(len);
        self.position += len as u64;
        Ok(len)
    }
}

/// Result of parsing a record.
#[derive(Debug)]
pub(super) enum Parsed {
    /// An item.
    Response(Response),
    /// A record with an invalid block that ends where its header says, and its URI.
    Damaged(&'static str, Option<String>),
    Revisit(Revisit),
    /// A record that is not served.
    Other,
    /// There is no further record.
    End,
}

impl Parsed {
    /// Returns the URI, if there is one.
    pub(super) fn into_uri(self) -> Option<String> {
        match self {
            Parsed::Response(response) => Some(response.uri),
            Parsed::Revisit(revisit) => Some(revisit.uri),
            Parsed::Damaged(_, uri) => uri,
            Parsed::Other | Parsed::End => None,
        }
    }
}

/// Reads the next record with its whole block. The first record of an archive tells its `format`.
pub(super) fn read(
    input: &mut Counted<impl BufRead>,
    member: Option<u64>,
    format: &mut Format,
) -> Result<Parsed, Problem> {
    let Some((stored, header)) = read_header(input, format)? else { return Ok(Parsed::End) };
    let start = input.position - stored.len() as u64;
    let named = |problem: Problem| problem.with_uri(header.uri.clone());
    let len = header.len.ok_or(corrupt("its length cannot be read")).map_err(named)?;
    let block = Block::read(input, len, &header).map_err(named)?;
    read_end(input, *format).map_err(named)?;
    let Header { uri, date_ns, payload, .. } = header;
    match (header.kind, block.damage, uri) {
        (Kind::Revisit, _, Some(uri)) => Ok(Parsed::Revisit(Revisit { uri, date_ns, payload })),
        (Kind::Revisit | Kind::Other, _, _) => Ok(Parsed::Other),
        (_, Some(damage), uri) => Ok(Parsed::Damaged(damage, uri)),
        (_, None, None) => Ok(Parsed::Damaged("its WARC-Target-URI cannot be read", None)),
        (_, None, Some(uri)) => {
            let http_len = block.head.bytes.len() as u64;
            Ok(Parsed::Response(Response {
                uri,
                date_ns,
                media_type: block.head.fields().map_or(header.media_type, media_type),
                status: block.head.status(),
                size: block.size,
                payload,
                record: Record {
                    member,
                    start,
                    header_len: stored.len() as u32,
                    header_crc: crc32fast::hash(&stored),
                    http_len: http_len as u32,
                    stored_len: len - http_len,
                    codings: block.codings,
                },
            }))
        }
    }
}

/// Reads a record's header, including the blank line that ends that of a WARC record.
fn read_header(
    input: &mut Counted<impl BufRead>,
    format: &mut Format,
) -> Result<Option<(Vec<u8>, Header)>, Problem> {
    let mut header = std::mem::take(&mut input.ahead);
    while is_blank(&header) || header.is_empty() {
        header.clear();
        if input.line(MAX_HEADER, &mut header)? == 0 {
            return Ok(None);
        }
    }
    if !header.ends_with(b"\n") {
        input.line(MAX_HEADER, &mut header)?;
    }
    if arc::Line::parse(&header).is_some_and(|line| line.is_description()) {
        *format = Format::Arc;
    }
    if *format == Format::Arc {
        let parsed = Header::arc(&header).ok_or(corrupt("no record begins here"))?;
        return Ok(Some((header, parsed)));
    }
    if !header.starts_with(RECORD) {
        return Err(corrupt("no record begins here"));
    }
    if read_fields(input, &mut header)? {
        let parsed = Header::warc(&header);
        Ok(Some((header, parsed)))
    } else {
        Err(corrupt("its header does not end"))
    }
}

/// Appends lines up to and including a blank one. Returns `false` if there is none.
fn read_fields(input: &mut Counted<impl BufRead>, header: &mut Vec<u8>) -> Result<bool, Problem> {
    loop {
        let line = header.len();
        let room = MAX_HEADER.saturating_sub(line as u64);
        if input.line(room, header)? == 0 {
            return Ok(false);
        }
        if is_blank(&header[line..]) {
            return Ok(true);
        }
    }
}

/// Reads the blank lines after a block: one of ARC, two of WARC. Some programs write fewer; then the
/// next WARC record or the end of the file must follow, or the block's length was wrong.
fn read_end(input: &mut Counted<impl BufRead>, format: Format) -> Result<(), Problem> {
    if format == Format::Arc {
        let mut end = Vec::new();
        input.line(2, &mut end)?;
        let ends = is_blank(&end) || end.is_empty();
        return if ends { Ok(()) } else { Err(corrupt("its length is wrong")) };
    }
    let mut ahead = Vec::new();
    let mut blank = 0;
    while blank < 2 && ahead.len() < RECORD.len() {
        let room = (RECORD.len() - ahead.len()) as u64;
        if input.line(room, &mut ahead)? == 0 {
            break;
        }
        if is_blank(&ahead) {
            ahead.clear();
            blank += 1;
        }
    }
    if !ahead.is_empty() && ahead != RECORD {
        return Err(corrupt("its length is wrong"));
    }
    input.ahead = ahead;
    Ok(())
}
