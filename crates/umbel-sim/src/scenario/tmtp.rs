//! Section `[tmtp]`.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use umbel_engine::Instant;
use umbel_engine::tmtp::{
    BlockCount, ReceiverConfig, RepairConfig, SourceConfig, TimingConfig, TreeConfig,
};
use umbel_engine::units::{ByteCount, Rate, counted};
use umbel_topology::Mistake;
use umbel_topology::values::{Time, Written};
use umbel_wire::SmallBlockHeader;
use umbel_wire::feed::Recovery;
use umbel_wire::tmtp::Role;

use super::pace::{PaceKeys, RateEntry};
use super::protocol::{Programs, Protocol, Section};
use super::report::{Clients, Measure, Results, Table, delay_table, links};
use super::settings::{AtLeast, Factor, OrFalse, Period, Portion, Settings, settings};
use super::transfer::Receivers;
use super::{Scenario, party, stream};
use crate::network::NodeId;
use crate::tmtp::{Feed, Receiver, ReceiverHost, Source, SourceHost};
use crate::{Simulation, lms};

/// File that a source sends to receivers in a tree of domain managers.
#[derive(Clone, Debug)]
pub struct Tmtp {
    source: NodeId,
    receivers: Vec<NodeId>,
    /// Blocks of the file, all of them at `start`.
    blocks: Vec<BlockCount>,
    packets: u32,
    start: Duration,
    /// Time after the start when the run ends, if the file is not delivered earlier.
    limit: Duration,
    /// Time from the start of a receiver to that of the next.
    join_every: Duration,
    feed: Feed,
    config: SourceConfig,
    patience: Option<Duration>,
    /// Rate of a receiver's repairs; `None` is no limit.
    repair_rate: Option<Rate>,
    /// Whether routers with LMS take a source that is attached to them for their replier.
    source_as_replier: bool,
}

settings! {
    /// Constants of the source.
    SourceKeys for SourceConfig {
        window: OrFalse<AtLeast<1, u32>> => window;
        history: AtLeast<1, u32> => history;
        fetch_share: Portion => fetch_share;
        heartbeat_min: Period => heartbeat_min;
        heartbeat_max: Period => heartbeat_max;
        scope: AtLeast<1, u8> => node.scope;
    }
}

settings! {
    /// Constants of the control tree.
    TreeKeys for TreeConfig {
        max_children: AtLeast<1, u16> => max_children;
        max_members: AtLeast<1, u16> => max_members;
        max_per_host: AtLeast<1, u16> => max_per_host;
        rings: Vec<u8> => rings;
        ring_wait: Period => ring_wait;
        subnet_tries: AtLeast<1, u8> => subnet_tries;
        subnet_wait: Period => subnet_wait;
        search_backoff: Period => search_backoff;
        search_backoff_max: Period => search_backoff_max;
        retry: Period => retry;
        tries: AtLeast<1, u8> => tries;
        parent_silence: AtLeast<1, u32> => parent_silence;
        parent_silence_min: Period => parent_silence_min;
        detached_patience: AtLeast<1, u32> => detached_patience;
        child_silence: AtLeast<1, u32> => child_silence;
        child_silence_min: Period => child_silence_min;
        bar: Period => bar;
        takeover: Period => takeover;
        hop_slack: AtLeast<0, u8> => hop_slack;
        answers_per_s: AtLeast<1, u32> => answers_per_s;
        answers_per_host: AtLeast<1, u32> => answers_per_host;
        leave_wait: Period => leave_wait;
        beacon_min: Period => beacon_min;
        beacon_max: Period => beacon_max;
        improve_every: OrFalse<Period> => improve_every;
        improve_max: Period => improve_max;
    }
}

settings! {
    /// Constants of T_ack and T_retrans.
    TimingKeys for TimingConfig {
        t_ack: Period => t_ack;
        intervals: AtLeast<2, u8> => intervals;
        adaptive: bool => adaptive;
        t_ack_min: Period => t_ack_min;
        t_ack_max: Period => t_ack_max;
        acks_per_s: AtLeast<1, u32> => acks_per_s;
    }
}

settings! {
    /// Constants of a parent's service to its children.
    RepairKeys for RepairConfig {
        buffer: Written<ByteCount> => buffer;
        nack_delay: Factor => nack_delay;
        nack_delay_min: Written<Time> => nack_delay_min;
        hold_down: Factor => hold_down;
        nack_tries: AtLeast<1, u8> => nack_tries;
        fetches: bool => fetches;
        hearsay: bool => hearsay;
        repair_queue: AtLeast<1, usize> => queue;
        evict_after: Period => evict_after;
    }
}

/// Keys that are more than a constant.
#[derive(Debug, Deserialize)]
struct OwnKeys {
    source: Option<Spanned<String>>,
    receivers: Option<Spanned<Vec<Spanned<String>>>>,
    rate: Written<RateEntry>,
    packets: AtLeast<1, u32>,
    packet_size: Option<AtLeast<1, u16>>,
    block: Option<AtLeast<1, u8>>,
    fec: Option<bool>,
    recovery: Option<RecoveryEntry>,
    repair_rate: Option<Written<Rate>>,
    source_as_replier: Option<bool>,
    start: Option<Period>,
    limit: Option<Period>,
    join_every: Option<Written<Time>>,
    patience: Option<Period>,
    paper: Option<bool>,
}

impl Settings for OwnKeys {
    const KEYS: &'static [&'static str] = &[
        "source",
        "receivers",
        "rate",
        "packets",
        "packet_size",
        "block",
        "fec",
        "recovery",
        "repair_rate",
        "source_as_replier",
        "start",
        "limit",
        "join_every",
        "patience",
        "paper",
    ];
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RecoveryEntry {
    Tree,
    Lms,
    Srm,
    Source,
}

impl RecoveryEntry {
    fn recovery(self) -> Recovery {
        match self {
            RecoveryEntry::Tree => Recovery::Tree,
            RecoveryEntry::Lms => Recovery::Lms,
            RecoveryEntry::Srm => Recovery::Srm,
            RecoveryEntry::Source => Recovery::Source,
        }
    }
}

const PACKET_LEN: u16 = 1000;
/// Longest packet that fits a datagram of 1,500 bytes.
const MOST_LEN: u16 = 1400;
const LIMIT: Duration = Duration::from_mins(10);
const START: Duration = Duration::from_mins(2);
const JOIN_EVERY: Duration = Duration::from_millis(100);
/// T_ack and n of the paper's tests.
const PAPER: (Duration, u8) = (Duration::from_millis(1_100), 3);

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>) -> Result<Arc<dyn Protocol>, Mistake> {
    let own: OwnKeys = section.take()?;
    let (source, receivers) = party::read(section, own.source.as_ref(), own.receivers.as_ref())?;
    let symbol_len = own.packet_size.map_or(PACKET_LEN, |len| len.0);
    if symbol_len > MOST_LEN {
        let message = format!("packet_size = {symbol_len}: at most {MOST_LEN} bytes fit");
        return Err(section.text.mistake(section.span(), message));
    }
    let block = own.block.map_or(1, |block| block.0);
    let feed = Feed {
        source,
        symbol_len,
        block_symbols: block,
        fec: own.fec.unwrap_or(false),
        recovery: own.recovery.map_or(Recovery::Tree, RecoveryEntry::recovery),
        seed: 0,
    };
    let packet_len = u32::from(symbol_len) + SmallBlockHeader::STAMPED_LEN as u32;
    let pace = section.take::<PaceKeys>()?.pace(own.rate.0, packet_len);
    let pace = pace.map_err(|message| section.text.mistake(section.span(), message))?;
    let mut config = feed.source_config(pace.rate);
    config.congestion = pace.congestion;
    if own.paper == Some(true) {
        config = config.fixed(PAPER.0, PAPER.1, None);
        config.repair = RepairConfig::paper();
    }
    section.take::<SourceKeys>()?.apply(&mut config);
    section.take::<TreeKeys>()?.apply(&mut config.tree);
    section.take::<TimingKeys>()?.apply(&mut config.timing);
    section.take::<RepairKeys>()?.apply(&mut config.repair);
    section.finish()?;
    let packets = own.packets.0;
    let (whole, rest) = (packets / u32::from(block), packets % u32::from(block));
    let runs = [(whole, block), (u32::from(rest > 0), rest as u8)];
    let blocks = runs.into_iter().filter(|(count, _)| *count > 0);
    let tmtp = Tmtp {
        source,
        receivers,
        blocks: blocks.map(|(count, symbols)| BlockCount { count, symbols }).collect(),
        packets,
        start: own.start.map_or(START, |start| start.0),
        limit: own.limit.map_or(LIMIT, |limit| limit.0),
        join_every: own.join_every.map_or(JOIN_EVERY, |every| every.0.0),
        feed,
        config,
        patience: own.patience.map(|patience| patience.0),
        repair_rate: own.repair_rate.map(|rate| rate.0),
        source_as_replier: own.source_as_replier.unwrap_or(true),
    };
    let wrong = |error: &dyn std::fmt::Display| {
        section.text.mistake(section.span(), format!("[tmtp]: {error}"))
    };
    tmtp.config.check().map_err(|error| wrong(&error))?;
    tmtp.receiver_config(&tmtp.feed, source).check().map_err(|error| wrong(&error))?;
    Ok(Arc::new(tmtp))
}

impl Tmtp {
    fn receiver_config(&self, feed: &Feed, node: NodeId) -> ReceiverConfig {
        let mut config = feed.receiver_config(node);
        (config.tree, config.timing) = (self.config.tree.clone(), self.config.timing);
        (config.repair, config.node.scope) = (self.config.repair, self.config.node.scope);
        config.patience = self.patience.unwrap_or(config.patience);
        config
    }
}

impl Protocol for Tmtp {
    fn extent(&self) -> Vec<(&'static str, usize)> {
        vec![("packets", self.packets as usize), ("receivers", self.receivers.len())]
    }

    fn ends(&self) -> Option<Duration> {
        Some(self.start + self.limit)
    }

    fn install(
        &self,
        scenario: &Scenario,
        simulation: &mut Simulation,
        seed: u64,
    ) -> Result<Box<dyn Programs>, Mistake> {
        let feed = Feed { seed, ..self.feed };
        let start = Instant::EPOCH + self.start;
        let plan = self.blocks.iter().map(|blocks| (start, *blocks));
        let host = Source::host(&feed, self.config.clone(), plan);
        simulation.set_app(self.source, host, Instant::EPOCH)?;
        for (number, &node) in (0..).zip(&self.receivers) {
            let mut receiver = Receiver::default();
            if let Some(rate) = self.repair_rate {
                receiver.repair_at(rate);
            }
            if self.config.congestion.is_some() {
                receiver.follow_source();
            }
            let host = receiver.host(&feed, self.receiver_config(&feed, node));
            let at = Instant::EPOCH + self.join_every * number;
            simulation.set_app(node, host, at)?;
        }
        if feed.recovery == Recovery::Lms {
            for node in stream::routers(scenario, 1.0, seed) {
                let hook = lms::router(node, seed, |config| {
                    config.source_as_replier = self.source_as_replier;
                });
                simulation.set_router_hook(node, hook)?;
            }
        }
        let completed = |host: &ReceiverHost| host.host().completed();
        let receivers = Receivers::new(self.receivers.clone(), start, completed);
        Ok(Box::new(Running { source: self.source, packets: self.packets, receivers }))
    }
}

/// A transfer that runs.
#[derive(Debug)]
struct Running {
    source: NodeId,
    /// Packets of the file.
    packets: u32,
    receivers: Receivers<ReceiverHost>,
}

impl Programs for Running {
    fn progress(&self, simulation: &Simulation) -> (usize, usize) {
        self.receivers.progress(simulation)
    }

    fn can_be_done(&self) -> bool {
        true
    }

    fn is_done(&self, simulation: &Simulation) -> bool {
        let source = simulation.app::<SourceHost>(self.source);
        let is_acknowledged = source.is_some_and(|source| source.host().completed().is_some());
        let (done, all) = self.receivers.progress(simulation);
        is_acknowledged && done == all
    }

    fn results(&self, simulation: &Simulation) -> Results {
        let clients = Clients::new("all", &self.receivers.delays(simulation));
        let source = simulation.app::<SourceHost>(self.source);
        let source = source.map(|host| host.engine().stats()).unwrap_or_default();
        let is_manager = |host: &&ReceiverHost| host.engine().tree().role == Role::Manager;
        let managers: Vec<_> = self.receivers.hosts(simulation).filter(is_manager).collect();
        let events: Vec<f64> =
            managers.iter().map(|host| host.engine().stats().load.total() as f64).collect();
        let sum = |value| self.receivers.sum(simulation, value);
        let depth = |host: &ReceiverHost| host.engine().tree().path.len().saturating_sub(1);
        let depth = self.receivers.hosts(simulation).map(depth).max();
        let sent =
            source.data_sent + source.repairs_sent + source.dmcasts_sent + source.fetched_sent;
        let mut measures = clients.measures();
        measures.insert(1, Measure::new("sent_per_needed", sent as f64 / f64::from(self.packets)));
        measures.extend([
            Measure::new("source_events", source.load.total() as f64),
            Measure::new("manager_events", events.iter().sum::<f64>() / events.len() as f64),
            Measure::new("manager_events_max", events.iter().copied().reduce(f64::max)),
            Measure::new("managers", managers.len() as f64),
            Measure::new("depth", depth.unwrap_or(0) as f64),
            Measure::new("source_repairs", (source.repairs_sent + source.dmcasts_sent) as f64),
            Measure::new("other_repairs", sum(|host| host.engine().stats().repairs_sent)),
            Measure::new("lost", sum(|host| host.engine().stats().data_lost)),
            Measure::new("repaired", sum(|host| host.engine().stats().repairs_received)),
            Measure::new("duplicates", sum(|host| host.engine().stats().repairs_unneeded)),
            Measure::new("fetched", sum(|host| host.engine().stats().fetched_received)),
            Measure::new("nacks", sum(|host| host.engine().stats().nacks_sent)),
            Measure::new("acks", sum(|host| host.engine().stats().acks_sent)),
            Measure::new("evicted", source.evicted as f64),
            Measure::new("wrong", sum(|host| u64::from(host.host().gone()))),
        ]);
        let text = format!(
            "{}source     {} to process, {}; {}, {} events each on average\n",
            delay_table("receivers", std::iter::once(&clients)),
            counted(source.load.total(), "event"),
            counted(source.repairs_sent + source.dmcasts_sent, "repair"),
            counted(managers.len(), "manager"),
            (events.iter().sum::<f64>() / events.len().max(1) as f64).round(),
        );
        let tables = vec![self.receivers_table(simulation), links(simulation)];
        Results::of_transfer(clients, measures, tables, text)
    }
}

impl Running {
    fn receivers_table(&self, simulation: &Simulation) -> Table {
        let network = simulation.network();
        let count = |value| self.receivers.counts(simulation, value);
        let role = |host: &ReceiverHost| match host.engine().tree().role {
            Role::Member => "member".to_owned(),
            Role::Manager => "manager".to_owned(),
            Role::Source => "source".to_owned(),
        };
        let parent = |host: &ReceiverHost| {
            let parent = host.engine().tree().parent;
            let node = parent.and_then(|(_, address, _)| crate::node_of(address.ip()));
            node.map(|node| network.name(node).to_owned()).unwrap_or_default()
        };
        let mut columns = self.receivers.names_and_delays(simulation);
        columns.extend([
            ("role", self.receivers.texts(simulation, role)),
            ("parent", self.receivers.texts(simulation, parent)),
            ("depth", count(|host| host.engine().tree().path.len().saturating_sub(1) as u64)),
            ("events", count(|host| host.engine().stats().load.total())),
            ("lost", count(|host| host.engine().stats().data_lost)),
            ("repaired", count(|host| host.engine().stats().repairs_received)),
            ("duplicates", count(|host| host.engine().stats().repairs_unneeded)),
            ("fetched", count(|host| host.engine().stats().fetched_received)),
            ("requests", count(|host| host.engine().stats().requests_sent)),
            ("nacks", count(|host| host.engine().stats().nacks_sent)),
            ("repairs", count(|host| host.engine().stats().repairs_sent)),
        ]);
        Table::new("receivers", columns)
    }
}
