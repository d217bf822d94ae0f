//! A receiver of a feed.
//!
//! ```text
//!          first block known,                 all written              children have it, or
//! Joining ── list read, disk ──▶ Receiving ── and verified ──▶ Serving ── the feed is over ──▶ Leaving ─▶ end
//!    │        looked at              │ gave up                                      ▲
//!    └───────────────────────────────┴──────────────────────────────────────────────┘
//! ```
//!
//! A receiver that became the manager of its subnet stays while its children miss anything. A
//! receiver that is complete before it is in the tree first looks for a place there, for 10 s at
//! most. Only in the tree can it report that it is complete.

mod content;
mod diagnosing;
pub(crate) mod host;
mod path;
mod place;
mod progress;
pub(crate) mod store;
pub(crate) mod target;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use umbel_engine::RateClass;
use umbel_engine::lms::config::Cost;
use umbel_engine::tmtp::{
    Authentication, List, NodeConfig, NodeId, ReceiptKey, Receiver, ReceiverConfig, Start,
};
use umbel_engine::units::Rate;
use umbel_net::interface::Interface;
use umbel_net::port::UdpPort;
use umbel_net::session::signing;
use umbel_net::udp::{ReceiverOptions, SenderOptions};
use umbel_store::feed::seal::{Opener, PublicKey};
use umbel_store::sink::{DeviceTarget, Links, Purpose};
use umbel_wire::Tsi;
use umbel_wire::feed::{Feed, Recovery};
use umbel_wire::small_block::SmallBlockHeader;

use self::diagnosing::Diagnosing;
use self::host::{About, RecvHost};
use self::place::{Opened, Place};
pub use self::progress::{RecvObserver, RecvSnapshot};
use self::store::Input;
use super::admission::load_or_create;
use super::shape_of;
use crate::directory::{News, SessionSelector, Silence, Succession};
pub use crate::endpoint::{Failure, Interrupt};
use crate::endpoint::{Interrupted, Wiring};

/// Silence of a source after which it is gone: a link may be down for some seconds, and a sender
/// that was killed may be started again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Destination of a feed.
pub enum Target {
    /// A directory for files.
    Directory(PathBuf),
    /// A block device for the only file.
    Device(DeviceTarget),
    /// A link to a directory with exactly the files of the last feed, which goes from one to the next
    /// once all of it is there, and the number of releases that are kept.
    Release(PathBuf, u8),
    /// An output for a pipe.
    Pipe(Box<dyn Write + Send>),
    /// Not specified: files go to a directory of the feed's name in the working directory.
    Unsaid,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Directory(path) => f.debug_tuple("Directory").field(path).finish(),
            Target::Device(device) => f.debug_tuple("Device").field(device).finish(),
            Target::Release(link, keep) => {
                f.debug_tuple("Release").field(link).field(keep).finish()
            }
            Target::Pipe(_) => f.write_str("Pipe"),
            Target::Unsaid => f.write_str("Unsaid"),
        }
    }
}

/// Which feed to receive, and how.
#[derive(Debug)]
pub struct RecvOptions {
    /// The feed.
    pub feed: SessionSelector,
    /// Destination of the feed.
    pub target: Target,
    /// Position at which the receiver begins.
    pub start: Start,
    /// Name or address of the interface. Default: announcements are heard on all, and the feed is
    /// received where that of its source was.
    pub interface: Option<String>,
    /// UDP port of this receiver in the feed's tree; 0 takes any. Default 0.
    pub tree_port: u16,
    /// Time to wait for a feed of this name to be on the air.
    pub wait: Duration,
    /// Silence of the source after which it counts as gone. Default 20 s.
    pub patience: Duration,
    /// Token that the source demands of receivers.
    pub token: Option<String>,
    /// File of this receiver's secret key, for sealed feeds; created if it does not exist.
    pub key: Option<PathBuf>,
    /// Name of this receiver in reports. Default: the host's name.
    pub name: Option<String>,
    /// Whether files are synced to the disk before they count as received.
    pub durable: bool,
    /// Whether files that differ from those of the feed are replaced. Default: no.
    pub overwrite: bool,
    /// Whether hidden files are written at the top of the directory. Default: no.
    pub hidden: bool,
    /// Symbolic links that are made. Default: those that stay in the directory.
    pub links: Links,
    /// Whether everything in the directory goes that the feed does not have, once all of it is
    /// there. Hidden files at the top stay without `hidden`. Default: no.
    pub delete: bool,
    /// Whether the feed is brought, and changes told, or the directory only compared with its list,
    /// which writes nothing. Default: it is brought.
    pub purpose: Purpose,
    /// Recovery that the feed must have. Default: as the feed's sender chose.
    pub recovery: Option<Recovery>,
    /// Cost at which the receiver offers itself to routers with LMS. Default: its latency.
    pub cost: Option<Cost>,
    /// Directory in which the keys of senders are remembered. Default: the user's state directory.
    pub state_dir: Option<PathBuf>,
}

impl RecvOptions {
    /// Creates options with the defaults.
    pub fn new(feed: SessionSelector, target: Target) -> RecvOptions {
        RecvOptions {
            feed,
            target,
            start: Start::Everything,
            interface: None,
            tree_port: 0,
            wait: Duration::from_secs(10),
            patience: PATIENCE,
            token: None,
            key: None,
            name: None,
            durable: true,
            overwrite: false,
            hidden: false,
            links: Links::Inside,
            delete: false,
            purpose: Purpose::Bring,
            recovery: None,
            cost: None,
            state_dir: None,
        }
    }
}

/// Result of receiving a feed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecvSummary {
    /// Whether the feed was a pipe.
    pub pipe: bool,
    /// Whether the feed was sealed for the receivers on its sender's list.
    pub sealed: bool,
    /// Files received and verified.
    pub items: u64,
    /// Files that were already present.
    pub already_there: u64,
    /// Files of the source that it could not send.
    pub left_out: u64,
    /// Files, links and directories that were removed, since the feed does not have them.
    pub removed: u64,
    /// Files that are not as the source has them, if the directory was only compared.
    pub differing: u64,
    /// Bytes of the received items.
    pub bytes: u64,
    /// Bytes of files that an earlier run had received.
    pub resumed_bytes: u64,
    /// Seconds from the start to the last byte.
    pub seconds: f64,
    /// Data packets that arrived on the data channel.
    pub packets: u64,
    /// Data packets of the data channel that were lost.
    pub lost: u64,
    /// Repairs that restored something.
    pub repairs: u64,
    /// Those of them that routers brought from helpers.
    pub helped: u64,
    /// Requests that were sent for routers to steer to helpers.
    pub requests: u64,
    /// Packets that were fetched from the source.
    pub fetched: u64,
    /// NACKs sent.
    pub nacks: u64,
    /// Repairs sent to others, as their manager or as a helper.
    pub repairs_sent: u64,
    /// Number of times that the parent changed.
    pub parents: u64,
    /// Parents that were left since all their repairs were wrong.
    pub wrong_parents: u64,
    /// Whether it was the manager of its subnet at any time.
    pub managed: bool,
    /// The largest multicast radius that it had as a manager, in hops; 0 if it never was one.
    pub radius: u8,
    /// Datagrams that this host's kernel dropped because the program was too slow.
    pub dropped_here: u64,
    /// Input discarded, by reason.
    pub drops: String,
    /// Files not received.
    pub failures: Vec<Failure>,
    /// Reason why the feed is incomplete, if it is.
    pub failure: Option<String>,
    /// Whether the user interrupted it.
    pub interrupted: bool,
    /// Whether the source was started again, and another feed took the place of this one.
    #[serde(skip)]
    replaced: bool,
}

impl RecvSummary {
    /// Returns in one line why not all of the feed is there.
    pub(crate) fn why_not_whole(&self) -> String {
        match (&self.failure, self.failures.as_slice()) {
            (Some(failure), _) => failure.clone(),
            (None, []) => "not all of it came".to_owned(),
            (None, [one]) => format!("{} was not received: {}", one.name, one.reason),
            (None, [first, ..]) => format!(
                "{} files were not received; the first is {}: {}",
                self.failures.len(),
                first.name,
                first.reason
            ),
        }
    }

    /// Returns whether all of the feed is there.
    pub(crate) fn is_whole(&self) -> bool {
        let RecvSummary { failures, failure, interrupted, replaced, .. } = self;
        failures.is_empty() && failure.is_none() && !interrupted && !replaced
    }

    /// Adds the result of the previous feed, whose place this one took.
    fn after(self, past: &RecvSummary) -> RecvSummary {
        RecvSummary {
            items: past.items + self.items,
            already_there: self.already_there.saturating_sub(past.items),
            bytes: past.bytes + self.bytes,
            seconds: past.seconds + self.seconds,
            packets: past.packets + self.packets,
            lost: past.lost + self.lost,
            repairs: past.repairs + self.repairs,
            helped: past.helped + self.helped,
            requests: past.requests + self.requests,
            fetched: past.fetched + self.fetched,
            nacks: past.nacks + self.nacks,
            repairs_sent: past.repairs_sent + self.repairs_sent,
            parents: past.parents + self.parents,
            wrong_parents: past.wrong_parents + self.wrong_parents,
            managed: past.managed || self.managed,
            radius: past.radius.max(self.radius),
            dropped_here: past.dropped_here + self.dropped_here,
            ..self
        }
    }
}

/// Receives a feed. Returns when all of it is complete or has failed permanently.
///
/// # Errors
///
/// One line that says why nothing can be received at all. The [`RecvSummary`] lists files that
/// failed, and says whether the feed ended early.
pub fn recv(
    mut options: RecvOptions,
    observer: Arc<dyn RecvObserver>,
    started: impl FnOnce(Interrupt),
) -> anyhow::Result<RecvSummary> {
    let mut succession = Succession::open(options.interface.as_deref())?;
    let stop = Interrupted::default();
    started(stop.with(succession.interrupt(|| Input::Interrupt)));
    let observer: Arc<dyn RecvObserver> =
        Arc::new(Diagnosing { observer, wanted: options.interface.clone() });
    let (lonely, note) = (|line: &str| observer.lonely(line), |line: &str| observer.note(line));
    let (state_dir, wait) = (options.state_dir.clone(), options.wait);
    let found = succession.find(&mut options.feed, state_dir, wait, (lonely, note))?;
    let Some((feed, key)) = found else {
        return Ok(RecvSummary { interrupted: true, ..RecvSummary::default() });
    };
    let mut target = std::mem::replace(&mut options.target, Target::Unsaid);
    let mut past = RecvSummary::default();
    // The end of a feed comes with its packets.
    let news = |news| match news {
        News::Replaced => Some(Input::Replaced),
        News::Moved => Some(Input::Moved),
        News::Over => None,
    };
    // A host that moves is the same node for the source.
    let mut node = None;
    succession.run(
        (&options.feed, feed),
        news,
        note,
        |feed: Feed, interface, wiring, silence| {
            // A feed that takes the place of this one gets the same destination, from the same sender.
            let again = match &target {
                Target::Directory(directory) => Target::Directory(directory.clone()),
                Target::Device(device) => Target::Device(device.clone()),
                Target::Release(link, keep) => Target::Release(link.clone(), *keep),
                Target::Unsaid | Target::Pipe(_) => Target::Unsaid,
            };
            let target = std::mem::replace(&mut target, again);
            let around = Around { wiring, silence, stop: &stop, node: &mut node };
            let summary = receive((feed, key), &options, target, interface, &observer, around)?;
            past = summary.after(&past);
            Ok(past.replaced)
        },
    )?;
    Ok(past)
}

/// What the reception of one feed shares with the command.
struct Around<'a> {
    wiring: Wiring<Input>,
    silence: Silence,
    stop: &'a Interrupted,
    /// What this host was to the source of a feed.
    node: &'a mut Option<KnownNode>,
}

/// What a host is to the source of a feed.
struct KnownNode {
    feed: Tsi,
    id: NodeId,
    authentication: Authentication,
}

/// Receives one feed, until it is complete, cannot be completed, or is replaced.
fn receive(
    (feed, key): (Feed, [u8; 32]),
    options: &RecvOptions,
    target: Target,
    interface: &Interface,
    observer: &Arc<dyn RecvObserver>,
    around: Around<'_>,
) -> anyhow::Result<RecvSummary> {
    let Around { wiring, silence, stop, node: known } = around;
    if feed.token && options.token.is_none() {
        bail!("`{}` needs a token: give it by --token", feed.name);
    }
    check_recovery(&feed, options)?;
    let admission = admission(&feed, options.key.as_deref(), options.name.as_deref())?;
    let token = super::admission(options.token.as_deref().filter(|_| feed.token), feed.tsi)?;
    observer.found(&feed, signing::pin_of(&key), &interface.name);
    let around = (wiring.mailbox(), stop);
    let opened = Place::open((&feed, key), target, options, admission.opener, around, observer)?;
    let (place, store, sink) = match opened {
        Opened::Ours(place, store, sink) => (place, store, sink),
        Opened::Done(summary) => return Ok(summary),
    };
    let rate = Rate::from_bits_per_s(feed.kbit_per_s.saturating_mul(1000));
    let (data, node) = ports(&feed, interface, rate, options.tree_port)?;
    let new_node = match known.take().filter(|known| known.feed == feed.tsi) {
        Some(known) => (known.id, known.authentication),
        None => super::new_node(feed.tsi, token, admission.secret.map(List::On))?,
    };
    let (id, authentication) = new_node.clone();
    *known = Some(KnownNode { feed: feed.tsi, id, authentication });
    let mut config = config(&feed, new_node, options.name.clone(), options.start)?;
    config.receipt = admission.secret.or(token).map(|secret| ReceiptKey::new(&secret));
    config.patience = options.patience;
    config.cost = options.cost.unwrap_or(Cost::Latency);
    config.node.address = node.address().context("a node has an address")?;
    config.check()?;
    // A manager repairs no faster than the source sends.
    let packet_len = usize::from(feed.symbol_len) + SmallBlockHeader::STAMPED_LEN;
    let about = About { feed, start: options.start, line: admission.line };
    let host = RecvHost::new(about, observer.clone(), store).with_silence(silence);
    let driver = wiring
        .driver(Receiver::new(config, super::draws()?, sink), host)
        .ports([data, node])
        .pace(RateClass::Data, rate, packet_len);
    let summary = driver.run()?.summary();
    place.finish(summary, options, observer)
}

/// Checks that the feed recovers losses as the user wants.
fn check_recovery(feed: &Feed, options: &RecvOptions) -> anyhow::Result<()> {
    if let Some(wanted) = options.recovery.filter(|&wanted| wanted != feed.recovery) {
        bail!(
            "`{}` is sent with --recovery {}, not {wanted}: leave --recovery out, which follows the \
             sender",
            feed.name,
            feed.recovery
        );
    }
    if options.cost.is_some() && feed.recovery != Recovery::Lms {
        bail!(
            "--cost is for feeds with --recovery lms, and `{}` is sent with --recovery {}",
            feed.name,
            feed.recovery
        );
    }
    Ok(())
}

/// Credentials of this receiver for a sealed feed.
#[derive(Default)]
struct Admission {
    opener: Option<Opener>,
    /// This receiver's line for the sender's list.
    line: Option<String>,
    /// Secret that it shares with the source.
    secret: Option<[u8; 32]>,
}

fn admission(feed: &Feed, key: Option<&Path>, name: Option<&str>) -> anyhow::Result<Admission> {
    let Some(sealed) = feed.sealed else { return Ok(Admission::default()) };
    let key = key.context("no home directory for this receiver's key: name a file with --key")?;
    let secret = load_or_create(key)?;
    let name = name.map_or_else(super::host_name, str::to_owned);
    let line = Some(format!("{name} {}", secret.public()));
    let source = PublicKey(sealed.key);
    let shared = secret.feed_secret(feed.tsi, &source);
    let shared = shared.with_context(|| format!("`{}` has a key that is nobody's", feed.name))?;
    let opener = Some(Opener::new(feed.tsi, secret, source));
    Ok(Admission { opener, line, secret: Some(shared) })
}

fn config(
    feed: &Feed,
    (id, authentication): (NodeId, Authentication),
    name: Option<String>,
    start: Start,
) -> anyhow::Result<ReceiverConfig> {
    // The port is known once the socket exists.
    let address = std::net::SocketAddr::new(feed.source.ip(), 1);
    let channels = (feed.data, feed.domain);
    let mut node = NodeConfig::new(id, feed.tsi, channels, address, authentication);
    node.name = name.unwrap_or_else(super::host_name);
    node.scope = feed.scope;
    node.recovery = feed.recovery;
    let mut config = ReceiverConfig::new(node, shape_of(feed)?);
    config.start = start;
    config.repair.hold_up = super::hold_up(feed);
    config.last_word = feed.last_word.map(|digest| digest.0);
    Ok(config)
}

/// Opens the receiver's ports: the data channel, and this node's port in the control tree.
fn ports(
    feed: &Feed,
    interface: &Interface,
    rate: Option<Rate>,
    tree_port: u16,
) -> anyhow::Result<(UdpPort, UdpPort)> {
    let family = super::family(&feed.data);
    let options =
        SenderOptions { hop_limit: feed.scope, port: tree_port, ..SenderOptions::new(family) };
    let node = UdpPort::node(feed.domain, interface, &options)?;
    let options = ReceiverOptions { rate, ..ReceiverOptions::default() };
    let data = UdpPort::receiver(family, feed.data.port, interface, &options)?;
    Ok((data, node))
}
