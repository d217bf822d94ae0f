//! Recovery of a feed's losses, by each scheme on the same network: who repairs, how soon, and
//! what crosses the links.
//!
//! [`run`] sends a feed over a topology in virtual time, with the engines of
//! [`umbel_engine::tmtp`] and, in the routers, of [`umbel_engine::lms`]. An [`Observer`] measures
//! it, and can as well look at captured packets of a lab.

mod costs;
mod observer;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt::Write as _;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::lms::RouterConfig;
use umbel_engine::tmtp::BlockCount;
use umbel_engine::units::Rate;
use umbel_topology::{Mistake, NodeKind, Topology};
use umbel_wire::feed::Recovery;
use umbel_wire::lms::limits::AROUND_PACKET;

use crate::Simulation;
use crate::network::{Network, NodeId};
use crate::tmtp::{Feed, Receiver, ReceiverHost, Source, SourceHost};
use crate::topology::Schedules;
use crate::trace::{Hop, NoteRecord, PacketRecord, Tracer};

pub use costs::{COLUMNS, Costs};
pub use observer::{Crossed, Observer, kind};

/// Time from the start of the nodes to that of the feed, in which trees form.
const BEFORE: Duration = Duration::from_secs(10);

/// A feed whose recovery is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Bytes of content.
    pub bytes: u64,
    /// Bytes of a symbol; LMS has less for its envelope.
    pub symbol_len: u16,
    /// Symbols of a block.
    pub block_symbols: u8,
    /// Rate of the source.
    pub rate: Rate,
    /// Time after which a run that is not over fails.
    pub limit: Duration,
}

impl Plan {
    /// Creates a plan as `umbel send` has it at 20 Mbit/s.
    pub fn of_bytes(bytes: u64) -> Plan {
        let rate = Rate::from_bits_per_s(20_000_000).expect("it is not 0");
        let limit = Duration::from_mins(30);
        Plan { bytes, symbol_len: 1368, block_symbols: 64, rate, limit }
    }

    fn symbol_len(&self, recovery: Recovery) -> u16 {
        match recovery {
            Recovery::Lms => self.symbol_len - AROUND_PACKET as u16,
            Recovery::Tree | Recovery::Srm | Recovery::Source => self.symbol_len,
        }
    }
}

/// The tracer that passes everything to an observer.
#[derive(Debug)]
struct Watch {
    observer: Observer,
    names: Vec<String>,
}

impl Tracer for Watch {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        let name = |node: NodeId| self.names[node.0 as usize].as_str();
        let (payload, wire_len) = (&record.packet.payload, u64::from(record.packet.wire_len));
        match record.what {
            Hop::Sent => {
                self.observer.on_sent(name(record.from), name(record.to), payload, wire_len);
            }
            Hop::Delivered => self.observer.on_arrived(record.at, name(record.to), payload),
            _ => {}
        }
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {}
}

/// Sends a feed from the host `source` to all others of a topology. With LMS all routers do LMS,
/// and `change` sets values of theirs other than the defaults.
///
/// # Errors
///
/// If the topology is none for the simulator, or a receiver does not get everything in time. The
/// text says which.
pub fn run(
    topology: &Topology,
    source: &str,
    plan: &Plan,
    recovery: Recovery,
    seed: u64,
    change: impl Fn(&mut RouterConfig),
) -> Result<Costs, String> {
    let network = Network::from_topology(topology, &Schedules::new());
    let network = network.map_err(|m: Mistake| m.to_string())?;
    let source_node = NodeId::named(topology, source).ok_or("the topology has no such source")?;
    let hosts = topology.nodes.iter().enumerate().filter(|(_, node)| node.kind == NodeKind::Host);
    let nodes = hosts.map(|(index, _)| NodeId(index as u32));
    let receivers: Vec<NodeId> = nodes.filter(|node| *node != source_node).collect();
    let feed = Feed {
        source: source_node,
        symbol_len: plan.symbol_len(recovery),
        block_symbols: plan.block_symbols,
        fec: true,
        recovery,
        seed,
    };
    let observer = Observer::new(topology, source);
    let names = network.nodes().map(|(node, _)| network.name(node).to_owned()).collect();
    let routers: Vec<NodeId> = network
        .nodes()
        .filter(|(_, kind)| recovery == Recovery::Lms && *kind == crate::NodeKind::Router)
        .map(|(node, _)| node)
        .collect();
    let mut simulation = Simulation::new(network, seed);
    simulation.set_tracer(Box::new(Watch { observer, names }));
    for router in routers {
        let hook = crate::lms::router(router, seed, &change);
        simulation.set_router_hook(router, hook).map_err(|error| error.to_string())?;
    }
    let begin = Instant::EPOCH + BEFORE;
    let symbols = plan.bytes.div_ceil(u64::from(feed.symbol_len));
    let (full, rest) =
        (symbols / u64::from(plan.block_symbols), symbols % u64::from(plan.block_symbols));
    let runs = [(full as u32, plan.block_symbols), (u32::from(rest > 0), rest as u8)];
    let runs = runs.into_iter().filter(|(count, _)| *count > 0);
    let runs = runs.map(|(count, symbols)| (begin, BlockCount { count, symbols }));
    let host = Source::host(&feed, feed.source_config(plan.rate), runs);
    simulation.set_app(source_node, host, Instant::EPOCH).map_err(|error| error.to_string())?;
    for (n, &node) in receivers.iter().enumerate() {
        let mut receiver = Receiver::default();
        // As in `umbel recv`, nobody repairs faster than the source sends.
        receiver.repair_at(plan.rate);
        let host = receiver.host(&feed, feed.receiver_config(node));
        let at = Instant::EPOCH + Duration::from_millis(37 * n as u64);
        simulation.set_app(node, host, at).map_err(|error| error.to_string())?;
    }
    let completed = |simulation: &Simulation, node| {
        simulation.app::<ReceiverHost>(node).and_then(|host| host.host().completed())
    };
    let is_over = |simulation: &Simulation| {
        let source = simulation.app::<SourceHost>(source_node);
        source.is_some_and(|source| source.host().completed().is_some())
            && receivers.iter().all(|&node| completed(simulation, node).is_some())
    };
    while !is_over(&simulation) && simulation.now() < begin + plan.limit {
        simulation.run_until(simulation.now() + Duration::from_secs(1));
    }
    if !is_over(&simulation) {
        return Err(unfinished(&simulation, source_node, &receivers));
    }
    let last = receivers.iter().filter_map(|&node| completed(&simulation, node)).max();
    let took = last.map_or(Duration::ZERO, |last| last.since(begin));
    let tracer: Box<dyn Any> = simulation.take_tracer().ok_or("the tracer is gone")?;
    let watch = tracer.downcast::<Watch>().map_err(|_| "the tracer is another")?;
    Ok(Costs::of(&watch.observer, topology, source, took))
}

/// Describes a run that came to no end.
fn unfinished(simulation: &Simulation, source: NodeId, receivers: &[NodeId]) -> String {
    let mut text = format!("not over at {:?}", simulation.now());
    for node in receivers {
        if let Some(host) = simulation.app::<ReceiverHost>(*node) {
            let _ = write!(text, "\n{node:?}: {:?}, {:?}", host.host(), host.engine().stats());
        }
    }
    if let Some(host) = simulation.app::<SourceHost>(source) {
        let _ = write!(text, "\nsource: {:?}, {:?}", host.host(), host.engine().stats());
    }
    text
}
