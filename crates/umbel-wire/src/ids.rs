//! Identifiers of sessions, objects and channels on the wire.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Transport session identifier: one source's session, unique together with the source address
/// [RFC 5651 §5.1].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tsi(pub u32);

/// Transport object identifier: one object within a session [RFC 5651 §5.1]. The repository assigns
/// one to each version of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Toi(pub u32);

impl Toi {
    /// Identifies packets that probe the path of a data channel; never an item.
    pub const PROBE: Toi = Toi(u32::MAX);
}

/// A BLAKE3 digest of an object or of a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The destination of data packets: a group and port, from one source (SSM, [RFC 4607]) or from
/// any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel {
    /// The only source that receivers accept, or `None` for any-source multicast.
    pub source: Option<IpAddr>,
    /// The multicast group; of the same address family as `source`.
    pub group: IpAddr,
    /// The UDP destination port.
    pub port: u16,
}

impl Channel {
    /// Returns the destination address of this channel's datagrams.
    pub fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.group, self.port)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(source) => write!(f, "{}@{source}", self.destination()),
            None => write!(f, "{}", self.destination()),
        }
    }
}
