//! Reads playlists, line by line.

use std::time::Duration;

use super::{
    MAX_DURATION, MAX_PLAYLIST, MAX_RENDITIONS, MAX_SEGMENTS, Master, Media, Playlist,
    PlaylistError, Rendition, Segment,
};
use crate::hls::name::FileName;

/// Maximum length of a value that is passed on as text.
const MAX_TEXT: usize = 256;

impl Playlist {
    /// Parses the playlist of this name.
    ///
    /// # Errors
    ///
    /// If it is none, or cannot be multicast.
    pub fn parse(name: &FileName, bytes: &[u8]) -> Result<Playlist, PlaylistError> {
        if bytes.len() > MAX_PLAYLIST {
            return Err(PlaylistError::TooLong(bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| PlaylistError::NotPlaylist)?;
        let mut lines = text.lines().map(str::trim_end);
        if lines.next() != Some("#EXTM3U") {
            return Err(PlaylistError::NotPlaylist);
        }
        let mut reader = Reader { name, line: 1, master: None, media: Media::default() };
        let mut next = Next::default();
        for line in lines {
            reader.line += 1;
            match line.strip_prefix("#EXT") {
                Some(tag) => reader.tag(tag, &mut next)?,
                None if line.is_empty() || line.starts_with('#') => {}
                None => reader.uri(line, &mut next)?,
            }
        }
        reader.finish()
    }

    /// Parses a list of renditions.
    ///
    /// # Errors
    ///
    /// If it is anything else.
    pub fn parse_master(name: &FileName, bytes: &[u8]) -> Result<Master, PlaylistError> {
        match Playlist::parse(name, bytes)? {
            Playlist::Master(master) => Ok(master),
            Playlist::Media(_) => {
                Err(PlaylistError::Count { what: "renditions", count: 0, max: MAX_RENDITIONS })
            }
        }
    }

    /// Parses a list of segments.
    ///
    /// # Errors
    ///
    /// If it is anything else.
    pub fn parse_media(name: &FileName, bytes: &[u8]) -> Result<Media, PlaylistError> {
        match Playlist::parse(name, bytes)? {
            Playlist::Media(media) => Ok(media),
            Playlist::Master(_) => {
                Err(PlaylistError::Count { what: "segments", count: 0, max: MAX_SEGMENTS })
            }
        }
    }
}

/// Tags that belong to the next name.
#[derive(Debug, Default)]
struct Next {
    rendition: Option<(u64, Option<String>, Option<String>)>,
    duration: Option<Duration>,
    init: Option<FileName>,
    discontinuity: bool,
    gap: bool,
    date: Option<String>,
}

struct Reader<'a> {
    name: &'a FileName,
    line: usize,
    master: Option<Master>,
    media: Media,
}

impl Reader<'_> {
    /// Handles a tag without its `#EXT`.
    fn tag(&mut self, tag: &str, next: &mut Next) -> Result<(), PlaylistError> {
        let line = self.line;
        let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
        let bad = |tag| PlaylistError::Value { line, tag };
        match name {
            "-X-STREAM-INF" => {
                let bandwidth = attribute(value, "BANDWIDTH").and_then(number);
                let bandwidth = bandwidth.filter(|&rate| rate > 0);
                let bandwidth = bandwidth.ok_or_else(|| bad("EXT-X-STREAM-INF"))?;
                let text = |name| attribute(value, name).filter(|text| is_plain(text));
                let resolution = text("RESOLUTION").map(str::to_owned);
                next.rendition = Some((bandwidth, resolution, text("CODECS").map(str::to_owned)));
                self.master();
            }
            "-X-MEDIA" => self.master().apart += usize::from(attribute(value, "URI").is_some()),
            "-X-TARGETDURATION" => {
                let seconds = number(value).filter(|&s| s <= MAX_DURATION.as_secs());
                self.media.target_s = seconds.ok_or_else(|| bad("EXT-X-TARGETDURATION"))?;
            }
            "-X-MEDIA-SEQUENCE" => {
                self.media.first = number(value).ok_or_else(|| bad("EXT-X-MEDIA-SEQUENCE"))?;
            }
            "-X-DISCONTINUITY-SEQUENCE" => {
                let first = number(value).ok_or_else(|| bad("EXT-X-DISCONTINUITY-SEQUENCE"))?;
                self.media.first_discontinuity = first;
            }
            "INF" => next.duration = Some(duration(value).ok_or_else(|| bad("EXTINF"))?),
            "-X-DISCONTINUITY" => next.discontinuity = true,
            "-X-GAP" => next.gap = true,
            "-X-PROGRAM-DATE-TIME" => {
                next.date = Some(value).filter(|date| is_plain(date)).map(str::to_owned);
            }
            "-X-MAP" if attribute(value, "BYTERANGE").is_some() => {
                return Err(PlaylistError::ByteRange { line });
            }
            "-X-MAP" => {
                let uri = attribute(value, "URI").ok_or_else(|| bad("EXT-X-MAP"))?;
                next.init = Some(self.beside(uri)?);
            }
            "-X-KEY" if attribute(value, "METHOD") != Some("NONE") => {
                return Err(PlaylistError::Encrypted { line });
            }
            "-X-BYTERANGE" => return Err(PlaylistError::ByteRange { line }),
            "-X-ENDLIST" => self.media.ended = true,
            _ => {}
        }
        Ok(())
    }

    fn master(&mut self) -> &mut Master {
        self.master.get_or_insert_with(|| Master { renditions: Vec::new(), apart: 0 })
    }

    fn beside(&self, uri: &str) -> Result<FileName, PlaylistError> {
        let line = self.line;
        self.name.beside(uri).map_err(|reason| PlaylistError::Name { line, reason })
    }

    /// Handles the name of a file.
    fn uri(&mut self, uri: &str, next: &mut Next) -> Result<(), PlaylistError> {
        let line = self.line;
        let file = self.beside(uri)?;
        if let Some(master) = &mut self.master {
            let missing = PlaylistError::Value { line, tag: "EXT-X-STREAM-INF" };
            let (bandwidth, resolution, codecs) = next.rendition.take().ok_or(missing)?;
            // Renditions that differ only in their tracks apart share a playlist.
            if master.renditions.iter().all(|other| other.playlist != file) {
                let playlist = file;
                master.renditions.push(Rendition { playlist, bandwidth, resolution, codecs });
            }
            let count = master.renditions.len();
            return bounded("renditions", count, MAX_RENDITIONS);
        }
        let missing = PlaylistError::Value { line, tag: "EXTINF" };
        self.media.segments.push(Segment {
            name: file,
            duration: next.duration.take().ok_or(missing)?,
            init: next.init.clone(),
            discontinuity: std::mem::take(&mut next.discontinuity),
            gap: std::mem::take(&mut next.gap),
            date: next.date.take(),
        });
        bounded("segments", self.media.segments.len(), MAX_SEGMENTS)
    }

    fn finish(self) -> Result<Playlist, PlaylistError> {
        let Some(mut master) = self.master else {
            let last = self.media.first.checked_add(self.media.segments.len() as u64);
            if last.is_none() {
                let tag = "EXT-X-MEDIA-SEQUENCE";
                return Err(PlaylistError::Value { line: self.line, tag });
            }
            return Ok(Playlist::Media(self.media));
        };
        if master.renditions.is_empty() {
            let (what, max) = ("renditions", MAX_RENDITIONS);
            return Err(PlaylistError::Count { what, count: 0, max });
        }
        master.renditions.sort_by_key(|rendition| rendition.bandwidth);
        Ok(Playlist::Master(master))
    }
}

fn bounded(what: &'static str, count: usize, max: usize) -> Result<(), PlaylistError> {
    if count > max { Err(PlaylistError::Count { what, count, max }) } else { Ok(()) }
}

/// Returns the value of an attribute, without quotes.
fn attribute<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = list;
    while let Some((key, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (value, next) = quoted.split_once('"')?;
                (value, next.strip_prefix(',').unwrap_or(next))
            }
            None => after.split_once(',').unwrap_or((after, "")),
        };
        if key.trim() == name {
            return Some(value);
        }
        rest = next;
    }
    None
}

/// Returns whether a value can be passed on as text.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_graphic() && c != '"' || c == ' ';
    !text.is_empty() && text.len() <= MAX_TEXT && text.chars().all(plain)
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Parses the duration of an `EXTINF` tag, whose title is left out.
fn duration(value: &str) -> Option<Duration> {
    let seconds = value.split(',').next()?.trim();
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos = format!("{part:0<9.9}").parse().ok()?;
    let whole = number(whole).filter(|&s| s <= MAX_DURATION.as_secs())?;
    Some(Duration::new(whole, nanos)).filter(|&duration| duration <= MAX_DURATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_attributes_may_be_quoted_and_hold_commas() {
        let list = "A=\"x,B=1\",B=2,C=3";
        assert_eq!(attribute(list, "A"), Some("x,B=1"));
        assert_eq!((attribute(list, "B"), attribute(list, "C")), (Some("2"), Some("3")));
        assert_eq!((attribute("A=\"x", "A"), attribute("", "A")), (None, None));
    }
}
