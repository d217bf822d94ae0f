//! Compact encoding of catalog pages.
//!
//! The value is a list of items that runs to its end. Each item is relative to the previous one:
//!
//! 1. a byte of flags, below, and a second one if `MORE`;
//! 2. the TOI, as the signed difference from the previous TOI plus one (0 at first);
//! 3. the name: length and bytes;
//! 4. the digest, if `DIGEST`; else it is all zero;
//! 5. the modification time, if `MODIFIED`, as the signed difference from the previous one
//!    (wrapping; 0 at first);
//! 6. the permissions, if `MODE`; none, or the previous ones, if `SAME_MODE`;
//! 7. the media type: length and bytes if `MEDIA`; otherwise absent, and equal to the previous one
//!    if `SAME_MEDIA`, or empty;
//! 8. the object's length; and, unless `SAME_OTI` says that they equal the previous ones: FEC
//!    Encoding ID, symbol length, source symbols, encoding symbols of a block;
//! 9. if `HOLES`, the number of runs of blocks that are holes; and of each, the number of blocks
//!    since the run before, and its own;
//! 10. if `LINK`, the text of the symbolic link; if `HARD_LINK`, the name of the item whose file it
//!     is: length and bytes.
//!
//! The object of a directory or symbolic link has no bytes. That of another name of a file has the
//! file's length and digest, and is not sent.

use std::ops::Range;

use super::{ItemInfo, ItemKind, LinkText, Need, NeedRun, limits};
use crate::codec::{Reader, put_bytes, put_signed, put_varint};
use crate::{Digest, Oti, ParseError, Scheme, Toi};

const DIGEST: u8 = 1;
const MODIFIED: u8 = 2;
const MEDIA: u8 = 4;
const SAME_MEDIA: u8 = 8;
const SAME_OTI: u8 = 16;
const MODE: u8 = 32;
const SAME_MODE: u8 = 64;
/// A second byte of flags follows, which is not zero.
const MORE: u8 = 128;

/// In the second byte: a directory, which has no content.
const DIRECTORY: u8 = 1;
/// In the second byte: a file with holes, whose blocks follow.
const HOLES: u8 = 2;
/// In the second byte: a symbolic link, whose text follows.
const LINK: u8 = 4;
/// In the second byte: another name of a file, the name of whose item follows.
const HARD_LINK: u8 = 8;

/// Maximum length of an item in bytes without its name and media type: two bytes of flags, TOI,
/// two lengths, digest, time, permissions, and OTI.
const FIXED_LEN: usize = 2 + 5 + 2 + 2 + 32 + 10 + 2 + 10 + 1 + 3 + 3 + 3;

/// Maximum length of a run of holes in bytes.
const HOLE_LEN: usize = 5 + 5;

/// State from the previous items, to which an item is relative.
#[derive(Default)]
struct Before<'a> {
    next_toi: i64,
    modified_ns: i64,
    mode: Option<u16>,
    media_type: &'a str,
    oti: Option<Oti>,
}

impl ItemInfo {
    /// The greatest [`mode`](ItemInfo::mode).
    pub const MODE_MAX: u16 = 0o777;

    /// Returns the maximum length of the item in a page in bytes, by which a page is kept below
    /// [`MAX_BODY`](crate::control::MAX_BODY).
    pub fn max_wire_len(&self) -> usize {
        let holes = self.holes.as_ref().map_or(0, |holes| 2 + holes.len() * HOLE_LEN);
        let link = match &self.kind {
            ItemKind::File | ItemKind::Directory => 0,
            ItemKind::Link(text) => 2 + text.as_str().len(),
            ItemKind::HardLink(name) => 2 + name.len(),
        };
        FIXED_LEN + self.name.len() + self.media_type.len() + holes + link
    }

    /// Returns the number of source blocks of an object.
    fn blocks(oti: &Oti) -> u64 {
        let symbols = oti.object_len.div_ceil(u64::from(oti.symbol_len.max(1)));
        symbols.div_ceil(u64::from(oti.max_block_symbols.max(1)))
    }

    /// Returns the runs of source blocks that are sent, ascending: those of a file that are no
    /// holes.
    pub fn data_blocks(&self) -> Vec<Range<u32>> {
        if !self.kind.is_file() {
            return Vec::new();
        }
        let end = u32::try_from(ItemInfo::blocks(&self.oti)).unwrap_or(u32::MAX);
        let (mut data, mut at) = (Vec::new(), 0);
        for hole in self.holes.iter().flatten() {
            data.push(at..hole.start);
            at = hole.end;
        }
        data.push(at..end);
        data.retain(|run| run.start < run.end);
        data
    }

    /// Returns what a client needs that has nothing.
    pub fn need(&self) -> Need {
        if self.kind.is_file() && self.holes.as_ref().is_none_or(Vec::is_empty) {
            return Need::Whole;
        }
        let runs = self.data_blocks().into_iter();
        let run = |run: Range<u32>| NeedRun {
            first_block: run.start,
            blocks: run.end - run.start,
            symbols: u16::MAX,
        };
        Need::Symbols(runs.map(run).collect())
    }
}

/// Appends a page.
pub(super) fn put(out: &mut Vec<u8>, items: &[ItemInfo]) {
    let mut before = Before::default();
    for item in items {
        put_item(out, item, &before);
        before = Before {
            next_toi: i64::from(item.toi.0) + 1,
            modified_ns: item.modified_ns.unwrap_or(before.modified_ns),
            mode: item.mode,
            media_type: &item.media_type,
            oti: Some(item.oti),
        };
    }
}

fn put_item(out: &mut Vec<u8>, item: &ItemInfo, before: &Before<'_>) {
    let same_oti =
        before.oti.is_some_and(|oti| item.oti == Oti { object_len: item.oti.object_len, ..oti });
    let media = match item.media_type.as_str() {
        "" => 0,
        same if same == before.media_type => SAME_MEDIA,
        _ => MEDIA,
    };
    let mode = match item.mode {
        None => 0,
        same if same == before.mode => SAME_MODE,
        Some(_) => MODE,
    };
    let digest = item.digest != Digest([0; 32]);
    let more = match item.kind {
        ItemKind::File => 0,
        ItemKind::Directory => DIRECTORY,
        ItemKind::Link(_) => LINK,
        ItemKind::HardLink(_) => HARD_LINK,
    };
    let more = more | if item.holes.is_some() { HOLES } else { 0 };
    out.push(
        media
            | if more == 0 { 0 } else { MORE }
            | mode
            | if digest { DIGEST } else { 0 }
            | if item.modified_ns.is_some() { MODIFIED } else { 0 }
            | if same_oti { SAME_OTI } else { 0 },
    );
    if more != 0 {
        out.push(more);
    }
    put_signed(out, i64::from(item.toi.0) - before.next_toi);
    put_bytes(out, item.name.as_bytes());
    if digest {
        out.extend_from_slice(&item.digest.0);
    }
    if let Some(modified_ns) = item.modified_ns {
        put_signed(out, modified_ns.wrapping_sub(before.modified_ns));
    }
    if let (Some(bits), MODE) = (item.mode, mode) {
        put_varint(out, u64::from(bits));
    }
    if media == MEDIA {
        put_bytes(out, item.media_type.as_bytes());
    }
    put_varint(out, item.oti.object_len);
    if !same_oti {
        out.push(item.oti.scheme.encoding_id());
        put_varint(out, u64::from(item.oti.symbol_len));
        put_varint(out, u64::from(item.oti.max_block_symbols));
        put_varint(out, u64::from(item.oti.max_encoding_symbols));
    }
    if let Some(holes) = &item.holes {
        put_varint(out, holes.len() as u64);
        let mut at = 0;
        for hole in holes {
            put_varint(out, u64::from(hole.start - at));
            put_varint(out, u64::from(hole.end - hole.start));
            at = hole.end;
        }
    }
    match &item.kind {
        ItemKind::File | ItemKind::Directory => {}
        ItemKind::Link(text) => put_bytes(out, text.as_str().as_bytes()),
        ItemKind::HardLink(name) => put_bytes(out, name.as_bytes()),
    }
}

/// Reads a page. Its memory is in proportion to its length, plus at most [`limits::PAGE_ITEMS`] ×
/// [`limits::MEDIA_TYPE_LEN`] bytes for repeated media types.
pub(super) fn read(value: &[u8]) -> Result<Vec<ItemInfo>, ParseError> {
    let mut reader = Reader::new("page", value);
    let mut items: Vec<ItemInfo> = Vec::new();
    let mut modified_ns = 0;
    while !reader.is_empty() {
        if items.len() == limits::PAGE_ITEMS {
            return Err(reader.bad("too many items"));
        }
        let last = items.last();
        let before = Before {
            next_toi: last.map_or(0, |item| i64::from(item.toi.0) + 1),
            modified_ns,
            mode: last.and_then(|item| item.mode),
            media_type: last.map_or("", |item| &item.media_type),
            oti: last.map(|item| item.oti),
        };
        let item = read_item(&mut reader, &before)?;
        modified_ns = item.modified_ns.unwrap_or(modified_ns);
        items.push(item);
    }
    Ok(items)
}

fn read_item(reader: &mut Reader<'_>, before: &Before<'_>) -> Result<ItemInfo, ParseError> {
    let flags = reader.byte()?;
    let both = |bits: u8| flags & bits == bits;
    if both(MEDIA | SAME_MEDIA) || both(MODE | SAME_MODE) {
        return Err(reader.bad("unknown flags of an item"));
    }
    let more = if flags & MORE == 0 { 0 } else { reader.byte()? };
    let known = match more {
        0 => flags & MORE == 0,
        HOLES | DIRECTORY | LINK | HARD_LINK => true,
        _ => false,
    };
    if !known {
        return Err(reader.bad("an unknown kind of item"));
    }
    let toi = before.next_toi.checked_add(reader.signed()?);
    let toi = toi.and_then(|toi| u32::try_from(toi).ok());
    let toi = Toi(toi.ok_or_else(|| reader.bad("a TOI above 32 bits"))?);
    let name = reader.string(limits::NAME_LEN)?;
    if name.is_empty() {
        return Err(reader.bad("an item without a name"));
    }
    let digest = Digest(if flags & DIGEST != 0 { reader.array()? } else { [0; 32] });
    let modified_ns = if flags & MODIFIED != 0 {
        Some(before.modified_ns.wrapping_add(reader.signed()?))
    } else {
        None
    };
    let mode = match flags & (MODE | SAME_MODE) {
        0 => None,
        MODE => Some(reader.number()?),
        _ => before.mode,
    };
    if mode.is_some_and(|mode| mode > ItemInfo::MODE_MAX) {
        return Err(reader.bad("permissions above 0o777"));
    }
    let media_type = match flags & (MEDIA | SAME_MEDIA) {
        0 => String::new(),
        MEDIA => reader.string(limits::MEDIA_TYPE_LEN)?,
        _ => before.media_type.to_owned(),
    };
    let object_len = reader.varint()?;
    let oti = if flags & SAME_OTI != 0 {
        let oti = before.oti.ok_or_else(|| reader.bad("an OTI as before, but none before"))?;
        Oti { object_len, ..oti }
    } else {
        read_oti(reader, object_len)?
    };
    oti.check()?;
    if more & (DIRECTORY | LINK) != 0 && object_len > 0 {
        return Err(reader.bad("a directory or symbolic link with content"));
    }
    let holes = if more & HOLES == 0 { None } else { Some(read_holes(reader, &oti)?) };
    let kind = read_kind(reader, more)?;
    Ok(ItemInfo { toi, name, kind, digest, modified_ns, mode, holes, media_type, oti })
}

/// Reads what follows for the kind of an item, which the second byte of flags says.
fn read_kind(reader: &mut Reader<'_>, more: u8) -> Result<ItemKind, ParseError> {
    Ok(match more {
        DIRECTORY => ItemKind::Directory,
        LINK => {
            let text = LinkText::new(reader.string(limits::LINK_LEN)?);
            ItemKind::Link(text.ok_or_else(|| reader.bad("a link that can have no such text"))?)
        }
        HARD_LINK => {
            let name = reader.string(limits::NAME_LEN)?;
            if name.is_empty() {
                return Err(reader.bad("another name of an item without a name"));
            }
            ItemKind::HardLink(name)
        }
        _ => ItemKind::File,
    })
}

fn read_holes(reader: &mut Reader<'_>, oti: &Oti) -> Result<Vec<Range<u32>>, ParseError> {
    let count: usize = reader.number()?;
    if count > limits::HOLES {
        return Err(reader.bad("too many holes"));
    }
    let blocks = ItemInfo::blocks(oti);
    // Each takes two bytes at least, so that memory is in proportion to what was received.
    let mut holes: Vec<Range<u32>> = Vec::new();
    for _ in 0..count {
        let at = holes.last().map_or(0, |last| last.end);
        let (gap, len): (u32, u32) = (reader.number()?, reader.number()?);
        let start = at.checked_add(gap).filter(|_| gap > 0 || holes.is_empty());
        let end = start.and_then(|start| start.checked_add(len)).filter(|_| len > 0);
        match (start, end) {
            (Some(start), Some(end)) if u64::from(end) <= blocks => holes.push(start..end),
            _ => return Err(reader.bad("holes out of order, or beyond the end")),
        }
    }
    Ok(holes)
}

fn read_oti(reader: &mut Reader<'_>, object_len: u64) -> Result<Oti, ParseError> {
    let scheme = Scheme::from_encoding_id(reader.byte()?);
    let scheme = scheme.ok_or_else(|| reader.bad("an unknown FEC Encoding ID"))?;
    Ok(Oti {
        scheme,
        object_len,
        symbol_len: reader.number()?,
        max_block_symbols: reader.number()?,
        max_encoding_symbols: reader.number()?,
    })
}
