//! The segments that are held, and the playlist that a player sees.
//!
//! A player thinks its own machine infinitely fast: of several renditions it would always ask for
//! the best, which may not come. So there is one variant, and the rendition changes behind it, with
//! a discontinuity and the new rendition's init file. Only what is held stands in the playlist.
//!
//! ```text
//! layer 1:   41  42  43                      46  …      what came by multicast or was repaired
//! layer 2:               44  (45 missing)
//! playlist:  41  42  43 │44│                │46  …      │ discontinuity
//! ```
//!
//! Segments of one number are the same time of all renditions. The next number is taken from the
//! preferred rendition; if it is not there in time, from another; and left out if it is nowhere.

mod layer;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_store::hls::{FileName, Master, Media, Playlist, Segment};

use self::layer::Layer;
use crate::http::Answer;

/// Segments in the playlist.
pub(crate) const LISTED: usize = 12;
/// Segments that are served for a while after they have left the playlist [RFC 8216 §6.2.2].
const AFTER: usize = 6;
/// Segments that must be held before there is a playlist: with fewer, a player's buffer runs dry at
/// the first delay.
const START: usize = 3;
/// Segments before the end at which players should play. A change of the rendition and its repairs
/// take longer than three segments of a second, which is what players keep by default.
const HOLD_BACK: u64 = 6;
/// Init files that are kept.
const INITS: usize = 8;
/// Time that a segment is waited for since a playlist named it: four times its duration, within
/// this. A player that is `HOLD_BACK` segments behind then has one left.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(12));
/// Time after which a segment that was named but of which nothing came counts as absent.
const ABSENT: Duration = Duration::from_millis(400);

/// Name of the playlist of segments.
const LIVE: &str = "live.m3u8";
const PLAYLIST_TYPE: &str = "application/vnd.apple.mpegurl";

/// Whether a file is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is.
    Yes,
    /// No playlist names it yet.
    Unknown,
    /// It is held, or its time is over.
    No,
}

/// Counters of a shelf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShelfStats {
    /// Segments put into the playlist.
    pub(crate) segments: u64,
    /// Segments left out, since they were nowhere in time.
    pub(crate) skipped: u64,
    /// Changes of the rendition.
    pub(crate) switches: u64,
    /// Files that are no part of a ladder.
    pub(crate) refused: u64,
}

/// A segment in the playlist, or just out of it.
#[derive(Clone, Debug)]
struct Slot {
    layer: usize,
    /// Its name at the source.
    name: FileName,
    body: Bytes,
}

/// Holds segments in bounded memory, and makes the playlist.
#[derive(Debug)]
pub(crate) struct Shelf {
    layers: Vec<Layer>,
    master: Option<Master>,
    preferred: usize,
    /// Number, in the source's playlists, of the segment that comes next.
    next: Option<u64>,
    /// Whether the next segment does not continue the last.
    broken: bool,
    list: Media,
    slots: BTreeMap<u64, Slot>,
    /// Init files with the numbers that they have in the playlist.
    inits: VecDeque<(u64, Bytes)>,
    next_init: u64,
    stats: ShelfStats,
}

impl Shelf {
    /// Creates an empty shelf for a ladder with this number of layers.
    pub(crate) fn new(layers: usize) -> Shelf {
        Shelf {
            layers: (0..layers).map(|_| Layer::default()).collect(),
            master: None,
            preferred: 0,
            next: None,
            broken: false,
            list: Media { target_s: 1, ..Media::default() },
            slots: BTreeMap::new(),
            inits: VecDeque::new(),
            next_init: 0,
            stats: ShelfStats::default(),
        }
    }

    /// Goes on with another ladder, since the source was started again. The playlist goes on.
    pub(crate) fn restart(&mut self, layers: usize) {
        self.layers = (0..layers).map(|_| Layer::default()).collect();
        (self.master, self.next, self.preferred) = (None, None, 0);
        self.broken = !self.slots.is_empty();
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> ShelfStats {
        self.stats
    }

    /// Returns the number of segments in the playlist, their duration and their bytes.
    pub(crate) fn held(&self) -> (usize, Duration, usize) {
        let time = self.list.segments.iter().map(|segment| segment.duration).sum();
        (self.list.segments.len(), time, self.slots.values().map(|slot| slot.body.len()).sum())
    }

    /// Returns the last segment in the playlist: its layer and its name at the source.
    pub(crate) fn newest(&self) -> Option<(usize, &FileName)> {
        self.slots.last_key_value().map(|(_, slot)| (slot.layer, &slot.name))
    }

    /// Returns the picture size of a layer, as its ladder says.
    pub(crate) fn resolution(&self, layer: usize) -> Option<&str> {
        self.master.as_ref()?.renditions.get(layer)?.resolution.as_deref()
    }

    /// Returns the renditions that the source leaves out, as it says.
    pub(crate) fn left_out(&self) -> &[String] {
        self.master.as_ref().map_or(&[], |master| &master.left_out)
    }

    /// Prefers a layer's segments from now on.
    pub(crate) fn prefer(&mut self, layer: usize) {
        self.preferred = layer.min(self.layers.len().saturating_sub(1));
    }

    /// Takes a whole file of a layer. A file that is no part of a ladder is counted.
    pub(crate) fn take(&mut self, now: Instant, layer: usize, name: &str, body: Bytes) {
        let parsed = FileName::parse(name).ok();
        let Some((held, name)) = self.layers.get_mut(layer).zip(parsed) else {
            self.stats.refused += 1;
            return;
        };
        if name.is_playlist() {
            match Playlist::parse(&name, &body) {
                Ok(Playlist::Master(master)) => self.master = Some(master),
                // Copies come in no order.
                Ok(Playlist::Media(media)) if media.end() < held.playlist.end() => {}
                Ok(Playlist::Media(media)) => held.list(now, media),
                Err(error) => {
                    tracing::debug!("{name} is not taken: {error}");
                    self.stats.refused += 1;
                }
            }
        } else {
            held.keep(name, body);
        }
        self.advance(now);
    }

    /// Puts into the playlist what is due.
    pub(crate) fn advance(&mut self, now: Instant) {
        while let Some(next) = self.next.or_else(|| self.first()) {
            self.next = Some(next);
            let preferred = self.preferred;
            if self.has(preferred, next) {
                self.append(preferred, next);
                continue;
            }
            let since = self.layers.iter().filter_map(|layer| layer.named.get(&next)).min();
            let Some(&since) = since else {
                // All playlists may be beyond it, after a pause.
                let first = self.layers.iter().filter_map(|layer| layer.named.keys().next()).min();
                match first.filter(|&&first| first > next) {
                    Some(&first) => self.skip(first),
                    None => return,
                }
                continue;
            };
            if now < since + self.patience(next) {
                return;
            }
            let other = (0..self.layers.len()).rev().find(|&layer| self.has(layer, next));
            match other {
                Some(layer) => self.append(layer, next),
                // Nothing is gained by leaving it out before something later is there.
                None if self.is_later_held(next) => self.skip(next + 1),
                None => return,
            }
        }
    }

    /// Returns when [`advance`](Shelf::advance) can put something more into the playlist, if
    /// nothing comes.
    #[cfg(test)]
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        let next = self.next?;
        let since = self.layers.iter().filter_map(|layer| layer.named.get(&next)).min()?;
        Some(*since + self.patience(next))
    }

    /// Ends the playlist.
    pub(crate) fn end(&mut self) {
        self.list.ended = true;
    }

    /// Returns whether a file of a layer is needed.
    pub(crate) fn needs(&self, layer: usize, name: &FileName) -> Need {
        let Some(held) = self.layers.get(layer).filter(|_| layer == self.preferred) else {
            return Need::No;
        };
        if held.files.contains_key(name) {
            return Need::No;
        }
        let next = self.next.unwrap_or(0);
        for (number, segment) in held.playlist.numbered() {
            if segment.name == *name {
                return if number >= next { Need::Yes } else { Need::No };
            }
            if segment.init.as_ref() == Some(name) && number >= next {
                return Need::Yes;
            }
        }
        Need::Unknown
    }

    /// Returns the files of the preferred layer that playlists named some time ago, but of which
    /// nothing was heard.
    pub(crate) fn absent(&self, now: Instant) -> Vec<(usize, FileName)> {
        let Some((held, next)) = self.layers.get(self.preferred).zip(self.next) else {
            return Vec::new();
        };
        let long = |number: &u64| held.named.get(number).is_some_and(|&at| at + ABSENT <= now);
        let due = held
            .playlist
            .numbered()
            .filter(|(number, segment)| *number >= next && !segment.gap && long(number));
        let names = due.flat_map(|(_, segment)| [Some(&segment.name), segment.init.as_ref()]);
        let missing = names.flatten().filter(|name| !held.files.contains_key(*name));
        missing.map(|name| (self.preferred, name.clone())).collect()
    }

    /// Returns what a player gets for a path below the stream's name.
    pub(crate) fn answer(&self, path: &str) -> Answer {
        let found =
            |media_type, body| Answer::Found { media_type, body, etag: None, signature: None };
        match path.split_once('/') {
            None if path == "master.m3u8" => match self.master_text() {
                Some(text) => found(PLAYLIST_TYPE, text.into()),
                None => Answer::NotYet,
            },
            None if path == LIVE => match self.live_text() {
                Some(text) => found(PLAYLIST_TYPE, text.into()),
                None => Answer::NotYet,
            },
            Some(("segment", file)) => {
                let slot = number_of(file).and_then(|number| self.slots.get(&number));
                slot.map_or(Answer::NotFound, |slot| found(kind(&slot.name).1, slot.body.clone()))
            }
            Some(("init", file)) => {
                let number = number_of(file);
                let init = self.inits.iter().find(|(n, _)| Some(*n) == number);
                init.map_or(Answer::NotFound, |(_, body)| found("video/mp4", body.clone()))
            }
            _ => Answer::NotFound,
        }
    }

    fn master_text(&self) -> Option<String> {
        let renditions = &self.master.as_ref()?.renditions;
        let best = renditions.iter().max_by_key(|rendition| rendition.bandwidth)?;
        // A resolution would be that of one rendition only.
        let codecs = best.codecs.as_ref().map(|codecs| format!(",CODECS=\"{codecs}\""));
        Some(format!(
            "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n\
             #EXT-X-STREAM-INF:BANDWIDTH={}{}\n{LIVE}\n",
            best.bandwidth,
            codecs.unwrap_or_default()
        ))
    }

    fn live_text(&self) -> Option<String> {
        let enough = self.stats.segments >= START as u64 || self.list.ended;
        enough.then(|| self.list.text_with(|name| name.as_str().to_owned()))
    }

    /// Returns the number to begin with: the newest that is held.
    fn first(&self) -> Option<u64> {
        let mut numbers = self.layers.get(self.preferred)?.playlist.numbered().rev();
        numbers.find(|&(number, _)| self.has(self.preferred, number)).map(|(number, _)| number)
    }

    /// Returns whether a segment of a layer is held with all that a player needs.
    fn has(&self, layer: usize, number: u64) -> bool {
        self.layers.get(layer).is_some_and(|held| held.has(number))
    }

    fn is_later_held(&self, number: u64) -> bool {
        (0..self.layers.len()).any(|layer| {
            let mut numbers = self.layers[layer].playlist.numbered();
            numbers.any(|(later, _)| later > number && self.has(layer, later))
        })
    }

    fn patience(&self, number: u64) -> Duration {
        let named = self.layers.iter().find_map(|layer| layer.playlist.segment(number));
        named.map_or(PATIENCE.0, |segment| (segment.duration * 4).clamp(PATIENCE.0, PATIENCE.1))
    }

    /// Leaves out the segments before this one.
    fn skip(&mut self, to: u64) {
        let from = self.next.replace(to).unwrap_or(to);
        self.stats.skipped += to.saturating_sub(from);
        self.broken = true;
    }

    /// Puts a segment that is held into the playlist.
    fn append(&mut self, layer: usize, number: u64) {
        self.next = Some(number + 1);
        let held = &mut self.layers[layer];
        let Some(segment) = held.playlist.segment(number).cloned() else { return };
        let Some(body) = held.files.get(&segment.name).cloned() else { return };
        let init = segment.init.as_ref().and_then(|init| held.files.get(init)).cloned();
        let init = init.map(|init| self.init_number(init));
        let before = self.newest().map(|(layer, _)| layer);
        let switched = before.is_some_and(|before| before != layer);
        self.stats.switches += u64::from(switched);
        self.stats.segments += 1;
        let number = self.list.end();
        let uri = |kind: &str, number, extension| {
            FileName::parse(&format!("{kind}/{number}.{extension}")).ok()
        };
        let Some(file) = uri("segment", number, kind(&segment.name).0) else { return };
        let discontinuity = segment.discontinuity || switched || std::mem::take(&mut self.broken);
        self.list.target_s = self.list.target_s.max(segment.duration.as_secs_f64().round() as u64);
        self.list.hold_back_s = Some(self.list.target_s * HOLD_BACK);
        let listed = Segment {
            name: file,
            init: init.and_then(|number| uri("init", number, "mp4")),
            discontinuity: discontinuity && before.is_some(),
            gap: false,
            ..segment.clone()
        };
        self.list.push(number, listed, LISTED);
        self.slots.insert(number, Slot { layer, name: segment.name, body });
        while self.slots.len() > LISTED + AFTER {
            self.slots.pop_first();
        }
    }

    /// Returns the number of an init file in the playlist.
    fn init_number(&mut self, body: Bytes) -> u64 {
        if let Some(at) = self.inits.iter().position(|(_, other)| *other == body)
            && let Some(known) = self.inits.remove(at)
        {
            let number = known.0;
            self.inits.push_back(known);
            return number;
        }
        self.inits.push_back((self.next_init, body));
        if self.inits.len() > INITS {
            self.inits.pop_front();
        }
        self.next_init += 1;
        self.next_init - 1
    }
}

/// Returns the number of a file such as `17.m4s`.
fn number_of(file: &str) -> Option<u64> {
    file.split_once('.')?.0.parse().ok()
}

/// Returns extension and media type by which players know a segment.
fn kind(name: &FileName) -> (&'static str, &'static str) {
    match name.extension() {
        "ts" => ("ts", "video/mp2t"),
        "aac" => ("aac", "audio/aac"),
        "vtt" => ("vtt", "text/vtt"),
        _ => ("m4s", "video/mp4"),
    }
}

#[cfg(test)]
mod tests;
