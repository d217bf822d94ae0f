//! The multicast router as a command: [`umbel_router`]'s daemon, its status and its metrics.
//!
//! | thread | does |
//! |---|---|
//! | router | all of the routing; see [`umbel_router::daemon`] |
//! | status | answers `umbel router status` by a Unix socket |
//! | HTTP, if wanted | answers `/metrics` and `/status.json` |

mod metrics;

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use umbel_engine::host::Mailbox;
use umbel_router::daemon::{Config, Daemon, Input, Status};

use crate::endpoint::{generator, random};
use crate::http::{Answer, Names, Server, Site};
use crate::status_socket;

/// Beginning of the names of sockets. The table follows.
const NAME: &str = "umbel-router-";
/// Time for which HTTP waits for the daemon.
const HTTP_ANSWER: Duration = Duration::from_millis(500);

/// A router to run.
#[derive(Debug)]
pub struct RouterOptions {
    /// The daemon's configuration.
    pub config: Config,
    /// Address at which metrics are served by HTTP, if they are.
    pub http: Option<SocketAddr>,
    /// Names of this machine under which they are asked for, besides its addresses and those that
    /// it has itself.
    pub host_names: Vec<String>,
}

/// Description of a router that has begun.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Begun {
    /// Interfaces that take part.
    pub interfaces: Vec<String>,
    /// Reasons why it cannot work, in words.
    pub troubles: Vec<String>,
    /// Address at which metrics are served.
    pub http: Option<SocketAddr>,
}

fn socket_name(table: Option<u32>) -> String {
    table.map_or_else(|| format!("{NAME}main"), |table| format!("{NAME}{table}"))
}

fn status_of(daemon: &Mailbox<Input>, patience: Duration) -> Option<Status> {
    let (give, take) = mpsc::channel();
    daemon.put(Input::Status(give));
    take.recv_timeout(patience).ok()
}

/// Routes until it is interrupted. `begun` is called when it has begun, with a function that ends
/// it.
///
/// # Errors
///
/// One line that says what to do.
pub fn route(
    options: RouterOptions,
    begun: impl FnOnce(&Begun, Box<dyn FnOnce() + Send>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let table = options.config.table;
    let (daemon, mailbox) = Daemon::open(options.config, generator()?, random()?)?;
    let asked = mailbox.clone();
    let name = socket_name(table);
    let answers = move || status_of(&asked, status_socket::ANSWER);
    // Any user can take the name, and must not keep the router from its work.
    let unanswered = status_socket::answer(&name, answers)
        .err()
        .map(|error| format!("cannot answer `umbel router status`: {error} (@{name})"));
    let site = |daemon| Arc::new(Metrics { daemon });
    let names = Names::of_machine(&options.host_names);
    let http = options.http.map(|address| Server::start(address, names, site(mailbox.clone())));
    let http = http.transpose()?;
    let told = Begun {
        interfaces: daemon.interfaces().map(str::to_owned).collect(),
        troubles: daemon.troubles().map(str::to_owned).chain(unanswered).collect(),
        http: http.as_ref().map(Server::address),
    };
    begun(&told, Box::new(move || mailbox.put(Input::Stop)))?;
    daemon.run().context("the router cannot wait for packets")
}

/// Asks a running router for its state. Without a table, there must be one router only.
///
/// # Errors
///
/// If there is none or it does not answer; if there are several, it names their tables.
pub fn status(table: Option<u32>) -> anyhow::Result<Status> {
    let name = match table {
        Some(_) => socket_name(table),
        None => match status_socket::names(NAME)?.as_slice() {
            [] => bail!("no `umbel router` runs here"),
            [one] => format!("{NAME}{one}"),
            several => bail!(
                "several routers run here, say which one with --table: {}",
                several.join(", ")
            ),
        },
    };
    status_socket::ask(&name, "`umbel router`")
}

/// Contents served by HTTP.
struct Metrics {
    daemon: Mailbox<Input>,
}

impl Site for Metrics {
    fn answer(&self, path: &str) -> Answer {
        let render: fn(&Status) -> (&'static str, Vec<u8>) = match path {
            "/metrics" => |status| ("text/plain; version=0.0.4", metrics::text(status).into()),
            "/status.json" => {
                |status| ("application/json", serde_json::to_vec(status).unwrap_or_default())
            }
            _ => return Answer::NotFound,
        };
        // The daemon answers within a turn.
        let Some(status) = status_of(&self.daemon, HTTP_ANSWER) else { return Answer::NotYet };
        let (media_type, body) = render(&status);
        Answer::Found { media_type, body: Bytes::from(body), etag: None, signature: None }
    }
}
