//! Section `[rlm]`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use umbel_engine::Instant;
use umbel_engine::rlm::{
    ControllerKind, DelayConfig, LossConfig, ReceiverConfig, RlmConfig, SessionConfig,
};
use umbel_engine::units::Rate;
use umbel_topology::Mistake;
use umbel_topology::values::{Time, Written};

use super::protocol::{Programs, Protocol, Section};
use super::report::{Clients, Column, Measure, Results, Table, delay_table, links};
use super::settings::{AtLeast, Factor, Period, Portion, Settings, Span, settings};
use super::{Scenario, party, paths};
use crate::network::NodeId;
use crate::random::{Purpose, stream, uniform};
use crate::rlm::{ReceiverHost, Record, SAMPLE, Stream, Traffic};
use crate::{Simulation, channel_parts};

/// Layered stream whose receivers each find the level that their path carries.
#[derive(Clone, Debug)]
pub struct Rlm {
    receivers: Vec<NodeId>,
    stream: Stream,
    /// Constants of receivers; what is each receiver's own is set when it is put on a host.
    config: ReceiverConfig,
    /// Times between which receivers start, at random.
    starts: (Duration, Duration),
    length: Duration,
    /// Part of the run, at its end, in which levels and rates are measured.
    measured: Duration,
    /// Time for which a receiver may be below its best level and still keep it.
    lapse: Duration,
}

settings! {
    /// Constants of join-experiments.
    ExperimentKeys for RlmConfig {
        backoff: Factor => backoff;
        relaxation: Portion => relaxation;
        k1: Factor => k1;
        k2: Factor => k2;
        g1: Portion => g1;
        g2: Portion => g2;
        detection_time: Period => detection_time;
        detection_deviation: Written<Time> => detection_deviation;
        join_timer_min: Period => join_timer_min;
        join_timer_max: Period => join_timer_max;
        join_timer_ceiling: Period => join_timer_ceiling;
        loss_threshold: Portion => loss_threshold;
        loss_packets: AtLeast<1, u32> => loss_packets;
        suppressions: AtLeast<0, u32> => suppressions;
    }
}

settings! {
    /// Constants of the rule that looks at delays.
    DelayKeys for DelayConfig {
        threshold: Written<Time> => threshold;
        share_of_greatest: Portion => share_of_greatest;
        losses: AtLeast<0, u64> => losses;
        loss_share: Portion => loss_share;
        k1: Factor => k1;
        detection_time: Period => detection_time;
        detection_deviation: Written<Time> => detection_deviation;
        join_timer_min: Period => join_timer_min;
    }
}

settings! {
    /// Constants of loss detection.
    LossKeys for LossConfig {
        reorder_packets: AtLeast<0, u32> => reorder_packets;
        reorder_time: Written<Time> => reorder_time;
        restart_gap: AtLeast<1, u32> => restart_gap;
    }
}

settings! {
    /// Session messages.
    SessionKeys for SessionConfig {
        session_rate: Written<Rate> => rate;
        session_min_interval: Period => min_interval;
        silent_intervals: AtLeast<1, u32> => silent_intervals;
    }
}

/// Keys that are more than a constant.
#[derive(Debug, Default, Deserialize)]
struct OwnKeys {
    source: Option<Spanned<String>>,
    receivers: Option<Spanned<Vec<Spanned<String>>>>,
    rates: Option<Spanned<Vec<Written<Rate>>>>,
    packet_size: Option<AtLeast<64, u16>>,
    traffic: Option<TrafficEntry>,
    peak: Option<Spanned<Factor>>,
    shared_learning: Option<bool>,
    controller: Option<ControllerEntry>,
    max_level: Option<AtLeast<1, u8>>,
    starts: Option<Spanned<Span>>,
    length: Option<Period>,
    measured: Option<Period>,
    lapse: Option<Written<Time>>,
}

impl Settings for OwnKeys {
    const KEYS: &'static [&'static str] = &[
        "source",
        "receivers",
        "rates",
        "packet_size",
        "traffic",
        "peak",
        "shared_learning",
        "controller",
        "max_level",
        "starts",
        "length",
        "measured",
        "lapse",
    ];
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum TrafficEntry {
    Cbr,
    Bursts,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ControllerEntry {
    Rlm,
    Delay,
}

/// Most layers of a stream.
const MOST_LAYERS: usize = 16;
/// Times of the paper's simulations [RLM §4].
const STARTS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_mins(2));
const LENGTH: Duration = Duration::from_mins(10);
const MEASURED: Duration = Duration::from_mins(4);
const LAPSE: Duration = Duration::from_secs(10);
/// Windows over which the greatest loss is measured [RLM §4.3].
const WINDOWS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(100)];

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>) -> Result<Arc<dyn Protocol>, Mistake> {
    let own: OwnKeys = section.take()?;
    let (source, receivers) = party::read(section, own.source.as_ref(), own.receivers.as_ref())?;
    let text = section.text;
    let mut stream = Stream::new(source);
    if let Some(rates) = &own.rates {
        if !(1..=MOST_LAYERS).contains(&rates.get_ref().len()) {
            let message = format!("{} layers: expected 1 to {MOST_LAYERS}", rates.get_ref().len());
            return Err(text.mistake(rates.span(), message));
        }
        let rates = rates.get_ref().iter().map(|rate| rate.0.bits_per_s() as f64);
        stream.rates = rates.collect();
    }
    stream.packet_len = own.packet_size.map_or(stream.packet_len, |len| len.0);
    stream.has_control = own.shared_learning.unwrap_or(true);
    stream.traffic = match (own.traffic, &own.peak) {
        (Some(TrafficEntry::Bursts), Some(peak)) if peak.get_ref().0 >= 1.0 => {
            Traffic::Bursts { peak: peak.get_ref().0 }
        }
        (Some(TrafficEntry::Bursts), peak) => {
            let span = peak.as_ref().map_or(section.span(), Spanned::span);
            let message = "bursts need `peak`, how far the greatest rate is above the mean: \
                           expected at least 1";
            return Err(text.mistake(span, message));
        }
        (_, Some(peak)) => {
            return Err(text.mistake(peak.span(), "`peak` belongs to traffic = \"bursts\""));
        }
        (_, None) => Traffic::Cbr,
    };
    let mut config = stream.receiver_config(source);
    config.controller = match own.controller {
        Some(ControllerEntry::Delay) => ControllerKind::Delay,
        Some(ControllerEntry::Rlm) | None => ControllerKind::Rlm,
    };
    config.max_level = own.max_level.map_or(config.max_level, |level| level.0);
    section.take::<ExperimentKeys>()?.apply(&mut config.rlm);
    section.take::<LossKeys>()?.apply(&mut config.loss);
    section.take::<SessionKeys>()?.apply(&mut config.session);
    let mut part = section.part("delay")?;
    part.take::<DelayKeys>()?.apply(&mut config.delay);
    part.finish()?;
    section.finish()?;
    let length = own.length.map_or(LENGTH, |length| length.0);
    let starts = own.starts.as_ref().map_or(STARTS, |starts| {
        let Span(first, last) = *starts.get_ref();
        (first, last)
    });
    if starts.1 >= length {
        let span = own.starts.as_ref().map_or(section.span(), Spanned::span);
        let message = format!(
            "the last receiver starts after {:?}, and the run ends after {length:?}: expected \
             earlier `starts`, or a longer `length`",
            starts.1
        );
        return Err(text.mistake(span, message));
    }
    let measured =
        own.measured.map_or(MEASURED, |measured| measured.0).min(length.saturating_sub(starts.1));
    let lapse = own.lapse.map_or(LAPSE, |lapse| lapse.0.0);
    Ok(Arc::new(Rlm { receivers, stream, config, starts, length, measured, lapse }))
}

impl Protocol for Rlm {
    fn extent(&self) -> Vec<(&'static str, usize)> {
        vec![("layers", self.stream.rates.len()), ("receivers", self.receivers.len())]
    }

    fn ends(&self) -> Option<Duration> {
        Some(self.length)
    }

    fn install(
        &self,
        scenario: &Scenario,
        simulation: &mut Simulation,
        seed: u64,
    ) -> Result<Box<dyn Programs>, Mistake> {
        let control = self.stream.control().and_then(|control| channel_parts(&control));
        if let Some((_, group)) = control {
            // All members send there, and a tree for each of them takes much memory.
            let group = simulation.group(None, group);
            simulation.flood(group);
        }
        let host = self.stream.source_host(seed);
        simulation.set_app(self.stream.source, host, Instant::EPOCH)?;
        let mut starts = stream(seed, Purpose::Workload, u64::from(u32::MAX));
        for &node in &self.receivers {
            let own = self.stream.receiver_config(node);
            let config = ReceiverConfig { receiver: own.receiver, ..self.config.clone() };
            let (from, to) = self.starts;
            let start = from + to.saturating_sub(from).mul_f64(uniform(&mut starts));
            let host = self.stream.receiver_host(config, seed);
            simulation.set_app(node, host, Instant::EPOCH + start)?;
        }
        let rates = paths::bottlenecks(&scenario.topology, self.stream.source.0 as usize);
        let best = self.receivers.iter().map(|node| match rates[node.0 as usize] {
            Some(rate) => self.stream.level_within(rate.bits_per_s() as f64),
            None => self.stream.rates.len() as u8,
        });
        Ok(Box::new(Running { best: best.collect(), rlm: self.clone() }))
    }
}

/// A stream that runs.
#[derive(Debug)]
struct Running {
    rlm: Rlm,
    /// Greatest level that the path of each receiver carries.
    best: Vec<u8>,
}

/// Outcome of a receiver.
struct Outcome {
    convergence: Option<Duration>,
    level: f64,
    rate: f64,
    loss: f64,
    worst: [f64; 3],
    experiments: u64,
    failed: u64,
}

impl Running {
    fn hosts<'s>(&self, simulation: &'s Simulation) -> impl Iterator<Item = &'s ReceiverHost> {
        self.rlm.receivers.iter().filter_map(|node| simulation.app::<ReceiverHost>(*node))
    }

    fn outcome(&self, host: &ReceiverHost, best: u8, now: Instant) -> Outcome {
        let record: &Record = host.host();
        let count = (self.rlm.measured.as_nanos() / SAMPLE.as_nanos()).max(1) as usize;
        let samples = record.samples();
        let last = &samples[samples.len().saturating_sub(count)..];
        let packets: f64 = last.iter().map(|sample| f64::from(sample.packets)).sum();
        let seconds = (SAMPLE.as_secs_f64() * last.len() as f64).max(f64::MIN_POSITIVE);
        let times = (0..last.len() as u32)
            .map(|n| SAMPLE * n)
            .take_while(|time| *time <= now.since(Instant::EPOCH));
        let levels: Vec<f64> = times
            .map(|before| {
                let at = now.since(Instant::EPOCH).saturating_sub(before);
                f64::from(record.level_at(Instant::EPOCH + at))
            })
            .collect();
        let stats = host.engine().stats();
        Outcome {
            convergence: record.convergence(best, now, self.rlm.lapse),
            level: levels.iter().sum::<f64>() / levels.len().max(1) as f64,
            rate: packets * f64::from(self.rlm.stream.packet_len) * 8.0 / seconds,
            loss: record.loss(),
            worst: WINDOWS.map(|window| record.worst_loss(window)),
            experiments: stats.experiments,
            failed: stats.failed,
        }
    }

    fn outcomes(&self, simulation: &Simulation) -> Vec<Outcome> {
        let hosts = self.hosts(simulation).zip(&self.best);
        hosts.map(|(host, best)| self.outcome(host, *best, simulation.now())).collect()
    }
}

impl Programs for Running {
    fn progress(&self, simulation: &Simulation) -> (usize, usize) {
        let at_best = self.hosts(simulation).zip(&self.best);
        let at_best = at_best.filter(|(host, best)| host.engine().stats().level >= **best);
        (at_best.count(), self.rlm.receivers.len())
    }

    fn results(&self, simulation: &Simulation) -> Results {
        let outcomes = self.outcomes(simulation);
        let times: Vec<_> = outcomes.iter().map(|outcome| outcome.convergence).collect();
        let clients = Clients::new("all", &times);
        let count = outcomes.len() as f64;
        let mean = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).sum::<f64>() / count;
        let worst = |window: usize| {
            outcomes.iter().map(|outcome| outcome.worst[window]).fold(0.0, f64::max)
        };
        let best = self.best.iter().map(|best| f64::from(*best)).sum::<f64>() / count;
        let measures = vec![
            Measure::new("level", mean(|outcome| outcome.level)),
            Measure::new("loss", mean(|outcome| outcome.loss)),
            Measure::new("convergence_s", clients.mean_s),
            Measure::new("converged_share", clients.finished as f64 / count),
            Measure::new("rate_bit_s", mean(|outcome| outcome.rate)),
            Measure::new("best_level", best),
            Measure::new("worst_loss_1s", worst(0)),
            Measure::new("worst_loss_10s", worst(1)),
            Measure::new("worst_loss_100s", worst(2)),
            Measure::new("convergence_max_s", clients.max_s),
            Measure::new("experiments", mean(|outcome| outcome.experiments as f64)),
            Measure::new("failed_experiments", mean(|outcome| outcome.failed as f64)),
        ];
        let text = format!(
            "{}level {:.2} of {best:.2} that fit, {:.3} % of packets lost; {:.1} experiments, \
             {:.1} of them failed, for a receiver\n",
            delay_table("converged", std::iter::once(&clients)),
            mean(|outcome| outcome.level),
            mean(|outcome| outcome.loss) * 100.0,
            mean(|outcome| outcome.experiments as f64),
            mean(|outcome| outcome.failed as f64),
        );
        let tables = vec![
            self.receivers_table(simulation, &outcomes),
            self.levels_table(simulation),
            links(simulation),
        ];
        Results {
            groups: vec![clients.clone()],
            clients,
            delay: "convergence",
            measures,
            tables,
            text,
            details: BTreeMap::new(),
        }
    }
}

impl Running {
    fn receivers_table(&self, simulation: &Simulation, outcomes: &[Outcome]) -> Table {
        let name = |node: &NodeId| simulation.network().name(*node).to_owned();
        let number = |value: fn(&Outcome) -> f64| {
            Column::Numbers(outcomes.iter().map(|outcome| Some(value(outcome))).collect())
        };
        let convergence = outcomes.iter().map(|outcome| outcome.convergence);
        let convergence = convergence.map(|time| time.map(|time| time.as_secs_f64()));
        let count =
            |value: fn(&Outcome) -> u64| Column::Integers(outcomes.iter().map(value).collect());
        Table::new(
            "receivers",
            vec![
                ("receiver", Column::Texts(self.rlm.receivers.iter().map(name).collect())),
                ("best_level", Column::Integers(self.best.iter().map(|b| u64::from(*b)).collect())),
                ("level", number(|outcome| outcome.level)),
                ("convergence_s", Column::Numbers(convergence.collect())),
                ("rate_bit_s", number(|outcome| outcome.rate)),
                ("loss", number(|outcome| outcome.loss)),
                ("worst_loss_1s", number(|outcome| outcome.worst[0])),
                ("worst_loss_10s", number(|outcome| outcome.worst[1])),
                ("worst_loss_100s", number(|outcome| outcome.worst[2])),
                ("experiments", count(|outcome| outcome.experiments)),
                ("failed_experiments", count(|outcome| outcome.failed)),
            ],
        )
    }

    /// Returns each change of a receiver's level.
    fn levels_table(&self, simulation: &Simulation) -> Table {
        let changes: Vec<(String, Instant, u8)> = self
            .rlm
            .receivers
            .iter()
            .zip(self.hosts(simulation))
            .flat_map(|(node, host)| {
                let name = simulation.network().name(*node).to_owned();
                let levels = host.host().levels().iter();
                levels.map(move |&(at, level)| (name.clone(), at, level)).collect::<Vec<_>>()
            })
            .collect();
        let time = |at: &Instant| Some(at.since(Instant::EPOCH).as_secs_f64());
        Table::new(
            "levels",
            vec![
                (
                    "receiver",
                    Column::Texts(changes.iter().map(|(name, ..)| name.clone()).collect()),
                ),
                ("time_s", Column::Numbers(changes.iter().map(|(_, at, _)| time(at)).collect())),
                ("level", Column::Integers(changes.iter().map(|c| u64::from(c.2)).collect())),
            ],
        )
    }
}
