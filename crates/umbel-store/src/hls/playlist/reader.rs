//! Reads playlists, line by line.

use std::collections::BTreeSet;
use std::time::Duration;

use super::tracks::{Listed, consistent};
use super::{
    LEFT_OUT, MAX_DURATION, MAX_PLAYLIST, MAX_RENDITIONS, MAX_SEGMENTS, Master, Media, Playlist,
    PlaylistError, Rendition, Segment,
};
use crate::hls::name::FileName;

/// Maximum length of a value that is passed on as text.
const MAX_TEXT: usize = 256;
/// Maximum number of tracks apart that are looked at.
const MAX_TRACKS: usize = 256;

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
        // Clients have to refuse it [RFC 8216 §4.1], but those that people use do not.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
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
    rendition: Option<NextRendition>,
    duration: Option<Duration>,
    init: Option<FileName>,
    discontinuity: bool,
    gap: bool,
    date: Option<String>,
}

/// Attributes of the rendition whose name comes next.
#[derive(Debug)]
struct NextRendition {
    bandwidth: u64,
    resolution: Option<String>,
    codecs: Option<String>,
    audio: Option<String>,
}

/// Renditions and tracks of a list.
#[derive(Debug, Default)]
struct List {
    listed: Vec<Listed>,
    apart: usize,
    /// Groups of sound that is apart, and the playlists of all tracks that are.
    groups: BTreeSet<String>,
    tracks: BTreeSet<FileName>,
    left_out: Vec<String>,
}

struct Reader<'a> {
    name: &'a FileName,
    line: usize,
    master: Option<List>,
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
                let text =
                    |name| attribute(value, name).filter(|text| is_plain(text)).map(str::to_owned);
                let (resolution, codecs) = (text("RESOLUTION"), text("CODECS"));
                let audio = text("AUDIO");
                next.rendition = Some(NextRendition { bandwidth, resolution, codecs, audio });
                self.master();
            }
            "-X-MEDIA" => self.track(value),
            "-X-SESSION-DATA" if attribute(value, "DATA-ID") == Some(LEFT_OUT) => {
                let name = attribute(value, "VALUE").filter(|text| is_plain(text));
                let list = self.master();
                if list.left_out.len() < MAX_RENDITIONS {
                    list.left_out.extend(name.map(str::to_owned));
                }
            }
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

    /// Handles a track, which is apart if it has a playlist.
    fn track(&mut self, value: &str) {
        let (name, uri) = (self.name, attribute(value, "URI"));
        let list = self.master();
        let Some(uri) = uri.filter(|_| list.tracks.len() < MAX_TRACKS) else { return };
        list.apart += 1;
        list.tracks.extend(name.beside(uri).ok());
        if attribute(value, "TYPE") == Some("AUDIO") {
            list.groups.extend(attribute(value, "GROUP-ID").map(str::to_owned));
        }
    }

    fn master(&mut self) -> &mut List {
        self.master.get_or_insert_default()
    }

    fn beside(&self, uri: &str) -> Result<FileName, PlaylistError> {
        let line = self.line;
        let name = match &self.master {
            Some(_) => self.name.beside(uri),
            None => self.name.beside_or_served(uri),
        };
        name.map_err(|reason| PlaylistError::Name { line, reason })
    }

    /// Handles the name of a file.
    fn uri(&mut self, uri: &str, next: &mut Next) -> Result<(), PlaylistError> {
        let line = self.line;
        let file = self.beside(uri)?;
        if let Some(list) = &mut self.master {
            let missing = PlaylistError::Value { line, tag: "EXT-X-STREAM-INF" };
            let NextRendition { bandwidth, resolution, codecs, audio } =
                next.rendition.take().ok_or(missing)?;
            // Renditions that differ only in their tracks apart share a playlist.
            if list.listed.iter().all(|other| other.rendition.playlist != file) {
                let rendition = Rendition { playlist: file, bandwidth, resolution, codecs };
                list.listed.push(Listed { rendition, audio });
            }
            return bounded("renditions", list.listed.len(), MAX_RENDITIONS);
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
        let Some(list) = self.master else {
            let last = self.media.first.checked_add(self.media.segments.len() as u64);
            if last.is_none() {
                let tag = "EXT-X-MEDIA-SEQUENCE";
                return Err(PlaylistError::Value { line: self.line, tag });
            }
            return Ok(Playlist::Media(self.media));
        };
        let List { mut listed, apart, groups, tracks, mut left_out } = list;
        // Some writers list sound that is apart as a rendition, too.
        listed.retain(|one| !tracks.contains(&one.rendition.playlist));
        let (renditions, others) = consistent(listed, &groups);
        if renditions.is_empty() {
            let (what, max) = ("renditions", MAX_RENDITIONS);
            return Err(PlaylistError::Count { what, count: 0, max });
        }
        left_out.extend(others.iter().map(|other| {
            let codecs = other.codecs.as_deref().unwrap_or("codecs unknown");
            format!("{} ({codecs})", other.playlist.seen_from(self.name))
        }));
        Ok(Playlist::Master(Master { renditions, apart, left_out }))
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
