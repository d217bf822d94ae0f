//! Competing TCP connections, by the engines of TCP-SMO. A connection is a session of one receiver
//! without a helper. So its source is an ordinary sender and its receiver an ordinary socket.

use std::time::Duration;

use umbel_engine::smo::receiver::ReceiverConfig;
use umbel_engine::smo::{Congestion, SourceConfig};
use umbel_sim::smo::{Behaviour, Crowd, Feed, OVERHEAD, Session};
use umbel_sim::{Instant, NodeId, Simulation};

use super::scenario::PACKET;

/// Congestion control of TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tcp {
    /// [RFC 5681].
    Reno,
    /// [RFC 9438].
    Cubic,
}

impl Tcp {
    /// Both.
    pub const ALL: [Tcp; 2] = [Tcp::Reno, Tcp::Cubic];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Tcp::Reno => "Reno",
            Tcp::Cubic => "CUBIC",
        }
    }
}

/// Payload of a segment. With its headers it is as long as a packet of the stream.
const MSS: u16 = PACKET as u16 - OVERHEAD as u16 - 20;
/// Time between the starts of connections, so that they are not in step. Chosen.
const APART: Duration = Duration::from_millis(137);

/// A connection that always has something to send.
pub(super) struct Connection {
    pub(super) source: NodeId,
    pub(super) receiver: NodeId,
}

impl Connection {
    /// Puts its ends on their nodes.
    pub(super) fn begin(&self, simulation: &mut Simulation, tcp: Tcp, number: u32, seed: u64) {
        let session = Session::new(self.source);
        let congestion = match tcp {
            Tcp::Reno => Congestion::Reno,
            Tcp::Cubic => Congestion::Cubic,
        };
        let config = SourceConfig { mss: MSS, congestion, ..session.source_config() };
        let source = session.source_host(config, Feed::bulk(1 << 31), seed);
        simulation.set_app(self.source, source, Instant::EPOCH).expect("the host is free");
        let config = ReceiverConfig {
            channel: None,
            mss: MSS,
            buffer: 1 << 20,
            window_scale: Some(7),
            ..session.receiver_config()
        };
        let seed = seed << 20 | u64::from(self.receiver.0);
        let connects = APART * (number + (seed % 7) as u32);
        let receiver = Crowd::new(&session, config, 1, seed)
            .behave(|_| Behaviour { connects, ..Behaviour::default() });
        simulation.set_app(self.receiver, receiver, Instant::EPOCH).expect("the host is free");
    }

    /// Returns the bytes that arrived in order, with the headers of their packets.
    pub(super) fn received(&self, simulation: &Simulation) -> f64 {
        let crowd: &Crowd = simulation.app(self.receiver).expect("it runs there");
        let bytes: u64 = crowd.members().map(|member| member.received).sum();
        bytes as f64 * PACKET / f64::from(MSS)
    }
}
