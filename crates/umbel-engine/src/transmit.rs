//! What goes into and comes out of an engine.

use std::net::SocketAddr;

use bytes::Bytes;
use umbel_wire::Channel;

/// A reliable, ordered session between a client and a server. The host gives each its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Where a datagram goes to or came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A session: whole control messages, never lost or reordered while the session lasts.
    Session(SessionId),
    /// A multicast channel: datagrams, best effort.
    Channel(Channel),
    /// A single host: datagrams, best effort.
    Host(SocketAddr),
}

/// A datagram that came in.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The session, the channel (group, port, and the sender as `source`) or the host that it
    /// came by.
    pub by: Address,
    /// How many hops it might have gone on: what is left of the hop limit with which it was sent.
    /// `None` where the host does not know.
    pub hop_limit: Option<u8>,
    /// UDP payload, or one control message.
    pub payload: &'a [u8],
}

/// A change of the group membership that an engine asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Receive this channel from now on.
    Join(Channel),
    /// No longer receive this channel.
    Leave(Channel),
}

/// Datagrams that an engine has put into a [`TransmitBuf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where all of them go.
    pub to: Address,
    /// How many hops they may go, at least 1; `None` leaves it to the host. Means nothing on a
    /// session.
    pub hop_limit: Option<u8>,
}

impl Transmit {
    /// Datagrams that go there, as far as the host lets them.
    pub const fn to(to: Address) -> Transmit {
        Transmit { to, hop_limit: None }
    }
}

/// Takes the datagrams of one [`Engine::poll_transmit`](crate::Engine::poll_transmit).
///
/// A datagram is a head that the engine writes and a body that it only refers to, so that a
/// symbol is not copied between the encoder and the socket, and simulated packets share their
/// payloads.
#[derive(Debug, Default)]
pub struct TransmitBuf {
    /// How many data packets the pacer lets through now. Control datagrams do not count.
    pub data_packets: usize,
    heads: Vec<u8>,
    datagrams: Vec<(usize, Bytes)>,
}

impl TransmitBuf {
    /// An empty buffer that lets `data_packets` data packets through.
    pub fn new(data_packets: usize) -> TransmitBuf {
        TransmitBuf { data_packets, ..TransmitBuf::default() }
    }

    /// Empties the buffer, keeping its memory, and lets `data_packets` data packets through.
    pub fn reset(&mut self, data_packets: usize) {
        self.data_packets = data_packets;
        self.heads.clear();
        self.datagrams.clear();
    }

    /// Adds a datagram: `head` followed by `body`.
    pub fn push(&mut self, head: &[u8], body: Bytes) {
        self.heads.extend_from_slice(head);
        self.datagrams.push((self.heads.len(), body));
    }

    /// How many datagrams were added.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether no datagram was added.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// The datagrams in the order in which they were added: head and body.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &Bytes)> {
        let mut start = 0;
        self.datagrams.iter().map(move |(end, body)| {
            let head = &self.heads[start..*end];
            start = *end;
            (head, body)
        })
    }
}
