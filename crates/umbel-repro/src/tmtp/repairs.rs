//! Counts retransmissions, whoever sends them and by whatever protocol.

use std::any::Any;
use std::time::Duration;

use umbel_sim::trace::{Hop, NoteRecord, PacketRecord, Tracer};
use umbel_sim::{Instant, Kind, Network, NodeId, NodeKind, Simulation};

/// The tracer.
#[derive(Debug)]
pub(super) struct Observer {
    is_host: Vec<bool>,
    sent: Vec<(Instant, NodeId)>,
    crossings: u64,
}

/// Retransmissions of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Repairs {
    /// When each was sent, and by whom.
    pub(super) sent: Vec<(Instant, NodeId)>,
    /// Links that they crossed, all together.
    pub(super) crossings: u64,
}

impl Observer {
    pub(super) fn watch(simulation: &mut Simulation) {
        let network: &Network = simulation.network();
        let is_host = network.nodes().map(|(_, kind)| kind == NodeKind::Host).collect();
        let observer = Observer { is_host, sent: Vec::new(), crossings: 0 };
        simulation.set_tracer(Box::new(observer));
    }

    /// What was seen so far; nothing is watched any more.
    pub(super) fn finish(simulation: &mut Simulation) -> Repairs {
        let tracer: Box<dyn Any> = simulation.take_tracer().expect("it was set");
        let observer = tracer.downcast::<Observer>().expect("it is the one that was set");
        Repairs { sent: observer.sent, crossings: observer.crossings }
    }
}

impl Tracer for Observer {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        if record.packet.kind != Kind::Repair || record.what != Hop::Sent {
            return;
        }
        self.crossings += 1;
        if self.is_host[record.from.0 as usize] {
            self.sent.push((record.at, record.from));
        }
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {}
}

impl Repairs {
    /// Those that this node sent.
    pub(super) fn by(&self, node: NodeId) -> usize {
        self.sent.iter().filter(|(_, sender)| *sender == node).count()
    }

    /// Those during which, or within `span` of which, another node sent one.
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
        let repairs = Repairs { sent, crossings: 0 };
        assert_eq!(repairs.concurrent(Duration::from_millis(100)), 2);
        assert_eq!(repairs.concurrent(Duration::from_secs(1)), 5);
        assert_eq!((repairs.by(NodeId(1)), repairs.by(NodeId(4))), (3, 0));
    }
}
