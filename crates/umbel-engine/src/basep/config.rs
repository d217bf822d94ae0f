//! Every constant of the protocol, as a default that experiments can sweep.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Channel;

use crate::stream::WindowLimits;

/// How a source behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Where data go; its source is this host.
    pub channel: Channel,
    /// All receivers, each by the address that its ACKs come from.
    pub receivers: Vec<SocketAddr>,
    /// Packets that may be on their way or unacknowledged at once: `WIN_BASEP`; at least 1. `None`
    /// is `BURST_BASEP`, which sends all that there is. Default `None`; the paper's window is 5
    /// [TMTP "The Test Environment"].
    pub window: Option<u64>,
    /// A packet that was not acknowledged by all after this is sent again. Twice the round trip to
    /// the farthest receiver [TMTP "The Test Environment"]; default 2 s.
    pub timeout: Duration,
    /// Retransmissions of one packet, after which receivers that still did not acknowledge it are
    /// given up. The paper has no bound; default 100.
    pub retransmissions: u32,
    /// Packets that are held at once, sent or not. Default 4,096.
    pub queue_packets: usize,
}

impl SourceConfig {
    /// The defaults on this channel.
    pub fn new(channel: Channel, receivers: Vec<SocketAddr>) -> SourceConfig {
        SourceConfig {
            channel,
            receivers,
            window: None,
            timeout: Duration::from_secs(2),
            retransmissions: 100,
            queue_packets: 4096,
        }
    }
}

/// How a receiver behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// What it receives; it has a source.
    pub channel: Channel,
    /// What it holds until it can be delivered in order. A packet without room is not acknowledged.
    pub window: WindowLimits,
}

impl ReceiverConfig {
    /// The defaults on this channel.
    pub fn new(channel: Channel) -> ReceiverConfig {
        ReceiverConfig { channel, window: WindowLimits::default() }
    }
}
