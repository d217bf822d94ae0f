//! Stamps of a node that has no engine.

use std::net::SocketAddr;

use umbel_wire::tmtp::{Body, Message, NodeId};

use super::{Authentic, Opened};
use crate::tmtp::config::NodeConfig;
use crate::{Address, Datagram, Instant};

/// Stamps the messages of one node and opens those of others, as the engines do: for programs that
/// speak for a node without an engine, such as the attacks among Umbel's tests.
#[derive(Debug)]
pub struct Stamps {
    node: NodeConfig,
    authentic: Authentic,
}

impl Stamps {
    /// Creates the stamps of a node in the feed of this source. `secret` must be random.
    pub fn new(node: NodeConfig, source: (NodeId, SocketAddr), secret: &[u8; 32]) -> Stamps {
        let authentic = Authentic::new(&node, source, secret);
        Stamps { node, authentic }
    }

    /// Returns a message with its stamp, as it goes to an address.
    pub fn seal(&mut self, now: Instant, to: Address, body: Body) -> Vec<u8> {
        let message = Message { feed: self.node.feed, sender: self.node.id, body };
        self.authentic.seal(now, to, &message)
    }

    /// Returns the message in a datagram, if its stamp is good. Parts of the handshake of joining
    /// are answered by [`poll`](Stamps::poll).
    pub fn open(&mut self, now: Instant, datagram: &Datagram<'_>) -> Option<Message> {
        match self.authentic.open(now, datagram, &self.node, |_| true) {
            Ok(Opened::Message(message)) => Some(message),
            _ => None,
        }
    }

    /// Returns the next message to send by itself, and to whom.
    pub fn poll(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        self.authentic.poll(now)
    }
}
