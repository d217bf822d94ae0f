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

/// What decides how fast packets may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RateClass {
    /// Control messages. They never wait; outside sessions their bytes count for
    /// [`Data`](RateClass::Data).
    Control,
    /// Data packets: they wait for the pace of the channel.
    Data,
    /// Packets of one layer of a layered stream, below [`LAYERS`](RateClass::LAYERS). Each layer
    /// has a pace of its own.
    Layer(u8),
}

impl RateClass {
    /// Most layers of a stream.
    pub const LAYERS: u8 = 16;
}

/// How many packets of each class may leave now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    data: usize,
    layers: [u16; RateClass::LAYERS as usize],
}

impl Allowance {
    /// So many data packets, and none of any layer.
    pub const fn data(packets: usize) -> Allowance {
        Allowance { data: packets, layers: [0; RateClass::LAYERS as usize] }
    }

    /// Sets the number of packets of a class. Control messages need no allowance.
    pub fn set(&mut self, class: RateClass, packets: usize) {
        match class {
            RateClass::Control => {}
            RateClass::Data => self.data = packets,
            RateClass::Layer(layer) => {
                if let Some(place) = self.layers.get_mut(usize::from(layer)) {
                    *place = u16::try_from(packets).unwrap_or(u16::MAX);
                }
            }
        }
    }

    /// The number of packets of a class.
    pub fn of(&self, class: RateClass) -> usize {
        match class {
            RateClass::Control => usize::MAX,
            RateClass::Data => self.data,
            RateClass::Layer(layer) => {
                self.layers.get(usize::from(layer)).copied().unwrap_or(0).into()
            }
        }
    }
}

/// Datagrams that an engine has put into a [`TransmitBuf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where all of them go.
    pub to: Address,
    /// How many hops they may go, at least 1; `None` leaves it to the host. Means nothing on a
    /// session.
    pub hop_limit: Option<u8>,
    /// What they wait for.
    pub class: RateClass,
    /// Whether routers on the way are to look at them: the IP Router Alert option [RFC 2113].
    pub alert: bool,
}

impl Transmit {
    /// Control messages, as far as the host lets them go.
    pub const fn control(to: Address) -> Transmit {
        Transmit { to, hop_limit: None, class: RateClass::Control, alert: false }
    }

    /// Data packets, as far as the host lets them go.
    pub const fn data(to: Address) -> Transmit {
        Transmit { class: RateClass::Data, ..Transmit::control(to) }
    }

    /// The same over so many hops at most.
    #[must_use]
    pub const fn within(self, hop_limit: Option<u8>) -> Transmit {
        Transmit { hop_limit, ..self }
    }
}

/// Takes the datagrams of one [`Engine::poll_transmit`](crate::Engine::poll_transmit).
///
/// A datagram is a head that the engine writes and a body that it only refers to, so that a
/// symbol is not copied between the encoder and the socket, and simulated packets share their
/// payloads.
#[derive(Debug, Default)]
pub struct TransmitBuf {
    allowance: Allowance,
    heads: Vec<u8>,
    datagrams: Vec<(usize, Bytes)>,
}

impl TransmitBuf {
    /// An empty buffer that lets so many packets through.
    pub fn new(allowance: Allowance) -> TransmitBuf {
        TransmitBuf { allowance, ..TransmitBuf::default() }
    }

    /// Empties the buffer, keeping its memory, and lets so many packets through.
    pub fn reset(&mut self, allowance: Allowance) {
        self.allowance = allowance;
        self.heads.clear();
        self.datagrams.clear();
    }

    /// How many packets of a class may be added to an empty buffer.
    pub fn allows(&self, class: RateClass) -> usize {
        self.allowance.of(class)
    }

    /// Adds a control message.
    pub fn push_message(&mut self, message: Vec<u8>) {
        self.push(&[], message.into());
    }

    /// Bytes of all datagrams.
    pub fn bytes(&self) -> usize {
        self.heads.len() + self.datagrams.iter().map(|(_, body)| body.len()).sum::<usize>()
    }

    /// Adds a datagram: `head` followed by `body`.
    pub fn push(&mut self, head: &[u8], body: Bytes) {
        self.heads.extend_from_slice(head);
        self.datagrams.push((self.heads.len(), body));
    }

    /// The datagrams as whole messages.
    pub fn messages(&self) -> impl Iterator<Item = Bytes> {
        self.iter().map(
            |(head, body)| {
                if head.is_empty() { body.clone() } else { [head, body].concat().into() }
            },
        )
    }

    /// Returns whether another packet of the class may be added: as many are allowed, and the last
    /// was no shorter than the first.
    pub fn has_room(&self, class: RateClass) -> bool {
        let last = self.datagrams.len().saturating_sub(1);
        self.datagrams.len() < self.allows(class) && self.len_of(last) == self.len_of(0)
    }

    /// Returns whether a packet of so many bytes may join those that were added: it is no longer
    /// than the first.
    pub fn admits(&self, packet_len: usize) -> bool {
        self.len_of(0).is_none_or(|first| packet_len <= first)
    }

    /// Bytes of a datagram.
    fn len_of(&self, index: usize) -> Option<usize> {
        let (end, body) = self.datagrams.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.datagrams[before].0);
        Some(end - start + body.len())
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
