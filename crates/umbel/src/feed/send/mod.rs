//! The source of a feed.
//!
//! ```text
//!            enough receivers,              acknowledged               time to linger
//! Waiting ── or the time is up ──▶ Sending ── and reported ──▶ Complete ── is over ──▶ Closing ─▶ end
//!    │                                │ interrupted                              ▲
//!    └────────────────────────────────┴──────────────────────────────────────────┘
//! ```
//!
//! The manifest is sent while the source waits, so that receivers can look at their disks. While
//! all receivers that came have all files, the source sends nothing. It is complete when no other
//! receiver has come for 3 s.

mod content;
pub(crate) mod host;
mod version;

use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use umbel_engine::RateClass;
use umbel_engine::tmtp::{Authentication, FetchCredit, NodeConfig, Source, SourceConfig};
use umbel_engine::units::Rate;
use umbel_net::interface::{Family, Interface};
use umbel_net::port::{OpenError, UdpPort};
use umbel_net::session::{Identity, Pin};
use umbel_net::udp::{OpenSenderError, SenderOptions};
use umbel_store::Patterns;
use umbel_store::Skipped;
use umbel_store::feed::{BlockShape, PipeId};
use umbel_store::sink::RelativePath;
use umbel_wire::feed::{Feed, Recovery, Sealed};
use umbel_wire::session::SessionName;
use umbel_wire::small_block::SmallBlockHeader;
use umbel_wire::{Channel, Digest, Tsi, lms};

use self::content::{Cut, Opened};
use self::host::{Expected, Input, SendHost, Terms};
use super::admission::{AdmitList, Receipts, Sealing};
use super::shape_of;
use crate::directory::{self, Announcer};
use crate::endpoint::interface::AddressWatch;
use crate::endpoint::pace::{LimitReport, PaceOptions};
use crate::endpoint::ports::DATA_PORT;
pub use crate::endpoint::{Failure, Interrupt};
use crate::endpoint::{Interrupted, Wiring, channel, interface, packet_len, random};
pub(crate) use version::FILE_NAME as SENT_VERSION;

/// Content to send.
#[derive(Debug)]
pub enum What {
    /// Files and directories.
    Paths(Vec<PathBuf>),
    /// Input that is read until its end.
    Pipe(File),
}

/// Condition on which sending begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// When this number of receivers has joined.
    Receivers(u32),
    /// After this time.
    Time(Duration),
    /// When this number of receivers has joined, or after this time.
    Either(u32, Duration),
}

impl WaitFor {
    /// Returns the number of receivers that are waited for, if any.
    pub(crate) fn receivers(self) -> Option<u32> {
        match self {
            WaitFor::Receivers(count) | WaitFor::Either(count, _) => Some(count),
            WaitFor::Time(_) => None,
        }
    }

    /// Returns the longest time to wait, if there is one.
    pub(crate) fn longest(self) -> Option<Duration> {
        match self {
            WaitFor::Time(time) | WaitFor::Either(_, time) => Some(time),
            WaitFor::Receivers(_) => None,
        }
    }
}

/// What a caller can do while a feed is sent.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Ends the feed before its time.
    pub interrupt: Interrupt,
    /// Begins at once, whoever is waited for.
    pub begin: Interrupt,
}

/// Content of a feed, and how to send it.
#[derive(Debug)]
pub struct SendOptions {
    /// Content to send.
    pub what: What,
    /// Name of the feed.
    pub name: SessionName,
    /// Name or address of the interface. Default: that of the default route.
    pub interface: Option<String>,
    /// UDP port of the source in the feed's tree; 0 takes any. Default 0.
    pub tree_port: u16,
    /// The family. Default: IPv4 where the interface has an IPv4 address.
    pub family: Option<Family>,
    /// The group of the data channel. Default: a source-specific one.
    pub group: Option<IpAddr>,
    /// The rate of the data channel.
    pub pace: PaceOptions,
    /// K: most domain managers that are children of one node; at least 1.
    pub max_children: u16,
    /// Condition on which sending begins.
    pub wait_for: WaitFor,
    /// Most hops of any packet; at least 1.
    pub scope: u8,
    /// Token that receivers must know to be admitted.
    pub token: Option<String>,
    /// Receivers that should have the feed at the end. With keys, they alone can read it, and take
    /// part.
    pub admit: AdmitList,
    /// MTU of the path in bytes; data packets carry 100 bytes less. Default: what the interface
    /// carries, at most 1,500.
    pub mtu: Option<u16>,
    /// Most source symbols of a block; 1 to 255.
    pub block_symbols: u8,
    /// Whether repairs are fresh symbols instead of the packets that were lost.
    pub fec: bool,
    /// Recovery of losses.
    pub recovery: Recovery,
    /// Time for which the source serves late receivers when all others have everything.
    pub linger: Duration,
    /// Directory of the key that signs the feed. Default: the user's state directory.
    pub state_dir: Option<PathBuf>,
    /// Whether hidden files at the top are sent. Default: no.
    pub hidden: bool,
    /// Whether symbolic links are sent as the files that they lead to. Default: no, as links.
    pub follow_links: bool,
    /// Files of directories that are left out, beside those that `.umbelignore` says. Default:
    /// none.
    pub patterns: Patterns,
}

impl SendOptions {
    /// Creates options with the defaults.
    pub fn new(what: What, name: SessionName) -> SendOptions {
        SendOptions {
            what,
            name,
            interface: None,
            tree_port: 0,
            family: None,
            group: None,
            pace: PaceOptions::default(),
            max_children: 8,
            wait_for: WaitFor::Receivers(1),
            scope: 32,
            token: None,
            admit: AdmitList::default(),
            mtu: None,
            block_symbols: 64,
            fec: true,
            recovery: Recovery::Tree,
            linger: Duration::ZERO,
            state_dir: None,
            hidden: false,
            follow_links: false,
            patterns: Patterns::default(),
        }
    }
}

/// A feed that has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The feed as it is announced.
    pub feed: Feed,
    /// Fingerprint of the key that signs it.
    pub pin: Pin,
    /// Name of the interface.
    pub interface: String,
    /// Most bits of UDP payload per second.
    pub rate: Rate,
    /// Files that are left out.
    pub skipped: Skipped,
}

/// Progress of a source.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SendSnapshot {
    /// `waiting`, `sending`, `complete` or `closing`.
    pub stage: &'static str,
    /// Bytes held by all receivers that the source waits for, approximately.
    pub bytes_done: u64,
    /// Bytes known so far.
    pub bytes: u64,
    /// Number of receivers in the tree.
    pub receivers: u32,
    /// Number of receivers that are waited for, while the source waits for some.
    pub waits_for: Option<u32>,
    /// The first ten names on the list of receivers that have not come, while the source waits.
    pub missing: Vec<String>,
    /// Seconds until it begins, while it waits no longer than that.
    pub begins_in_s: Option<f64>,
    /// Number of receivers that get it by unicast, as multicast does not reach them.
    pub by_unicast: u32,
    /// Number of receivers that have everything.
    pub done: u32,
    /// Number of receivers that gave up.
    pub failed: u32,
    /// Current rate in bits per second.
    pub rate_bits_per_s: u64,
    /// What limits it.
    pub limit: Option<LimitReport>,
    /// Number of times that the slowest receivers made the source wait.
    pub stalls: u64,
    /// Reason why packets cannot leave, if they cannot.
    pub trouble: Option<String>,
}

/// A receiver and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceiverLine {
    /// Name by which the receiver reports.
    pub name: String,
    /// Number of the receiver's node.
    pub node: String,
    /// `receiving`; at the end `done`, `failed`, `left` or `vanished` (without a word). `missing`
    /// is an expected receiver that never came. The name of one that is `not admitted` is not on a
    /// list with keys.
    pub state: &'static str,
    /// Reason why the receiver gave up.
    pub reason: Option<String>,
    /// Whether it gets the feed by unicast, or did at the end, as multicast does not reach it.
    pub by_unicast: bool,
}

/// Result of sending a feed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SendSummary {
    /// Number of files; 0 for a pipe.
    pub items: u64,
    /// Bytes of the content.
    pub bytes: u64,
    /// Those of them that all receivers acknowledged, approximately.
    pub acknowledged_bytes: u64,
    /// Seconds from the first packet of the content to the last acknowledgement; 0 if none was
    /// sent.
    pub seconds: f64,
    /// Number of receivers that have everything.
    pub done: u32,
    /// Number of other receivers that joined and were admitted, or were expected.
    pub without: u32,
    /// All receivers that joined or were expected.
    pub receivers: Vec<ReceiverLine>,
    /// Data packets sent for the first time.
    pub packets: u64,
    /// Repairs and retransmissions sent by the source itself.
    pub repairs: u64,
    /// Those of them that were sent to the subtrees that routers named.
    pub dmcasts: u64,
    /// Packets sent to receivers that came late, lost their parents, or are not reached by multicast.
    pub fetched: u64,
    /// Number of children that the source gave up waiting for.
    pub evicted: u64,
    /// Number of ACKs, NACKs, timers and retransmissions that the source handled.
    pub load: u64,
    /// Input discarded, by reason.
    pub drops: String,
    /// Number of files that were left out, though their content should be included.
    pub left_out: u64,
    /// The first files that were left out.
    pub failures: Vec<Failure>,
    /// Reason why the feed is incomplete, if it is.
    pub failure: Option<String>,
    /// Whether the user interrupted it.
    pub interrupted: bool,
}

/// Receives news of the feed. It is called on the engine's thread and must not block.
pub trait SendObserver: Send + Sync {
    /// Reports that `_done` of `_total` bytes of the files were hashed.
    fn hashing(&self, _done: u64, _total: u64) {}

    /// Called when the feed is on the air.
    fn begun(&self, _begun: &Begun) {}

    /// Reports progress, about ten times a second.
    fn progress(&self, _snapshot: &SendSnapshot) {}

    /// News of a receiver.
    fn receiver(&self, _receiver: &ReceiverLine) {}

    /// Reports a line that the user should know.
    fn note(&self, _line: &str) {}
}

/// Sends a feed. Returns when every receiver is done or gave up.
///
/// # Errors
///
/// One line that says why nothing can be sent, and what to do.
pub fn send(
    options: SendOptions,
    observer: Arc<dyn SendObserver>,
    started: impl FnOnce(Handle),
) -> anyhow::Result<SendSummary> {
    let (name, scope) = (options.name.clone(), options.scope);
    // Receivers make a directory of this name where they are not told of another.
    if let Err(error) = RelativePath::of_item(name.as_str()) {
        bail!(
            "--name `{name}` cannot be that of a directory, as receivers make it: {}",
            error.brief()
        );
    }
    if options.max_children == 0 {
        bail!("--k 0: then nobody could ever join; it is at least 1");
    }
    if scope == 0 {
        bail!("--scope 0 reaches nobody; it is at least 1");
    }
    if options.block_symbols == 0 {
        bail!("--block 0: a block has 1 to 255 symbols");
    }
    let wiring = Wiring::new()?;
    let stop = Interrupted::default();
    let interrupt = stop.with(wiring.interrupt(|| Input::Interrupt));
    started(Handle { interrupt, begin: wiring.interrupt(|| Input::Begin) });

    let state_dir = options.state_dir.map_or_else(crate::state::default_dir, Ok)?;
    let signer = Identity::load_or_create(&state_dir)?.signer()?;
    let (wanted, note) = (options.interface.as_deref(), |line: &str| observer.note(line));
    let Some(interface) = interface::wait(wanted, options.family, note, |time| stop.pause(time))?
    else {
        return Ok(SendSummary { interrupted: true, ..SendSummary::default() });
    };
    if let Some(line) = interface::others(&interface, wanted) {
        observer.note(&line);
    }
    let family = channel::choose_family(&interface, options.family, options.group)?;
    let address = interface.address(family)?;
    let tsi = Tsi(u32::from_be_bytes(random()?));
    let version = version::next(&state_dir, directory::version_now())?;
    let last_word: [u8; 32] = random()?;
    let (mut data, domain) = super::channels(tsi, address, options.group)?;
    let rate = options.pace.rate.unwrap_or_else(|| channel::most_rate(&interface));
    let most_len = packet_len(options.mtu, &interface, family)?;
    let packet_len = usize::from(most_len);
    let symbol_len = symbol_len(packet_len, options.recovery);
    let AdmitList { names, keys, owners } = options.admit;
    if !names.is_empty() && keys.is_empty() && options.token.is_none() {
        bail!(
            "anyone could report by a name that has no key: put the keys on the list that `umbel \
             key` prints there, or take --token {}",
            super::new_token()?
        );
    }
    let admission = super::admission(options.token.as_deref(), tsi)?;
    let sealing = if keys.is_empty() { None } else { Some(Sealing::new(tsi, keys)?) };
    let (block_symbols, sealed) = (options.block_symbols, sealing.is_some());
    let shape = BlockShape { symbol_len, block_symbols, sealed };
    let receipts = match (&sealing, &admission) {
        (Some(sealing), _) => Receipts::of_keys(tsi, sealing, &owners),
        (None, Some(admission)) => Receipts::of_token(tsi, admission),
        (None, None) => Receipts::None,
    };
    let SendOptions { hidden, follow_links, ref patterns, .. } = options;
    let cut = Cut { hidden, follow_links, patterns: patterns.clone(), shape, sealing };

    let commands = wiring.mailbox().map(Input::Command);
    let Opened { symbols, plan, skipped } = Opened::open(
        options.what,
        (PipeId { feed: tsi, version }, &signer),
        &cut,
        &commands,
        &*observer,
        stop.flag(),
    )?;
    let sender = SenderOptions {
        source: Some(address),
        hop_limit: scope,
        rate: Some(rate),
        ..SenderOptions::new(family)
    };
    let at_port = SenderOptions { port: options.tree_port, ..sender.clone() };
    let node = node(options.recovery, domain, &interface, &at_port)?;
    let source = node.address().context("a node has an address")?;
    if options.recovery == Recovery::Lms {
        // Routers send requests on to this port of the source.
        data.port = source.port();
    }
    let data_port = UdpPort::source(data, &interface, &sender)?;
    let list = cut.sealing.as_ref().map(Sealing::list).transpose()?;
    let (id, authentication) = super::new_node(tsi, admission, list)?;
    let feed = Feed {
        name,
        tsi,
        source,
        node: id,
        data,
        domain,
        scope,
        symbol_len,
        block_symbols: options.block_symbols.into(),
        fec: options.fec,
        recovery: options.recovery,
        kbit_per_s: rate.bits_per_s().div_ceil(1000),
        content: plan.describe(),
        token: options.token.is_some(),
        sealed: cut.sealing.as_ref().zip(plan.head()).map(|(sealing, head)| Sealed {
            key: sealing.public(),
            head_len: head.0,
            head_digest: head.1,
        }),
        last_word: (!sealed).then(|| Digest(*blake3::hash(&last_word).as_bytes())),
        version,
    };
    let mut config = config(&feed, authentication, options.max_children, rate)?;
    let pace = plan.pace(options.pace);
    config.congestion = Some(pace.congestion(rate, most_len)?);
    config.history = plan.history();
    config.last_word = Some(last_word);
    config.check()?;
    let announcer = Announcer::start(&feed.clone().into(), &signer, &interface)?;
    let (left_out, failures) = (skipped.failures(), failures(&skipped));
    let pin = signer.pin();
    let watched = AddressWatch::start(address, interface.name.clone(), {
        let observer = observer.clone();
        move |line| observer.note(line)
    });
    let watched = watched.context("cannot start")?;
    observer.begun(&Begun { feed, pin, interface: interface.name, rate, skipped });
    let terms = Terms {
        wait_for: options.wait_for,
        linger: options.linger,
        expected: Expected { names, alone: sealed, receipts },
    };
    let host = SendHost::new(plan, observer, terms, rate);
    let driver = wiring
        .driver(Source::new(config, super::draws()?, symbols), host)
        .ports([data_port, node])
        .pace(RateClass::Data, Some(rate), packet_len);
    let host = driver.run()?;
    drop((announcer, watched));
    Ok(SendSummary { left_out, failures, ..host.summary() })
}

/// Returns the length of symbols that fit packets of this length, and whatever carries them.
fn symbol_len(packet_len: usize, recovery: Recovery) -> u16 {
    // Packets on the data channel have a stamp, those that routers carry have none.
    let head = match recovery {
        Recovery::Lms => SmallBlockHeader::LEN + lms::limits::AROUND_PACKET,
        Recovery::Tree | Recovery::Srm | Recovery::Source => 0,
    };
    let head = head.max(SmallBlockHeader::STAMPED_LEN);
    packet_len.saturating_sub(head).max(8) as u16 & !7
}

/// Opens the port at which the source hears unicast and the domain group.
fn node(
    recovery: Recovery,
    domain: Channel,
    interface: &Interface,
    sender: &SenderOptions,
) -> anyhow::Result<UdpPort> {
    let any = SenderOptions { rate: None, ..sender.clone() };
    if recovery != Recovery::Lms || sender.port != 0 {
        return Ok(UdpPort::node(domain, interface, &any)?);
    }
    // The port of data channels, unless another feed has it.
    let any = SenderOptions { shared: true, ..any };
    let usual = SenderOptions { port: DATA_PORT, ..any.clone() };
    match UdpPort::node(domain, interface, &usual) {
        Err(OpenError::Sender(OpenSenderError::PortTaken(_))) => {
            Ok(UdpPort::node(domain, interface, &any)?)
        }
        opened => Ok(opened?),
    }
}

/// Returns the files that were left out, though their content should be included.
fn failures(skipped: &Skipped) -> Vec<Failure> {
    let failed = skipped.named().iter().filter(|item| item.reason.is_failure());
    failed
        .map(|item| Failure { name: item.name.clone(), reason: item.reason.to_string() })
        .collect()
}

fn config(
    feed: &Feed,
    authentication: Authentication,
    max_children: u16,
    rate: Rate,
) -> anyhow::Result<SourceConfig> {
    let Feed { tsi, data, domain, source, node: id, .. } = *feed;
    let mut node = NodeConfig::new(id, tsi, (data, domain), source, authentication);
    node.name = super::host_name();
    node.scope = feed.scope;
    node.recovery = feed.recovery;
    let mut config = SourceConfig::new(node, shape_of(feed)?, rate);
    config.tree.max_children = max_children;
    config.repair.hold_up = super::hold_up(feed);
    config.fetch_credit = feed.is_open().then(FetchCredit::default);
    Ok(config)
}
