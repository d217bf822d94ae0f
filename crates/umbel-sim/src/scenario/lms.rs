//! Section `[lms]`.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use umbel_engine::Instant;
use umbel_engine::lms::config::{Cost, Horizon};
use umbel_engine::lms::{ReceiverConfig, RouterConfig, SourceConfig};
use umbel_engine::units::ByteCount;
use umbel_topology::Mistake;
use umbel_topology::values::{Time, Written};
use umbel_wire::Tsi;
use umbel_wire::lms::Message;

use super::Scenario;
use super::protocol::{Programs, Protocol, Section};
use super::settings::{AtLeast, Factor, Period, Portion, Settings, Span, settings};
use super::stream::{Deployment, GROUP, Running, Said, Stream, routers};
use crate::lms::{Receiver, Source, router};
use crate::random::node_seed;
use crate::{Simulation, channel};

/// Stream with LMS in its source, its receivers and its routers.
#[derive(Clone, Debug)]
pub struct Lms {
    /// Stream and its receivers.
    pub stream: Stream,
    source: SourceConfig,
    receiver: ReceiverConfig,
    router: RouterConfig,
    /// Share of the routers that have LMS.
    deployed: f64,
    cost: CostEntry,
}

/// Cost that receivers advertise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CostEntry {
    /// The round trip that was measured.
    Latency,
    /// The round trip that was measured, and the loss.
    LatencyAndLoss,
    /// The travel time from the source: repliers never change.
    Distance,
}

settings! {
    /// Constants of the source.
    SourceKeys for SourceConfig {
        queue: AtLeast<1, usize> => queue;
        heartbeat_min: Period => heartbeat_min;
        heartbeat_max: Period => heartbeat_max;
        rtt: Written<Time> => rtt;
        multicast_after: u32 => multicast_after;
        pongs_per_s: AtLeast<1, u32> => pongs.per_s;
        pongs_burst: AtLeast<1, u32> => pongs.burst;
        history_packets: AtLeast<1, usize> => replier.history.units;
        history_bytes: Written<ByteCount> => replier.history.bytes;
        ignore_period: Written<Time> => replier.ignore_period;
        ignore_first: Written<Time> => replier.ignore_first;
        remembered_replies: AtLeast<1, usize> => replier.remembered_replies;
        repairs_per_s: AtLeast<1, u32> => replier.repairs.per_s;
        repairs_burst: AtLeast<1, u32> => replier.repairs.burst;
        far_ahead: AtLeast<1, u64> => replier.far_ahead;
    }
}

settings! {
    /// Constants of receivers.
    ReceiverKeys for ReceiverConfig {
        window_packets: AtLeast<1, u64> => window.units;
        window_bytes: Written<ByteCount> => window.bytes;
        advertise_every: Period => advertise_every;
        two_step: bool => two_step;
        remembered_requests: AtLeast<1, usize> => remembered_requests;
        request_delay: Written<Time> => request_delay;
        request_timeout_rtts: Factor => request_timeout_rtts;
        request_timeout: Span => request_timeout;
        request_jitter: Portion => request_jitter;
        request_backoff: AtLeast<1, u32> => request_backoff;
        failed_after: AtLeast<1, u8> => failed_after;
        requests_per_s: AtLeast<1, u32> => requests.per_s;
        requests_burst: AtLeast<1, u32> => requests.burst;
        packets_per_request: PacketsPerRequest => units_per_request;
        initial_rtt: Period => initial_rtt;
        ping_every: Period => ping_every;
    }
}

settings! {
    /// Constants of routers.
    RouterKeys for RouterConfig {
        source_as_replier: bool => source_as_replier;
        offer_lifetime: Period => offer_lifetime;
        advertise_every: Period => advertise_every;
        advertise_gap: Period => advertise_gap;
        stickiness: Portion => stickiness;
        set_size: AtLeast<1, usize> => set_size;
        solicit_timeout: Period => solicit_timeout;
        solicits: u32 => solicits;
        solicit_gap: Written<Time> => solicit_gap;
        tag_lifetime: Period => tag_lifetime;
        requests_per_s: AtLeast<1, u32> => requests.per_s;
        requests_burst: AtLeast<1, u32> => requests.burst;
        dmcasts_per_s: AtLeast<1, u32> => dmcasts.per_s;
        dmcasts_burst: AtLeast<1, u32> => dmcasts.burst;
        channels: AtLeast<1, usize> => channels;
    }
}

/// Number of packets that fit one request.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u8")]
struct PacketsPerRequest(u8);

impl TryFrom<u8> for PacketsPerRequest {
    type Error = String;

    fn try_from(number: u8) -> Result<PacketsPerRequest, String> {
        match number {
            1..=33 => Ok(PacketsPerRequest(number)),
            _ => Err(format!("{number}: expected 1 to 33")),
        }
    }
}

impl super::settings::Value<u8> for PacketsPerRequest {
    fn put(&self, field: &mut u8) {
        *field = self.0;
    }
}

/// Weight of loss in a cost: a loss of 2 % counts like twice the distance.
const LOSS_WEIGHT: f64 = 50.0;

/// Keys that are more than a constant.
#[derive(Debug, Default, Deserialize)]
struct OwnKeys {
    paper: Option<bool>,
    cost: Option<CostEntry>,
    loss_weight: Option<Factor>,
    /// Packets before the first one that it hears of which a receiver wants; default all.
    horizon: Option<u64>,
}

impl Settings for OwnKeys {
    const KEYS: &'static [&'static str] = &["paper", "cost", "loss_weight", "horizon"];
}

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>) -> Result<Arc<dyn Protocol>, Mistake> {
    let stream = Stream::read(section)?;
    let own: OwnKeys = section.take()?;
    let channel = channel(Some(stream.source), GROUP);
    let mut lms = Lms {
        source: SourceConfig::new(channel, Tsi(1)),
        receiver: ReceiverConfig::new(channel),
        router: RouterConfig::new(([0, 0, 0, 0], 0).into(), [0; 32]),
        deployed: 1.0,
        cost: CostEntry::Latency,
        stream,
    };
    if own.paper == Some(true) {
        lms.be_as_in_the_paper(section);
    }
    let keys: SourceKeys = section.take()?;
    keys.apply(&mut lms.source);
    // All that answer requests handle them alike.
    lms.receiver.replier = lms.source.replier;
    let keys: ReceiverKeys = section.take()?;
    keys.apply(&mut lms.receiver);
    let mut part = section.part("router")?;
    let keys: RouterKeys = part.take()?;
    keys.apply(&mut lms.router);
    lms.deployed = Deployment::read(&mut part)?;
    part.finish()?;
    lms.cost = own.cost.unwrap_or(lms.cost);
    let weight = own.loss_weight.map_or(LOSS_WEIGHT, |weight| weight.0);
    lms.receiver.cost = match lms.cost {
        CostEntry::LatencyAndLoss => Cost::LatencyAndLoss { weight },
        CostEntry::Latency | CostEntry::Distance => Cost::Latency,
    };
    if let Some(packets) = own.horizon {
        lms.receiver.horizon = Horizon::Back(packets);
    }
    section.finish()?;
    Ok(Arc::new(lms))
}

impl Lms {
    /// Sets the rules of the paper's simulations. Repliers never change and are each the nearest to
    /// their router, and a topmost replier asks the source on behalf of all [LMS §IV-C].
    fn be_as_in_the_paper(&mut self, section: &Section<'_>) {
        let delays = super::paths::delays(section.topology, self.stream.source.0 as usize);
        let round_trip = |node: &crate::NodeId| delays[node.0 as usize].map(|(a, b)| a + b);
        let greatest = self.stream.receivers.iter().filter_map(round_trip).max();
        let greatest = greatest.unwrap_or_default();
        // A first request that arrives within the farthest receiver's round trip has crossed the
        // reply.
        self.source.replier.ignore_period = Some(greatest);
        (self.source.rtt, self.source.multicast_after) = (greatest, 0);
        self.receiver.horizon = Horizon::Back(0);
        (self.router.source_as_replier, self.router.stickiness) = (false, 0.0);
        self.cost = CostEntry::Distance;
    }
}

impl Protocol for Lms {
    fn extent(&self) -> Vec<(&'static str, usize)> {
        self.stream.extent()
    }

    fn ends(&self) -> Option<Duration> {
        Some(self.stream.ends())
    }

    fn install(
        &self,
        scenario: &Scenario,
        simulation: &mut Simulation,
        seed: u64,
    ) -> Result<Box<dyn Programs>, Mistake> {
        let stream = &self.stream;
        let host = Source::host(self.source.clone(), stream.send_times(), stream.packet_len);
        simulation.set_app(stream.source, host, Instant::EPOCH)?;
        for (&node, (there, _)) in stream.receivers.iter().zip(stream.distances(scenario)) {
            let mut config = self.receiver.clone();
            if self.cost == CostEntry::Distance {
                // Below a router, the receiver nearest to the source is the nearest to the router.
                let cost = u32::try_from(there.as_nanos() / 100).unwrap_or(u32::MAX);
                config.cost = Cost::Fixed(Some(cost));
            }
            let host = Receiver::host(config, node_seed(seed, node));
            simulation.set_app(node, host, Instant::EPOCH)?;
        }
        for node in routers(scenario, self.deployed, seed) {
            let hook = router(node, seed, |config| {
                let (address, secret) = (config.address, config.secret);
                *config = RouterConfig { address, secret, ..self.router.clone() };
            });
            simulation.set_router_hook(node, hook)?;
        }
        Ok(Box::new(Running::new(stream, scenario, simulation.network(), said)))
    }
}

/// Reads a datagram of LMS.
fn said(payload: &[u8]) -> Option<Said> {
    match Message::parse(payload).ok()?.message()? {
        Message::Data { sequence, .. } => Some(Said::Original(sequence)),
        Message::Repair { sequence, .. } => Some(Said::Repair(sequence)),
        Message::Dmcast { repair, .. } => said(repair),
        Message::Request(request) => Some(Said::Request(request.units.iter().collect())),
        Message::Heartbeat { lead, .. } => Some(Said::Lead(lead)),
        _ => None,
    }
}
