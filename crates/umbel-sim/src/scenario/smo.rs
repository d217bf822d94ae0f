//! Section `[smo]`.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use umbel_engine::Instant;
use umbel_engine::smo::receiver::ReceiverConfig;
use umbel_engine::smo::{Congestion, Fairness, SourceConfig};
use umbel_engine::units::{ByteCount, counted};
use umbel_topology::Mistake;
use umbel_topology::values::{Time, Written};

use super::protocol::{Programs, Protocol, Section};
use super::report::{Clients, Column, Measure, Results, Table, delay_table, links};
use super::settings::{AtLeast, OrFalse, Period, Portion, Settings, Span, settings};
use super::{Scenario, party};
use crate::Simulation;
use crate::network::NodeId;
use crate::smo::{Behaviour, Crowd, Feed, Member, Session, SourceHost};

/// Stream by TCP-SMO: a source, and TCP receivers with a helper.
#[derive(Clone, Debug)]
pub struct Smo {
    source: NodeId,
    hosts: Vec<NodeId>,
    /// Receivers on each host.
    per_host: u16,
    load: Load,
    /// Time from the connection of a receiver on a host to that of the next.
    connect_every: Duration,
    limit: Duration,
    config: SourceConfig,
    receiver: ReceiverConfig,
}

/// Load that the source sends.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// This number of bytes, as fast as windows permit.
    Bulk(u64),
    /// This number of frames of a segment, one at each interval.
    Frames(u64, Duration),
}

settings! {
    /// Constants of the source.
    SourceKeys for SourceConfig {
        buffer: Written<ByteCount> => buffer;
        initial_window: AtLeast<1, u32> => initial_window;
        threshold: Portion => threshold;
        gather: Span => gather;
        real_time: OrFalse<Period> => real_time;
        initial_rto: Period => initial_rto;
        rto: Span => rto;
        removal_stall: Period => removal.stall;
        removal_closed_window: Period => removal.closed_window;
        keep_alive: Period => keep_alive;
    }
}

settings! {
    /// Constants of receivers.
    ReceiverKeys for ReceiverConfig {
        sack: bool => sack;
        dsack: bool => dsack;
        buffer: AtLeast<1, u32> => buffer;
        window_scale: OrFalse<AtLeast<0, u8>> => window_scale;
        ack_every: AtLeast<1, u8> => ack_every;
        ack_delay: Written<Time> => ack_delay;
        real_time: OrFalse<Period> => real_time;
        initial_rto: Period => initial_rto;
        rto: Span => rto;
    }
}

/// Keys that are more than a constant.
#[derive(Debug, Deserialize)]
struct OwnKeys {
    source: Option<Spanned<String>>,
    receivers: Option<Spanned<Vec<Spanned<String>>>>,
    per_host: Option<Spanned<AtLeast<1, u16>>>,
    size: Option<Spanned<Written<ByteCount>>>,
    frames: Option<AtLeast<1, u32>>,
    interval: Option<Period>,
    mss: Option<Spanned<AtLeast<64, u16>>>,
    fairness: Option<FairnessEntry>,
    fairness_bounds: Option<Spanned<[f64; 2]>>,
    congestion: Option<CongestionEntry>,
    connect_every: Option<Written<Time>>,
    limit: Option<Period>,
}

impl Settings for OwnKeys {
    const KEYS: &'static [&'static str] = &[
        "source",
        "receivers",
        "per_host",
        "size",
        "frames",
        "interval",
        "mss",
        "fairness",
        "fairness_bounds",
        "congestion",
        "connect_every",
        "limit",
    ];
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FairnessEntry {
    Strict,
    Essential,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CongestionEntry {
    Reno,
    Cubic,
}

/// Most receivers on a host: as many as it has ports for.
const MOST_PER_HOST: u16 = 55_000;
/// Longest segment in a packet of 1,500 bytes.
const MOST_MSS: u16 = 1460;
/// Longest stream: positions have 32 bits.
const MOST_BYTES: u64 = 3 << 30;
const INTERVAL: Duration = Duration::from_millis(10);
const CONNECT_EVERY: Duration = Duration::from_micros(20);
const LIMIT: Duration = Duration::from_mins(5);
/// Bounds of essential fairness, if they are not written.
const BOUNDS: [f64; 2] = [1.0, 2.0];

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>) -> Result<Arc<dyn Protocol>, Mistake> {
    let own: OwnKeys = section.take()?;
    let (source, hosts) = party::read(section, own.source.as_ref(), own.receivers.as_ref())?;
    let text = section.text;
    let session = Session::new(source);
    let (mut config, mut receiver) = (session.source_config(), session.receiver_config());
    if let Some(mss) = &own.mss {
        let AtLeast(len) = *mss.get_ref();
        if len > MOST_MSS {
            return Err(text.mistake(mss.span(), format!("mss = {len}: at most {MOST_MSS} fit")));
        }
        (config.mss, receiver.mss) = (len, len);
    }
    let per_host = own.per_host.as_ref().map_or(1, |count| count.get_ref().0);
    if let Some(count) = own.per_host.as_ref().filter(|_| per_host > MOST_PER_HOST) {
        let message = format!("per_host = {per_host}: at most {MOST_PER_HOST} fit");
        return Err(text.mistake(count.span(), message));
    }
    config.congestion = match own.congestion {
        Some(CongestionEntry::Cubic) => Congestion::Cubic,
        Some(CongestionEntry::Reno) | None => Congestion::Reno,
    };
    let bounds = own.fairness_bounds.as_ref();
    if let Some(FairnessEntry::Essential) = own.fairness {
        let [a, b] = bounds.map_or(BOUNDS, |bounds| *bounds.get_ref());
        if !(0.0 < a && a <= b && b <= 1e6) {
            let span = bounds.map_or(section.span(), Spanned::span);
            let message = "fairness_bounds: expected two numbers above 0, the lower one first";
            return Err(text.mistake(span, message));
        }
        config.fairness = Fairness::Essential { a, b };
    } else if let Some(bounds) = bounds {
        let message = "fairness_bounds belong to fairness = \"essential\"";
        return Err(text.mistake(bounds.span(), message));
    }
    let load = match (&own.size, own.frames) {
        (Some(size), None) => match size.get_ref().0.0 {
            bytes @ 1..=MOST_BYTES => Load::Bulk(bytes),
            bytes => {
                let message = format!("size = {}: expected up to 3 GiB", ByteCount(bytes));
                return Err(text.mistake(size.span(), message));
            }
        },
        (None, Some(frames)) => {
            let interval = own.interval.map_or(INTERVAL, |interval| interval.0);
            Load::Frames(frames.0.into(), interval)
        }
        (Some(size), Some(_)) => {
            let message = "size and frames both say how much is sent";
            return Err(text.mistake(size.span(), message));
        }
        (None, None) => {
            let message = "expected `size`, the bytes to send, or `frames`";
            return Err(text.mistake(section.span(), message));
        }
    };
    section.take::<SourceKeys>()?.apply(&mut config);
    let mut part = section.part("receiver")?;
    part.take::<ReceiverKeys>()?.apply(&mut receiver);
    part.finish()?;
    section.finish()?;
    Ok(Arc::new(Smo {
        source,
        hosts,
        per_host,
        load,
        connect_every: own.connect_every.map_or(CONNECT_EVERY, |every| every.0.0),
        limit: own.limit.map_or(LIMIT, |limit| limit.0),
        config,
        receiver,
    }))
}

impl Smo {
    fn receivers(&self) -> usize {
        self.hosts.len() * usize::from(self.per_host)
    }
}

impl Protocol for Smo {
    fn extent(&self) -> Vec<(&'static str, usize)> {
        vec![("hosts", self.hosts.len()), ("receivers", self.receivers())]
    }

    fn ends(&self) -> Option<Duration> {
        Some(self.limit)
    }

    fn install(
        &self,
        _scenario: &Scenario,
        simulation: &mut Simulation,
        seed: u64,
    ) -> Result<Box<dyn Programs>, Mistake> {
        let session = Session::new(self.source);
        let feed = match self.load {
            Load::Bulk(bytes) => Feed::bulk(bytes),
            Load::Frames(count, interval) => Feed::frames(count, self.config.mss.into(), interval),
        };
        let feed = feed.wait_for(self.receivers());
        let host = session.source_host(self.config.clone(), feed, seed);
        simulation.set_app(self.source, host, Instant::EPOCH)?;
        for &node in &self.hosts {
            let seed = seed << 20 | u64::from(node.0);
            let connects = |number: usize| self.connect_every * number as u32;
            let crowd = Crowd::new(&session, self.receiver.clone(), self.per_host, seed)
                .behave(|number| Behaviour { connects: connects(number), ..Behaviour::default() });
            simulation.set_app(node, crowd, Instant::EPOCH)?;
        }
        let (source, hosts) = (self.source, self.hosts.clone());
        Ok(Box::new(Running { source, hosts, mss: self.config.mss }))
    }
}

/// A stream that runs.
#[derive(Debug)]
struct Running {
    source: NodeId,
    hosts: Vec<NodeId>,
    mss: u16,
}

impl Running {
    /// Returns the receivers with their hosts.
    fn members<'s>(
        &self,
        simulation: &'s Simulation,
    ) -> impl Iterator<Item = (NodeId, &'s Member)> {
        self.hosts.iter().flat_map(|&node| {
            let crowd = simulation.app::<Crowd>(node);
            crowd.into_iter().flat_map(move |crowd| crowd.members().map(move |one| (node, one)))
        })
    }
}

impl Programs for Running {
    fn progress(&self, simulation: &Simulation) -> (usize, usize) {
        let all = self.members(simulation);
        let done = self.members(simulation).filter(|(_, member)| member.ended.is_some());
        (done.count(), all.count())
    }

    fn can_be_done(&self) -> bool {
        true
    }

    fn is_done(&self, simulation: &Simulation) -> bool {
        self.hosts.iter().filter_map(|node| simulation.app(*node)).all(Crowd::is_done)
    }

    fn results(&self, simulation: &Simulation) -> Results {
        let source = simulation.app::<SourceHost>(self.source);
        let stats = source.map(|host| host.engine().stats()).unwrap_or_default();
        let record = source.map(|host| host.host().record());
        let started = record.and_then(|record| record.started).unwrap_or_default();
        let written = record.map_or(0, |record| record.written);
        let removed = record.map_or(0, |record| record.removed.len());
        let members: Vec<(NodeId, &Member)> = self.members(simulation).collect();
        let delay = |member: &Member| {
            let is_whole = member.is_whole(written);
            member.ended.filter(|_| is_whole).map(|at| at.since(started))
        };
        let delays: Vec<_> = members.iter().map(|(_, member)| delay(member)).collect();
        let clients = Clients::new("all", &delays);
        let count = members.len().max(1) as f64;
        let acks: u64 = members.iter().map(|(_, member)| member.receiver().stats().acks).sum();
        let skipped: u64 =
            members.iter().map(|(_, member)| member.receiver().stats().skipped_bytes).sum();
        let sent = stats.multicast.bytes
            + stats.multicast_again.bytes
            + stats.unicast.bytes
            + stats.unicast_again.bytes;
        let seconds = clients.max_s.unwrap_or(f64::NAN);
        let segments = stats.multicast.segments as f64;
        let mut measures = vec![
            Measure::new("rate_bit_s", written as f64 * 8.0 / seconds),
            Measure::new("finished_share", clients.finished as f64 / count),
            Measure::new("expansion", sent as f64 / stats.multicast.bytes as f64),
            Measure::new("acks_per_segment", acks as f64 / segments / count),
            Measure::new("multicast_again", stats.multicast_again.segments as f64),
            Measure::new("unicast_again", stats.unicast_again.segments as f64),
            Measure::new("timeouts", stats.timeouts as f64),
            Measure::new("loss_events", stats.loss_events as f64),
            Measure::new("removed", removed as f64),
            Measure::new("skipped_frames", skipped as f64 / f64::from(self.mss) / count),
        ];
        measures.extend(clients.measures().into_iter().take(4));
        let text = format!(
            "{}source     {} multicast, {} again, {} again by unicast; {}; {}\n",
            delay_table("receivers", std::iter::once(&clients)),
            counted(stats.multicast.segments, "segment"),
            stats.multicast_again.segments,
            stats.unicast_again.segments,
            counted(acks, "ACK"),
            counted(stats.timeouts, "time-out"),
        );
        let name = |node: NodeId| simulation.network().name(node).to_owned();
        let value = |value: fn(&Member) -> u64| {
            Column::Integers(members.iter().map(|(_, member)| value(member)).collect())
        };
        let seconds = delays.iter().map(|delay| delay.map(|delay| delay.as_secs_f64()));
        let receivers = Table::new(
            "receivers",
            vec![
                ("host", Column::Texts(members.iter().map(|(node, _)| name(*node)).collect())),
                ("delay_s", Column::Numbers(seconds.collect())),
                ("received_bytes", value(|member| member.received)),
                ("wrong_bytes", value(|member| member.wrong)),
                ("skipped_bytes", value(|member| member.receiver().stats().skipped_bytes)),
                ("multicast", value(|member| member.receiver().stats().multicast)),
                ("unicast", value(|member| member.receiver().stats().unicast)),
                ("acks", value(|member| member.receiver().stats().acks)),
            ],
        );
        let tables = vec![receivers, links(simulation)];
        Results::of_transfer(clients, measures, tables, text)
    }
}
