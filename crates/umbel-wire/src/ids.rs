//! Identifiers of sessions, objects and channels on the wire.

use std::cmp::Ordering;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Routers look up each packet's channel among many: addresses are compared as numbers.
impl Ord for Channel {
    fn cmp(&self, other: &Channel) -> Ordering {
        let by_source = match (self.source, other.source) {
            (Some(one), Some(other)) => compare(one, other),
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        by_source
            .then_with(|| compare(self.group, other.group))
            .then_with(|| self.port.cmp(&other.port))
    }
}

impl PartialOrd for Channel {
    fn partial_cmp(&self, other: &Channel) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn compare(one: IpAddr, other: IpAddr) -> Ordering {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => one.to_bits().cmp(&other.to_bits()),
        (IpAddr::V6(one), IpAddr::V6(other)) => one.to_bits().cmp(&other.to_bits()),
        (one, other) => one.is_ipv6().cmp(&other.is_ipv6()),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses() -> impl Strategy<Value = IpAddr> {
        // Few different ones, so that some are equal.
        let last = prop_oneof![0..3_u8, 254..=255_u8];
        (any::<bool>(), last.clone(), last).prop_map(|(v6, first, last)| {
            if v6 {
                [first.into(), 0, 0, 0, 0, 0, 0, last.into()].into()
            } else {
                [first, 0, 0, last].into()
            }
        })
    }

    fn channels() -> impl Strategy<Value = Channel> {
        (proptest::option::of(addresses()), addresses(), 0..3_u16)
            .prop_map(|(source, group, port)| Channel { source, group, port })
    }

    proptest! {
        #[test]
        fn channels_have_the_order_of_their_fields(one in channels(), other in channels()) {
            let fields = |channel: Channel| (channel.source, channel.group, channel.port);
            prop_assert_eq!(one.cmp(&other), fields(one).cmp(&fields(other)));
        }
    }
}
