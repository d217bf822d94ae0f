//! One simulation of the multicast facility: Table 1 with some values changed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use umbel_engine::repository::config::{NakConfig, PaperReading, SegmentConfig, StartConfig};
use umbel_engine::repository::policy::Policy;
use umbel_engine::repository::scheduler::SchedulerKind;
use umbel_engine::repository::{ReceiverConfig, SourceConfig};
use umbel_engine::units::Rate;
use umbel_sim::random::{Purpose, below, exponential, stream, uniform};
use umbel_sim::repository::{Catalog, Client, ClientHost, Server, ServerHost};
use umbel_sim::{
    Instant, LinkSpec, Loss, Network, NetworkError, NodeId, SessionDelay, Simulation, channel,
};
use umbel_wire::alc::DataHeader;
use umbel_wire::{Scheme, Toi, Tsi};

use super::choices::{Arrivals, Audience, Choices, Wants};
use super::stationarity;
use crate::pool::Experiment;
use crate::record::record;

/// Number of available data items [Repository Table 1].
pub const ITEMS: u32 = 100;
/// Number of packets of an item [Repository Table 1].
pub const ITEM_PACKETS: u16 = 60;
/// Average number of items that a client requests [Repository Table 1].
pub const WANTED: u64 = 9;
/// Time between new clients [Repository Table 1].
pub const INTERVAL: Duration = Duration::from_secs(4);
/// Time to send a packet [Repository Table 1].
pub const PACKET_TIME: Duration = Duration::from_millis(80);
/// Minimum delay of a NAK [Repository Table 1].
pub const NAK_DELAY_MIN: Duration = Duration::from_millis(30);
/// Spread of a NAK's delay above the minimum: 30 to 210 ms in all [Repository Table 1].
pub const NAK_SPREAD: Duration = Duration::from_millis(180);
/// Minimum time that a NAK takes to reach the server [Repository Table 1].
pub const NAK_TIME_MIN: Duration = Duration::from_millis(80);
/// Mean time beyond the minimum, for a mean of 100 ms [Repository Table 1].
pub const NAK_TIME_EXTRA: Duration = Duration::from_millis(20);
/// Loss on the links of bad clients, in settings with two classes of clients [Repository §6].
pub const BAD_LOSS: Share = Share::percent(50);

/// UDP payload of a packet in bytes. The paper's packets have 512 bytes at 50 kb/s; only the 80 ms
/// per packet matter.
const PACKET_LEN: usize = 1400;
/// Rate at which a packet takes [`PACKET_TIME`].
const RATE_BITS_PER_S: u64 = PACKET_LEN as u64 * 8 * 1000 / PACKET_TIME.as_millis() as u64;

/// Time within which clients have joined when a transmission starts on an idle channel.
const JOIN_TIME: Duration = Duration::from_millis(1);

/// A share in hundredths of a percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// Creates a share of `percent` percent.
    pub const fn percent(percent: u32) -> Share {
        Share(percent * 100)
    }

    /// Returns the share in percent.
    pub fn as_percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// Returns the share as a number from 0 to 1.
    pub fn as_fraction(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

/// Time span in which arriving clients are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    /// Clients that arrive earlier are not measured.
    pub from: Duration,
    /// Clients that arrive later are not measured. The run continues with further clients until the
    /// measured ones are done, but at most to twice this time.
    pub to: Duration,
}

/// A simulation: the values of Table 1 that vary, and the choices for the rest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Forward error correction, retransmission and notification, in the paper's notation.
    pub policy: String,
    /// Whether the scheduler is R/(Q/fill) rather than R/Q.
    pub fill: bool,
    /// Whether the server knows the clients' loss.
    pub known_loss: bool,
    /// Loss of the server's link, shared by all clients.
    pub server_loss: Share,
    /// Loss of each client's own link.
    pub client_loss: Share,
    /// Share of clients that lose [`BAD_LOSS`] instead.
    pub bad_clients: Share,
    /// Options for everything that the paper leaves open.
    pub choices: Choices,
    /// Time span of the measured clients.
    pub period: Period,
}

/// Results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Average client delay in seconds [Repository §2.1].
    pub delay: f64,
    /// 99th percentile of client delay in seconds.
    pub delay_99: f64,
    /// Number of measured clients.
    pub clients: u32,
    /// Measured clients that did not finish; they count with the time that they had waited.
    pub unfinished: u32,
    /// Change of the delays from the first measured client to the last, as a share of their mean.
    pub growth: f64,
    /// Arrival in seconds of the first client whose delay counts by the rule MSER-5, over all
    /// clients from time 0 until the last measured one.
    pub settled: f64,
    /// Number of data packets sent.
    pub packets: u64,
    /// Number of data packets delivered to clients.
    pub heard: u64,
    /// Number of transmissions.
    pub transmissions: u64,
    /// Number of these that were retransmissions.
    pub retransmissions: u64,
    /// Number of NAKs that the server received.
    pub naks: u64,
}

record!(Outcome {
    delay,
    delay_99,
    clients,
    unfinished,
    growth,
    settled,
    packets,
    heard,
    transmissions,
    retransmissions,
    naks,
});

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheduler = if self.fill { "R/(Q/fill)" } else { "R/Q" };
        write!(
            f,
            "{} {scheduler} server {} % clients {} % bad {} %",
            self.policy,
            self.server_loss.as_percent(),
            self.client_loss.as_percent(),
            self.bad_clients.as_percent(),
        )
    }
}

/// A client that arrives during the run.
pub(super) struct Arrival {
    pub(super) at: Instant,
    pub(super) loss: Share,
    pub(super) wanted: Vec<Toi>,
}

impl Point {
    /// Returns the policy as the engine parses it.
    ///
    /// # Panics
    ///
    /// If it is invalid, which no point of this crate is.
    fn policy(&self) -> Policy {
        self.policy.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the configuration of the paper's server (`docs/papers/repository.md` has it as a
    /// table).
    pub(super) fn source_config(&self, server: NodeId) -> SourceConfig {
        let rate = Rate::from_bits_per_s(RATE_BITS_PER_S).expect("it is not 0");
        let policy = self.policy();
        SourceConfig {
            policy,
            scheduler: if self.fill { SchedulerKind::RqFill } else { policy.usual_scheduler() },
            packet_len: PACKET_LEN,
            lookahead: Duration::ZERO,
            segment: SegmentConfig { time: Duration::MAX, ..SegmentConfig::default() },
            start: StartConfig { join_lead: JOIN_TIME, fraction: 0.0, ..StartConfig::default() },
            naks: NakConfig {
                spread: (NAK_SPREAD, NAK_SPREAD),
                margin: self.choices.gather.saturating_sub(NAK_SPREAD),
                ..NakConfig::default()
            },
            reading: PaperReading {
                cut_short: false,
                reschedule_whole: true,
                gather_fully: self.choices.gather_fully,
                wait_for_naks: self.choices.wait,
                join_repairs: self.choices.join,
                open_repairs: self.choices.audience == Audience::Everyone,
                expand_repairs: self.choices.expand_repairs,
            },
            loss_cap: 1.0,
            ..SourceConfig::new(Tsi(1), channel(Some(server), 1), rate)
        }
    }

    /// Returns the configuration of the paper's client: it listens while an item that it wants is
    /// sent, and asks once.
    pub(super) fn receiver_config() -> ReceiverConfig {
        ReceiverConfig {
            linger: Duration::ZERO,
            nak_delay_min: NAK_DELAY_MIN,
            ask_again_after: Duration::MAX,
            ..ReceiverConfig::default()
        }
    }

    /// Returns the clients' arrivals from time 0 to the end.
    fn arrivals(&self, seed: u64) -> Vec<Arrival> {
        let mut times = stream(seed, Purpose::Workload, 0);
        let mut classes = stream(seed, Purpose::Workload, 1);
        let mut wants = stream(seed, Purpose::Workload, 2);
        let mut arrivals = Vec::new();
        let mut at = Instant::EPOCH;
        while at.since(Instant::EPOCH) < self.period.to * 2 {
            // Each client draws once at any share, so that the bad clients of a share are bad at
            // greater ones, too.
            let bad = uniform(&mut classes) < self.bad_clients.as_fraction();
            let loss = if bad { BAD_LOSS } else { self.client_loss };
            arrivals.push(Arrival { at, loss, wanted: self.wanted(&mut wants) });
            at += match self.choices.arrivals {
                Arrivals::Regular => INTERVAL,
                Arrivals::Poisson => {
                    Duration::from_secs_f64(exponential(&mut times, INTERVAL.as_secs_f64()))
                }
            };
        }
        arrivals
    }

    fn wanted(&self, random: &mut impl rand_core::Rng) -> Vec<Toi> {
        let all = u64::from(ITEMS);
        let count = match self.choices.wants {
            Wants::Fixed => WANTED,
            Wants::Uniform => 1 + below(random, 2 * WANTED - 1),
            Wants::Binomial => loop {
                let count = (0..all).filter(|_| below(random, all) < WANTED).count();
                if count > 0 {
                    break count as u64;
                }
            },
        };
        let mut items: Vec<u32> = (1..=ITEMS).collect();
        for taken in 0..count {
            let other = taken + below(random, all - taken);
            items.swap(taken as usize, other as usize);
        }
        items.into_iter().take(count as usize).map(Toi).collect()
    }

    /// Builds the star of [Repository §4]: node 0 serves, node 1 is the backbone, the clients
    /// follow.
    pub(super) fn build(
        &self,
        seed: u64,
        arrivals: &[Arrival],
    ) -> Result<Simulation, NetworkError> {
        let mut network = Network::new();
        let server = network.host("server");
        let backbone = network.router("backbone");
        let lossy = |share: Share| LinkSpec {
            loss: Loss::Bernoulli(share.as_fraction()),
            ..LinkSpec::default()
        };
        network.link(server, backbone, lossy(self.server_loss), LinkSpec::default())?;
        let mut clients = Vec::with_capacity(arrivals.len());
        for arrival in arrivals {
            let client = network.host("client");
            network.link(backbone, client, lossy(arrival.loss), LinkSpec::default())?;
            clients.push(client);
        }
        let scheme = if self.policy().is_exact() { Scheme::NoCode } else { Scheme::ReedSolomon };
        let symbol_len = (PACKET_LEN - DataHeader::LEN) as u16;
        let catalog = Arc::new(Catalog::uniform(ITEMS, ITEM_PACKETS, symbol_len, scheme));
        let mut simulation = Simulation::new(network, seed);
        let mut host = Server::host(self.source_config(server), seed, catalog.clone());
        let nak_time = SessionDelay { min: NAK_TIME_MIN, mean_extra: NAK_TIME_EXTRA };
        for (&client, arrival) in clients.iter().zip(arrivals) {
            if self.known_loss {
                host.host_mut().set_known_loss(client, arrival.loss.as_fraction());
            }
            simulation.set_sessions_from(client, nak_time);
            let config = Point::receiver_config();
            let client_seed = seed << 32 | u64::from(client.0);
            let wanted = arrival.wanted.clone();
            let client_host = Client::host(config, client_seed, server, catalog.clone(), wanted);
            simulation.set_app(client, client_host, arrival.at)?;
        }
        simulation.set_app(server, host, Instant::EPOCH)?;
        Ok(simulation)
    }
}

impl Experiment for Point {
    type Outcome = Outcome;

    /// # Panics
    ///
    /// If the network cannot be built, which does not depend on the point.
    fn run(&self, seed: u64) -> Outcome {
        const STEP: Duration = Duration::from_mins(1);
        let arrivals = self.arrivals(seed);
        let mut simulation = self.build(seed, &arrivals).unwrap_or_else(|error| panic!("{error}"));
        let Period { from, to } = self.period;
        let measured = |at: Instant| (from..to).contains(&at.since(Instant::EPOCH));
        let clients = || (2..).map(NodeId).zip(&arrivals);
        let cohort: Vec<NodeId> =
            clients().filter(|(_, arrival)| measured(arrival.at)).map(|(node, _)| node).collect();
        simulation.run_until(Instant::EPOCH + to);
        let mut first_waiting = 0;
        while simulation.now() < Instant::EPOCH + to * 2 {
            let waits = |&node: &NodeId| delay(&simulation, node).is_none();
            match cohort[first_waiting..].iter().position(waits) {
                Some(done) => first_waiting += done,
                None => break,
            }
            simulation.run_until(simulation.now() + STEP);
        }
        let until_last: Vec<(NodeId, Instant)> = clients()
            .map(|(node, arrival)| (node, arrival.at))
            .take_while(|(_, at)| at.since(Instant::EPOCH) < to)
            .collect();
        Outcome { settled: settled(&simulation, &until_last), ..Outcome::of(&simulation, &cohort) }
    }

    fn work(&self) -> u64 {
        self.period.to.as_secs()
    }
}

/// Returns a client's delay in seconds, if it is done.
fn delay(simulation: &Simulation, client: NodeId) -> Option<f64> {
    let host = simulation.app::<ClientHost>(client)?;
    host.host().delay().map(|delay| delay.as_secs_f64())
}

/// Returns the delay of a client, or the time in seconds that it has waited.
fn delay_so_far(simulation: &Simulation, client: NodeId) -> Option<f64> {
    delay(simulation, client).or_else(|| {
        let arrived = simulation.app::<ClientHost>(client)?.host().arrived()?;
        Some(simulation.now().since(arrived).as_secs_f64())
    })
}

/// Returns the arrival in seconds of the first client that MSER-5 keeps; clients are in the order
/// of their arrivals.
fn settled(simulation: &Simulation, clients: &[(NodeId, Instant)]) -> f64 {
    let delays: Vec<f64> =
        clients.iter().filter_map(|(client, _)| delay_so_far(simulation, *client)).collect();
    let first = clients.get(stationarity::mser5(&delays));
    first.map_or(f64::NAN, |(_, at)| at.since(Instant::EPOCH).as_secs_f64())
}

impl Outcome {
    /// Sums up the delays of clients in the order of their arrivals.
    fn of(simulation: &Simulation, cohort: &[NodeId]) -> Outcome {
        let waits = |client: &&NodeId| delay(simulation, **client).is_none();
        let unfinished = cohort.iter().filter(waits).count() as u32;
        let mut delays: Vec<f64> =
            cohort.iter().filter_map(|&client| delay_so_far(simulation, client)).collect();
        let growth = stationarity::growth(&delays);
        delays.sort_by(f64::total_cmp);
        let stats = simulation.app::<ServerHost>(NodeId(0)).map(|host| host.engine().stats());
        let stats = stats.unwrap_or_default();
        Outcome {
            delay: delays.iter().sum::<f64>() / delays.len() as f64,
            delay_99: delays.get(delays.len() * 99 / 100).copied().unwrap_or(f64::NAN),
            clients: delays.len() as u32,
            unfinished,
            growth,
            settled: f64::NAN,
            packets: stats.packets,
            heard: simulation.counters().delivered,
            transmissions: stats.transmissions,
            retransmissions: stats.repairs,
            naks: stats.naks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    fn point(policy: &str, client_loss: u32) -> Point {
        let period = Period { from: Duration::from_secs(200), to: Duration::from_mins(10) };
        Point {
            policy: policy.to_owned(),
            fill: false,
            known_loss: false,
            server_loss: Share::default(),
            client_loss: Share::percent(client_loss),
            bad_clients: Share::percent(10),
            choices: Choices::default(),
            period,
        }
    }

    #[test]
    fn a_run_is_a_function_of_point_and_seed() {
        let points = [point("FEC(0.01R)+R(0)", 5), point("R(inf)+notify", 5)];
        let runs = points.into_iter().map(|point| (point, 2)).collect();
        let one = Pool::of(1).run_all(&runs, &());
        assert_eq!(Pool::of(3).run_all(&runs, &()), one);
        for outcomes in one.values() {
            assert_ne!(outcomes[0], outcomes[1]);
        }
    }

    #[test]
    fn without_loss_there_are_no_naks_and_a_packet_takes_80_ms() {
        let outcome = Point { bad_clients: Share::default(), ..point("R(inf)", 0) }.run(1);
        assert_eq!((outcome.naks, outcome.retransmissions), (0, 0));
        assert_eq!(outcome.clients, 100);
        // The channel is busy from the first client on, to the end of some minute of 750 packets.
        assert!(outcome.packets >= 7_490 && outcome.packets % 750 >= 740, "{outcome:?}");
    }

    #[test]
    fn rescheduling_retransmits_nothing_and_exact_packets_are_worse() {
        let coded = point("R(0)", 10).run(1);
        let exact = point("R(0)+no-ecc", 10).run(1);
        assert_eq!(coded.retransmissions, 0);
        assert!(coded.naks > 0);
        assert!(exact.delay > coded.delay, "{} {}", exact.delay, coded.delay);
    }

    #[test]
    fn clients_want_nine_items_on_average() {
        for wants in [Wants::Fixed, Wants::Binomial, Wants::Uniform] {
            let choices = Choices { wants, arrivals: Arrivals::Poisson, ..Choices::default() };
            let mut point = Point { choices, ..point("R(0)", 5) };
            point.period.to = Duration::from_secs(8_000);
            let arrivals = point.arrivals(1);
            let count = arrivals.len() as f64;
            assert!((3_700.0..4_300.0).contains(&count), "{count}");
            let items: usize = arrivals.iter().map(|arrival| arrival.wanted.len()).sum();
            assert!((items as f64 / count - 9.0).abs() < 0.3, "{wants}");
            let bad = arrivals.iter().filter(|arrival| arrival.loss == BAD_LOSS).count();
            assert!((bad as f64 / count - 0.1).abs() < 0.02);
        }
    }
}
