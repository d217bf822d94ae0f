//! Section `[basep]`.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use umbel_engine::Instant;
use umbel_engine::basep::SourceConfig;
use umbel_engine::units::counted;
use umbel_topology::Mistake;

use super::protocol::{Programs, Protocol, Section};
use super::report::{Clients, Measure, Results, Table, delay_table, links};
use super::settings::{AtLeast, OrFalse, Period, Settings, settings};
use super::stream::GROUP;
use super::transfer::Receivers;
use super::{Scenario, party};
use crate::basep::{Receiver, ReceiverHost, Source, SourceHost};
use crate::network::NodeId;
use crate::{Simulation, channel};

/// File that a source sends to receivers that acknowledge each packet.
#[derive(Clone, Debug)]
pub struct Basep {
    source: NodeId,
    receivers: Vec<NodeId>,
    packets: u32,
    packet_len: usize,
    start: Duration,
    /// Time after the start when the run ends, if the file is not delivered earlier.
    limit: Duration,
    /// Its receivers are set when it is put on a host.
    config: SourceConfig,
}

settings! {
    /// Constants of the source.
    SourceKeys for SourceConfig {
        window: OrFalse<AtLeast<1, u64>> => window;
        timeout: Period => timeout;
        retransmissions: AtLeast<1, u32> => retransmissions;
        cumulative_got_it: bool => cumulative_got_it;
    }
}

/// Keys that are more than a constant.
#[derive(Debug, Deserialize)]
struct OwnKeys {
    source: Option<Spanned<String>>,
    receivers: Option<Spanned<Vec<Spanned<String>>>>,
    packets: AtLeast<1, u32>,
    packet_size: Option<AtLeast<1, u16>>,
    start: Option<Period>,
    limit: Option<Period>,
}

impl Settings for OwnKeys {
    const KEYS: &'static [&'static str] =
        &["source", "receivers", "packets", "packet_size", "start", "limit"];
}

const PACKET_LEN: u16 = 1000;
/// Hosts have joined by then.
const START: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_mins(10);
/// Limit on packets, all of which wait in memory.
const MOST_PACKETS: u32 = 1_000_000;

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>) -> Result<Arc<dyn Protocol>, Mistake> {
    let own: OwnKeys = section.take()?;
    let (source, receivers) = party::read(section, own.source.as_ref(), own.receivers.as_ref())?;
    let packets = own.packets.0;
    if packets > MOST_PACKETS {
        let message = format!("packets = {packets}: at most {MOST_PACKETS} fit");
        return Err(section.text.mistake(section.span(), message));
    }
    let mut config = SourceConfig::new(channel(Some(source), GROUP), Vec::new());
    section.take::<SourceKeys>()?.apply(&mut config);
    section.finish()?;
    config.queue_packets = config.queue_packets.max(packets as usize);
    Ok(Arc::new(Basep {
        source,
        receivers,
        packets,
        packet_len: own.packet_size.map_or(PACKET_LEN, |len| len.0).into(),
        start: own.start.map_or(START, |start| start.0),
        limit: own.limit.map_or(LIMIT, |limit| limit.0),
        config,
    }))
}

impl Protocol for Basep {
    fn extent(&self) -> Vec<(&'static str, usize)> {
        vec![("packets", self.packets as usize), ("receivers", self.receivers.len())]
    }

    fn ends(&self) -> Option<Duration> {
        Some(self.start + self.limit)
    }

    fn install(
        &self,
        _scenario: &Scenario,
        simulation: &mut Simulation,
        _seed: u64,
    ) -> Result<Box<dyn Programs>, Mistake> {
        let start = Instant::EPOCH + self.start;
        let file = (start, u64::from(self.packets), self.packet_len);
        let change = |config: &mut SourceConfig| {
            let receivers = std::mem::take(&mut config.receivers);
            *config = SourceConfig { receivers, ..self.config.clone() };
        };
        let group = self.config.channel;
        let host = Source::host(group, self.receivers.iter().copied(), change, file);
        simulation.set_app(self.source, host, Instant::EPOCH)?;
        for &node in &self.receivers {
            simulation.set_app(node, Receiver::host(group), Instant::EPOCH)?;
        }
        let completed = |host: &ReceiverHost| host.host().completed();
        let receivers = Receivers::new(self.receivers.clone(), start, completed);
        Ok(Box::new(Running { source: self.source, receivers }))
    }
}

/// A transfer that runs.
#[derive(Debug)]
struct Running {
    source: NodeId,
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
        source.is_none_or(|source| source.host().finished().is_some())
    }

    fn results(&self, simulation: &Simulation) -> Results {
        let clients = Clients::new("all", &self.receivers.delays(simulation));
        let source = simulation.app::<SourceHost>(self.source);
        let stats = source.map(|host| host.engine().stats()).unwrap_or_default();
        let given_up = source.map_or(0, |host| host.host().given_up());
        let finished = source.and_then(|host| host.host().finished());
        let sum = |value| self.receivers.sum(simulation, value);
        let mut measures = clients.measures();
        measures.extend([
            Measure::new("source_events", stats.load.total() as f64),
            Measure::new("acks", stats.load.acks as f64),
            Measure::new("retransmissions", stats.load.retransmissions as f64),
            Measure::new("timeouts", stats.load.timers as f64),
            Measure::new(
                "known_s",
                finished.map(|at| self.receivers.since_start(at).as_secs_f64()),
            ),
            Measure::new("given_up", given_up as f64),
            Measure::new("repaired", sum(|host| host.engine().stats().repaired)),
            Measure::new("wrong", sum(|host| host.host().wrong())),
        ]);
        let text = format!(
            "{}source     {} to process: {}, {}, {}\n",
            delay_table("receivers", std::iter::once(&clients)),
            counted(stats.load.total(), "event"),
            counted(stats.load.acks, "ACK"),
            counted(stats.load.timers, "time-out"),
            counted(stats.load.retransmissions, "retransmission"),
        );
        let count = |value| self.receivers.counts(simulation, value);
        let mut columns = self.receivers.names_and_delays(simulation);
        columns.extend([
            ("packets", count(|host| host.engine().stats().packets)),
            ("repaired", count(|host| host.engine().stats().repaired)),
            ("acks", count(|host| host.engine().stats().acks)),
        ]);
        let receivers = Table::new("receivers", columns);
        let tables = vec![receivers, links(simulation)];
        Results::of_transfer(clients, measures, tables, text)
    }
}
