//! Relay servers: a receiver of one channel whose bytes are the stream of another [SMO §V-D].
//!
//! The two halves are programs of two nodes, with a session between them instead of memory. The
//! receiving half reads on when the sending half has written, so that a relay holds no more than
//! its buffers.

use std::collections::VecDeque;

use bytes::Bytes;
use umbel_engine::host::{PortError, PortSpec};

#[cfg(doc)]
use super::Feed;
use super::SourceHost;
use crate::app::{App, Context};
use crate::network::NodeId;
use crate::outside::Outside;
use crate::packet::Packet;

/// Bytes that came from the receiving half.
#[derive(Debug, Default)]
pub struct Inbox(VecDeque<Bytes>);

impl Outside<Bytes> for Inbox {
    fn open(&mut self, _context: &mut Context<'_>, _spec: &PortSpec) -> Result<(), PortError> {
        Err(PortError("a source opens no ports".to_owned()))
    }

    fn message(&mut self, _context: &mut Context<'_>, _from: NodeId, message: Bytes) {
        self.0.push_back(message);
    }

    fn poll(&mut self, _context: &mut Context<'_>) -> Option<Bytes> {
        self.0.pop_front()
    }
}

/// The sending half of a relay. The other one is a [`Crowd`](super::Crowd) of one receiver that
/// [passes on](super::Crowd::pass_on) to this node.
#[derive(Debug)]
pub struct Relay {
    source: SourceHost,
    /// Node of the receiving half.
    receiver: NodeId,
    /// Bytes whose writing the receiving half knows of.
    told: u64,
}

impl Relay {
    /// Creates the sending half, whose feed is [`Feed::relayed`], for a receiver on this node.
    pub fn new(source: SourceHost, receiver: NodeId) -> Relay {
        Relay { source, receiver, told: 0 }
    }

    /// Returns the source.
    pub fn source(&self) -> &SourceHost {
        &self.source
    }

    fn tell(&mut self, context: &mut Context<'_>) {
        let written = self.source.host().record().written;
        if written > self.told {
            let credit = written - std::mem::replace(&mut self.told, written);
            context.send_message(self.receiver, Bytes::copy_from_slice(&credit.to_be_bytes()));
        }
    }
}

impl App for Relay {
    fn start(&mut self, context: &mut Context<'_>) {
        self.source.start(context);
    }

    fn packet(&mut self, context: &mut Context<'_>, packet: &Packet) {
        self.source.packet(context, packet);
        self.tell(context);
    }

    fn message(&mut self, context: &mut Context<'_>, from: NodeId, message: Bytes) {
        self.source.message(context, from, message);
        self.tell(context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.source.wake(context);
        self.tell(context);
    }
}
