//! The server and the clients in this process, over the loopback interface, for machines without
//! namespaces. Each client discards data packets as its link would.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use crossbeam_channel::Sender;
use umbel_engine::repository::receiver::Brought;
use umbel_engine::units::Rate;
use umbel_net::interface::Family;
use umbel_net::udp::Discard;

use super::{Client, Message, Sent, Stage, Tale};
use crate::endpoint::pace::PaceOptions;
use crate::get::{GetOptions, Interrupt, Observer, Snapshot, get};
use crate::serve::{ServeOptions, Server};

/// Time that the server's last counts may take to be published.
const REPORT_AFTER: Duration = Duration::from_millis(300);

/// A server and clients, each client on its own thread.
pub(super) struct Loopback {
    state_dir: PathBuf,
    tell: Sender<Message>,
    server: Option<Server>,
    clients: Vec<JoinHandle<()>>,
    interrupts: Arc<Mutex<Interrupts>>,
}

/// The means to interrupt the running clients, and whether they were interrupted.
#[derive(Default)]
struct Interrupts {
    all: Vec<Interrupt>,
    ended: bool,
}

impl Loopback {
    pub(super) fn new(state_dir: PathBuf, tell: Sender<Message>) -> Loopback {
        let interrupts = Arc::default();
        Loopback { state_dir, tell, server: None, clients: Vec::new(), interrupts }
    }
}

impl Stage for Loopback {
    fn serve(&mut self, dir: &Path, rate: Rate) -> anyhow::Result<String> {
        // An unused port, as other demonstrations may run beside this one.
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let server = Server::start(ServeOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            interface: Some(Ipv4Addr::LOCALHOST.to_string()),
            family: Some(Family::V4),
            port,
            hop_limit: 1,
            pace: PaceOptions::at_most(rate),
            rescan: Duration::ZERO,
            ..ServeOptions::new(vec![dir.to_owned()], self.state_dir.clone())
        })?;
        let url = server.url().to_string();
        self.server = Some(server);
        Ok(url)
    }

    fn get(&mut self, client: usize, plan: &Client, url: &str, to: &Path) -> anyhow::Result<()> {
        let discard = Discard { per_million: plan.loss_percent * 10_000, seed: client as u64 };
        let options = GetOptions {
            patterns: plan.patterns.clone(),
            interface: Some(Ipv4Addr::LOCALHOST.to_string()),
            durable: false,
            discard: (discard.per_million > 0).then_some(discard),
            ..GetOptions::new(url.parse().context("the server's URL")?, to.to_owned())
        };
        let (tell, interrupts) = (self.tell.clone(), self.interrupts.clone());
        let run = move || {
            let observer = Arc::new(Teller { client, tell });
            let tale =
                match get(options, observer.clone(), |interrupt| join(&interrupts, interrupt)) {
                    Ok(summary) => Tale::Done(Box::new(summary)),
                    Err(error) => Tale::Failed(format!("{error:#}")),
                };
            observer.tell(tale);
        };
        self.clients.push(std::thread::Builder::new().name(plan.name.clone()).spawn(run)?);
        Ok(())
    }

    fn stop(&mut self) -> anyhow::Result<Sent> {
        let server = self.server.take().context("the server was not started")?;
        std::thread::sleep(REPORT_AFTER);
        let report = server.report();
        server.stop()?;
        Ok(Sent { bytes: report.bytes, unicast_bytes: report.unicast_bytes })
    }
}

/// Adds a client to those to be interrupted. If they already were, interrupts it at once.
fn join(interrupts: &Mutex<Interrupts>, interrupt: Interrupt) {
    let mut interrupts = interrupts.lock().unwrap_or_else(PoisonError::into_inner);
    if interrupts.ended {
        interrupt.interrupt();
    }
    interrupts.all.push(interrupt);
}

impl Drop for Loopback {
    fn drop(&mut self) {
        {
            let mut interrupts = self.interrupts.lock().unwrap_or_else(PoisonError::into_inner);
            interrupts.ended = true;
            interrupts.all.drain(..).for_each(|interrupt| interrupt.interrupt());
        }
        for client in self.clients.drain(..) {
            // A panic has already been printed, and the client counts as failed.
            let _ = client.join();
        }
    }
}

/// Passes on a client's reports.
struct Teller {
    client: usize,
    tell: Sender<Message>,
}

impl Teller {
    fn tell(&self, tale: Tale) {
        // Nothing listens any more when the demonstration is over.
        let _ = self.tell.send(Message { client: self.client, tale });
    }
}

impl Observer for Teller {
    fn progress(&self, snapshot: &Snapshot) {
        self.tell(Tale::Progress(snapshot.clone()));
    }

    fn failed(&self, name: &str, reason: &str) {
        self.tell(Tale::Note(format!("{name}: {reason}")));
    }

    fn note(&self, line: &str) {
        self.tell(Tale::Note(line.to_owned()));
    }

    fn fallback(&self, _brought: &Brought, cause: Option<&str>) {
        let line = cause.unwrap_or("multicast brings nothing; going on by unicast");
        self.tell(Tale::Note(line.to_owned()));
    }
}
