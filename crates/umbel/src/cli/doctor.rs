//! `umbel doctor`.

use std::net::IpAddr;
use std::process::ExitCode;

use umbel_engine::units::counted;
use umbel_net::session::{Credentials, Host, SessionUrl};

use super::credentials::CredentialArgs;
use super::output::Output;
use crate::doctor::{self, Finding, HostRequest, Verdict};

/// Options of `umbel doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel doctor                                      check this host, on all its interfaces
  umbel doctor --interface eth1                     check one of its interfaces
  umbel doctor 'umbel://192.0.2.2:7700/?pin=…'      check the path from a server, too

Exits with 0 if nothing is a problem. As root it sees more: firewall rules, queriers.")]
pub(super) struct DoctorArgs {
    /// The URL that `umbel serve` printed
    #[arg(value_name = "URL")]
    url: Option<String>,
    /// Interface on which multicast should arrive: a name or an address [default: that of the route
    /// to the server; without a server, all]
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// Do not wait 2.6 s to hear whether IGMP and MLD are queried
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
}

/// Runs the command.
///
/// # Errors
///
/// If the URL cannot be parsed, or a certificate cannot be read.
pub(super) fn run(args: &DoctorArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let url: Option<SessionUrl> = args.url.as_deref().map(str::parse).transpose()?;
    let mut count = Count::default();
    let mut report = |finding: Finding| {
        count.add(&finding);
        output.result(lines(&finding));
        output.json(&finding);
    };
    match &url {
        Some(url) => examine_path(args, url, args.credentials.load()?, &mut report),
        None => examine_hosts(args, output, &mut report),
    }
    output.note(count.summary());
    Ok(ExitCode::from(u8::from(count.problems > 0)))
}

/// Formats a sign, the check and its finding; on a second line the command that fixes it.
fn lines(finding: &Finding) -> String {
    let sign = match finding.verdict {
        Verdict::Ok => '✓',
        Verdict::Warning => '!',
        Verdict::Problem => '✗',
        Verdict::Unknown => '?',
    };
    let mend = finding.mend.as_ref().map_or_else(String::new, |mend| format!("\n    → {mend}"));
    format!("{sign} {}: {}{mend}", finding.check, finding.what)
}

/// Checks all interfaces on which a receiver listens.
fn examine_hosts(args: &DoctorArgs, output: &Output, report: &mut dyn FnMut(Finding)) {
    if args.interface.is_some() {
        return examine_host(args, None, report);
    }
    let interfaces = match doctor::find_interfaces() {
        Ok(interfaces) => interfaces,
        Err(finding) => return report(finding),
    };
    if let [_] = &interfaces[..] {
        return examine_host(args, None, report);
    }
    let mut told = Vec::new();
    for interface in &interfaces {
        output.note(format!("on {interface}:"));
        let request = HostRequest::for_interface(interface);
        let request = HostRequest { await_querier: !args.quick, ..request };
        doctor::examine_host(&request, &mut |finding| {
            // What is true of the whole host is said once.
            if !told.contains(&finding) {
                told.push(finding.clone());
                report(Finding { interface: Some(interface.name.clone()), ..finding });
            }
        });
    }
    doctor::compare_announcements().into_iter().for_each(report);
}

fn examine_host(args: &DoctorArgs, peer: Option<IpAddr>, report: &mut dyn FnMut(Finding)) {
    match doctor::find_interface(args.interface.as_deref(), peer) {
        Ok(interface) => {
            let request = HostRequest::for_interface(&interface);
            doctor::examine_host(&HostRequest { await_querier: !args.quick, ..request }, report);
        }
        Err(finding) => report(finding),
    }
}

/// Checks this host for the server's channel, and then the path.
fn examine_path(
    args: &DoctorArgs,
    url: &SessionUrl,
    credentials: Credentials,
    report: &mut dyn FnMut(Finding),
) {
    let path = match doctor::Path::open(url, credentials) {
        Ok(path) => path,
        Err(finding) => {
            report(finding);
            let peer = match url.host {
                Host::Ip(address) => Some(address),
                Host::Zoned(..) | Host::Name(_) => None,
            };
            return examine_host(args, peer, report);
        }
    };
    report(path.session());
    let interface = match &args.interface {
        Some(name) => doctor::find_interface(Some(name), None),
        None => path.interface(),
    };
    let interface = match interface {
        Ok(interface) => interface,
        Err(finding) => return report(finding),
    };
    let request = HostRequest::for_channel(&interface, path.channel());
    let request = HostRequest {
        packet_len: path.packet_len().unwrap_or(request.packet_len),
        rate: path.rate(),
        await_querier: !args.quick,
        ..request
    };
    doctor::examine_host(&request, report);
    path.examine(&interface, report);
}

/// Number of findings of each kind.
#[derive(Default)]
struct Count {
    problems: usize,
    warnings: usize,
}

impl Count {
    fn add(&mut self, finding: &Finding) {
        match finding.verdict {
            Verdict::Problem => self.problems += 1,
            Verdict::Warning => self.warnings += 1,
            Verdict::Ok | Verdict::Unknown => {}
        }
    }

    fn summary(&self) -> String {
        format!("{}, {}", counted(self.problems, "problem"), counted(self.warnings, "warning"))
    }
}
