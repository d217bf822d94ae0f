//! Ladders by a scripted writer, read as they grow.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use tempfile::TempDir;
use umbel_engine::host::Mailbox;
use umbel_store::hls::{FileName, LadderFiles, Master, Media, Playlist};

use super::host::{Input, Item, Step};
use super::reader::{Ladder, Stop, find_master};

const SOON: Duration = Duration::from_mins(2);

/// A directory with a master playlist of two renditions, and a reader of it.
struct World {
    directory: TempDir,
    stop: Stop,
    inbox: Receiver<Input>,
    notes: Vec<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// Returns a playlist of these segments, each 50 ms.
fn playlist(first: u64, names: &[String], tail: &str) -> String {
    let segments = names.iter().map(|name| format!("#EXTINF:0.05,\n{name}\n"));
    let segments: String = segments.collect();
    format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{first}\n\
         #EXT-X-MAP:URI=\"init.mp4\"\n{segments}{tail}"
    )
}

fn names(numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(|number| format!("{number}.m4s")).collect()
}

/// Writes a file beside, and renames it, as ffmpeg does.
fn put(at: &Path, content: impl AsRef<[u8]>) {
    let temporary = at.with_extension("tmp");
    fs::write(&temporary, content).unwrap();
    fs::rename(temporary, at).unwrap();
}

impl World {
    /// Creates the master playlist, and what `prepare` writes; then starts the reader.
    fn new(prepare: impl FnOnce(&Path)) -> World {
        let directory = tempfile::tempdir().unwrap();
        let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=2000\nv1/i.m3u8\n\
                      #EXT-X-STREAM-INF:BANDWIDTH=1000\nv0/i.m3u8\n";
        put(&directory.path().join("master.m3u8"), master);
        prepare(directory.path());
        let stop = Stop::new().unwrap();
        let ladder = Ladder::open(directory.path(), stop.clone(), |_| {}).unwrap().unwrap();
        assert_eq!(ladder.master_item().name.as_str(), "master.m3u8");
        let (give, inbox) = crossbeam_channel::unbounded();
        ladder.start(Mailbox::new(move |input| drop(give.send(input)))).unwrap();
        World { directory, stop, inbox, notes: Vec::new() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a segment of a layer, and the playlist that names it.
    fn segment(&self, layer: usize, number: u64) {
        write_segment(self.directory.path(), layer, number);
        let list =
            playlist(number.saturating_sub(2), &names(number.saturating_sub(2)..number + 1), "");
        put(&self.path(&format!("v{layer}/i.m3u8")), list);
    }

    /// Waits for the next step, and keeps what is told meanwhile.
    #[track_caller]
    fn step(&mut self) -> Step {
        match self.next() {
            Some(step) => step,
            None => panic!("it ended: {:?}", self.notes),
        }
    }

    /// Returns the next step, or `None` at the end.
    #[track_caller]
    fn next(&mut self) -> Option<Step> {
        let until = Instant::now() + SOON;
        loop {
            match self.inbox.recv_deadline(until).expect("news within 20 s") {
                Input::Step(step) => return Some(step),
                Input::Refused { line } => self.notes.extend(line),
                Input::Ended { failed } => {
                    assert_eq!(failed, None);
                    return None;
                }
                Input::Interrupt => unreachable!("nobody interrupts"),
            }
        }
    }

    /// Waits until something is told.
    #[track_caller]
    fn told(&mut self) -> String {
        let until = Instant::now() + SOON;
        loop {
            match self.inbox.recv_deadline(until).expect("a note within 20 s") {
                Input::Refused { line: Some(line) } => return line,
                Input::Refused { line: None } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn write_segment(root: &Path, layer: usize, number: u64) {
    let at = root.join(format!("v{layer}"));
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join("init.mp4"), format!("init {layer}")).unwrap();
    // In place, as without `temp_file`.
    fs::write(at.join(format!("{number}.m4s")), format!("{layer}:{number}")).unwrap();
}

/// Returns a step as `LAYER NAME CONTENT`.
fn shown(step: &Step) -> String {
    let segment = step.segment.as_ref().unwrap();
    let body = std::str::from_utf8(&segment.body).unwrap();
    format!("{} {} {body}", step.layer, segment.name)
}

fn media(step: &Step) -> Media {
    Playlist::parse_media(&step.playlist.name, &step.playlist.body).unwrap()
}

#[test]
fn segments_are_sent_as_playlists_name_them_also_in_directories_that_come_late() {
    let mut world = World::new(|_| {});
    for number in 5..8 {
        for layer in 0..2 {
            world.segment(layer, number);
            let step = world.step();
            assert_eq!(shown(&step), format!("{layer} v{layer}/{number}.m4s {layer}:{number}"));
            assert_eq!(step.init.as_ref().unwrap().body, format!("init {layer}"));
            let media = media(&step);
            assert_eq!((media.first, media.end()), (5, number + 1));
        }
    }
    for layer in 0..2 {
        put(
            &world.path(&format!("v{layer}/i.m3u8")),
            playlist(6, &names(6..8), "#EXT-X-ENDLIST\n"),
        );
        let last = world.step();
        assert!(last.segment.is_none() && media(&last).ended);
    }
    assert!(world.next().is_none() && world.notes.is_empty());
}

#[test]
fn a_finished_ladder_plays_at_its_own_pace() {
    let mut world = World::new(|root| {
        for layer in 0..2 {
            (0..6).for_each(|number| write_segment(root, layer, number));
            let list = playlist(0, &names(0..6), "#EXT-X-ENDLIST\n");
            put(&root.join(format!("v{layer}/i.m3u8")), list);
        }
    });
    let begun = Instant::now();
    let mut steps = Vec::new();
    while let Some(step) = world.next() {
        assert_eq!(media(&step).end(), steps.len() as u64 / 2 + 1);
        assert_eq!(media(&step).ended, steps.len() >= 10);
        steps.push(shown(&step));
    }
    assert_eq!(steps[..3], ["0 v0/0.m4s 0:0", "1 v1/0.m4s 1:0", "0 v0/1.m4s 0:1"]);
    assert_eq!(steps.len(), 12);
    assert!(begun.elapsed() >= Duration::from_millis(240), "{:?}", begun.elapsed());
}

#[test]
fn what_leaves_the_directory_is_told_and_never_followed() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let mut world = World::new(|_| {});
    world.segment(0, 1);
    world.step();
    for (name, reason) in [
        ("../../secret", "a path out of the directory"),
        // It is below the directory, and the segment of this number was sent.
        ("/etc/passwd", ""),
        ("file:///etc/passwd", "told once"),
    ] {
        put(&world.path("v0/i.m3u8"), playlist(1, &[name.to_owned()], ""));
        if reason.starts_with("a path") {
            let line = world.told();
            assert!(line.contains("v0/i.m3u8 is not followed: line 6") && line.contains(reason));
        }
    }
    symlink(outside.path().join("secret"), world.path("v0/2.m4s")).unwrap();
    put(&world.path("v0/i.m3u8"), playlist(1, &names(1..3), ""));
    let step = world.step();
    assert!(step.segment.is_none() && media(&step).segments[1].gap);
    assert_eq!(world.notes, ["v0/2.m4s is a link, which is not followed"]);
    // It goes on with what is sound.
    world.segment(0, 3);
    assert_eq!(shown(&world.step()), "0 v0/3.m4s 0:3");
}

#[test]
fn a_playlist_that_falls_or_shrinks_is_not_followed_until_it_goes_on() {
    let mut world = World::new(|_| {});
    for number in 7..10 {
        world.segment(0, number);
        world.step();
    }
    world.segment(0, 0);
    let line = world.told();
    assert!(line.contains("fell from 7 to 0"), "{line}");
    put(&world.path("v0/i.m3u8"), playlist(8, &names(8..9), ""));
    put(&world.path("v0/i.m3u8"), "nonsense");
    let line = world.told();
    assert!(line.contains("it is no HLS playlist"), "{line}");
    world.segment(0, 10);
    assert_eq!(shown(&world.step()), "0 v0/10.m4s 0:10");
}

#[test]
fn files_that_are_huge_empty_or_gone_are_missing_in_the_playlist() {
    let mut world = World::new(|_| {});
    world.segment(0, 1);
    world.step();
    fs::File::create(world.path("v0/2.m4s")).unwrap().set_len(1 << 40).unwrap();
    fs::write(world.path("v0/3.m4s"), "").unwrap();
    put(&world.path("v0/i.m3u8"), playlist(1, &names(1..5), ""));
    for _ in 2..5 {
        assert!(world.step().segment.is_none());
    }
    // The first of a kind is told, the others are counted.
    assert_eq!(world.notes.len(), 1);
    assert!(world.notes[0].starts_with("v0/2.m4s has 1099511627776 bytes"), "{:?}", world.notes);
    // The writer was faster than the reader.
    write_segment(world.directory.path(), 0, 40);
    put(&world.path("v0/i.m3u8"), playlist(40, &names(40..41), ""));
    let step = world.step();
    assert_eq!((shown(&step).as_str(), media(&step).first), ("0 v0/40.m4s 0:40", 40));
    assert!(world.notes[1].contains("gone before they were read"), "{:?}", world.notes);
}

#[test]
fn the_names_that_are_sent_are_those_of_the_files() {
    let name = FileName::parse("v0/i.m3u8").unwrap();
    let mut world = World::new(|_| {});
    world.segment(0, 1);
    let step = world.step();
    assert_eq!(step.playlist.name, name);
    assert_eq!(media(&step).segments[0].name.as_str(), "v0/1.m4s");
    assert_eq!(media(&step).segments[0].init.as_ref().unwrap().as_str(), "v0/init.mp4");
}

/// Opens a ladder, and returns its master playlist and what its user is told.
fn opened(prepare: impl FnOnce(&Path)) -> (Item, Master, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path());
    let notes = std::cell::RefCell::new(Vec::new());
    let note = |line: &str| notes.borrow_mut().push(line.to_owned());
    let ladder = Ladder::open(directory.path(), Stop::new().unwrap(), note).unwrap().unwrap();
    (ladder.master_item(), ladder.master().clone(), notes.into_inner())
}

#[test]
fn a_playlist_of_segments_alone_is_a_ladder_of_one() {
    let (item, master, notes) = opened(|at| {
        for (number, len) in [(1, 1_000), (2, 3_000), (3, 500)] {
            fs::write(at.join(format!("{number}.m4s")), vec![0; len]).unwrap();
        }
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n1.m4s\n#EXTINF:2,\n2.m4s\n\
                    #EXTINF:0.01,\n3.m4s\n#EXT-X-ENDLIST\n";
        put(&at.join("master.m3u8"), text);
        // It lists tracks, and no rendition.
        let tracks = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"a\",URI=\"x\"\n";
        put(&at.join("tracks.m3u8"), tracks);
    });
    assert_eq!(item.name.as_str(), "ladder.m3u8");
    let [only] = &master.renditions[..] else { panic!("{master:?}") };
    assert_eq!((only.playlist.as_str(), only.bandwidth), ("master.m3u8", 12_000));
    assert_eq!(notes, ["master.m3u8 is the only rendition, of at most 12.0 kbit/s"]);
}

#[test]
fn a_playlist_that_is_being_written_is_a_ladder_once_its_rate_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let files = LadderFiles::open(directory.path()).unwrap();
    let at = |name: &str| directory.path().join(name);
    let list = |count| playlist(0, &names(0..count), "").replace("init.mp4", "0.m4s");
    let problem = |files| find_master(files).unwrap_err();
    assert!(problem(&files).contains("there is none (ffmpeg"), "{}", problem(&files));
    put(&at("a.m3u8"), list(2));
    assert!(problem(&files).contains("too few segments"), "{}", problem(&files));
    put(&at("a.m3u8"), list(3));
    assert!(problem(&files).contains("are not there"), "{}", problem(&files));
    fs::write(at("1.m4s"), vec![0; 1_000]).unwrap();
    let (_, master) = find_master(&files).unwrap();
    assert_eq!(master.renditions[0].bandwidth, 240_000);
    put(&at("b.m3u8"), list(3));
    assert!(problem(&files).contains("none that lists a.m3u8, b.m3u8"), "{}", problem(&files));
}

#[test]
fn renditions_that_are_left_out_are_named() {
    let (_, master, notes) = opened(|at| {
        let text = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=64000,CODECS=\"mp4a.40.2\"\na.m3u8\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=200000,CODECS=\"avc1.42c01e,mp4a.40.2\"\nv.m3u8\n";
        put(&at.join("master.m3u8"), text);
    });
    assert_eq!(master.renditions.len(), 1);
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.starts_with("left out: a.m3u8 (mp4a.40.2); "), "{note}");
    assert!(note.ends_with("the others have avc1.42c01e,mp4a.40.2"), "{note}");
}
