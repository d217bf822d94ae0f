//! Section `[pgm]`.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use umbel_engine::Instant;
use umbel_engine::pgm::{ReceiverConfig, RouterConfig, SourceConfig};
use umbel_engine::units::ByteCount;
use umbel_topology::Mistake;
use umbel_topology::values::{Time, Written};
use umbel_wire::pgm::{Message, MessageType};

use super::Scenario;
use super::protocol::{Programs, Protocol, Section};
use super::settings::{AtLeast, Period, Settings, settings};
use super::stream::{Deployment, GROUP, Running, Said, Stream, routers};
use crate::pgm::{Receiver, Source, router};
use crate::random::node_seed;
use crate::{Simulation, channel};

/// Stream with PGM in its source, its receivers and its routers.
#[derive(Clone, Debug)]
pub struct Pgm {
    /// Stream and its receivers.
    pub stream: Stream,
    source: SourceConfig,
    receiver: ReceiverConfig,
    router: RouterConfig,
    /// Share of the routers that have PGM.
    deployed: f64,
}

settings! {
    /// Constants of the source.
    SourceKeys for SourceConfig {
        transmit_window_packets: AtLeast<1, usize> => window_units;
        transmit_window_bytes: Written<ByteCount> => window_bytes;
        queue: AtLeast<1, usize> => queue_units;
        wait: Written<Time> => wait;
        heartbeat: Period => heartbeat;
        ambient: Period => ambient;
    }
}

settings! {
    /// Constants of receivers.
    ReceiverKeys for ReceiverConfig {
        window_packets: AtLeast<1, u64> => window.units;
        window_bytes: Written<ByteCount> => window.bytes;
        nak_backoff: Written<Time> => nak_backoff;
        nak_repeat: Period => nak_repeat;
        nak_rdata: Period => nak_rdata;
        ncf_retries: u32 => ncf_retries;
        data_retries: u32 => data_retries;
    }
}

settings! {
    /// Constants of routers.
    RouterKeys for RouterConfig {
        interface_states: AtLeast<1, usize> => interface_states;
        sessions: AtLeast<1, usize> => sessions;
        session_expiry: Period => session_expiry;
        nak_elimination: Written<Time> => nak_elimination;
        nak_repeat: Period => nak_repeat;
        nak_retries: u32 => nak_retries;
        state_expiry: Period => state_expiry;
    }
}

/// Keys that are more than a constant.
#[derive(Debug, Default, Deserialize)]
struct OwnKeys {
    paper: Option<bool>,
}

impl Settings for OwnKeys {
    const KEYS: &'static [&'static str] = &["paper"];
}

/// Reads the section.
pub(super) fn read(section: &mut Section<'_>) -> Result<Arc<dyn Protocol>, Mistake> {
    let stream = Stream::read(section)?;
    let own: OwnKeys = section.take()?;
    let channel = channel(Some(stream.source), GROUP);
    let mut pgm = Pgm {
        source: SourceConfig::new(channel),
        receiver: ReceiverConfig::new(channel),
        router: RouterConfig::new(([0, 0, 0, 0], 0).into()),
        deployed: 1.0,
        stream,
    };
    if own.paper == Some(true) {
        // NAKs and retransmissions do not wait [LMS §IV-H].
        (pgm.source.wait, pgm.receiver.nak_backoff) = (Duration::ZERO, Duration::ZERO);
    }
    let keys: SourceKeys = section.take()?;
    keys.apply(&mut pgm.source);
    let keys: ReceiverKeys = section.take()?;
    keys.apply(&mut pgm.receiver);
    let mut part = section.part("router")?;
    let keys: RouterKeys = part.take()?;
    keys.apply(&mut pgm.router);
    pgm.deployed = Deployment::read(&mut part)?;
    part.finish()?;
    section.finish()?;
    Ok(Arc::new(pgm))
}

impl Protocol for Pgm {
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
        let host = Source::host(self.source, stream.send_times(), stream.packet_len);
        simulation.set_app(stream.source, host, Instant::EPOCH)?;
        for &node in &stream.receivers {
            let host = Receiver::host(self.receiver, node_seed(seed, node));
            simulation.set_app(node, host, Instant::EPOCH)?;
        }
        for node in routers(scenario, self.deployed, seed) {
            let hook = router(node, |config| {
                *config = RouterConfig { address: config.address, ..self.router };
            });
            simulation.set_router_hook(node, hook)?;
        }
        Ok(Box::new(Running::new(stream, scenario, simulation.network(), said)))
    }
}

/// Reads a datagram of PGM.
fn said(payload: &[u8]) -> Option<Said> {
    MessageType::of(payload)?;
    match Message::parse(payload).ok()?.message()? {
        Message::Odata { sequence, .. } => Some(Said::Original(sequence)),
        Message::Rdata { sequence, .. } => Some(Said::Repair(sequence)),
        Message::Nak { sequence, .. } => Some(Said::Request(vec![sequence])),
        Message::Spm { next, .. } => Some(Said::Lead(next)),
        Message::Ncf { .. } => None,
    }
}
