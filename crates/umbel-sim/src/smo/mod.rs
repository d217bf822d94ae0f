//! TCP-SMO's source and receivers as programs of hosts: the engines of [`umbel_engine::smo`],
//! unchanged.
//!
//! - [`SourceHost`] runs a source, with a [`Feed`] of bytes that follow from their positions.
//! - [`Crowd`] runs many receivers on one host, as the paper's experiments did [SMO §V-A]. A packet
//!   that arrives is given to each of them, with their own losses.
//! - [`Relay`] passes on what a receiver gets: together they are a relay server [SMO §V-D].
//!
//! ```
//! use umbel_sim::smo::{Crowd, Feed, Session};
//! use umbel_sim::{Instant, LinkSpec, Network, Simulation};
//!
//! let mut network = Network::new();
//! let (source, host) = (network.host("source"), network.host("receivers"));
//! network.link(source, host, LinkSpec::default(), LinkSpec::default())?;
//! let mut simulation = Simulation::new(network, 1);
//! let session = Session::new(source);
//! let feed = Feed::bulk(100_000).wait_for(10);
//! simulation.set_app(source, session.source_host(session.source_config(), feed, 1), Instant::EPOCH)?;
//! let crowd = Crowd::new(&session, session.receiver_config(), 10, 1);
//! simulation.set_app(host, crowd, Instant::EPOCH)?;
//! simulation.run_until(Instant::from_nanos(10_000_000_000));
//! let crowd: &Crowd = simulation.app(host).unwrap();
//! assert!(crowd.members().all(|member| member.is_whole(100_000)));
//! # Ok::<(), umbel_sim::NetworkError>(())
//! ```

mod content;
mod crowd;
mod feed;
mod relay;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use umbel_engine::smo::receiver::ReceiverConfig;
use umbel_engine::smo::{Source, SourceConfig};
use umbel_wire::Channel;
use umbel_wire::tcp::{Flags, Segment, Seq};

pub use self::crowd::{Behaviour, Crowd, Member, Noise};
pub use self::feed::{Feed, Record};
pub use self::relay::{Inbox, Relay};
use crate::address::{PORT, address_of, channel};
use crate::engine_host::{EngineHost, HostConfig, KindOf};
use crate::network::NodeId;
use crate::packet::Kind;
use crate::random::{Purpose, stream};

/// Host that runs a source.
pub type SourceHost = EngineHost<Source, Feed, Inbox>;

/// Bytes of the headers of IPv4, and of what Ethernet adds: header, check sequence, preamble and
/// gap.
pub const OVERHEAD: u32 = 20 + 38;

/// Number of the group.
const GROUP: u32 = 1;
/// Sequence number of position 0: streams of more than a few hundred kilobytes pass the wrap.
const BASE: u32 = u32::MAX - 300_000;

/// A source and its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Node of the source.
    pub source: NodeId,
}

impl Session {
    /// Creates the session of a source.
    pub fn new(source: NodeId) -> Session {
        Session { source }
    }

    /// Returns the channel.
    pub fn channel(&self) -> Channel {
        channel(Some(self.source), GROUP)
    }

    /// Returns the address of the listening socket.
    pub fn address(&self) -> SocketAddr {
        (address_of(self.source), PORT).into()
    }

    /// Returns the default configuration of the source.
    pub fn source_config(&self) -> SourceConfig {
        let config = SourceConfig::new(PORT, self.channel());
        // The receivers are honest: nobody need be tried.
        let skip_every = 0;
        SourceConfig {
            base: Some(BASE),
            children: 1 << 20,
            half_open: 1 << 20,
            skip_every,
            ..config
        }
    }

    /// Returns the default configuration of receivers with a helper.
    pub fn receiver_config(&self) -> ReceiverConfig {
        ReceiverConfig { channel: Some(self.channel()), ..ReceiverConfig::new(self.address()) }
    }

    /// Creates a host that runs the source.
    pub fn source_host(&self, config: SourceConfig, feed: Feed, seed: u64) -> SourceHost {
        let random = stream(seed, Purpose::Node, self.source.0.into());
        EngineHost::new(Source::new(config, random), feed, host_config())
    }
}

fn host_config() -> HostConfig {
    HostConfig {
        overhead: OVERHEAD,
        kind: KindOf::Bytes(kind),
        port_of: Some(port_of),
        ..HostConfig::default()
    }
}

/// Returns the purpose of a segment.
pub fn kind(payload: &[u8]) -> Kind {
    match Segment::parse(payload) {
        Ok(segment) if !segment.payload.is_empty() => Kind::Data,
        Ok(segment) if segment.head.flags == Flags::ACK => Kind::Other(0),
        _ => Kind::Control,
    }
}

/// Returns the port of the segment's sender.
fn port_of(payload: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*payload.first_chunk()?))
}

/// Returns the position of a sequence number of a stream, below 4 GiB.
fn position_of(seq: Seq) -> u64 {
    seq.0.wrapping_sub(BASE).into()
}
