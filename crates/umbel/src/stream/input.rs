//! Inputs of pictures: Y4M as it is, everything else by `ffmpeg`.
//!
//! ```text
//! `-`, x.y4m ────────────────────────────────┐
//! camera, x.mp4, rtsp://… ──▶ ffmpeg ──pipe──┴▶ Y4M reader ─▶ pictures, at their pace
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use umbel_video::{Frame, y4m};

/// Device of a camera.
const CAMERA: &str = "/dev/video0";
/// Bytes that are read at once.
const BUFFER: usize = 1 << 16;
/// Pictures that an input which paces itself may be late by and make up for. Pictures that waited
/// in a pipe while the stream was being opened would otherwise make all later ones old forever.
const CATCH_UP: u32 = 4;
/// Time that the last messages of a converter that ended are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// An input of pictures.
#[derive(Debug)]
pub enum Video {
    /// Y4M from an open input, such as standard input.
    Pipe(File),
    /// Y4M from a file.
    Y4m(PathBuf),
    /// A camera of Video4Linux.
    Camera(PathBuf),
    /// A file or URL that `ffmpeg` reads.
    Any(String),
}

impl Video {
    /// Returns what a name on the command line stands for. `-` is left to the caller.
    pub fn named(name: &str) -> Video {
        match name {
            "camera" => Video::Camera(CAMERA.into()),
            _ if name.starts_with("/dev/video") => Video::Camera(name.into()),
            _ if Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case("y4m")) => {
                Video::Y4m(name.into())
            }
            _ => Video::Any(name.to_owned()),
        }
    }
}

/// Options of an input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conversion {
    /// Width and height of pictures. Default: as they are.
    pub size: Option<(u32, u32)>,
    /// Pictures per second. Default: as they are. Of Y4M it states the rate, which programs write
    /// wrongly into its header; a camera is asked for it, and all else is converted.
    pub fps: Option<f64>,
    /// Whether to begin again at the end.
    pub again: bool,
}

/// Pictures that are being read.
pub(crate) struct Input {
    reader: y4m::Reader<Box<dyn BufRead + Send>>,
    /// The file to begin again with.
    again: Option<PathBuf>,
    converter: Converter,
    pace: Pace,
}

impl Input {
    /// Opens the input, and waits for its first line.
    ///
    /// # Errors
    ///
    /// One line that says why it cannot be shown, and what to do.
    pub(crate) fn open(
        video: Video,
        conversion: &Conversion,
        converter: Converter,
    ) -> anyhow::Result<Input> {
        let from_file = matches!(video, Video::Y4m(_));
        let converted = conversion.size.is_some() || conversion.fps.is_some();
        if conversion.again && matches!(video, Video::Pipe(_) | Video::Camera(_)) {
            bail!("--loop begins a file again; a pipe or a camera has no beginning to go back to");
        }
        let (source, again) = match video {
            Video::Pipe(file) if !converted => (buffered(file), None),
            Video::Y4m(path) if !converted && !wants_converter(&path) => {
                let again = conversion.again.then(|| path.clone());
                (buffered(open(&path)?), again)
            }
            video => (buffered(converter.start(video, conversion)?), None),
        };
        let reader = y4m::Reader::new(source).map_err(|error| match error {
            // What is no video at all, the converter can explain. What it wrote as video is told
            // as it is: then its own last words are about the end of the pipe.
            y4m::Y4mError::Io(_) | y4m::Y4mError::NotY4m => {
                converter.failure().unwrap_or_else(|| error.into())
            }
            y4m::Y4mError::Missing("frame rate") | y4m::Y4mError::FrameRate(_) => {
                anyhow!("{error}: --fps tells it")
            }
            error => error.into(),
        })?;
        let rate = reader.header().rate;
        let interval = Duration::from_secs_f64(1.0 / rate.per_s());
        let pace = Pace::new(interval, if from_file { 1 } else { CATCH_UP });
        Ok(Input { reader, again, converter, pace })
    }

    /// Returns size and rate of the pictures.
    pub(crate) fn header(&self) -> &y4m::Header {
        self.reader.header()
    }

    /// Reads the next picture and waits for its time. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// One line that says why there is no picture, though the input is not over.
    pub(crate) fn read(&mut self, frame: &mut Frame) -> anyhow::Result<bool> {
        let mut read = self.reader.read(frame)?;
        if !read && let Some(path) = &self.again {
            let header = *self.reader.header();
            self.reader = y4m::Reader::new(buffered(open(path)?) as Box<dyn BufRead + Send>)?;
            if *self.reader.header() != header {
                bail!("{} is another video than when it began", path.display());
            }
            read = self.reader.read(frame)?;
        }
        if read {
            self.pace.wait();
        } else if let Some(failure) = self.converter.failure() {
            return Err(failure);
        }
        Ok(read)
    }
}

/// Returns whether a file of Y4M has fields, or samples of another kind than are encoded. Of a pipe
/// that is known too late.
fn wants_converter(path: &Path) -> bool {
    let reader = File::open(path).map(|file| y4m::Reader::new(BufReader::new(file)));
    matches!(reader, Ok(Err(y4m::Y4mError::Interlaced | y4m::Y4mError::Samples(_))))
}

fn buffered(read: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(BUFFER, read))
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).with_context(|| format!("cannot read {}", path.display()))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets pictures pass no faster than their rate. An input that paces itself is not held up.
struct Pace {
    interval: Duration,
    /// Time by which pictures may be late and make up for it.
    late: Duration,
    /// Time of the next picture.
    next: Option<Instant>,
}

impl Pace {
    /// Creates a pace at which this number of pictures may catch up at once.
    fn new(interval: Duration, catch_up: u32) -> Pace {
        Pace { interval, late: interval * catch_up, next: None }
    }

    fn wait(&mut self) {
        let now = Instant::now();
        let earliest = now.checked_sub(self.late).unwrap_or(now);
        let due = self.next.unwrap_or(earliest).max(earliest);
        if let Some(early) = due.checked_duration_since(now) {
            std::thread::sleep(early);
        }
        self.next = Some(due + self.interval);
    }
}

/// The `ffmpeg` that runs, if one does. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Converter {
    child: Arc<Mutex<Option<Child>>>,
    said: Arc<Mutex<Told>>,
}

/// What the converter wrote.
#[derive(Debug, Default)]
struct Told {
    /// About an error.
    failure: String,
    /// Whether its input has sound.
    sound: bool,
    /// Whether it has listed what its input has.
    listed: bool,
}

impl Told {
    /// Takes a line, such as `[h264 @ 0x55d0] [error] no frame` or `[info] Stream mapping:`.
    fn hear(&mut self, line: &str) {
        let (part, line) = match line.split_once("] ") {
            Some((part, rest)) if part.contains(" @ 0x") => (Some(part), rest),
            _ => (None, line),
        };
        let (level, text) = match line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
            Some((level, text)) => (level, text.trim()),
            None => ("", line.trim()),
        };
        match (level, part) {
            ("info", None) => {
                self.sound |= text.starts_with("Stream #") && text.contains(": Audio: ");
                self.listed |= text == "Stream mapping:";
            }
            // The first line about the whole says why it ends, and further ones only follow from it.
            // Those of its parts may be about one picture.
            ("error" | "fatal" | "panic" | "", part)
                if !text.is_empty()
                    && (self.failure.is_empty() || self.failure.starts_with('[')) =>
            {
                let part = part.map(|part| format!("{part}] ")).unwrap_or_default();
                self.failure = format!("{part}{text}");
            }
            _ => {}
        }
    }
}

impl Converter {
    /// Starts it. Returns its output.
    fn start(
        &self,
        video: Video,
        conversion: &Conversion,
    ) -> anyhow::Result<impl Read + Send + 'static> {
        let mut command = Command::new("ffmpeg");
        command.args(["-nostdin", "-hide_banner", "-nostats", "-loglevel", "level+info"]);
        command.stdin(Stdio::null());
        let is_y4m = matches!(video, Video::Pipe(_) | Video::Y4m(_));
        let stated = conversion.fps.filter(|_| is_y4m).map(|fps| fps.to_string());
        let stated: Vec<&str> = stated.iter().flat_map(|fps| ["-r", fps.as_str()]).collect();
        match video {
            Video::Pipe(file) => {
                command.args(["-f", "yuv4mpegpipe"]).args(stated).args(["-i", "pipe:0"]);
                command.stdin(file);
            }
            Video::Camera(device) => {
                command.args(["-f", "v4l2"]);
                if let Some(fps) = conversion.fps {
                    command.args(["-framerate", &fps.to_string()]);
                }
                command.arg("-i").arg(device);
            }
            Video::Y4m(path) => {
                command.args(stated);
                from_file(&mut command, path.as_os_str(), conversion);
            }
            Video::Any(name) => from_file(&mut command, name.as_ref(), conversion),
        }
        // The codec knows no fields: television's are made into pictures.
        let scale = conversion.size.map(|(width, height)| format!(",scale={width}:{height}"));
        let filters = format!("yadif=deint=interlaced{}", scale.unwrap_or_default());
        command.args(["-vf", &filters]);
        if let Some(fps) = conversion.fps.filter(|_| !is_y4m) {
            command.args(["-r", &fps.to_string()]);
        }
        command.args(["-map", "0:v:0", "-pix_fmt", "yuv420p", "-f", "yuv4mpegpipe", "-"]);
        // Ctrl-C is for this program, which then ends the other.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => anyhow!(
                "`ffmpeg` is not installed, which decodes and scales everything but plain Y4M: \
                 install it, or pipe Y4M to `umbel stream -`"
            ),
            _ => anyhow!(error).context("cannot start ffmpeg"),
        })?;
        let pipe = child.stdout.take().context("ffmpeg has no output")?;
        let errors = child.stderr.take().context("ffmpeg has no standard error")?;
        *locked(&self.child) = Some(child);
        let heard = self.said.clone();
        std::thread::Builder::new().name("umbel-ffmpeg".to_owned()).spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                tracing::debug!("ffmpeg: {line}");
                locked(&heard).hear(&line);
            }
        })?;
        Ok(pipe)
    }

    /// Ends it, with all that it has started.
    pub(crate) fn end(&self) {
        let Some(mut child) = locked(&self.child).take() else { return };
        let group = i32::try_from(child.id()).map(Pid::from_raw);
        // It may have ended before.
        let _ = group.map(|group| killpg(group, Signal::SIGKILL));
        let _ = child.wait();
    }

    /// Returns whether the input has sound, too. Of an input that needs no converter it has none.
    pub(crate) fn has_sound(&self) -> bool {
        // The first picture comes after the list, but by another pipe.
        let until = Instant::now() + LAST_WORDS;
        let is_listed = || locked(&self.child).is_none() || locked(&self.said).listed;
        while !is_listed() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        locked(&self.said).sound
    }

    /// Returns why the converter ended, if it failed.
    fn failure(&self) -> Option<anyhow::Error> {
        let until = Instant::now() + LAST_WORDS;
        let status = loop {
            match locked(&self.child).as_mut()?.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        };
        if status.success() {
            return None;
        }
        // The line may be on its way.
        let said = || locked(&self.said).failure.clone();
        while said().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(match &said()[..] {
            "" => anyhow!("ffmpeg failed ({status})"),
            line => anyhow!("ffmpeg says: {line}"),
        })
    }
}

fn from_file(command: &mut Command, name: &std::ffi::OsStr, conversion: &Conversion) {
    // `-re` reads at the video's own rate, as a camera would.
    command.arg("-re");
    if conversion.again {
        command.args(["-stream_loop", "-1"]);
    }
    command.arg("-i").arg(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_how_the_video_is_read() {
        assert!(matches!(Video::named("camera"), Video::Camera(path) if path == Path::new(CAMERA)));
        assert!(matches!(Video::named("/dev/video2"), Video::Camera(_)));
        assert!(matches!(Video::named("a/b.Y4M"), Video::Y4m(_)));
        assert!(matches!(Video::named("film.mkv"), Video::Any(_)));
        assert!(matches!(Video::named("rtsp://10.0.0.1/live"), Video::Any(_)));
    }

    #[test]
    fn a_file_of_y4m_that_is_not_encoded_as_it_is_goes_through_the_converter() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (head, wants) in [
            ("W16 H16 F25:1 Ip C420jpeg", false),
            ("W16 H16 F25:1 It C420jpeg", true),
            ("W16 H16 F25:1 Ip C444", true),
            ("W16 H16 F25:1 Ip C420p10", true),
            ("W16 H16 Ip", false),
        ] {
            std::fs::write(file.path(), format!("YUV4MPEG2 {head}\n")).unwrap();
            assert_eq!(wants_converter(file.path()), wants, "{head}");
        }
        assert!(!wants_converter(Path::new("/nowhere.y4m")));
        std::fs::write(file.path(), "YUV4MPEG2 W16 H16 Ip\n").unwrap();
        let input = std::fs::File::open(file.path()).unwrap();
        let opened = Input::open(Video::Pipe(input), &Conversion::default(), Converter::default());
        let error = opened.err().map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some("the Y4M stream does not say its frame rate: --fps tells it")
        );
    }

    #[test]
    fn the_first_line_about_the_whole_counts() {
        for (lines, failure) in [
            (&[""][..], ""),
            (&["[info] Input #0, mpegts, from 'a':", "[warning] late"], ""),
            (
                &["[h264 @ 0x55d0] [error] no frame", "[warning] late", "[mpegts @ 0x1] [fatal] x"],
                "[mpegts @ 0x1] x",
            ),
            (
                &[
                    "[h264 @ 0x55d0] [error] no frame",
                    "[fatal] Stream map '0:v:0' matches no streams.",
                    "[fatal] To ignore this, add a trailing '?' to the map.",
                ],
                "Stream map '0:v:0' matches no streams.",
            ),
            (
                &["ffmpeg: error while loading shared libraries: x"],
                "ffmpeg: error while loading \
                shared libraries: x",
            ),
        ] {
            let mut told = Told::default();
            for line in lines {
                told.hear(line);
            }
            assert_eq!(told.failure, failure);
        }
    }

    #[test]
    fn sound_is_seen_in_the_list_of_the_input() {
        let mut told = Told::default();
        told.hear("[info]   Stream #0:0[0x100]: Video: h264 (Main), yuv420p, 320x240, 25 fps");
        told.hear("[info]     title           : Stream #0:1: Audio: aac");
        assert!(!told.sound && !told.listed);
        told.hear(
            "[info]   Stream #0:1[0x101](eng): Audio: aac (LC), 44100 Hz, mono, fltp, 70 kb/s",
        );
        told.hear("[info] Stream mapping:");
        assert!(told.sound && told.listed && told.failure.is_empty());
    }

    #[test]
    fn pictures_pass_no_faster_than_their_rate_and_late_ones_do_not_pile_up() {
        let interval = Duration::from_millis(5);
        for catch_up in [1, 4] {
            let mut pace = Pace::new(interval, catch_up);
            // At first, and after a pause, this number of pictures may follow each other at once.
            for _ in 0..2 {
                let start = Instant::now();
                for _ in 0..10 {
                    pace.wait();
                }
                assert!(start.elapsed() >= interval * (9 - catch_up));
                pace.next = Some(Instant::now().checked_sub(interval * 100).unwrap());
            }
        }
    }
}
