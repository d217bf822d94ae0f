//! Playlists of HTTP Live Streaming [RFC 8216], as far as a ladder needs them.
//!
//! Tags that are not understood are left out, as the RFC demands of clients. Content that cannot be
//! multicast is refused: encrypted segments, segments that are parts of a file, files outside the
//! directory.

mod reader;
mod tracks;

use std::fmt::Write as _;
use std::time::Duration;

use super::name::{FileName, NameError};

/// Maximum length of a playlist in bytes.
pub const MAX_PLAYLIST: usize = 4 << 20;
/// Maximum number of renditions.
pub const MAX_RENDITIONS: usize = 16;
/// Maximum number of segments in a media playlist: a day of segments of 4 s.
pub const MAX_SEGMENTS: usize = 21_600;
/// Longest segment.
pub const MAX_DURATION: Duration = Duration::from_mins(10);
/// Names the renditions that are left out, in a master playlist as it is sent.
const LEFT_OUT: &str = "umbel.left-out";

/// A playlist.
#[derive(Clone, Debug, PartialEq)]
pub enum Playlist {
    /// Lists renditions.
    Master(Master),
    /// Lists the segments of a rendition.
    Media(Media),
}

/// A list of renditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Master {
    /// The renditions, in ascending order of bandwidth; 1 to [`MAX_RENDITIONS`].
    pub renditions: Vec<Rendition>,
    /// Number of tracks apart from the renditions (audio, subtitles), which are not understood.
    pub apart: usize,
    /// Renditions whose tracks or codecs are not those of the others, by playlist and codecs.
    pub left_out: Vec<String>,
}

/// The whole content at one rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendition {
    /// Playlist of its segments.
    pub playlist: FileName,
    /// Peak rate in bits per second; above 0.
    pub bandwidth: u64,
    /// Width and height, as written in the playlist.
    pub resolution: Option<String>,
    /// Codecs by [RFC 6381].
    pub codecs: Option<String>,
}

/// A list of the segments of a rendition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Media {
    /// Maximum duration of a segment in seconds, as the playlist says.
    pub target_s: u64,
    /// Number of the first segment. Segments are numbered in a row.
    pub first: u64,
    /// Number of discontinuities before the first segment.
    pub first_discontinuity: u64,
    /// The segments, at most [`MAX_SEGMENTS`].
    pub segments: Vec<Segment>,
    /// Whether no more segments come.
    pub ended: bool,
    /// Distance from the end, in seconds, that players should keep, if not three segments. It is
    /// written, and not read.
    pub hold_back_s: Option<u64>,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its file.
    pub name: FileName,
    /// Its duration, at most [`MAX_DURATION`].
    pub duration: Duration,
    /// File with what a player must know before it.
    pub init: Option<FileName>,
    /// Whether it does not continue the one before.
    pub discontinuity: bool,
    /// Whether it is missing.
    pub gap: bool,
    /// Date and time of its start, as written in the playlist.
    pub date: Option<String>,
}

/// Reason why a playlist is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaylistError {
    /// It is no playlist.
    #[error("it is no HLS playlist")]
    NotPlaylist,
    /// It is too long.
    #[error("it has {0} bytes, and at most {MAX_PLAYLIST} are read")]
    TooLong(usize),
    /// There are no renditions or segments, or too many.
    #[error("it lists {count} {what}, and at most {max} are taken")]
    Count {
        /// Renditions or segments.
        what: &'static str,
        /// Their number.
        count: usize,
        /// Maximum number.
        max: usize,
    },
    /// A tag has no sound value.
    #[error("line {line}: {tag} has no sound value")]
    Value {
        /// Line, from 1.
        line: usize,
        /// The tag.
        tag: &'static str,
    },
    /// A file's name is refused.
    #[error("line {line}: a name with {reason}")]
    Name {
        /// Line, from 1.
        line: usize,
        /// Reason of the error.
        reason: NameError,
    },
    /// The segments are encrypted.
    #[error("line {line}: encrypted segments are not streamed")]
    Encrypted {
        /// Line, from 1.
        line: usize,
    },
    /// The segments are parts of one file.
    #[error("line {line}: segments must be files of their own (ffmpeg: no single_file)")]
    ByteRange {
        /// Line, from 1.
        line: usize,
    },
}

impl Master {
    /// Creates the list of one rendition, of which nothing but its playlist is known.
    pub fn of_one(playlist: FileName, bandwidth: u64) -> Master {
        let rendition = Rendition { playlist, bandwidth, resolution: None, codecs: None };
        Master { renditions: vec![rendition], apart: 0, left_out: Vec::new() }
    }

    /// Returns the text of the playlist of this name.
    pub fn text(&self, name: &FileName) -> String {
        let mut text = String::from("#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n");
        for left_out in &self.left_out {
            let _ =
                writeln!(text, "#EXT-X-SESSION-DATA:DATA-ID=\"{LEFT_OUT}\",VALUE=\"{left_out}\"");
        }
        for rendition in &self.renditions {
            let uri = rendition.playlist.seen_from(name);
            let _ = write!(text, "#EXT-X-STREAM-INF:BANDWIDTH={}", rendition.bandwidth);
            if let Some(resolution) = &rendition.resolution {
                let _ = write!(text, ",RESOLUTION={resolution}");
            }
            if let Some(codecs) = &rendition.codecs {
                let _ = write!(text, ",CODECS=\"{codecs}\"");
            }
            let _ = writeln!(text, "\n{uri}");
        }
        text
    }
}

impl Media {
    /// Returns the number after that of the last segment.
    pub fn end(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// Returns the segment of this number.
    pub fn segment(&self, number: u64) -> Option<&Segment> {
        self.segments.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns the segments with their numbers.
    pub fn numbered(&self) -> impl DoubleEndedIterator<Item = (u64, &Segment)> {
        let first = self.first;
        self.segments.iter().enumerate().map(move |(n, segment)| (first + n as u64, segment))
    }

    /// Appends the segment of this number, and drops the first ones beyond `most`. If the number
    /// does not follow the last one, the list starts from scratch.
    pub fn push(&mut self, number: u64, segment: Segment, most: usize) {
        let kept = if number == self.end() { most.saturating_sub(1) } else { 0 };
        while self.segments.len() > kept {
            let dropped = self.segments.remove(0);
            self.first_discontinuity += u64::from(dropped.discontinuity);
            self.first += 1;
        }
        self.first = number.saturating_sub(self.segments.len() as u64);
        self.segments.push(segment);
    }

    /// Returns the text of the playlist of this name.
    pub fn text(&self, name: &FileName) -> String {
        self.text_with(|file| file.seen_from(name))
    }

    /// Returns the text, with the URIs that `uri` makes of files.
    pub fn text_with(&self, uri: impl Fn(&FileName) -> String) -> String {
        let mut text = String::from("#EXTM3U\n#EXT-X-VERSION:7\n");
        let _ = writeln!(text, "#EXT-X-TARGETDURATION:{}", self.target_s.max(1));
        let _ = writeln!(text, "#EXT-X-MEDIA-SEQUENCE:{}", self.first);
        if self.first_discontinuity > 0 {
            let first = self.first_discontinuity;
            let _ = writeln!(text, "#EXT-X-DISCONTINUITY-SEQUENCE:{first}");
        }
        if let Some(seconds) = self.hold_back_s {
            let _ = writeln!(text, "#EXT-X-SERVER-CONTROL:HOLD-BACK={seconds}.0");
        }
        text.push_str("#EXT-X-INDEPENDENT-SEGMENTS\n");
        let mut init = None;
        for segment in &self.segments {
            if segment.discontinuity {
                text.push_str("#EXT-X-DISCONTINUITY\n");
            }
            if segment.init != init {
                init.clone_from(&segment.init);
                if let Some(init) = &init {
                    let _ = writeln!(text, "#EXT-X-MAP:URI=\"{}\"", uri(init));
                }
            }
            if let Some(date) = &segment.date {
                let _ = writeln!(text, "#EXT-X-PROGRAM-DATE-TIME:{date}");
            }
            if segment.gap {
                text.push_str("#EXT-X-GAP\n");
            }
            let _ = writeln!(text, "#EXTINF:{},\n{}", extinf(segment.duration), uri(&segment.name));
        }
        if self.ended {
            text.push_str("#EXT-X-ENDLIST\n");
        }
        text
    }
}

/// Returns a duration in seconds with 6 digits, or with all 9 if they are needed: what is cut off
/// would add up over a stream.
fn extinf(duration: Duration) -> String {
    let (whole, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if nanos % 1000 == 0 {
        format!("{whole}.{:06}", nanos / 1000)
    } else {
        format!("{whole}.{nanos:09}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> FileName {
        FileName::parse(text).unwrap()
    }

    const MASTER: &str = "#EXTM3U\n#EXT-X-VERSION:7\n\
        #EXT-X-STREAM-INF:BANDWIDTH=1650000,RESOLUTION=640x360,CODECS=\"avc1.42c01e,mp4a.40.2\"\n\
        v360p/index.m3u8\n\n\
        #EXT-X-STREAM-INF:BANDWIDTH=220000,RESOLUTION=320x180,CODECS=\"mp4a.40.5, avc3.42c00d\"\n\
        v180p/index.m3u8\n";

    const MEDIA: &str = "#EXTM3U\r\n#EXT-X-VERSION:7\r\n#EXT-X-TARGETDURATION:1\r\n\
        #EXT-X-MEDIA-SEQUENCE:41\r\n#EXT-X-INDEPENDENT-SEGMENTS\r\n\
        #EXT-X-MAP:URI=\"init_0.mp4\"\r\n#EXTINF:1.000000,\r\n\
        #EXT-X-PROGRAM-DATE-TIME:2026-11-22T20:00:00.000+0000\r\nseg_00041.m4s\r\n\
        #EXTINF:0.966667,a title\r\nseg_00042.m4s\r\n";

    fn media(text: &str) -> Result<Media, PlaylistError> {
        Playlist::parse_media(&name("v180p/index.m3u8"), text.as_bytes())
    }

    fn master(text: &str) -> Result<Master, PlaylistError> {
        Playlist::parse_master(&name("master.m3u8"), text.as_bytes())
    }

    #[test]
    fn renditions_come_in_order_of_bandwidth() {
        let parsed = master(MASTER).unwrap();
        let list: Vec<_> =
            parsed.renditions.iter().map(|r| (r.bandwidth, r.playlist.as_str())).collect();
        assert_eq!(list, [(220_000, "v180p/index.m3u8"), (1_650_000, "v360p/index.m3u8")]);
        let high = &parsed.renditions[1];
        assert_eq!(high.resolution.as_deref(), Some("640x360"));
        assert_eq!(high.codecs.as_deref(), Some("avc1.42c01e,mp4a.40.2"));
        assert_eq!(master(&parsed.text(&name("master.m3u8"))), Ok(parsed));
    }

    #[test]
    fn segments_are_numbered_from_the_media_sequence_and_share_their_init() {
        let parsed = media(MEDIA).unwrap();
        assert_eq!((parsed.first, parsed.end(), parsed.target_s), (41, 43, 1));
        let segment = parsed.segment(42).unwrap();
        assert_eq!(segment.name.as_str(), "v180p/seg_00042.m4s");
        assert_eq!(segment.duration, Duration::from_micros(966_667));
        assert_eq!(segment.init, Some(name("v180p/init_0.mp4")));
        let date = parsed.segments[0].date.as_deref();
        assert_eq!(date, Some("2026-11-22T20:00:00.000+0000"));
        assert_eq!(media(&parsed.text(&name("v180p/index.m3u8"))), Ok(parsed));
    }

    #[test]
    fn what_is_written_comes_back() {
        let mut parsed = media(MEDIA).unwrap();
        parsed.segments[0].gap = true;
        parsed.segments[1].discontinuity = true;
        parsed.segments[1].init = Some(name("v180p/init_1.mp4"));
        parsed.segments[1].duration = Duration::from_nanos(1_966_666_700);
        (parsed.first_discontinuity, parsed.ended) = (7, true);
        assert_eq!(media(&parsed.text(&name("v180p/index.m3u8"))), Ok(parsed));
    }

    #[test]
    fn what_cannot_be_multicast_is_refused_with_its_line() {
        let with = |from: &str, to: &str| media(&MEDIA.replace(from, to)).unwrap_err();
        assert_eq!(media("#EXTINF:1,\na.ts\n"), Err(PlaylistError::NotPlaylist));
        assert_eq!(
            with("seg_00042", "../../seg_00042"),
            PlaylistError::Name { line: 11, reason: NameError::Dots }
        );
        assert_eq!(
            with("init_0.mp4", "file:///etc/passwd"),
            PlaylistError::Name { line: 6, reason: NameError::Elsewhere }
        );
        let elsewhere = master(&MASTER.replace("v180p/", "https://cdn.example/v180p/"));
        assert_eq!(elsewhere, Err(PlaylistError::Name { line: 7, reason: NameError::Elsewhere }));
        let byte_range = with("#EXTINF:0.9", "#EXT-X-BYTERANGE:10@0\n#EXTINF:0.9");
        assert_eq!(byte_range, PlaylistError::ByteRange { line: 10 });
        let key = with("#EXT-X-MAP", "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n#EXT-X-MAP");
        assert_eq!(key, PlaylistError::Encrypted { line: 6 });
        for (from, to, tag) in [
            ("#EXTINF:1.000000,", "", "EXTINF"),
            ("1.000000", "-1", "EXTINF"),
            ("1.000000", "NaN", "EXTINF"),
            ("1.000000", "601", "EXTINF"),
            ("SEQUENCE:41", "SEQUENCE:18446744073709551615", "EXT-X-MEDIA-SEQUENCE"),
            ("SEQUENCE:41", "SEQUENCE:-1", "EXT-X-MEDIA-SEQUENCE"),
            ("DURATION:1", "DURATION:", "EXT-X-TARGETDURATION"),
        ] {
            let PlaylistError::Value { tag: found, .. } = with(from, to) else { panic!("{to}") };
            assert_eq!(found, tag);
        }
        let none = master("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n").unwrap_err();
        assert!(matches!(none, PlaylistError::Count { count: 0, .. }), "{none}");
        assert!(master(&MASTER.replace("220000", "0")).is_err());
        let many = (0..17).map(|n| format!("#EXT-X-STREAM-INF:BANDWIDTH=1\n{n}.m3u8\n"));
        let many = format!("#EXTM3U\n{}", many.collect::<String>());
        assert!(matches!(master(&many), Err(PlaylistError::Count { count: 17, .. })));
    }

    #[test]
    fn a_list_that_slides_counts_the_discontinuities_that_leave_it() {
        let mut list = media(MEDIA).unwrap();
        let mut next = list.segments[1].clone();
        next.discontinuity = true;
        for number in 43..46 {
            list.push(number, next.clone(), 3);
        }
        assert_eq!((list.first, list.end(), list.first_discontinuity), (43, 46, 0));
        list.push(46, next.clone(), 3);
        assert_eq!((list.first, list.first_discontinuity), (44, 1));
        list.push(99, next, 3);
        assert_eq!((list.first, list.end(), list.first_discontinuity), (99, 100, 4));
    }

    #[test]
    fn renditions_with_other_tracks_or_codecs_are_left_out_and_named() {
        let rendition = |rate: u64, codecs: &str, more: &str, uri: &str| {
            let codecs = Some(codecs).filter(|codecs| !codecs.is_empty());
            let codecs = codecs.map(|codecs| format!(",CODECS=\"{codecs}\"")).unwrap_or_default();
            format!("#EXT-X-STREAM-INF:BANDWIDTH={rate}{codecs}{more}\n{uri}\n")
        };
        let size = ",RESOLUTION=320x180";
        let both = "avc1.42c01e,mp4a.40.2";
        let apart = "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"a\",URI=\"a.m3u8\"\n";
        let grouped = ",RESOLUTION=320x180,AUDIO=\"g\"";
        for (list, kept, left) in [
            // Sound alone below, or the sound is missing there.
            (
                vec![
                    rendition(64, "mp4a.40.2", "", "a"),
                    rendition(2, both, size, "v"),
                    rendition(3, both, size, "w"),
                ],
                "v w",
                "a (mp4a.40.2)",
            ),
            (
                vec![rendition(1, "avc1.42c01e", size, "v"), rendition(2, both, size, "w")],
                "w",
                "v (avc1.42c01e)",
            ),
            // Another codec, and one that is not told.
            (
                vec![
                    rendition(1, "hvc1.1.6.L93.B0,mp4a.40.2", size, "h"),
                    rendition(2, both, size, "v"),
                    rendition(3, "avc3.64001f,mp4a.40.5", size, "w"),
                    rendition(4, "", size, "x"),
                ],
                "v w",
                "h (hvc1.1.6.L93.B0,mp4a.40.2), x (codecs unknown)",
            ),
            // Pictures come first, though sounds are more.
            (
                vec![
                    rendition(1, "mp4a.40.2", "", "a"),
                    rendition(2, "mp4a.40.2", "", "b"),
                    rendition(9, "avc1.42c01e", size, "v"),
                ],
                "v",
                "a (mp4a.40.2), b (mp4a.40.2)",
            ),
            // As ffmpeg writes tracks apart: the sound is listed, too.
            (
                vec![
                    apart.to_owned(),
                    rendition(9, both, grouped, "v"),
                    rendition(1, "mp4a.40.2", ",AUDIO=\"g\"", "a.m3u8"),
                ],
                "v",
                "",
            ),
            (
                vec![
                    apart.to_owned(),
                    rendition(1, both, grouped, "v"),
                    rendition(2, both, size, "w"),
                ],
                "w",
                "v (avc1.42c01e,mp4a.40.2)",
            ),
            (vec![rendition(1, "", "", "a"), rendition(2, "", "", "b")], "a b", ""),
        ] {
            let parsed = master(&format!("#EXTM3U\n{}", list.concat())).unwrap();
            let names: Vec<_> = parsed.renditions.iter().map(|r| r.playlist.as_str()).collect();
            assert_eq!((&names.join(" ")[..], &parsed.left_out.join(", ")[..]), (kept, left));
            let sent = master(&parsed.text(&name("master.m3u8"))).unwrap();
            assert_eq!((sent.renditions, sent.left_out), (parsed.renditions, parsed.left_out));
        }
    }

    #[test]
    fn references_of_all_kinds_lead_to_the_same_files() {
        let plain = media(MEDIA).unwrap();
        for reference in [
            "./seg_00042.m4s",
            "../v180p/seg_00042.m4s",
            "seg%5F00042.m4s?v=1",
            "/v180p/seg_00042.m4s",
            "http://cdn.example/live/v180p/seg_00042.m4s",
        ] {
            assert_eq!(media(&MEDIA.replace("seg_00042.m4s", reference)), Ok(plain.clone()));
        }
        let bom = format!("\u{feff}{MEDIA}");
        assert_eq!(media(&bom), Ok(plain));
    }

    #[test]
    fn tracks_apart_are_counted() {
        let apart = "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"en, us\",URI=\"a.m3u8\"\n";
        assert_eq!(master(&format!("{MASTER}{apart}")).unwrap().apart, 1);
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(lines in prop::collection::vec(
            prop_oneof![
                "#EXT-X-(STREAM-INF|MAP|MEDIA|KEY|GAP|ENDLIST):?[A-Z]{0,9}=?\"?[a-z0-9/.,]{0,9}\"?",
                "#EXT(INF|-X-MEDIA-SEQUENCE|-X-TARGETDURATION):[0-9.,]{0,22}",
                "[a-z./]{0,9}", "\\PC{0,20}",
            ], 0..30,
        )) {
            let text = format!("#EXTM3U\n{}", lines.join("\n"));
            let file = name("a/b.m3u8");
            if let Ok(Playlist::Media(media)) = Playlist::parse(&file, text.as_bytes()) {
                let again = Playlist::parse_media(&file, media.text(&file).as_bytes());
                prop_assert_eq!(again.unwrap().segments, media.segments);
            }
        }
    }
}
