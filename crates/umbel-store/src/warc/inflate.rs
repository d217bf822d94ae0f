//! The members of a compressed archive: `gzip` members and `zstd` frames, each of which can be read
//! on its own.
//!
//! An archive of `zstd` frames may begin with a dictionary that all of them need, in a skippable
//! frame [WARC zstd 1.0 §3].

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use flate2::bufread::GzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, Dictionary, FrameDecoder, StreamingDecoder};

use super::archive::{Archive, Tape};

/// Maximum number of inflated bytes returned at a time.
const BUFFER: usize = 64 * 1024;
/// Largest window of a frame, that of `zstd --long`.
const MAX_WINDOW: u64 = 1 << 27;
/// Maximum bytes of a dictionary.
const MAX_DICTIONARY: u32 = 16 << 20;
/// Maximum number of decoders kept for further frames, each with its window.
const DECODERS: usize = 2;
/// Largest window that such a decoder has: `zstd` takes larger ones only with `--long` or
/// `--ultra`.
const KEPT_WINDOW: u64 = 8 << 20;
/// The first bytes of a `gzip` member with the only defined compression method [RFC 1952 §2.3.1].
pub(super) const GZIP: &[u8] = &[0x1f, 0x8b, 8];
/// The first bytes of a frame [RFC 8878 §3.1.1].
pub(super) const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The first bytes of the frame with the dictionary.
const DICTIONARY: u32 = 0x184d_2a5d;

/// How the records of an archive are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    /// Returns that of an archive that begins with these bytes.
    pub(super) fn of(start: &[u8]) -> Packing {
        if start.starts_with(GZIP) {
            Packing::Gzip
        } else if start.starts_with(ZSTD) || skippable(start).is_some() {
            Packing::Zstd
        } else {
            Packing::Plain
        }
    }
}

/// Returns the magic number of a skippable frame, and the bytes of its content [RFC 8878 §3.1.2].
fn skippable(start: &[u8]) -> Option<(u32, u32)> {
    let (magic, rest) = start.split_first_chunk()?;
    let magic = u32::from_le_bytes(*magic);
    let len = u32::from_le_bytes(*rest.first_chunk()?);
    (magic & !0xf == 0x184d_2a50).then_some((magic, len))
}

/// Returns the bytes that the decoder of a frame keeps [RFC 8878 §3.1.1.1], the most that are taken
/// if its header is not all there.
fn window(start: &[u8]) -> u64 {
    let parse = || {
        let (&descriptor, rest) = start.get(4..)?.split_first()?;
        if descriptor & 0x20 == 0 {
            let &byte = rest.first()?;
            let base = 1_u64 << (10 + (byte >> 3));
            return Some(base + base / 8 * u64::from(byte & 7));
        }
        // A single segment: the window is the content.
        let id_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let len = 1 << (descriptor >> 6);
        let mut size = [0; 8];
        size[..len].copy_from_slice(rest.get(id_len..id_len + len)?);
        let size = u64::from_le_bytes(size);
        Some(if len == 2 { size + 256 } else { size })
    };
    parse().unwrap_or(MAX_WINDOW)
}

/// Decoders of an archive's frames, and the dictionary that they need.
#[derive(Default)]
pub(super) struct Frames {
    dictionary: Vec<u8>,
    idle: Vec<FrameDecoder>,
}

impl Frames {
    fn decoder(&mut self) -> FrameDecoder {
        self.idle.pop().unwrap_or_else(|| {
            let mut decoder = FrameDecoder::new();
            decoder.set_max_window_size(MAX_WINDOW);
            if let Ok(dictionary) = Dictionary::decode_dict(&self.dictionary) {
                // The number of dictionaries is not limited.
                let _ = decoder.add_dict(dictionary);
            }
            decoder
        })
    }
}

/// If a skippable frame is at `offset`, returns the offset after it. A dictionary is kept.
pub(super) fn skip_frame(archive: &Arc<Archive>, offset: u64) -> io::Result<Option<u64>> {
    let mut start = [0; 8];
    let mut tape = archive.tape(offset);
    if let Err(error) = tape.read_exact(&mut start) {
        let ends = error.kind() == io::ErrorKind::UnexpectedEof;
        return if ends { Ok(None) } else { Err(error) };
    }
    let Some((magic, len)) = skippable(&start) else { return Ok(None) };
    if magic == DICTIONARY && len <= MAX_DICTIONARY && archive.frames.lock().dictionary.is_empty() {
        let mut dictionary = Vec::new();
        tape.take(len.into()).read_to_end(&mut dictionary)?;
        if dictionary.starts_with(ZSTD) {
            let mut inflated = Vec::new();
            if let Ok(decoder) = StreamingDecoder::new(&dictionary[..]) {
                // Without the dictionary each frame will say that it lacks it.
                let _ = decoder.take(MAX_DICTIONARY.into()).read_to_end(&mut inflated);
            }
            dictionary = inflated;
        }
        archive.frames.lock().dictionary = dictionary;
    }
    Ok(Some(offset + 8 + u64::from(len)))
}

/// A reader of one member.
pub(super) enum Member {
    Gzip(Box<BufReader<GzDecoder<Tape>>>),
    Zstd(Box<BufReader<Frame>>),
}

impl Member {
    /// Begins to inflate the member at `offset`.
    pub(super) fn open(archive: &Arc<Archive>, offset: u64) -> io::Result<Member> {
        let tape = archive.tape(offset);
        Ok(match archive.packing()? {
            Packing::Zstd => {
                let frame = Frame::open(archive, tape)?;
                Member::Zstd(Box::new(BufReader::with_capacity(BUFFER, frame)))
            }
            Packing::Gzip | Packing::Plain => {
                Member::Gzip(Box::new(BufReader::with_capacity(BUFFER, GzDecoder::new(tape))))
            }
        })
    }

    /// Returns the bytes that inflating it keeps in memory.
    pub(super) fn window(&self) -> u64 {
        match self {
            Member::Gzip(_) => 32 << 10,
            Member::Zstd(reader) => reader.get_ref().window,
        }
    }

    /// Returns the offset after the member, after all of it was read.
    pub(super) fn end(&self) -> u64 {
        match self {
            Member::Gzip(reader) => reader.get_ref().get_ref().offset(),
            Member::Zstd(reader) => reader.get_ref().source.tape.offset(),
        }
    }
}

impl Read for Member {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Member::Gzip(reader) => reader.read(buf),
            Member::Zstd(reader) => reader.read(buf),
        }
    }
}

impl BufRead for Member {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            Member::Gzip(reader) => reader.fill_buf(),
            Member::Zstd(reader) => reader.fill_buf(),
        }
    }

    fn consume(&mut self, amount: usize) {
        match self {
            Member::Gzip(reader) => reader.consume(amount),
            Member::Zstd(reader) => reader.consume(amount),
        }
    }
}

/// A reader of one frame, which verifies its checksum.
pub(super) struct Frame {
    archive: Arc<Archive>,
    decoder: FrameDecoder,
    window: u64,
    source: Source,
}

/// The tape below a decoder, which would hide the system's errors among its own.
struct Source {
    tape: Tape,
    error: Option<io::Error>,
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.tape.read(buf).map_err(|error| {
            let kind = error.kind();
            self.error = Some(error);
            kind.into()
        })
    }
}

impl Frame {
    fn open(archive: &Arc<Archive>, mut tape: Tape) -> io::Result<Frame> {
        let window = window(tape.fill_buf()?);
        let mut source = Source { tape, error: None };
        let mut decoder = archive.frames.lock().decoder();
        match decoder.init(&mut source) {
            Ok(()) => Ok(Frame { archive: Arc::clone(archive), decoder, window, source }),
            Err(_) => Err(source.error.unwrap_or(io::ErrorKind::InvalidData.into())),
        }
    }
}

impl Read for Frame {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Frame { decoder, source, .. } = self;
        while decoder.can_collect() == 0 && !decoder.is_finished() {
            if decoder.decode_blocks(&mut *source, BlockDecodingStrategy::UptoBlocks(1)).is_err() {
                return Err(source.error.take().unwrap_or(io::ErrorKind::InvalidData.into()));
            }
        }
        let read = decoder.read(buf)?;
        if read == 0 && !buf.is_empty() {
            let checksum = decoder.get_checksum_from_data();
            if checksum.is_some() && checksum != decoder.get_calculated_checksum() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(read)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let mut frames = self.archive.frames.lock();
        if frames.idle.len() < DECODERS && self.window <= KEPT_WINDOW {
            frames.idle.push(std::mem::take(&mut self.decoder));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(header: &[u8]) -> Vec<u8> {
        [ZSTD, header].concat()
    }

    #[test]
    fn the_window_of_a_frame_is_read_from_its_header() {
        // 128 MiB, what `zstd --long=27` writes; the same with an eighth more; the least.
        assert_eq!(window(&frame(&[0x04, 17 << 3])), 128 << 20);
        assert_eq!(window(&frame(&[0x04, 17 << 3 | 1])), (128 + 16) << 20);
        assert_eq!(window(&frame(&[0, 0])), 1 << 10);
        // Single segments of one, two, four, and eight bytes of length, some behind a dictionary.
        assert_eq!(window(&frame(&[0x20, 200])), 200);
        assert_eq!(window(&frame(&[0x60, 0, 1])), 512);
        assert_eq!(window(&frame(&[0xa1, 7, 0, 0, 1, 0])), 1 << 16);
        assert_eq!(window(&frame(&[0xe3, 7, 7, 7, 7, 1, 0, 0, 0, 0, 0, 0, 1])), (1 << 56) + 1);
    }

    #[test]
    fn a_header_that_is_cut_counts_as_the_largest_window() {
        let whole = frame(&[0xe3, 7, 7, 7, 7, 1, 0, 0, 0, 0, 0, 0, 0]);
        for len in 0..whole.len() {
            assert_eq!(window(&whole[..len]), MAX_WINDOW, "{len}");
        }
    }
}
