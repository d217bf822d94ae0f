//! Outputs of pictures: Y4M to standard output or a file, everything else by `ffmpeg`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use crossbeam_channel::{Receiver, Sender};
use umbel_video::{Frame, y4m};

use super::host::Input;
use super::rtp::RtpTarget;

/// Pictures that may wait for the output.
const WAITING: usize = 2;
/// Time that an output may take to end once it has no more pictures.
const END: Duration = Duration::from_secs(10);
/// The same for a pipe, whose reader may have stopped reading.
const END_OF_PIPE: Duration = Duration::from_millis(500);

/// An output of pictures.
pub enum Target {
    /// To an output, as Y4M.
    Pipe(Box<dyn Write + Send>),
    /// To a file. It is Y4M if its name ends so, and else what `ffmpeg` makes of the name.
    File(PathBuf),
    /// To a player, as RTP.
    Rtp(RtpTarget),
    /// Nowhere: the stream is received and measured.
    Nowhere,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Pipe(_) => f.write_str("Pipe"),
            Target::File(path) => f.debug_tuple("File").field(path).finish(),
            Target::Rtp(target) => f.debug_tuple("Rtp").field(target).finish(),
            Target::Nowhere => f.write_str("Nowhere"),
        }
    }
}

/// An open output, with the thread that writes to it.
pub(crate) struct Outlet {
    pictures: Sender<Frame>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    converter: Option<Child>,
    patience: Duration,
}

impl Outlet {
    /// Opens an output for pictures like these. Returns `None` if there is none. The host hears
    /// when it takes no more.
    ///
    /// # Errors
    ///
    /// One line that says why it cannot be opened, and what to do.
    pub(crate) fn open(
        target: Target,
        header: y4m::Header,
        host: impl Fn(Input) + Send + 'static,
    ) -> anyhow::Result<Option<Outlet>> {
        let (output, converter, patience): (Box<dyn Write + Send>, _, _) = match target {
            Target::Nowhere | Target::Rtp(_) => return Ok(None),
            Target::Pipe(output) => (output, None, END_OF_PIPE),
            Target::File(path) if is_y4m(&path) => {
                let file = File::create(&path)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                (Box::new(std::io::BufWriter::new(file)), None, END)
            }
            Target::File(path) => {
                let mut child = convert(path.as_os_str())?;
                let input = child.stdin.take().context("ffmpeg has no input")?;
                (Box::new(input), Some(child), END)
            }
        };
        let (pictures, take) = crossbeam_channel::bounded(WAITING);
        let (running, ended) = crossbeam_channel::bounded(0);
        let write = move || {
            if let Err(error) = write(output, header, &take) {
                host(Input::Closed { failed: failure(&error) });
            }
            drop(running);
        };
        std::thread::Builder::new().name("umbel-output".to_owned()).spawn(write)?;
        Ok(Some(Outlet { pictures, ended, converter, patience }))
    }

    /// Returns where pictures are put.
    pub(crate) fn pictures(&self) -> Sender<Frame> {
        self.pictures.clone()
    }

    /// Lets the output end, within bounds: a reader that has stopped holds nobody up.
    ///
    /// # Errors
    ///
    /// If a converter failed.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        let Outlet { pictures, ended, converter, patience } = self;
        drop(pictures);
        let until = Instant::now() + patience;
        // The sender is gone, or the time is up.
        let _ = ended.recv_deadline(until);
        let Some(mut child) = converter else { return Ok(()) };
        loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(anyhow!("ffmpeg could not write the file ({status})")),
                None if Instant::now() >= until => break,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(anyhow!("ffmpeg did not end in time: the file may lack its end"))
    }
}

fn is_y4m(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("y4m"))
}

fn convert(path: &OsStr) -> anyhow::Result<Child> {
    let mut command = Command::new("ffmpeg");
    command.args(["-y", "-hide_banner", "-loglevel", "error"]);
    command.args(["-f", "yuv4mpegpipe", "-i", "pipe:0"]).arg(path);
    // Ctrl-C is for this program; then the other writes the end of the file.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "`ffmpeg` is not installed, which writes everything but Y4M: install it, or write to \
             a file whose name ends in .y4m"
        ),
        _ => anyhow!(error).context("cannot start ffmpeg"),
    })
}

fn write(
    output: Box<dyn Write + Send>,
    header: y4m::Header,
    pictures: &Receiver<Frame>,
) -> Result<(), y4m::Y4mError> {
    let mut writer = y4m::Writer::new(output, header)?;
    for picture in pictures {
        writer.write(&picture)?;
    }
    Ok(())
}

/// Returns why an output takes no more, unless its reader just went away.
fn failure(error: &y4m::Y4mError) -> Option<String> {
    match error {
        y4m::Y4mError::Io(error) if error.kind() == ErrorKind::BrokenPipe => None,
        error => Some(format!("the output cannot be written: {error}")),
    }
}
