//! Datagrams that a router has to send.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use umbel_wire::lms::{Message, PlainRequest};

use super::offers::Replier;
use crate::router::{RouterDestination, RouterTransmit};

/// Datagrams in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    due: VecDeque<RouterTransmit>,
    /// Room in which messages are written.
    scratch: Vec<u8>,
}

impl Outbox {
    pub(super) fn send(&mut self, to: RouterDestination, alert: bool, message: &Message<'_>) {
        self.scratch.clear();
        message.emit(&mut self.scratch);
        let payload = Bytes::copy_from_slice(&self.scratch);
        self.due.push_back(RouterTransmit { to, alert, payload });
    }

    /// Sends a request to a replier, or upstream.
    pub(super) fn send_request(&mut self, replier: Option<&Replier>, request: &PlainRequest<'_>) {
        let channel = request.channel();
        let upstream = channel.source.map(|source| SocketAddr::new(source, channel.port));
        let Some(to) = replier.map(|replier| replier.neighbour).or(upstream) else { return };
        // A buffer that is full becomes `Bytes` as it is.
        let mut payload = Vec::with_capacity(request.message_len());
        request.emit(&mut payload);
        let (to, alert) = (RouterDestination::Host(to), replier.is_none());
        self.due.push_back(RouterTransmit { to, alert, payload: payload.into() });
    }

    /// Sends a whole message, without Router Alert.
    pub(super) fn send_bytes(&mut self, to: RouterDestination, message: &[u8]) {
        let payload = Bytes::copy_from_slice(message);
        self.due.push_back(RouterTransmit { to, alert: false, payload });
    }

    pub(super) fn pop(&mut self) -> Option<RouterTransmit> {
        self.due.pop_front()
    }
}
