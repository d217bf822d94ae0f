//! Section `[srm]`.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use umbel_engine::Instant;
use umbel_engine::srm::Config;
use umbel_engine::units::{ByteCount, Rate};
use umbel_topology::Mistake;
use umbel_topology::values::Written;
use umbel_wire::srm::{Message, limits};

use super::Scenario;
use super::protocol::{Programs, Protocol, Section};
use super::settings::{AtLeast, Factor, OrFalse, Period, Portion, Settings, settings};
use super::stream::{GROUP, Running, Said, Stream};
use crate::network::NodeId;
use crate::srm::{self, Participant};
use crate::{Simulation, channel};

/// Stream in a group whose members repair each other's losses by SRM.
#[derive(Clone, Debug)]
pub struct Srm {
    /// Stream and its receivers.
    pub stream: Stream,
    config: Config,
    /// Whether receivers know their distance to the source from the start.
    know_distances: bool,
}

settings! {
    /// Constants of members.
    MemberKeys for Config {
        request_timer: [Factor; 2] => request_timer;
        repair_timer: [Factor; 2] => repair_timer;
        adaptive: bool => adaptive;
        hold_down: Factor => hold_down;
        default_distance: Period => default_distance;
        min_distance: Period => min_distance;
        max_distance: Period => max_distance;
        max_request_interval: Period => max_request_interval;
        give_up_after: Period => give_up_after;
        local_scope: AtLeast<1, u8> => local_scope;
        recover_from_horizon: bool => recover_from_horizon;
        in_order: bool => in_order;
        session_rate: Written<Rate> => session.rate;
        source_share: Portion => session.source_share;
        session_min_interval: Period => session.min_interval;
        heartbeat: OrFalse<Period> => session.heartbeat;
        echoes: Echoes => session.echoes;
        silent_intervals: AtLeast<1, u32> => session.silent_intervals;
        recovery_rate: Written<Rate> => recovery_rate;
        recovery_burst: Written<ByteCount> => recovery_burst;
        window_packets: AtLeast<1, u64> => window.units;
        window_bytes: Written<ByteCount> => window.bytes;
        history_packets: AtLeast<1, usize> => history.0;
        history_bytes: Written<ByteCount> => history.1;
        max_peers: AtLeast<1, usize> => max_peers;
        max_repairs: AtLeast<1, usize> => max_repairs;
    }
}

/// Number of echoes that fit a session message.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "usize")]
struct Echoes(usize);

impl TryFrom<usize> for Echoes {
    type Error = String;

    fn try_from(number: usize) -> Result<Echoes, String> {
        match number {
            0..=limits::ECHOES => Ok(Echoes(number)),
            _ => Err(format!("{number}: expected at most {}", limits::ECHOES)),
        }
    }
}

impl super::settings::Value<usize> for Echoes {
    fn put(&self, field: &mut usize) {
        *field = self.0;
    }
}

/// Keys that are more than a constant.
#[derive(Debug, Default, Deserialize)]
struct OwnKeys {
    paper: Option<bool>,
    know_distances: Option<bool>,
}

impl Settings for OwnKeys {
    const KEYS: &'static [&'static str] = &["paper", "know_distances"];
}

/// D1 and D2 of the ns-2 that the LMS paper used.
const PAPER_REPAIR_TIMER: (f64, f64) = (1.0, 1.0);

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>) -> Result<Arc<dyn Protocol>, Mistake> {
    let stream = Stream::read(section)?;
    let own: OwnKeys = section.take()?;
    let mut config = srm::config(stream.source, GROUP);
    if own.paper == Some(true) {
        config.repair_timer = Some(PAPER_REPAIR_TIMER);
        // In the paper only the next packet reveals a loss.
        config.session.heartbeat = None;
    }
    let keys: MemberKeys = section.take()?;
    keys.apply(&mut config);
    section.finish()?;
    Ok(Arc::new(Srm { stream, config, know_distances: own.know_distances.unwrap_or(false) }))
}

impl Srm {
    fn config(&self, node: NodeId) -> Config {
        Config { id: srm::id_of(node), channel: channel(None, GROUP), ..self.config.clone() }
    }
}

impl Protocol for Srm {
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
        let mut source = Participant::default();
        for time in &stream.sends {
            source.send_after(*time, stream.packet_len);
        }
        let host = source.host(self.config(stream.source), seed);
        simulation.set_app(stream.source, host, Instant::EPOCH)?;
        for (&node, (there, _)) in stream.receivers.iter().zip(stream.distances(scenario)) {
            let mut participant = Participant::default();
            if self.know_distances {
                participant.know_distance(srm::id_of(stream.source), there);
            }
            let host = participant.host(self.config(node), seed);
            simulation.set_app(node, host, Instant::EPOCH)?;
        }
        Ok(Box::new(Running::new(stream, scenario, simulation.network(), said)))
    }
}

/// Reads a datagram of SRM.
fn said(payload: &[u8]) -> Option<Said> {
    match Message::parse(payload).ok()?.message()? {
        Message::Data { sequence, .. } => Some(Said::Original(sequence)),
        Message::Repair { sequence, .. } => Some(Said::Repair(sequence)),
        Message::Request { runs, .. } => {
            let units = runs.iter().flat_map(|run| run.first..run.first + run.count);
            Some(Said::Request(units.collect()))
        }
        Message::Session { sources, .. } => {
            sources.iter().map(|source| source.next).max().map(Said::Lead)
        }
    }
}
