//! The main job on one machine: a server, eight clients that want different things over links
//! that lose packets, and a check of every byte.
//!
//! The links are those of [`umbel_lab`], with this program run in its namespaces. Where no
//! namespaces can be made, everything runs in this process over the loopback interface, and each
//! client throws packets away as its link would.
//!
//! ```text
//! served directory ── server ──▶ data channel ──link──▶ client 1 … 8 ──▶ its own directory
//!        └─────────────────── compared, byte by byte ───────────────────────────┘
//! ```

mod check;
mod loopback;
mod namespaces;
mod plan;
mod process;
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

/// A demonstration in which nothing happens for so long has failed.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often it is asked whether the user has interrupted it.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What to show.
#[derive(Clone, Debug, Default)]
pub struct DemoOptions {
    /// The directory that is served. Default: one that is made for the purpose.
    pub dir: Option<PathBuf>,
    /// Rate of the data channel. Default: so that it takes some eight seconds.
    pub rate: Option<Rate>,
    /// Stay in this process and on the loopback interface, even where namespaces can be made.
    pub loopback: bool,
}

/// Where the links are that lose packets.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// Emulated links between network namespaces.
    Namespaces,
    /// None: clients throw packets away that come over the loopback interface.
    Loopback {
        /// Why there are no namespaces.
        reason: String,
    },
}

/// What is going to be shown.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Where packets are lost.
    pub links: Links,
    /// What is served.
    pub items: Vec<Wanted>,
    /// The rate of the data channel.
    pub rate: Rate,
    /// The clients.
    pub clients: Vec<Client>,
}

/// Hears of what happens.
pub trait Watcher {
    /// It begins.
    fn begin(&mut self, _scene: &Scene) {}

    /// How far a client is; a few times a second.
    fn progress(&mut self, _client: usize, _snapshot: &Snapshot) {}

    /// A client has everything.
    fn done(&mut self, _client: usize, _summary: &Summary) {}

    /// A client tells something that its user should know.
    fn note(&mut self, _client: usize, _line: &str) {}

    /// Whether the user wants it to end; asked several times a second.
    fn interrupted(&mut self) -> bool {
        false
    }
}

/// What became of a client.
#[derive(Clone, Debug, Serialize)]
pub struct ClientOutcome {
    /// Its name.
    pub client: String,
    /// Items that it wanted.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Loss that its link was set to, 0 to 1.
    pub loss_set: f64,
    /// Loss that it saw on the data channel, 0 to 1.
    pub loss_measured: f64,
    /// Packets on their way to it that this machine dropped, being too busy. They count as measured.
    pub dropped_here: u64,
    /// Seconds from its start to its last item.
    pub delay_s: f64,
    /// Source blocks that it got by unicast in the end.
    pub unicast_blocks: u64,
    /// Whether all that it wanted is there and the same, byte by byte, as what was served.
    pub verified: bool,
    /// What is not.
    pub problem: Option<String>,
}

/// What became of it all.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where packets were lost.
    pub links: Links,
    /// The clients.
    #[serde(skip)]
    pub clients: Vec<ClientOutcome>,
    /// Items served.
    pub items: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of all that clients wanted: what copies by unicast would be at least, without
    /// headers and without what links lose.
    pub copies_bytes: u64,
    /// Bytes of UDP payload sent on the data channel: headers, repairs and retransmissions included.
    pub sent_bytes: u64,
    /// Bytes sent by unicast to clients that multicast did not reach.
    pub unicast_bytes: u64,
    /// [`Outcome::copies_bytes`] to what was sent in all.
    pub ratio: f64,
    /// Seconds from the first client's start to the last client's end.
    pub seconds: f64,
}

impl Outcome {
    /// How many clients have exactly what they wanted.
    pub fn verified(&self) -> usize {
        self.clients.iter().filter(|client| client.verified).count()
    }
}

/// What the server has sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    bytes: u64,
    unicast_bytes: u64,
}

/// What a client tells, with its position.
#[derive(Debug)]
struct Message {
    client: usize,
    tale: Tale,
}

#[derive(Debug)]
enum Tale {
    Progress(Snapshot),
    Note(String),
    /// The last, unless it fails.
    Done(Box<Summary>),
    /// The last.
    Failed(String),
}

/// Where the server and the clients run. Dropping it ends them.
trait Stage {
    /// Starts the server; gives its URL.
    fn serve(&mut self, dir: &Path, rate: Rate) -> anyhow::Result<String>;

    /// Starts a client; it tells how it goes until it is done or has failed.
    fn get(&mut self, client: usize, plan: &Client, url: &str, to: &Path) -> anyhow::Result<()>;

    /// Packets on their way to a client that the machine was too busy for, and no client could count.
    fn overruns(&self, _plan: &Client) -> u64 {
        0
    }

    /// Stops the server; gives what it has sent.
    fn stop(&mut self) -> anyhow::Result<Sent>;
}

/// Shows it. Nothing is left behind, whatever happens.
///
/// # Errors
///
/// One line that says why it cannot be shown at all, or that it was interrupted. Clients that
/// fail are in the [`Outcome`].
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

/// Where packets will be lost, and why not in namespaces.
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

/// Waits until every client is done or has failed; gives how each ended.
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
            // Ctrl-C reaches the clients' processes as well, and may do so first.
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
    // What a client says of itself is not taken on trust.
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
