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

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_store::hls::{FileName, Master, Media, Playlist, Segment};

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
/// Files of a layer that are kept until a playlist names them, and most bytes of these.
const FILES: usize = 40;
const BYTES: usize = 64 << 20;
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

/// What is held of a layer.
#[derive(Debug, Default)]
struct Layer {
    playlist: Media,
    /// Time at which a playlist first named each segment.
    named: BTreeMap<u64, Instant>,
    files: BTreeMap<FileName, Bytes>,
    order: VecDeque<FileName>,
    bytes: usize,
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

    /// Prefers a layer's segments from now on.
    pub(crate) fn prefer(&mut self, layer: usize) {
        self.preferred = layer.min(self.layers.len().saturating_sub(1));
    }

    /// Takes a whole file of a layer. What is no part of a ladder is counted.
    pub(crate) fn take(&mut self, now: Instant, layer: usize, name: &str, body: Bytes) {
        let parsed = FileName::parse(name).ok();
        let Some((held, name)) = self.layers.get_mut(layer).zip(parsed) else {
            self.stats.refused += 1;
            return;
        };
        if name.extension() == "m3u8" {
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
        let found = |media_type, body| Answer::Found { media_type, body, etag: None };
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
        let Some(held) = self.layers.get(layer) else { return false };
        held.playlist.segment(number).is_some_and(|segment| {
            let init = segment.init.as_ref();
            held.files.contains_key(&segment.name)
                && init.is_none_or(|init| held.files.contains_key(init))
        })
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

impl Layer {
    /// Takes the newest playlist.
    fn list(&mut self, now: Instant, media: Media) {
        self.named.retain(|&number, _| number >= media.first);
        for (number, _) in media.numbered() {
            self.named.entry(number).or_insert(now);
        }
        self.playlist = media;
    }

    fn keep(&mut self, name: FileName, body: Bytes) {
        self.bytes += body.len();
        match self.files.insert(name.clone(), body) {
            Some(old) => self.bytes -= old.len(),
            None => self.order.push_back(name),
        }
        let init = self.playlist.segments.last().and_then(|segment| segment.init.clone());
        while (self.order.len() > FILES || self.bytes > BYTES) && self.order.len() > 2 {
            let Some(oldest) = self.order.pop_front() else { break };
            if Some(&oldest) == init.as_ref() {
                self.order.push_back(oldest);
            } else if let Some(body) = self.files.remove(&oldest) {
                self.bytes -= body.len();
            }
        }
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
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    const MASTER: &str = "#EXTM3U\n\
        #EXT-X-STREAM-INF:BANDWIDTH=200000,RESOLUTION=320x180,CODECS=\"avc1.low\"\nv0/i.m3u8\n\
        #EXT-X-STREAM-INF:BANDWIDTH=600000,RESOLUTION=640x360,CODECS=\"avc1.high\"\nv1/i.m3u8\n";

    fn media(layer: usize, first: u64, end: u64) -> Bytes {
        let head = format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{first}\n");
        let map = format!("#EXT-X-MAP:URI=\"init_{layer}.mp4\"\n");
        let segments = (first..end).map(|n| format!("#EXTINF:1.0,\n{n}.m4s\n"));
        (head + &map + &segments.collect::<String>()).into()
    }

    /// Puts a segment, with all that goes before and after it, onto the shelf.
    fn segment(shelf: &mut Shelf, now: Instant, layer: usize, number: u64) {
        let init = format!("v{layer}/init_{layer}.mp4");
        shelf.take(now, layer, &init, format!("init {layer}").into());
        let body = format!("{layer}:{number}");
        shelf.take(now, layer, &format!("v{layer}/{number}.m4s"), body.into());
        named(shelf, now, layer, number);
    }

    /// Lets a playlist name the segments up to this one.
    fn named(shelf: &mut Shelf, now: Instant, layer: usize, number: u64) {
        let playlist = media(layer, number.saturating_sub(3), number + 1);
        shelf.take(now, layer, &format!("v{layer}/i.m3u8"), playlist);
    }

    fn shelf() -> Shelf {
        let mut shelf = Shelf::new(2);
        shelf.take(at(0), 0, "master.m3u8", Bytes::from_static(MASTER.as_bytes()));
        shelf
    }

    fn body(shelf: &Shelf, path: &str) -> Option<String> {
        match shelf.answer(path) {
            Answer::Found { body, .. } => Some(String::from_utf8(body.to_vec()).unwrap()),
            Answer::NotFound | Answer::NotYet => None,
        }
    }

    /// Returns the playlist as its segments' bodies, with `|` before a discontinuity.
    fn playlist(shelf: &Shelf) -> String {
        let name = FileName::parse("live.m3u8").unwrap();
        let text = body(shelf, "live.m3u8").unwrap();
        let media = Playlist::parse_media(&name, text.as_bytes()).unwrap();
        let shown = media.segments.iter().map(|segment| {
            let init = body(shelf, segment.init.as_ref().unwrap().as_str()).unwrap();
            let body = body(shelf, segment.name.as_str()).unwrap();
            assert_eq!(init[5..6], body[..1], "{text}");
            format!("{}{body}", if segment.discontinuity { "| " } else { "" })
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_player_sees_one_variant_and_no_playlist_before_it_can_play_smoothly() {
        let mut shelf = shelf();
        let master = body(&shelf, "master.m3u8").unwrap();
        assert!(master.contains("BANDWIDTH=600000,CODECS=\"avc1.high\"\nlive.m3u8"), "{master}");
        assert_eq!(Shelf::new(2).answer("master.m3u8"), Answer::NotYet);
        for number in 7..9 {
            segment(&mut shelf, at(number), 0, number);
            assert_eq!(shelf.answer("live.m3u8"), Answer::NotYet);
        }
        segment(&mut shelf, at(9), 0, 9);
        assert_eq!(playlist(&shelf), "0:7 0:8 0:9");
        for path in ["", "/", "segment/99.m4s", "segment/../init/0.mp4", "init/x", "v0/7.m4s"] {
            assert_eq!(shelf.answer(path), Answer::NotFound, "{path}");
        }
    }

    #[test]
    fn a_change_of_rendition_is_a_discontinuity_with_another_init_file() {
        let mut shelf = shelf();
        (1..4).for_each(|number| segment(&mut shelf, at(number), 0, number));
        shelf.prefer(1);
        segment(&mut shelf, at(4), 1, 4);
        segment(&mut shelf, at(5), 1, 5);
        shelf.prefer(0);
        segment(&mut shelf, at(6), 0, 6);
        assert_eq!(playlist(&shelf), "0:1 0:2 0:3 | 1:4 1:5 | 0:6");
        assert_eq!(shelf.stats().switches, 2);
    }

    #[test]
    fn what_is_not_there_in_time_comes_from_another_rendition_or_is_left_out() {
        let mut shelf = shelf();
        (1..4).for_each(|number| segment(&mut shelf, at(number), 0, number));
        shelf.prefer(1);
        segment(&mut shelf, at(10), 0, 4);
        assert_eq!(playlist(&shelf), "0:1 0:2 0:3");
        assert_eq!(shelf.waits_until(), Some(at(4010)));
        shelf.advance(at(4009));
        assert_eq!(shelf.stats().segments, 3);
        shelf.advance(at(4010));
        assert_eq!(playlist(&shelf), "0:1 0:2 0:3 0:4");
        named(&mut shelf, at(4100), 1, 5);
        shelf.advance(at(9000));
        assert_eq!(shelf.stats().skipped, 0);
        segment(&mut shelf, at(9001), 1, 6);
        assert_eq!(playlist(&shelf), "0:1 0:2 0:3 0:4 | 1:6");
        assert_eq!((shelf.stats().skipped, shelf.stats().switches), (1, 1));
    }

    #[test]
    fn after_a_pause_it_goes_on_with_what_is_there() {
        let mut shelf = shelf();
        (1..4).for_each(|number| segment(&mut shelf, at(number), 0, number));
        segment(&mut shelf, at(90_000), 0, 90);
        shelf.advance(at(94_000));
        assert_eq!(playlist(&shelf), "0:1 0:2 0:3 | 0:90");
    }

    #[test]
    fn only_what_the_preferred_rendition_still_lacks_is_needed() {
        let mut shelf = shelf();
        (1..4).for_each(|number| segment(&mut shelf, at(number), 0, number));
        let file = |name: &str| FileName::parse(name).unwrap();
        assert_eq!(shelf.needs(0, &file("v0/4.m4s")), Need::Unknown);
        named(&mut shelf, at(10), 0, 4);
        assert_eq!(shelf.needs(0, &file("v0/4.m4s")), Need::Yes);
        assert_eq!(shelf.needs(0, &file("v0/3.m4s")), Need::No);
        assert_eq!(shelf.absent(at(409)), []);
        assert_eq!(shelf.absent(at(410)), [(0, file("v0/4.m4s"))]);
        shelf.take(at(411), 0, "v0/4.m4s", Bytes::from_static(b"0:4"));
        assert_eq!(shelf.absent(at(999)), []);
        assert_eq!(playlist(&shelf), "0:1 0:2 0:3 0:4");
        named(&mut shelf, at(1000), 0, 5);
        shelf.prefer(1);
        assert_eq!(shelf.needs(0, &file("v0/5.m4s")), Need::No);
    }

    #[test]
    fn the_playlist_slides_and_ends_and_memory_is_bounded() {
        let mut shelf = shelf();
        (1..100).for_each(|number| segment(&mut shelf, at(number), 0, number));
        assert_eq!((shelf.held().0, shelf.slots.len()), (LISTED, LISTED + AFTER));
        assert!(shelf.layers[0].files.len() <= FILES && shelf.layers[0].named.len() <= 4);
        assert!(body(&shelf, "live.m3u8").unwrap().contains("MEDIA-SEQUENCE:87\n"));
        (0..1000).for_each(|n| shelf.take(at(100), 1, &format!("v1/x{n}.m4s"), Bytes::new()));
        assert!(shelf.layers[1].files.len() <= FILES);
        shelf.end();
        assert!(body(&shelf, "live.m3u8").unwrap().ends_with("#EXT-X-ENDLIST\n"));
    }

    #[test]
    fn what_is_no_part_of_a_ladder_is_counted() {
        let mut shelf = shelf();
        shelf.take(at(0), 0, "../../etc/passwd", Bytes::new());
        shelf.take(at(0), 0, "v0/i.m3u8", Bytes::from_static(b"nonsense"));
        shelf.take(at(0), 7, "v0/1.m4s", Bytes::new());
        assert_eq!(shelf.stats().refused, 3);
    }

    #[test]
    fn a_source_that_was_started_again_continues_the_playlist() {
        let mut shelf = shelf();
        (50..53).for_each(|number| segment(&mut shelf, at(number), 0, number));
        shelf.restart(2);
        segment(&mut shelf, at(60), 0, 1);
        assert_eq!(playlist(&shelf), "0:50 0:51 0:52 | 0:1");
    }
}
