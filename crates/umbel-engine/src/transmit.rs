//! The datagrams and membership changes that pass between an engine and its host.

use std::net::SocketAddr;

use bytes::Bytes;
use umbel_wire::Channel;

/// Bytes of a link's MTU that are left for headers of any kind: IP, UDP, tunnels, authentication.
/// Full data packets take the rest. Chosen.
pub const MTU_RESERVE: u16 = 100;

/// A reliable, ordered session between a client and a server, numbered by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// The destination of a datagram, or the way by which it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A session: whole control messages, never lost or reordered while the session lasts.
    Session(SessionId),
    /// A multicast channel: datagrams, best effort.
    Channel(Channel),
    /// A single host: datagrams, best effort.
    Host(SocketAddr),
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The session, the channel (group, port, and the sender as `source`) or the host by which it
    /// arrived.
    pub by: Address,
    /// Number of further hops that it could have gone, the remainder of its initial hop limit.
    /// `None` if the host does not know.
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

/// The class that determines how fast packets may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RateClass {
    /// Control messages. They never wait; outside sessions their bytes count for
    /// [`Data`](RateClass::Data).
    Control,
    /// Packets that their own congestion window bounds, such as those of a connection. They never
    /// wait, and count for no pace: what goes to one receiver does not slow down the group. Answers
    /// to strangers belong here, if their number is bounded: otherwise a flood of questions would
    /// take the pace of the data.
    SelfClocked,
    /// Data packets. They wait for the pace of the channel.
    Data,
    /// Packets of one layer of a layered stream, below [`LAYERS`](RateClass::LAYERS). Each layer
    /// has its own pace.
    Layer(u8),
}

impl RateClass {
    /// Maximum number of layers of a stream.
    pub const LAYERS: u8 = 16;
}

/// Number of packets of each class that may be sent now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    data: usize,
    layers: [u16; RateClass::LAYERS as usize],
}

impl Allowance {
    /// Creates an allowance of this number of data packets, and none of any layer.
    pub const fn data(packets: usize) -> Allowance {
        Allowance { data: packets, layers: [0; RateClass::LAYERS as usize] }
    }

    /// Creates an allowance of this number of packets of each class.
    pub const fn of_each(packets: u16) -> Allowance {
        Allowance { data: packets as usize, layers: [packets; RateClass::LAYERS as usize] }
    }

    /// Sets the number of packets of a class. Control messages and self-clocked packets need none.
    pub fn set(&mut self, class: RateClass, packets: usize) {
        match class {
            RateClass::Control | RateClass::SelfClocked => {}
            RateClass::Data => self.data = packets,
            RateClass::Layer(layer) => {
                if let Some(place) = self.layers.get_mut(usize::from(layer)) {
                    *place = u16::try_from(packets).unwrap_or(u16::MAX);
                }
            }
        }
    }

    /// Returns the number of packets of a class.
    pub fn of(&self, class: RateClass) -> usize {
        match class {
            RateClass::Control | RateClass::SelfClocked => usize::MAX,
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
    /// Destination of all of them.
    pub to: Address,
    /// Maximum number of hops, at least 1. `None` leaves it to the host. It has no effect on a
    /// session.
    pub hop_limit: Option<u8>,
    /// Class whose pace they wait for.
    pub class: RateClass,
    /// Whether routers on the way must look at them: the IP Router Alert option [RFC 2113].
    pub alert: bool,
}

impl Transmit {
    /// Creates a transmit of control messages, with the host's hop limit.
    pub const fn control(to: Address) -> Transmit {
        Transmit { to, hop_limit: None, class: RateClass::Control, alert: false }
    }

    /// Creates a transmit that is bounded by its own congestion window, with the host's hop limit.
    pub const fn self_clocked(to: Address) -> Transmit {
        Transmit { class: RateClass::SelfClocked, ..Transmit::control(to) }
    }

    /// Creates a transmit of data packets, with the host's hop limit.
    pub const fn data(to: Address) -> Transmit {
        Transmit { class: RateClass::Data, ..Transmit::control(to) }
    }

    /// Sets the hop limit. `None` leaves it to the host.
    #[must_use]
    pub const fn within(self, hop_limit: Option<u8>) -> Transmit {
        Transmit { hop_limit, ..self }
    }
}

/// The buffer for the datagrams of one [`Engine::poll_transmit`](crate::Engine::poll_transmit).
///
/// A datagram is a head that the engine writes and a body that it only refers to. A symbol is
/// therefore not copied between the encoder and the socket, and simulated packets share their
/// payloads.
#[derive(Debug, Default)]
pub struct TransmitBuf {
    allowance: Allowance,
    heads: Vec<u8>,
    datagrams: Vec<(usize, Bytes)>,
}

impl TransmitBuf {
    /// Creates an empty buffer with this allowance.
    pub fn new(allowance: Allowance) -> TransmitBuf {
        TransmitBuf { allowance, ..TransmitBuf::default() }
    }

    /// Empties the buffer, keeping its memory, and sets its allowance.
    pub fn reset(&mut self, allowance: Allowance) {
        self.allowance = allowance;
        self.heads.clear();
        self.datagrams.clear();
    }

    /// Returns the number of packets of a class that may be added to an empty buffer.
    pub fn allows(&self, class: RateClass) -> usize {
        self.allowance.of(class)
    }

    /// Lowers the number of packets of a class that may be added, if it is higher.
    pub fn limit(&mut self, class: RateClass, packets: usize) {
        let packets = packets.min(self.allowance.of(class));
        self.allowance.set(class, packets);
    }

    /// Adds a control message.
    pub fn push_message(&mut self, message: Vec<u8>) {
        self.push(&[], message.into());
    }

    /// Adds a control message that `write` appends to the bytes it is given. It takes no memory of
    /// its own.
    pub fn write_message(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.push_with(|out| {
            write(out);
            true
        });
    }

    /// Returns the number of bytes of all datagrams.
    pub fn bytes(&self) -> usize {
        self.heads.len() + self.datagrams.iter().map(|(_, body)| body.len()).sum::<usize>()
    }

    /// Adds a datagram: `head` followed by `body`.
    pub fn push(&mut self, head: &[u8], body: Bytes) {
        self.heads.extend_from_slice(head);
        self.datagrams.push((self.heads.len(), body));
    }

    /// Returns the datagrams as whole messages.
    pub fn messages(&self) -> impl Iterator<Item = Bytes> {
        self.iter().map(
            |(head, body)| {
                if head.is_empty() { body.clone() } else { [head, body].concat().into() }
            },
        )
    }

    /// Adds a datagram that `write` appends to the bytes it is given. Nothing is added if it
    /// returns `false`, before it has appended anything.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let written = write(&mut self.heads);
        if written {
            self.datagrams.push((self.heads.len(), Bytes::new()));
        }
        written
    }

    /// Returns whether another packet of the class may be added. The allowance must not be used up,
    /// and the last packet must have the length of the first.
    pub fn has_room(&self, class: RateClass) -> bool {
        let last = self.datagrams.len().saturating_sub(1);
        self.datagrams.len() < self.allows(class) && self.len_of(last) == self.len_of(0)
    }

    /// Returns whether a packet of `packet_len` bytes may be added, which must not be longer than
    /// the first.
    pub fn admits(&self, packet_len: usize) -> bool {
        self.len_of(0).is_none_or(|first| packet_len <= first)
    }

    /// Returns the length of a datagram in bytes.
    fn len_of(&self, index: usize) -> Option<usize> {
        let (end, body) = self.datagrams.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.datagrams[before].0);
        Some(end - start + body.len())
    }

    /// Returns the number of datagrams.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Returns whether there are no datagrams.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Returns the head and body of each datagram, in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &Bytes)> {
        let mut start = 0;
        self.datagrams.iter().map(move |(end, body)| {
            let head = &self.heads[start..*end];
            start = *end;
            (head, body)
        })
    }
}
