//! `umbel serve`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use umbel_engine::repository::policy::Policy;
use umbel_engine::repository::scheduler::SchedulerKind;
use umbel_engine::units::{ByteCount, Rate, counted};
use umbel_net::interface::Family;
use umbel_wire::{Channel, Scheme};

use super::credentials::{CERTIFICATES, load_authorities, load_identity, refuse_served};
use super::device::warn_of_mounted;
use super::duration::parse_seconds;
use super::files::FilesArgs;
use super::meter::Meter;
use super::output::{Output, plain};
use super::pace::PaceArgs;
use super::token::TokenFileArgs;
use super::{left_out, signals};
use crate::endpoint::interface::{self, OwnAddress};
use crate::serve::{ClientReport, ControlChoice, Report, ServeOptions, Server};
use crate::state;

/// Time for which the address of the channel may be gone before the server starts anew.
const LOST: Duration = Duration::from_secs(6);
/// Exit code of `--strict` if something cannot be served; as that of rsync.
const LEFT_OUT: u8 = 23;

/// Options of `umbel serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel serve ./repo                               a directory, on the default interface
  umbel serve crawl.warc.gz --rate 200M            a crawled Web site: each response is an item
  umbel serve crawl-*.warc.gz --strict             several archives as one, all of them readable
  umbel serve /dev/sda                             a disk, which is not in use, as the item `sda`
  umbel serve ./repo --interface eth1 --ipv6       over IPv6 on a certain interface
  umbel serve ./repo --cert srv.pem --key srv.key --client-ca ca.pem
                                                   with certificates of an authority of yours")]
pub(super) struct ServeArgs {
    /// A directory, files of a crawl (.warc, .arc, both also with .gz or .zst, .wacz), or any files,
    /// directories and block devices, each below its own name
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Port of the session endpoint, UDP; 0 takes any
    #[arg(long, default_value_t = 7700)]
    port: u16,
    /// Address of the session endpoint [default: all]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// Interface of the data channel, by name or address [default: that of the default route]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
    /// Use IPv6 for the data channel
    #[arg(long)]
    ipv6: bool,
    /// Multicast group of the data channel [default: a source-specific one derived from the key]
    #[arg(long, value_name = "ADDRESS")]
    group: Option<IpAddr>,
    /// UDP port of the data channel
    #[arg(long, default_value_t = 7702, value_name = "PORT")]
    channel_port: u16,
    /// MTU of the path; data packets carry 100 bytes less, which headers and tunnels may take
    /// [default: the interface's, at most 1500]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u16>,
    /// Most routers that may forward data packets, plus one
    #[arg(long, default_value_t = 32, value_name = "HOPS")]
    ttl: u8,
    /// Erasure code: rs (Reed–Solomon), raptorq or none
    #[arg(long, default_value = "rs", value_parser = parse_code)]
    code: Scheme,
    /// Most source symbols in a block
    #[arg(long, default_value_t = 128, value_name = "SYMBOLS")]
    block: u16,
    /// Reliability: auto, or set by hand as in `FEC(0.1)+R(10)+notify`
    #[arg(long, default_value = "auto")]
    policy: Policy,
    /// Scheduler: gain, rq, rq-fill, rxw, mrf or fcfs [default: gain with --policy auto, rq with
    /// any other]
    #[arg(long)]
    scheduler: Option<SchedulerKind>,
    /// Way by which clients hear of transmissions: srm (a multicast control group), unicast (each
    /// on its session), or auto: srm where any-source multicast works
    #[arg(long, default_value = "auto")]
    control: ControlChoice,
    /// UDP port of the control group
    #[arg(long, default_value_t = 7701, value_name = "PORT")]
    control_port: u16,
    /// Token that clients must show to get a session; `auto` draws one, which the URL has.
    /// Multicasts are then sealed (AES-128-GCM), and only such clients can read them. Without a
    /// token, any host that joins the group can
    #[arg(long, value_name = "TOKEN|auto")]
    token: Option<String>,
    #[command(flatten)]
    token_file: TokenFileArgs,
    #[command(flatten)]
    files: FilesArgs,
    #[command(flatten)]
    pace: PaceArgs,
    #[command(flatten)]
    certificates: CertificateArgs,
    /// Serve only if everything can be served: otherwise name what cannot, and exit with 23
    #[arg(long)]
    strict: bool,
    /// Directory of the server's key [default: the user's state directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Time between scans for changed files; 0: never scan
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = parse_seconds)]
    rescan: Duration,
}

/// Certificates of a server, and of the clients that it admits.
#[derive(Debug, clap::Args)]
struct CertificateArgs {
    /// Certificate of the server and those between it and its authority, instead of its own key;
    /// clients with --ca need no pin then
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the certificate, which only its owner may be able to read
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Authorities of clients: only clients with a certificate of one of them get a session;
    /// multicasts are sealed, as with --token
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Certificates that the authorities of clients have revoked, as they are when the server
    /// starts
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "client_ca")]
    crl: Option<PathBuf>,
}

fn parse_code(text: &str) -> Result<Scheme, String> {
    match text {
        "rs" => Ok(Scheme::ReedSolomon),
        "raptorq" => Ok(Scheme::RaptorQ),
        "none" => Ok(Scheme::NoCode),
        _ => Err("it is rs, raptorq or none".to_owned()),
    }
}

impl ServeArgs {
    fn options(self) -> anyhow::Result<ServeOptions> {
        let state_dir = self.state_dir.map_or_else(state::default_dir, Ok)?;
        let files = self.certificates;
        for path in &self.paths {
            refuse_served(files.key.as_deref(), path)?;
        }
        let listen = self.listen.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        Ok(ServeOptions {
            listen: SocketAddr::new(listen, self.port),
            interface: self.interface,
            family: self.ipv6.then_some(Family::V6),
            group: self.group,
            port: self.channel_port,
            hop_limit: self.ttl,
            pace: self.pace.options(),
            mtu: self.mtu,
            scheme: self.code,
            block_symbols: self.block,
            policy: Some(self.policy),
            scheduler: self.scheduler,
            control: self.control,
            control_port: self.control_port,
            token: self.token_file.demanded(self.token)?,
            identity: load_identity(files.cert.as_ref(), files.key.as_ref())?.map(Arc::new),
            clients: load_authorities(files.client_ca.as_ref(), files.crl.as_ref())?,
            hidden: self.files.hidden,
            follow_links: self.files.follow_links,
            patterns: self.files.patterns()?,
            rescan: self.rescan,
            ..ServeOptions::new(self.paths, state_dir)
        })
    }
}

/// Runs the command.
///
/// # Errors
///
/// If the server cannot start, or its channel fails.
pub(super) fn run(args: ServeArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    if args.files.dry_run {
        return args.files.list(&args.paths, true, args.state_dir.as_deref(), output);
    }
    let strict = args.strict;
    warn_of_mounted(&args.paths, output);
    let mut options = args.options()?;
    options.prepare()?;
    while let Some(server) = start(&options, &signals, output)? {
        let skipped = server.repository().catalog().skipped();
        if strict && skipped.failures() > 0 {
            for line in left_out::lines(&skipped) {
                output.note(line);
            }
            server.stop()?;
            let missed = counted(skipped.failures() as usize, "item");
            output.error(&anyhow::anyhow!("{missed} cannot be served, and --strict was given"));
            return Ok(ExitCode::from(LEFT_OUT));
        }
        announce(&server, output);
        let meter = Meter::new(output);
        let gone = watch(&server, &signals, &meter, output);
        meter.clear();
        let report = server.report();
        output.json(&json!({ "event": "stopped", "report": report }));
        server.stop()?;
        if !gone {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts a server as soon as an interface has an address. Returns `None` if the user does not wait
/// for it.
fn start(
    options: &ServeOptions,
    signals: &signals::Watch,
    output: &Output,
) -> anyhow::Result<Option<Server>> {
    let wanted = options.interface.as_deref();
    let note = |line: &str| {
        output.json(&json!({ "event": "note", "message": line }));
        output.note(line);
    };
    let found = interface::wait(wanted, options.family, note, |time| signals.wait(time))?;
    let Some(found) = found else { return Ok(None) };
    if let Some(line) = interface::others(&found, wanted) {
        note(&line);
    }
    let interface = wanted.map_or(found.name, str::to_owned);
    Server::start(ServeOptions { interface: Some(interface), ..options.clone() }).map(Some)
}

/// Tells what the server does, until it ends or the user ends it. Returns whether its address is
/// gone, so that nobody can reach it any more.
fn watch(server: &Server, signals: &signals::Watch, meter: &Meter, output: &Output) -> bool {
    let mut last = (Instant::now(), 0);
    // The reason that packets do not leave is told when it changes, not each time it is noticed.
    let mut told: Option<String> = None;
    let mut aside = BTreeSet::new();
    let mut address = OwnAddress::new(server.channel().source, LOST);
    while !signals.wait(Duration::from_millis(250)) {
        if !server.is_running() {
            break;
        }
        if address.is_lost() {
            let Channel { source, .. } = server.channel();
            let address = source.map_or_else(String::new, |source| source.to_string());
            let name = &server.interface().name;
            let line = format!("{name} has lost the address {address}; starting anew");
            output.json(&json!({ "event": "note", "message": line }));
            output.note(line);
            return true;
        }
        let report = server.report();
        show(&report, &mut last, meter);
        for client in &report.clients {
            tell_aside(client, &report, &mut aside, output);
        }
        if let Some(trouble) = report.trouble.filter(|trouble| Some(trouble) != told.as_ref()) {
            output.json(&json!({ "event": "trouble", "message": trouble }));
            output.note(format!("nothing leaves: {}", plain(&trouble)));
            told = Some(trouble);
        }
    }
    false
}

fn announce(server: &Server, output: &Output) {
    let catalog = server.repository().catalog();
    let (skipped, other_status) = (catalog.skipped(), catalog.other_status());
    output.json(&json!({
        "event": "serving",
        "url": server.url().to_string(),
        "items": catalog.len(),
        "skipped": skipped.total(),
        "left_out": left_out::as_json(&skipped),
        "other_status": other_status,
        "channel": server.channel().to_string(),
        "control": server.control().map_or("unicast".to_owned(), |group| group.to_string()),
        "interface": server.interface().name,
        "sealed": server.is_sealed(),
        "most_bits_per_s": server.rate().bits_per_s(),
    }));
    output.note(format!(
        "serving {} on {} by {}, at most {}",
        counted(catalog.len(), "item"),
        server.channel(),
        server.interface().name,
        server.rate()
    ));
    output.note(if server.is_sealed() {
        "sealed: only admitted clients can read the channel"
    } else {
        "open: any host that joins the channel can read it; --token or --client-ca seals it"
    });
    match server.control() {
        Some(group) => output.note(format!("announcing in {group}")),
        None => output.note("announcing on the sessions"),
    }
    if other_status > 0 {
        output.note(format!("  answers with a status other than 200 among them: {other_status}"));
    }
    for line in left_out::lines(&skipped) {
        output.note(line);
    }
    output.result(format!("umbel get '{}'", server.url()));
}

/// Tells once of a client that gets its items apart, since its path is too slow for the channel.
fn tell_aside(client: &ClientReport, report: &Report, told: &mut BTreeSet<u64>, output: &Output) {
    let Some(carries) = client.aside_bits_per_s else { return };
    if !told.insert(client.session) {
        return;
    }
    output.json(&json!({ "event": "aside", "client": client }));
    let rate = |bits| Rate::from_bits_per_s(bits).map_or("nothing".to_owned(), |r| r.to_string());
    output.note(format!(
        "{} gets its items by unicast: its path or machine takes {}, the channel has {}",
        client.address.as_deref().unwrap_or("a client"),
        rate(carries),
        rate(report.rate_bits_per_s)
    ));
}

fn show(report: &Report, last: &mut (Instant, u64), meter: &Meter) {
    let elapsed = last.0.elapsed().as_secs_f64().max(1e-3);
    let bytes_per_s = (report.bytes - last.1) as f64 / elapsed;
    *last = (Instant::now(), report.bytes);
    let waiting = report.clients.iter().filter(|client| client.wanted > 0).count();
    let worst = report.clients.iter().map(|client| client.loss).fold(0.0, f64::max);
    let rate = Rate::from_bits_per_s((bytes_per_s * 8.0) as u64)
        .map_or("idle".to_owned(), |rate| rate.to_string());
    let limit = report.limit.as_ref().map_or(String::new(), |limit| format!(", {limit}"));
    meter.message(&format!(
        "{}, {waiting} waiting, {} pending · {rate}{limit} · {} sent · worst loss {:.1} %",
        counted(report.clients.len(), "client"),
        counted(report.pending_items, "item"),
        ByteCount(report.bytes),
        worst * 100.0
    ));
}
