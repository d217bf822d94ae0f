use super::layer::FILES;
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
