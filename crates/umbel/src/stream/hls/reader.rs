//! The thread that reads a ladder as it is being written, or one that is finished at the pace at
//! which it plays.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use nix::poll::PollFlags;
use umbel_engine::host::Mailbox;
use umbel_engine::units::{counted, rate_text};
use umbel_net::wake::{self, Waker};
use umbel_store::hls::{
    FileError, FileName, Follower, LadderFiles, LadderWatch, MAX_PLAYLIST, Master, Media, Playlist,
    PlaylistError, Segment,
};

use super::host::{Input, Item, Step};

/// Interval at which playlists are read even if nothing is heard of them, as on file systems that
/// do not tell.
const LOOK: Duration = Duration::from_millis(500);
/// Time without a master playlist after which the user is told.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest segment in bytes. Receivers hold several of them.
const MAX_SEGMENT: u64 = 16 << 20;
/// Segments in a playlist that is sent.
const WINDOW: usize = 12;
/// Segments by which the rate of a playlist without a master playlist is told, and how much more it
/// may become while it is being written.
const MEASURED: usize = 3;
const ROOM: f64 = 1.5;

/// Ends the reader, from any thread.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    flag: Arc<AtomicBool>,
    waker: Waker,
}

impl Stop {
    pub(super) fn new() -> std::io::Result<Stop> {
        Ok(Stop { flag: Arc::default(), waker: Waker::new()? })
    }

    pub(super) fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn is_stopped(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }
}

/// A ladder whose master playlist was read.
pub(super) struct Ladder {
    files: LadderFiles,
    watch: LadderWatch,
    stop: Stop,
    /// Name of the master playlist.
    name: FileName,
    master: Master,
}

impl Ladder {
    /// Waits until there is a master playlist in a directory. Returns `None` if it is stopped.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read or watched.
    pub(super) fn open(
        path: &Path,
        stop: Stop,
        note: impl Fn(&str),
    ) -> anyhow::Result<Option<Ladder>> {
        let shown = path.display();
        let files = match LadderFiles::open(path) {
            Ok(files) => files,
            Err(errno) => bail!("{shown}: {}: --hls takes a directory", errno.desc()),
        };
        let watch = LadderWatch::new().with_context(|| format!("{shown} cannot be watched"))?;
        let begun = Instant::now();
        let mut told = None;
        loop {
            watch.cover(files.path(), &[]);
            let problem = match find_master(&files) {
                Ok((name, master)) => {
                    for line in master_notes(&master) {
                        note(&line);
                    }
                    return Ok(Some(Ladder { files, watch, stop, name, master }));
                }
                Err(problem) => problem,
            };
            if begun.elapsed() >= PATIENCE && told.as_ref() != Some(&problem) {
                note(&format!("waiting for a master playlist in {shown}: {problem}"));
                told = Some(problem);
            }
            if wait(&watch, &stop, LOOK)? {
                return Ok(None);
            }
        }
    }

    pub(super) fn master(&self) -> &Master {
        &self.master
    }

    /// Returns the master playlist as it is sent.
    pub(super) fn master_item(&self) -> Item {
        Item { name: self.name.clone(), body: self.master.text(&self.name).into() }
    }

    /// Reads the ladder to its end, on its own thread.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub(super) fn start(self, host: Mailbox<Input>) -> std::io::Result<()> {
        let renditions = self.master.renditions.iter();
        let renditions = renditions.map(|rendition| Reading {
            playlist: rendition.playlist.clone(),
            follower: Follower::default(),
            last: Bytes::new(),
            window: Media::default(),
            init: None,
        });
        let renditions = renditions.collect();
        let mut reader = Reader { ladder: self, renditions, told: BTreeSet::new(), host };
        let run = move || {
            let failed = reader.run().err().map(|error| format!("{error:#}"));
            reader.host.put(Input::Ended { failed });
        };
        std::thread::Builder::new().name("umbel-ladder".to_owned()).spawn(run)?;
        Ok(())
    }
}

/// Returns the first playlist that lists renditions, or else one for the only playlist that lists
/// segments, or why there is none.
pub(super) fn find_master(files: &LadderFiles) -> Result<(FileName, Master), String> {
    let mut problem = None;
    let mut alone = Vec::new();
    for name in files.playlists() {
        let bytes = match files.read(&name, MAX_PLAYLIST as u64) {
            Ok(bytes) => bytes,
            Err(error) => {
                problem = Some(format!("{name} {error}"));
                continue;
            }
        };
        match Playlist::parse(&name, &bytes) {
            Ok(Playlist::Master(master)) => return Ok((name, master)),
            // It may be the beginning of one that is being written.
            Ok(Playlist::Media(media)) if media.segments.is_empty() => {}
            Ok(Playlist::Media(media)) => alone.push((name, media)),
            // It lists tracks only.
            Err(PlaylistError::Count { count: 0, .. }) => {}
            Err(error) => problem = Some(format!("{name}: {error}")),
        }
    }
    if let Some(problem) = problem {
        return Err(problem);
    }
    match &alone[..] {
        [] => Err("there is none (ffmpeg: -master_pl_name master.m3u8)".to_owned()),
        [(name, media)] => master_of_one(files, name, media),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
            Err(format!(
                "there is none that lists {} (ffmpeg: -master_pl_name master.m3u8)",
                names.join(", ")
            ))
        }
    }
}

/// Returns a master playlist for a playlist of segments, with the greatest rate of these.
fn master_of_one(
    files: &LadderFiles,
    name: &FileName,
    media: &Media,
) -> Result<(FileName, Master), String> {
    if !media.ended && media.segments.len() < MEASURED {
        return Err(format!("{name} has too few segments yet to tell its rate"));
    }
    let longest = media.segments.iter().map(|segment| segment.duration).max().unwrap_or_default();
    // The last one may be short.
    let full = media.segments.iter().filter(|segment| segment.duration >= longest / 2);
    let rates = full.filter_map(|segment| {
        let bits = files.len_of(&segment.name).ok()? as f64 * 8.0;
        Some(bits / segment.duration.as_secs_f64().max(1e-3))
    });
    let peak = rates.fold(0.0, f64::max) * if media.ended { 1.0 } else { ROOM };
    if peak < 1.0 {
        return Err(format!("the segments of {name} are not there"));
    }
    let other = ["master.m3u8", "ladder.m3u8"].into_iter().find(|other| *other != name.as_str());
    let own = other.and_then(|other| FileName::parse(other).ok());
    Ok((own.unwrap_or_else(|| name.clone()), Master::of_one(name.clone(), peak.ceil() as u64)))
}

/// Returns what the user should know of a ladder.
fn master_notes(master: &Master) -> Vec<String> {
    let mut notes = Vec::new();
    if master.apart > 0 {
        let tracks = counted(master.apart, "track");
        notes.push(format!(
            "left out: {tracks} apart from the renditions (audio, subtitles); mux them into each \
             rendition"
        ));
    }
    if !master.left_out.is_empty() {
        let codecs = master.renditions.first().and_then(|kept| kept.codecs.as_deref());
        notes.push(format!(
            "left out: {}; a player can change between renditions of the same tracks and codecs \
             only, and the others have {}",
            master.left_out.join(", "),
            codecs.unwrap_or("no CODECS")
        ));
    }
    if let [only] = &master.renditions[..]
        && only.codecs.is_none()
        && only.resolution.is_none()
    {
        notes.push(format!(
            "{} is the only rendition, of at most {}",
            only.playlist,
            rate_text(only.bandwidth)
        ));
    }
    notes
}

/// Waits for news or for a time. Returns whether it was stopped.
fn wait(watch: &LadderWatch, stop: &Stop, time: Duration) -> anyhow::Result<bool> {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let fds = [watch.as_fd(), stop.waker.as_fd()];
        let [changed, _] = wake::wait_for(fds, PollFlags::POLLIN, Some(left))?;
        if stop.is_stopped() {
            return Ok(true);
        }
        if changed && watch.take()? || left.is_zero() {
            return Ok(false);
        }
    }
}

/// A rendition that is being read.
struct Reading {
    playlist: FileName,
    follower: Follower,
    /// Its playlist as it was read last.
    last: Bytes,
    /// Its playlist as it is sent.
    window: Media,
    init: Option<Item>,
}

struct Reader {
    ladder: Ladder,
    renditions: Vec<Reading>,
    /// Kinds of refusals of which the user knows.
    told: BTreeSet<&'static str>,
    host: Mailbox<Input>,
}

impl Reader {
    fn run(&mut self) -> anyhow::Result<()> {
        let all: Vec<Option<Media>> =
            (0..self.renditions.len()).map(|layer| self.read_playlist(layer)).collect();
        let finished: Option<Vec<Media>> = all.into_iter().collect();
        match finished.filter(|all| all.iter().all(|media| media.ended)) {
            Some(finished) => self.replay(&finished),
            None => self.follow(),
        }
    }

    /// Sends what a writer adds, until it ends.
    fn follow(&mut self) -> anyhow::Result<()> {
        self.renditions.iter_mut().for_each(|reading| reading.last = Bytes::new());
        loop {
            let playlists: Vec<_> =
                self.renditions.iter().map(|reading| reading.playlist.clone()).collect();
            // Directories may have come; what is in them by now is read below.
            self.ladder.watch.cover(self.ladder.files.path(), &playlists);
            for layer in 0..self.renditions.len() {
                if let Some(media) = self.read_playlist(layer) {
                    self.take(layer, &media);
                }
            }
            if self.renditions.iter().all(|reading| reading.window.ended)
                || wait(&self.ladder.watch, &self.ladder.stop, LOOK)?
            {
                return Ok(());
            }
        }
    }

    /// Sends a finished ladder at the pace at which it plays. A segment is sent when it would have
    /// been written.
    fn replay(&mut self, finished: &[Media]) -> anyhow::Result<()> {
        let mut due: Vec<(Duration, usize, u64, &Segment)> = Vec::new();
        for (layer, media) in finished.iter().enumerate() {
            self.renditions[layer].window.target_s = media.target_s;
            let mut end = Duration::ZERO;
            for (number, segment) in media.numbered() {
                end += segment.duration;
                due.push((end, layer, number, segment));
            }
        }
        due.sort_by_key(|&(end, layer, ..)| (end, layer));
        let first = due.first().map_or(Duration::ZERO, |&(end, ..)| end);
        let begun = Instant::now();
        for (end, layer, number, segment) in due {
            let at = begun + end.saturating_sub(first);
            while Instant::now() < at {
                let left = at.saturating_duration_since(Instant::now());
                if wait(&self.ladder.watch, &self.ladder.stop, left)? {
                    return Ok(());
                }
            }
            let is_last = number + 1 == finished[layer].end();
            self.send(layer, number, segment.clone(), is_last);
        }
        Ok(())
    }

    /// Reads a rendition's playlist. Returns it if it is sound and another one than before.
    fn read_playlist(&mut self, layer: usize) -> Option<Media> {
        let reading = &mut self.renditions[layer];
        let name = reading.playlist.clone();
        let bytes = match self.ladder.files.read(&name, MAX_PLAYLIST as u64) {
            Ok(bytes) if bytes == reading.last => return None,
            Ok(bytes) => bytes,
            // It may be between two versions.
            Err(FileError::Gone) => return None,
            Err(error) => {
                self.refuse("playlist", format!("{name} {error}"));
                return None;
            }
        };
        reading.last = bytes.clone();
        match Playlist::parse_media(&name, &bytes) {
            Ok(media) => Some(media),
            Err(error) => {
                self.refuse("playlist", format!("{name} is not followed: {error}"));
                None
            }
        }
    }

    fn take(&mut self, layer: usize, media: &Media) {
        let reading = &mut self.renditions[layer];
        let fresh = match reading.follower.take(media) {
            Ok(fresh) => fresh,
            Err(error) => {
                let name = reading.playlist.clone();
                let line = format!("{name} is not followed: {error}; stream it again");
                return self.refuse("order", line);
            }
        };
        reading.window.target_s = media.target_s;
        if fresh.missed > 0 {
            let line = format!("{}: segments were gone before they were read", reading.playlist);
            (0..fresh.missed.min(1_000)).for_each(|_| self.refuse("missed", line.clone()));
        }
        let count = fresh.segments.len();
        for (n, (number, segment)) in fresh.segments.into_iter().enumerate() {
            self.send(layer, number, segment, media.ended && n + 1 == count);
        }
        let reading = &mut self.renditions[layer];
        if media.ended && !reading.window.ended {
            reading.window.ended = true;
            let step =
                Step { layer: layer as u8, segment: None, init: None, playlist: reading.item() };
            self.host.put(Input::Step(step));
        }
    }

    /// Sends a segment, or says that it is missing.
    fn send(&mut self, layer: usize, number: u64, mut segment: Segment, is_last: bool) {
        self.read_init(layer, &segment);
        let body = if segment.gap { None } else { self.read_segment(&segment) };
        let item = body.map(|body| Item { name: segment.name.clone(), body });
        segment.gap = item.is_none();
        let reading = &mut self.renditions[layer];
        reading.window.push(number, segment, WINDOW);
        reading.window.ended = is_last;
        self.host.put(Input::Step(Step {
            layer: layer as u8,
            segment: item,
            init: reading.init.clone(),
            playlist: reading.item(),
        }));
    }

    fn read_segment(&mut self, segment: &Segment) -> Option<Bytes> {
        match self.ladder.files.read(&segment.name, MAX_SEGMENT) {
            Ok(body) if body.is_empty() => {
                self.refuse("segment", format!("{} is empty", segment.name));
                None
            }
            Ok(body) => Some(body),
            Err(error) => {
                self.refuse("segment", format!("{} {error}", segment.name));
                None
            }
        }
    }

    /// Reads the file that players must have before a segment, unless it is there already.
    fn read_init(&mut self, layer: usize, segment: &Segment) {
        let reading = &mut self.renditions[layer];
        let held = reading.init.as_ref().map(|init| &init.name);
        if held == segment.init.as_ref() {
            return;
        }
        let Some(name) = &segment.init else {
            reading.init = None;
            return;
        };
        match self.ladder.files.read(name, MAX_SEGMENT) {
            Ok(body) => reading.init = Some(Item { name: name.clone(), body }),
            Err(error) => self.refuse("init", format!("{name} {error}")),
        }
    }

    /// Counts what is not followed. The first of each kind is told.
    fn refuse(&mut self, kind: &'static str, line: String) {
        let line = self.told.insert(kind).then_some(line);
        self.host.put(Input::Refused { line });
    }
}

impl Reading {
    /// Returns the playlist as it is sent.
    fn item(&self) -> Item {
        Item { name: self.playlist.clone(), body: self.window.text(&self.playlist).into() }
    }
}
