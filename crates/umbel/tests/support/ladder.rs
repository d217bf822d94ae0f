//! A ladder of HLS that is being written, and a gateway to it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use umbel_lab::{Lab, Node};
use umbel_store::hls::{FileName, Media, Playlist};

use super::bench::SOON;
use super::group;
use super::process::{Logs, Process};
use super::turn::Turn;

/// Group where streams are announced and asked for.
const DIRECTORY: &str = "239.255.255.255";

/// Writes renditions of these rates in bits per second, a segment a second, as `ffmpeg -f hls`
/// does. The content is noise.
pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(directory: &Path, rates: &'static [u64]) -> Writer {
        let (stop, directory) = (Arc::new(AtomicBool::new(false)), directory.to_owned());
        let stopped = stop.clone();
        let write = move || {
            let begun = Instant::now();
            for number in 0.. {
                let due = begun + Duration::from_secs(number);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                for (layer, rate) in rates.iter().enumerate() {
                    segment(&directory.join(format!("v{layer}")), layer, number, *rate);
                }
                if number == 0 {
                    put(&directory.join("master.m3u8"), master(rates));
                }
            }
        };
        Writer { stop, thread: Some(std::thread::spawn(write)) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn master(rates: &[u64]) -> String {
    let line = |(layer, rate): (usize, &u64)| {
        format!("#EXT-X-STREAM-INF:BANDWIDTH={rate}\nv{layer}/index.m3u8\n")
    };
    format!("#EXTM3U\n{}", rates.iter().enumerate().map(line).collect::<String>())
}

fn segment(directory: &Path, layer: usize, number: u64, rate: u64) {
    fs::create_dir_all(directory).unwrap();
    put(&directory.join("init.mp4"), format!("init {layer}"));
    let mut content = vec![0; rate as usize / 8];
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{layer}:{number}").as_bytes()).finalize_xof().fill(&mut content);
    put(&directory.join(format!("seg_{number:05}.m4s")), content);
    let first = number.saturating_sub(11);
    let mut list = format!(
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:{first}\n\
         #EXT-X-MAP:URI=\"init.mp4\"\n"
    );
    for number in first..=number {
        writeln!(list, "#EXTINF:1.000000,\nseg_{number:05}.m4s").unwrap();
    }
    put(&directory.join("index.m3u8"), list);
}

fn put(at: &Path, content: impl AsRef<[u8]>) {
    let temporary = at.with_extension("tmp");
    fs::write(&temporary, content).unwrap();
    fs::rename(temporary, at).unwrap();
}

/// A lab with a ladder at `h1`.
pub(crate) struct Ladders<'lab> {
    lab: &'lab Lab,
    pub(crate) logs: Logs,
    directory: TempDir,
    /// State of all programs.
    state: TempDir,
    _turn: Turn,
}

impl<'lab> Ladders<'lab> {
    pub(crate) fn new(lab: &'lab Lab) -> Ladders<'lab> {
        lab.route_multicast_from_all([DIRECTORY.parse().unwrap()]).unwrap();
        let [directory, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        Ladders { lab, logs: Logs::default(), directory, state, _turn: Turn::wait() }
    }

    /// Returns the directory of the ladder.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn host(&self, name: &str) -> Node<'lab> {
        self.lab.host(name).unwrap()
    }

    fn umbel(&self, host: &str) -> Command {
        let mut command = self.host(host).command(env!("CARGO_BIN_EXE_umbel"));
        command.env("XDG_STATE_HOME", self.state.path());
        command
    }

    /// Streams the ladder from `h1` as `film`. Routers forward its renditions to where hosts join
    /// them.
    pub(crate) fn stream(&self, options: &[&str]) -> Process {
        let mut command = self.umbel("h1");
        command.args(["stream", "--json", "--name", "film", "--hls"]).arg(self.path());
        command.args(options);
        let process = Process::start("source", command, &self.logs);
        let streaming = process.wait_for_event("streaming", SOON);
        for layer in streaming["layers"].as_array().unwrap() {
            let layer: IpAddr = group(&layer["channel"]);
            self.lab.follow_members("h1", layer, Duration::ZERO).unwrap();
        }
        self.lab.route_multicast_from_all([group(&streaming["control"])]).unwrap();
        process
    }

    /// Starts a gateway on a host.
    pub(crate) fn gateway(&self, host: &str, options: &[&str]) -> Process {
        let mut command = self.umbel(host);
        command.args(["gateway", "film", "--json", "--wait", "20s"]).args(options);
        Process::start(host, command, &self.logs)
    }

    /// Fetches what the gateway of a host serves for a path.
    pub(crate) fn get(&self, host: &str, path: &str) -> Vec<u8> {
        let url = format!("http://127.0.0.1:8081/{path}");
        let output = self.host(host).command("wget").args(["-q", "-O", "-", &url]).output();
        let output = output.unwrap();
        if !output.status.success() {
            self.logs.fail(&format!("{host}: {url}: {:?}", output.status));
        }
        output.stdout
    }

    /// Plays what the gateway of a host has in its playlist now. Returns, for each segment, its
    /// file at the source; fails if it is none.
    pub(crate) fn play(&self, host: &str) -> (Media, Vec<PathBuf>) {
        let master = self.get(host, "film/master.m3u8");
        let name = FileName::parse("master.m3u8").unwrap();
        let master = Playlist::parse_master(&name, &master).unwrap();
        assert_eq!(master.renditions.len(), 1);
        let live = self.get(host, &format!("film/{}", master.renditions[0].playlist));
        let media = Playlist::parse_media(&name, &live).unwrap();
        let files = self.written();
        let segments = media.segments.iter().map(|segment| {
            let body = self.get(host, &format!("film/{}", segment.name));
            let file = files.get(blake3::hash(&body).as_bytes());
            let init = segment.init.as_ref().unwrap();
            let init = self.get(host, &format!("film/{init}"));
            let file = file.unwrap_or_else(|| self.logs.fail("a segment that nobody wrote"));
            let mut inits = fs::read_dir(file.parent().unwrap()).unwrap().flatten();
            let is_init = inits.any(|entry| fs::read(entry.path()).is_ok_and(|held| held == init));
            assert!(is_init, "the init file of another rendition");
            file.clone()
        });
        let segments = segments.collect();
        (media, segments)
    }

    /// Returns the files of all renditions, by digest.
    fn written(&self) -> BTreeMap<[u8; 32], PathBuf> {
        let renditions = fs::read_dir(self.path()).unwrap().flatten().map(|entry| entry.path());
        let renditions = renditions.filter(|path| path.is_dir());
        let files = renditions.flat_map(|path| fs::read_dir(path).unwrap().flatten());
        let files = files.map(|entry| entry.path());
        // A file may be renamed between the listing and the reading.
        let held = files.filter_map(|path| Some((fs::read(&path).ok()?, path)));
        held.map(|(held, path)| (*blake3::hash(&held).as_bytes(), path)).collect()
    }
}

/// Returns the last report of a gateway.
pub(crate) fn report(gateway: &Process) -> Value {
    gateway.events("second").pop().map_or(Value::Null, |mut event| event["second"].take())
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(ladders: &Ladders<'_>, what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !holds() {
        if Instant::now() > until {
            ladders.logs.fail(&format!("not in time: {what}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns a number of a report, which may not have it yet.
pub(crate) fn number(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or(0)
}

/// Returns how many of the files are of each rendition.
pub(crate) fn of_each(files: &[PathBuf]) -> [usize; 3] {
    [0, 1, 2].map(|layer| {
        let directory = format!("v{layer}");
        files.iter().filter(|file| file.parent().unwrap().ends_with(&directory)).count()
    })
}

pub(crate) fn end(mut process: Process) -> Value {
    process.signal(Signal::SIGTERM);
    process.wait_done(SOON)
}
