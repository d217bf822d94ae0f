//! One record: its header, and the content of its block.

use std::borrow::Cow;
use std::io::{self, BufRead, Read};
use std::time::UNIX_EPOCH;

use data_encoding::{BASE32, HEXLOWER_PERMISSIVE};
use sha1::{Digest as _, Sha1};

use super::chunked::{ChunkError, Dechunker};
use super::fields::{MAX_HEADER, field, is_blank, text};

/// Maximum bytes of an item's name.
const MAX_URI: usize = 16 * 1024;
/// Maximum bytes of a media type that is passed on.
const MAX_MEDIA_TYPE: usize = 255;

/// Location of an item's content in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Offset of the `gzip` member that holds the record, in a compressed archive.
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
    /// Whether the body is stored in chunks.
    pub(super) chunked: bool,
}

/// An item in a record.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) uri: String,
    /// Date in nanoseconds since the Unix epoch.
    pub(super) date_ns: Option<i64>,
    pub(super) media_type: Cow<'static, str>,
    /// Bytes of the content.
    pub(super) size: u64,
    /// Status of an HTTP response.
    pub(super) status: Option<u16>,
    pub(super) record: Record,
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

fn corrupt(what: &'static str) -> Problem {
    Problem::Corrupt(what, None)
}

/// A reader that counts the bytes read.
pub(super) struct Counted<R> {
    pub(super) reader: R,
    pub(super) position: u64,
}

impl<R: BufRead> Counted<R> {
    /// Appends bytes up to and including the end of a line, at most `limit`.
    fn line(&mut self, limit: u64, line: &mut Vec<u8>) -> Result<u64, Problem> {
        let read = self.reader.by_ref().take(limit).read_until(b'\n', line)? as u64;
        self.position += read;
        Ok(read)
    }

    /// Calls `take` with the bytes that are available at once, at most `limit`. Returns their
    /// number, 0 at the end.
    fn piece(&mut self, limit: u64, take: impl FnOnce(&[u8])) -> Result<usize, Problem> {
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
    /// A capture of this URI whose content is in another record.
    Revisit(String),
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
            Parsed::Revisit(uri) => Some(uri),
            Parsed::Damaged(_, uri) => uri,
            Parsed::Other | Parsed::End => None,
        }
    }
}

/// Reads the next record with its whole block.
pub(super) fn read(
    input: &mut Counted<impl BufRead>,
    member: Option<u64>,
) -> Result<Parsed, Problem> {
    let Some(header) = read_header(input)? else { return Ok(Parsed::End) };
    let start = input.position - header.len() as u64;
    let uri = uri(&header);
    let named = |problem: Problem| problem.with_uri(uri.clone());
    let len = text(&header, "Content-Length").and_then(|len| len.parse().ok());
    let len: u64 = len.ok_or(corrupt("its length cannot be read")).map_err(named)?;
    let mut block = Block::new(&header);
    read_block(input, len, &mut block).map_err(named)?;
    read_end(input).map_err(named)?;
    match block.kind {
        Kind::Revisit => return Ok(uri.map_or(Parsed::Other, Parsed::Revisit)),
        Kind::Other => return Ok(Parsed::Other),
        Kind::Http | Kind::Resource => {}
    }
    if let Some(damage) = block.damage(&header) {
        return Ok(Parsed::Damaged(damage, uri));
    }
    let Some(uri) = uri else {
        return Ok(Parsed::Damaged("its WARC-Target-URI cannot be read", None));
    };
    let http_len = block.http.len() as u64;
    let stored_len = len - http_len;
    Ok(Parsed::Response(Response {
        uri,
        date_ns: date_ns(&header),
        media_type: media_type(if block.kind == Kind::Http { &block.http } else { &header }),
        status: if block.kind == Kind::Http { status(&block.http) } else { None },
        size: if block.chunks.is_some() { block.size } else { stored_len },
        record: Record {
            member,
            start,
            header_len: header.len() as u32,
            header_crc: crc32fast::hash(&header),
            http_len: http_len as u32,
            stored_len,
            chunked: block.chunks.is_some(),
        },
    }))
}

/// Reads a record's header, including the blank line that ends it.
fn read_header(input: &mut Counted<impl BufRead>) -> Result<Option<Vec<u8>>, Problem> {
    let mut header = Vec::new();
    while is_blank(&header) || header.is_empty() {
        header.clear();
        if input.line(MAX_HEADER, &mut header)? == 0 {
            return Ok(None);
        }
    }
    if !header.starts_with(b"WARC/") {
        return Err(corrupt("no record begins here"));
    }
    if read_fields(input, &mut header)? {
        Ok(Some(header))
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

/// Reads the blank lines after a block. If other bytes follow, its length was wrong.
fn read_end(input: &mut Counted<impl BufRead>) -> Result<(), Problem> {
    let mut end = Vec::new();
    input.line(2, &mut end)?;
    input.line(2, &mut end)?;
    if matches!(&end[..], b"\r\n\r\n" | b"\n\n" | b"\r\n" | b"\n" | b"") {
        Ok(())
    } else {
        Err(corrupt("its length is wrong"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An HTTP response, with its header.
    Http,
    /// Content without an HTTP header.
    Resource,
    /// A capture whose content is in another record.
    Revisit,
    /// A record that is not served.
    Other,
}

impl Kind {
    fn of(header: &[u8]) -> Kind {
        let http = || {
            let media_type = field(header, "Content-Type").unwrap_or_default();
            media_type.to_ascii_lowercase().starts_with(b"application/http")
        };
        match field(header, "WARC-Type") {
            Some(b"response") if http() => Kind::Http,
            Some(b"response" | b"resource") => Kind::Resource,
            Some(b"revisit") => Kind::Revisit,
            _ => Kind::Other,
        }
    }
}

/// State of a block while it is read.
struct Block {
    kind: Kind,
    /// Expected digest of the block, and the hash of the bytes so far.
    digest: Option<([u8; 20], Sha1)>,
    /// HTTP header.
    http: Vec<u8>,
    http_complete: bool,
    /// Decoder of the chunks, if the body has any.
    chunks: Option<Dechunker>,
    broken: bool,
    /// Bytes of content in the chunks.
    size: u64,
}

impl Block {
    fn new(header: &[u8]) -> Block {
        let kind = Kind::of(header);
        let served = matches!(kind, Kind::Http | Kind::Resource);
        let digest = if served { sha1_digest(header) } else { None };
        Block {
            kind,
            digest: digest.map(|digest| (digest, Sha1::new())),
            http: Vec::new(),
            http_complete: kind != Kind::Http,
            chunks: None,
            broken: false,
            size: 0,
        }
    }

    /// Processes the HTTP header.
    fn begin(&mut self) {
        if let Some((_, sha1)) = &mut self.digest {
            sha1.update(&self.http);
        }
        let coding = field(&self.http, "Transfer-Encoding").unwrap_or_default();
        self.chunks = coding.eq_ignore_ascii_case(b"chunked").then(Dechunker::new);
    }

    /// Processes more bytes after the HTTP header.
    fn feed(&mut self, piece: &[u8]) {
        if let Some((_, sha1)) = &mut self.digest {
            sha1.update(piece);
        }
        let Some(chunks) = &mut self.chunks else { return };
        match chunks.feed(piece, |data| self.size += data.len() as u64) {
            Ok(()) => {}
            Err(ChunkError::Broken) => self.broken = true,
            Err(ChunkError::NotChunked) => self.chunks = None,
        }
    }

    /// Returns the defect of the block after all of it was read, if it has one.
    fn damage(&mut self, header: &[u8]) -> Option<&'static str> {
        let digest = self.digest.take();
        if digest.is_some_and(|(expected, sha1)| expected[..] != sha1.finalize()[..]) {
            return Some("its digest does not match");
        }
        if !self.http_complete {
            return Some("it has no complete HTTP header");
        }
        self.chunks = self.chunks.filter(Dechunker::has_begun);
        let cut = field(header, "WARC-Truncated").is_some();
        let complete = self.chunks.is_none_or(|chunks| chunks.is_complete());
        (self.broken || !(complete || cut)).then_some("its chunks are broken")
    }
}

/// Reads a block of `len` bytes completely.
fn read_block(
    input: &mut Counted<impl BufRead>,
    len: u64,
    block: &mut Block,
) -> Result<(), Problem> {
    let end = input.position.checked_add(len).ok_or(corrupt("its length is wrong"))?;
    if block.kind == Kind::Http {
        let mut input = Counted { reader: input.reader.by_ref().take(len), position: 0 };
        let ends = read_fields(&mut input, &mut block.http)?;
        block.http_complete = ends && block.http.starts_with(b"HTTP/");
    }
    input.position += block.http.len() as u64;
    block.begin();
    while input.position < end {
        if input.piece(end - input.position, |piece| block.feed(piece))? == 0 {
            return Err(corrupt("it ends too early"));
        }
    }
    Ok(())
}

/// Returns the digest of the block, if it is given as SHA-1.
fn sha1_digest(header: &[u8]) -> Option<[u8; 20]> {
    let (algorithm, digest) = text(header, "WARC-Block-Digest")?.split_once(':')?;
    if !algorithm.eq_ignore_ascii_case("sha1") {
        return None;
    }
    let digest = match digest.len() {
        40 => HEXLOWER_PERMISSIVE.decode(digest.as_bytes()).ok()?,
        _ => BASE32.decode(digest.to_ascii_uppercase().as_bytes()).ok()?,
    };
    digest.try_into().ok()
}

/// Returns the item's name. Some programs write it in angle brackets, as in the grammar of WARC
/// 1.0.
fn uri(header: &[u8]) -> Option<String> {
    let uri = text(header, "WARC-Target-URI")?;
    let uri = uri.strip_prefix('<').and_then(|uri| uri.strip_suffix('>')).unwrap_or(uri);
    let good = !uri.is_empty() && uri.len() <= MAX_URI && !uri.contains(char::is_control);
    good.then(|| uri.to_owned())
}

/// Returns the status of an HTTP response: `HTTP/1.1 404 Not Found`.
fn status(http: &[u8]) -> Option<u16> {
    let code = http.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).nth(1)?;
    std::str::from_utf8(code.trim_ascii()).ok()?.parse().ok()
}

fn date_ns(header: &[u8]) -> Option<i64> {
    let date = humantime::parse_rfc3339(text(header, "WARC-Date")?).ok()?;
    i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

fn media_type(header: &[u8]) -> Cow<'static, str> {
    match text(header, "Content-Type") {
        Some(text) if text.len() <= MAX_MEDIA_TYPE && !text.contains(char::is_control) => {
            Cow::Owned(text.to_owned())
        }
        _ => Cow::Borrowed(""),
    }
}
