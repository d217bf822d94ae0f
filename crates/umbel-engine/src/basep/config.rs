//! Every constant of the protocol, as a default that experiments can sweep.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Channel;

use crate::reliable::WindowLimits;

/// Configuration of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Channel of the data. Its source address is this host's.
    pub channel: Channel,
    /// All receivers, each by the source address of its ACKs.
    pub receivers: Vec<SocketAddr>,
    /// Number of packets that may be in flight or unacknowledged at once: `WIN_BASEP`; at least 1.
    /// `None` is `BURST_BASEP`, which sends all packets at once. Default `None`; the paper's window
    /// is 5 [TMTP "The Test Environment"].
    pub window: Option<u64>,
    /// Time after which a packet that was not acknowledged by all is sent again. It is twice the
    /// round trip to the farthest receiver [TMTP "The Test Environment"]; default 2 s.
    pub timeout: Duration,
    /// Number of retransmissions of one packet after which receivers that still did not acknowledge
    /// it are given up. The paper has no bound; default 100.
    pub retransmissions: u32,
    /// Whether GOT_IT acknowledges every packet. In the paper it is the application's word, and the
    /// protocol "expects positive ACKs from each receiver" for each packet; default false.
    pub cumulative_got_it: bool,
    /// Number of packets that are held at once, sent or not. Default 4,096.
    pub queue_packets: usize,
}

impl SourceConfig {
    /// Creates the default configuration for this channel.
    pub fn new(channel: Channel, receivers: Vec<SocketAddr>) -> SourceConfig {
        SourceConfig {
            channel,
            receivers,
            window: None,
            timeout: Duration::from_secs(2),
            retransmissions: 100,
            cumulative_got_it: false,
            queue_packets: 4096,
        }
    }
}

/// Configuration of a receiver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// The channel to receive; it has a source.
    pub channel: Channel,
    /// Limits of the packets held for delivery in order. A packet without room is not acknowledged.
    pub window: WindowLimits,
}

impl ReceiverConfig {
    /// Creates the default configuration for this channel.
    pub fn new(channel: Channel) -> ReceiverConfig {
        ReceiverConfig { channel, window: WindowLimits::default() }
    }
}
