//! The main job on one machine: a server, eight clients that want different items over lossy links,
//! and a check of every byte.
//!
//! The links are those of [`umbel_lab`], with this program run in its namespaces. Where namespaces
//! cannot be created, everything runs in this process over the loopback interface, and each client
//! discards packets as its link would.
//!
//! ```text
//! served directory ── server ──▶ data channel ──link──▶ client 1 … 8 ──▶ its own directory
//!        └─────────────────── compared, byte by byte ───────────────────────────┘
//! ```

mod check;
mod loopback;
mod namespaces;
mod plan;
mod repository;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use serde::Serialize;
use umbel_engine::units::Rate;
use umbel_lab::Lab;

use crate::get::{Snapshot, Summary};

use self::loopback::Loopback;
use self::namespaces::Namespaces;
pub use self::plan::{Client, Wanted};

/// Time without any news after which a demonstration has failed.
const PATIENCE: Duration = Duration::from_mins(1);
/// Interval at which the watcher is asked whether the user has interrupted it.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Options of a demonstration.
#[derive(Clone, Debug, Default)]
pub struct DemoOptions {
    /// The directory that is served. Default: one that is created for the demonstration.
    pub dir: Option<PathBuf>,
    /// Rate of the data channel. Default: the rate that sends every item once in six seconds,
    /// within 8 to 60 Mbit/s.
    pub rate: Option<Rate>,
    /// Stay in this process and on the loopback interface, even where namespaces can be created.
    pub loopback: bool,
}

/// Kind of the lossy links.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// Emulated links between network namespaces.
    Namespaces,
    /// None: clients discard packets that come over the loopback interface.
    Loopback {
        /// Reason why there are no namespaces.
        reason: String,
    },
}

/// A demonstration before it begins.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Kind of the lossy links.
    pub links: Links,
    /// Items that are served.
    pub items: Vec<Wanted>,
    /// The rate of the data channel.
    pub rate: Rate,
    /// The clients.
    pub clients: Vec<Client>,
}

/// Receives news of the demonstration.
pub trait Watcher {
    /// Called when the demonstration begins.
    fn begin(&mut self, _scene: &Scene) {}

    /// Reports the progress of a client, a few times a second.
    fn progress(&mut self, _client: usize, _snapshot: &Snapshot) {}

    /// Called when a client has everything.
    fn done(&mut self, _client: usize, _summary: &Summary) {}

    /// Called when a client reports a line that its user should know.
    fn note(&mut self, _client: usize, _line: &str) {}

    /// Returns whether the user interrupts the demonstration. Called several times a second.
    fn interrupted(&mut self) -> bool {
        false
    }
}

/// Result of a client.
#[derive(Clone, Debug, Serialize)]
pub struct ClientOutcome {
    /// Name of the client.
    pub client: String,
    /// Number of items that it wanted.
    pub items: u64,
    /// Bytes of these items.
    pub bytes: u64,
    /// Loss that its link was set to, 0 to 1.
    pub loss_set: f64,
    /// Loss that it saw on the data channel, 0 to 1.
    pub loss_measured: f64,
    /// Packets on their way to the client that this machine dropped, being too busy. They are part
    /// of the measured loss.
    pub dropped_here: u64,
    /// Seconds from its start to its last item.
    pub delay_s: f64,
    /// Source blocks that it finally got by unicast.
    pub unicast_blocks: u64,
    /// Whether all wanted items are present and equal to the served ones, byte by byte.
    pub verified: bool,
    /// The first difference, if they are not.
    pub problem: Option<String>,
}

/// Result of the demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Kind of the lossy links.
    pub links: Links,
    /// The clients.
    #[serde(skip)]
    pub clients: Vec<ClientOutcome>,
    /// Number of items served.
    pub items: usize,
    /// Bytes of these items.
    pub bytes: u64,
    /// Bytes of all items that clients wanted. Unicast copies would take at least as much, without
    /// headers and lost packets.
    pub copies_bytes: u64,
    /// Bytes of UDP payload sent on the data channel, headers, repairs and retransmissions
    /// included.
    pub sent_bytes: u64,
    /// Bytes sent by unicast to clients that multicast did not reach.
    pub unicast_bytes: u64,
    /// Ratio of [`Outcome::copies_bytes`] to all bytes sent.
    pub ratio: f64,
    /// Seconds from the first client's start to the last client's end.
    pub seconds: f64,
}

impl Outcome {
    /// Returns the number of clients that have exactly what they wanted.
    pub fn verified(&self) -> usize {
        self.clients.iter().filter(|client| client.verified).count()
    }
}

/// Bytes that the server has sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    bytes: u64,
    unicast_bytes: u64,
}

/// A client's report, with the client's position.
#[derive(Debug)]
struct Message {
    client: usize,
    tale: Tale,
}

#[derive(Debug)]
enum Tale {
    Progress(Snapshot),
    Note(String),
    /// The last report, unless the client fails.
    Done(Box<Summary>),
    /// The last report.
    Failed(String),
}

/// The place where the server and the clients run. Dropping it ends them.
trait Stage {
    /// Starts the server. Returns its URL.
    fn serve(&mut self, dir: &Path, rate: Rate) -> anyhow::Result<String>;

    /// Starts a client, which reports until it is done or has failed.
    fn get(&mut self, client: usize, plan: &Client, url: &str, to: &Path) -> anyhow::Result<()>;

    /// Returns the packets on their way to a client that the busy machine dropped and no client
    /// could count.
    fn overruns(&self, _plan: &Client) -> u64 {
        0
    }

    /// Stops the server. Returns the bytes that it has sent.
    fn stop(&mut self) -> anyhow::Result<Sent>;
}

/// Runs a demonstration. No files, processes or namespaces are left behind, whatever happens.
///
/// # Errors
///
/// One line that says why it cannot run at all, or that it was interrupted. Clients that fail are
/// in the [`Outcome`].
pub fn run(options: &DemoOptions, watcher: &mut dyn Watcher) -> anyhow::Result<Outcome> {
    let temporary = tempfile::Builder::new()
        .prefix("umbel-demo-")
        .tempdir()
        .context("cannot make a temporary directory")?;
    let dir = if let Some(dir) = &options.dir {
        dir.clone()
    } else {
        let dir = temporary.path().join("repository");
        repository::make(&dir).with_context(|| format!("cannot fill {}", dir.display()))?;
        dir
    };
    let items = repository::list(&dir)?;
    let clients = match options.dir {
        None => plan::for_made_repository(&items),
        Some(_) => plan::for_items(&items),
    };
    let bytes = items.iter().map(|item| item.bytes).sum();
    let rate = options.rate.unwrap_or_else(|| plan::rate(bytes));
    let links = choose_links(options);
    let scene = Scene { links, items, rate, clients };
    let (tell, told) = crossbeam_channel::unbounded();
    let mut stage = open_stage(&scene, temporary.path(), tell)?;
    let url = stage.serve(&dir, rate)?;
    watcher.begin(&scene);
    if watcher.interrupted() {
        bail!("interrupted");
    }
    let started = Instant::now();
    let output = |client: &Client| temporary.path().join(&client.name);
    for (index, client) in scene.clients.iter().enumerate() {
        stage.get(index, client, &url, &output(client))?;
    }
    let ends = watch(&scene, &told, watcher)?;
    let seconds = started.elapsed().as_secs_f64();
    let sent = stage.stop()?;
    let overruns: Vec<u64> = scene.clients.iter().map(|client| stage.overruns(client)).collect();
    drop(stage);
    let clients = scene.clients.iter().zip(&ends).zip(overruns);
    let clients = clients.map(|((client, end), overruns)| {
        let outcome = outcome(client, end, &dir, &output(client));
        ClientOutcome { dropped_here: outcome.dropped_here + overruns, ..outcome }
    });
    Ok(conclude(&scene, clients.collect(), sent, seconds))
}

/// Chooses the kind of the lossy links, with the reason if there are no namespaces.
fn choose_links(options: &DemoOptions) -> Links {
    let why = if options.loopback {
        Some("--loopback was given".to_owned())
    } else {
        Lab::available().err().map(|reason| reason.to_string())
    };
    match why {
        None => Links::Namespaces,
        Some(reason) => Links::Loopback { reason },
    }
}

fn open_stage(
    scene: &Scene,
    temporary: &Path,
    tell: Sender<Message>,
) -> anyhow::Result<Box<dyn Stage>> {
    let state_dir = temporary.join("state");
    Ok(match scene.links {
        Links::Loopback { .. } => Box::new(Loopback::new(state_dir, tell)),
        Links::Namespaces => Box::new(Namespaces::new(&scene.clients, state_dir, tell)?),
    })
}

/// Waits until every client is done or has failed. Returns how each ended.
fn watch(
    scene: &Scene,
    told: &Receiver<Message>,
    watcher: &mut dyn Watcher,
) -> anyhow::Result<Vec<Result<Summary, String>>> {
    let mut ends: Vec<Option<Result<Summary, String>>> = vec![None; scene.clients.len()];
    let mut moved = (Instant::now(), vec![0; ends.len()]);
    while ends.iter().any(Option::is_none) {
        if watcher.interrupted() {
            bail!("interrupted");
        }
        if moved.0.elapsed() > PATIENCE {
            bail!("no client got anything for {} s; see `umbel doctor`", PATIENCE.as_secs());
        }
        let Message { client, tale } = match told.recv_timeout(ASK_EVERY) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => bail!("the clients have gone"),
        };
        match tale {
            Tale::Progress(snapshot) => {
                let got = snapshot.received + snapshot.bytes_done;
                if got > moved.1[client] {
                    moved.1[client] = got;
                    moved.0 = Instant::now();
                }
                watcher.progress(client, &snapshot);
            }
            Tale::Note(line) => watcher.note(client, &line),
            // Ctrl-C also reaches the clients' processes, perhaps before this one.
            Tale::Done(summary) if summary.interrupted => bail!("interrupted"),
            Tale::Done(summary) => {
                watcher.done(client, &summary);
                ends[client] = Some(Ok(*summary));
            }
            // A process also ends after it has said that it is done.
            Tale::Failed(_) if ends[client].is_some() => {}
            Tale::Failed(reason) => {
                watcher.note(client, &reason);
                ends[client] = Some(Err(reason));
            }
        }
    }
    Ok(ends.into_iter().flatten().collect())
}

fn outcome(
    client: &Client,
    end: &Result<Summary, String>,
    served: &Path,
    received: &Path,
) -> ClientOutcome {
    let summary = end.as_ref().cloned().unwrap_or_default();
    let told = match end {
        Err(reason) => Err(reason.clone()),
        Ok(summary) => summary
            .failures
            .first()
            .map_or(Ok(()), |failure| Err(format!("{}: {}", failure.name, failure.reason))),
    };
    // A client's own claim is not trusted.
    let problem = told.and_then(|()| check::same(served, received, &client.wanted)).err();
    ClientOutcome {
        client: client.name.clone(),
        items: client.wanted.len() as u64,
        bytes: client.bytes(),
        loss_set: client.loss(),
        loss_measured: summary.loss(),
        dropped_here: summary.dropped_here,
        delay_s: summary.seconds,
        unicast_blocks: summary.unicast_blocks,
        verified: problem.is_none(),
        problem,
    }
}

fn conclude(scene: &Scene, clients: Vec<ClientOutcome>, sent: Sent, seconds: f64) -> Outcome {
    let copies_bytes = clients.iter().map(|client| client.bytes).sum();
    let in_all = sent.bytes + sent.unicast_bytes;
    Outcome {
        links: scene.links.clone(),
        clients,
        items: scene.items.len(),
        bytes: scene.items.iter().map(|item| item.bytes).sum(),
        copies_bytes,
        sent_bytes: sent.bytes,
        unicast_bytes: sent.unicast_bytes,
        ratio: copies_bytes as f64 / in_all.max(1) as f64,
        seconds,
    }
}
