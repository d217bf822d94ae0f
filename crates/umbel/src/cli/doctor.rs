//! `umbel doctor`.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::Context;
use umbel_net::session::{Host, SessionUrl};

use super::output::Output;
use crate::doctor::{self, Finding, HostRequest, Verdict};

/// Options of `umbel doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel doctor                                      check this host
  umbel doctor --interface eth1                     check another of its interfaces
  umbel doctor 'umbel://192.0.2.2:7700/?pin=…'      check the path from a server, too

Exits with 0 if nothing is a problem. As root it sees more: firewall rules, queriers.")]
pub struct DoctorArgs {
    /// The URL that `umbel serve` printed
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Interface by which multicast should arrive: a name or an address [default: that of the
    /// route to the server, or of the route for groups]
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// Do not wait 2.6 s to hear whether IGMP and MLD are queried
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
pub(super) fn run(args: DoctorArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let DoctorArgs { url, interface, quick } = args;
    let url: Option<SessionUrl> = url
        .map(|url| url.parse().with_context(|| format!("cannot read the URL `{url}`")))
        .transpose()?;
    let mut worst = Worst { problems: 0, warnings: 0 };
    let mut report = |finding: Finding| {
        worst.count(&finding);
        output.result(finding.to_string());
        output.json(&finding);
    };
    let peer = url.as_ref().and_then(|url| match url.host {
        Host::Ip(address) => Some(address),
        Host::Zoned(..) | Host::Name(_) => None,
    });
    examine(interface.as_deref(), peer, quick, &mut report);
    output.note(worst.summary());
    Ok(ExitCode::from(u8::from(worst.problems > 0)))
}

fn examine(name: Option<&str>, peer: Option<IpAddr>, quick: bool, report: &mut dyn FnMut(Finding)) {
    match doctor::find_interface(name, peer) {
        Ok(interface) => {
            let request =
                HostRequest { await_querier: !quick, ..HostRequest::for_interface(&interface) };
            doctor::examine_host(&request, report);
        }
        Err(finding) => report(finding),
    }
}

/// How many findings of each kind there were.
struct Worst {
    problems: usize,
    warnings: usize,
}

impl Worst {
    fn count(&mut self, finding: &Finding) {
        match finding.verdict {
            Verdict::Problem => self.problems += 1,
            Verdict::Warning => self.warnings += 1,
            Verdict::Ok | Verdict::Unknown => {}
        }
    }

    fn summary(&self) -> String {
        let count = |number: usize, what: &str| {
            format!("{number} {what}{}", if number == 1 { "" } else { "s" })
        };
        format!("{}, {}", count(self.problems, "problem"), count(self.warnings, "warning"))
    }
}
