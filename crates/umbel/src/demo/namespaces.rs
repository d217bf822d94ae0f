//! The server and the clients as processes in network namespaces, joined by lossy links.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use crossbeam_channel::Sender;
use serde_json::Value;
use umbel_cli::process::{Process, Reporter};
use umbel_engine::units::Rate;
use umbel_lab::{Lab, Topology};

use super::{Client, Message, Sent, Stage, Tale};

/// Name of the server's host.
const SERVER: &str = "server";
/// Name of the switch in the middle.
const SWITCH: &str = "switch";
/// Time that the server may take to start, or to stop.
const SERVER_PATIENCE: Duration = Duration::from_secs(20);

/// One host for the server and one for each client, around a switch.
pub(super) struct Namespaces {
    // Fields drop in this order: the processes in the lab end before it does.
    server: Option<Reporter>,
    clients: Vec<Process>,
    lab: Lab,
    program: PathBuf,
    state_dir: PathBuf,
    tell: Sender<Message>,
}

impl Namespaces {
    pub(super) fn new(
        clients: &[Client],
        state_dir: PathBuf,
        tell: Sender<Message>,
    ) -> anyhow::Result<Namespaces> {
        let program = std::env::current_exe().context("cannot find this program's file")?;
        let lab = Lab::up(&topology(clients)).context("cannot make the links")?;
        Ok(Namespaces { server: None, clients: Vec::new(), lab, program, state_dir, tell })
    }

    fn command(&self, host: &str) -> anyhow::Result<Command> {
        let mut command = self.lab.host(host)?.command(&self.program);
        command.arg("--json");
        Ok(command)
    }
}

fn topology(clients: &[Client]) -> Topology {
    let mut topology = Topology::new().switch(SWITCH).host(SERVER).link(SERVER, SWITCH);
    for client in clients {
        topology = topology.host(&client.name).link(&client.name, SWITCH).emulated();
        topology = topology.loss(client.loss());
    }
    topology
}

impl Stage for Namespaces {
    fn serve(&mut self, dir: &Path, rate: Rate) -> anyhow::Result<String> {
        let mut command = self.command(SERVER)?;
        command.arg("serve").args(["--interface", self.lab.host(SERVER)?.interface()]);
        command.args([
            "--rate",
            &format!("{}bit/s", rate.bits_per_s()),
            "--rescan",
            "0",
            "--state-dir",
        ]);
        command.arg(&self.state_dir).arg("--").arg(dir);
        let server = self.server.insert(Reporter::start("the server", command)?);
        let serving = server.wait_for("serving", SERVER_PATIENCE)?;
        let url = serving["url"].as_str().context("the server prints no URL")?;
        Ok(url.to_owned())
    }

    fn get(&mut self, client: usize, plan: &Client, url: &str, to: &Path) -> anyhow::Result<()> {
        let mut command = self.command(&plan.name)?;
        command.args(["get", "--no-sync", "-o"]).arg(to).arg("--").arg(url).args(&plan.patterns);
        let tell = self.tell.clone();
        let hear = move |event: Option<Value>| {
            let tale = match event {
                None => Some(Tale::Failed("it has ended".to_owned())),
                Some(event) => read_event(event),
            };
            if let Some(tale) = tale {
                // Nothing listens any more when the demonstration is over.
                let _ = tell.send(Message { client, tale });
            }
        };
        let process = Process::start(command, hear);
        self.clients.push(process.with_context(|| format!("cannot start {}", plan.name))?);
        Ok(())
    }

    fn overruns(&self, plan: &Client) -> u64 {
        let links = self.lab.link_stats();
        let own = links.iter().filter(|link| link.a == plan.name || link.b == plan.name);
        let directions = own.filter_map(|link| link.directions).flatten();
        directions.map(|direction| direction.overruns + direction.queue_full).sum()
    }

    fn stop(&mut self) -> anyhow::Result<Sent> {
        let mut server = self.server.take().context("the server was not started")?;
        server.interrupt().context("cannot stop the server")?;
        let report = &server.wait_for("stopped", SERVER_PATIENCE)?["report"];
        let count = |name: &str| report[name].as_u64().unwrap_or_default();
        Ok(Sent { bytes: count("bytes"), unicast_bytes: count("unicast_bytes") })
    }
}

/// Parses a line of `umbel get --json`. Returns `None` for events without a report here.
fn read_event(mut event: Value) -> Option<Tale> {
    let name = event["event"].as_str()?.to_owned();
    match name.as_str() {
        "progress" => serde_json::from_value(event["progress"].take()).ok().map(Tale::Progress),
        "done" => serde_json::from_value(event["summary"].take()).ok().map(Tale::Done),
        "error" => Some(Tale::Failed(text(&event, "message"))),
        "failed" => {
            Some(Tale::Note(format!("{}: {}", text(&event, "name"), text(&event, "reason"))))
        }
        "note" => Some(Tale::Note(text(&event, "message"))),
        "fallback" => {
            let cause = event["cause"].as_str();
            let what = cause.unwrap_or("multicast brings nothing; going on by unicast");
            Some(Tale::Note(what.to_owned()))
        }
        _ => None,
    }
}

fn text(event: &Value, key: &str) -> String {
    event[key].as_str().unwrap_or_default().to_owned()
}
