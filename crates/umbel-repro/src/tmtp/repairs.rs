//! Counts retransmissions and requests, of any sender and protocol.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use umbel_sim::trace::{Hop, NoteRecord, PacketRecord, Tracer};
use umbel_sim::{Instant, Kind, Network, NodeId, NodeKind, Simulation};

/// The tracer that counts.
#[derive(Debug)]
pub(super) struct Observer {
    is_host: Vec<bool>,
    seen: Repairs,
}

/// Retransmissions of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Repairs {
    /// Time and sender of each retransmission.
    pub(super) sent: Vec<(Instant, NodeId)>,
    /// Number of links that they crossed, in total.
    pub(super) crossings: u64,
    /// Number of copies of them that arrived at hosts.
    pub(super) heard: u64,
    /// Number of NACKs and other requests that arrived at each host.
    pub(super) requests: BTreeMap<NodeId, u64>,
}

impl Observer {
    pub(super) fn watch(simulation: &mut Simulation) {
        let network: &Network = simulation.network();
        let is_host = network.nodes().map(|(_, kind)| kind == NodeKind::Host).collect();
        simulation.set_tracer(Box::new(Observer { is_host, seen: Repairs::default() }));
    }

    /// Ends the observation and returns its result.
    pub(super) fn finish(simulation: &mut Simulation) -> Repairs {
        let tracer: Box<dyn Any> = simulation.take_tracer().expect("it was set");
        tracer.downcast::<Observer>().expect("it is the one that was set").seen
    }
}

impl Tracer for Observer {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        let is_host = |node: NodeId| self.is_host[node.0 as usize];
        match (record.packet.kind, record.what) {
            (Kind::Repair, Hop::Sent) => {
                self.seen.crossings += 1;
                if is_host(record.from) {
                    self.seen.sent.push((record.at, record.from));
                }
            }
            (Kind::Repair, Hop::Delivered) => self.seen.heard += u64::from(is_host(record.to)),
            (Kind::Nak, Hop::Delivered) if is_host(record.to) => {
                *self.seen.requests.entry(record.to).or_default() += 1;
            }
            _ => {}
        }
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {}
}

impl Repairs {
    /// Returns the number of retransmissions that this node sent.
    pub(super) fn by(&self, node: NodeId) -> usize {
        self.sent.iter().filter(|(_, sender)| *sender == node).count()
    }

    /// Returns the number of retransmissions within `span` of which another node sent one.
    pub(super) fn concurrent(&self, span: Duration) -> usize {
        let is_near = |a: Instant, b: Instant| a.max(b).since(a.min(b)) < span;
        let is_concurrent = |&&(at, node): &&(Instant, NodeId)| {
            self.sent.iter().any(|&(other, by)| by != node && is_near(at, other))
        };
        self.sent.iter().filter(is_concurrent).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_of_different_nodes_within_the_span_are_concurrent() {
        let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
        let sent = vec![
            (at(0), NodeId(1)),
            (at(10), NodeId(1)),
            (at(500), NodeId(2)),
            (at(540), NodeId(3)),
            (at(900), NodeId(1)),
        ];
        let repairs = Repairs { sent, ..Repairs::default() };
        assert_eq!(repairs.concurrent(Duration::from_millis(100)), 2);
        assert_eq!(repairs.concurrent(Duration::from_secs(1)), 5);
        assert_eq!((repairs.by(NodeId(1)), repairs.by(NodeId(4))), (3, 0));
    }
}
