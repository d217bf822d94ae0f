//! Every constant of TMTP, as a default that experiments can sweep.

mod node;

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::feed::Recovery;
use umbel_wire::tmtp::{Manifest, NodeId, limits};

use super::receipt::ReceiptKey;
use crate::bounds::MEMBERS;
use crate::congestion::CongestionConfig;
use crate::lms::config::Cost;
use crate::units::Rate;

pub use node::{Authentication, Draws, List, NodeConfig};

/// Fixed facts of a feed. Every node of it knows that from the session directory, and believes
/// nobody who says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of the source.
    pub id: NodeId,
    /// Unicast address of the source.
    pub source: SocketAddr,
    /// Bytes of a symbol; at least 1.
    pub symbol_len: u16,
    /// Most source symbols of a block, k; at least 1. With 1 a block is a packet, as in the paper.
    pub block_symbols: u8,
    /// Repairs a loss by symbols that were not sent before in the domain, instead of the lost
    /// packets themselves. Of little use with blocks of 1 symbol.
    pub fec: bool,
    /// First blocks, which describe the others. `None` in a pipe.
    pub manifest: Option<Manifest>,
}

/// Parameters of the control tree.
#[derive(Clone, Debug)]
pub struct TreeConfig {
    /// Most managers as children, K. Local members do not count. At least 1. Default 8.
    pub max_children: u16,
    /// Most local members of a domain. Default 4096, a bound of memory, not of the protocol.
    pub max_members: u16,
    /// Most children at one IP address, so that no host takes all places. Default 256.
    pub max_per_host: u16,
    /// Hop limits of an expanding-ring search, ascending. Those above the scope are left out, and
    /// the scope is the last. Default 2, 3, 4, 6, 8, 12, 16, 24, 32.
    pub rings: Vec<u8>,
    /// Time for which answers to a search are collected before the closest is chosen. A ring
    /// without an answer is given up after it. Default 200 ms; at least the round trip to the
    /// ring's edge.
    pub ring_wait: Duration,
    /// Searches of a node in its own subnet before it becomes its manager. Default 4.
    pub subnet_tries: u8,
    /// Time between those searches, times 1 to 2 at random. Also the time after which a
    /// JOIN_REQUEST within the subnet is repeated. Default 50 ms.
    pub subnet_wait: Duration,
    /// Pause of about this length after a search that found no parent within the scope. It
    /// doubles each time, up to `search_backoff_max`. It does not double if some nodes answered
    /// and had no room. Default 500 ms.
    pub search_backoff: Duration,
    /// Longest pause between searches. Default 10 s.
    pub search_backoff_max: Duration,
    /// Time after which JOIN_REQUEST, LEAVE_TREE and FIND_NEW_PARENT are repeated. It doubles
    /// each time. Default 250 ms.
    pub retry: Duration,
    /// Most times that they are sent before the other node is given up. Default 4.
    pub tries: u8,
    /// Number of T_ack after which a silent parent has failed, but not before it could have sent 8
    /// beacons. Default 3.
    pub parent_silence: u32,
    /// Least time after which a silent parent has failed. Default 1 s.
    pub parent_silence_min: Duration,
    /// Number of silences, each as long as a failed parent's, after which a parent is left that
    /// is heard but cut off from the source. Default 4.
    pub detached_patience: u32,
    /// Number of T_ack after which a silent child has gone. Default 20.
    pub child_silence: u32,
    /// Least time after which a silent child has gone. Default 5 s.
    pub child_silence_min: Duration,
    /// Time for which a node is not asked again that did not answer a JOIN_REQUEST, failed as a
    /// parent or sent nonsense. It doubles each time, until the node serves as a parent. For the
    /// same time no child is taken from a host of which one held up the feed. Default 1 s.
    pub bar: Duration,
    /// Time for which a manager with children hears another one before it gives way. It doubles
    /// each time. Default 1 s.
    pub takeover: Duration,
    /// Excess over the hops measured in the other direction up to which a node's own hop count is
    /// believed. Default 2.
    pub hop_slack: u8,
    /// Most WILLING_TO_BE_PARENT, JOIN_CONFIRM and refusals a second, and at once. Default 200.
    pub answers_per_s: u32,
    /// Most of these to one IP address. Default 50.
    pub answers_per_host: u32,
    /// Longest time for which a departing manager waits for its children to find new parents.
    /// Default 5 s.
    pub leave_wait: Duration,
    /// Least time between two beacons, which are sent every T_ack otherwise. Default 50 ms.
    pub beacon_min: Duration,
    /// Most time between two beacons, so that the loss of a few is no failure of the parent.
    /// Default 500 ms.
    pub beacon_max: Duration,
    /// Least pause, times 1 to 2 at random, between two searches of a manager for a parent nearer
    /// to the source. Of the nodes of a ring, the least deep is then taken. Default `None`: a
    /// parent is kept until it fails, and the closest is taken, as in the paper. 5 s suits most
    /// feeds.
    pub improve_every: Option<Duration>,
    /// Longest such pause, to which searches that find nobody double it. Default 160 s.
    pub improve_max: Duration,
}

/// Parameters of T_ack and T_retrans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingConfig {
    /// T_ack while nothing better is known. A receiver uses it until its parent tells. Default
    /// 100 ms. The paper had 1.1 s.
    pub t_ack: Duration,
    /// Number of T_ack in T_retrans, n; at least 2. Default 3 [TMTP, flow control].
    pub intervals: u8,
    /// Adapts T_ack to the round trip to the farthest child and to the number of children.
    /// Default true; the paper fixes it. A manager that does not adapt takes its parent's.
    pub adaptive: bool,
    /// Shortest adaptive T_ack. Default 50 ms.
    pub t_ack_min: Duration,
    /// Longest adaptive T_ack. Default 2 s.
    pub t_ack_max: Duration,
    /// Most ACKs a second that a parent asks for. T_ack grows with its children. Default 1000.
    pub acks_per_s: u32,
}

/// Parameters of a parent's service to its children. The host paces repairs with all other data
/// packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RepairConfig {
    /// Most bytes of symbols that a manager keeps for its children. Once the buffer is full the
    /// manager drops new data and does not acknowledge them [TMTP, flow control]. Default 32 MiB.
    pub buffer: u64,
    /// Most round trips to the farthest child of the domain by which NACKs are delayed. Default
    /// 1.
    pub nack_delay: f64,
    /// Shortest span over which NACKs are spread. Default 5 ms.
    pub nack_delay_min: Duration,
    /// Round trips to the farthest child for which NACKs for a block are ignored after a repair, at
    /// least 5 ms; 0 ignores none. Default 1; the paper has none.
    pub hold_down: f64,
    /// Most NACKs of a node for a block. After these it fetches the block from the source, if it
    /// `fetches`. At least 1. Default 8; the paper repeats no NACK.
    pub nack_tries: u8,
    /// Fetches blocks from the source that the parent did not repair. Default true; the paper has
    /// no way past the tree. Blocks from before a node joined are fetched in any case.
    pub fetches: bool,
    /// Believes beacons and heartbeats that tell how far the source is, so that the loss of the
    /// last packets is found at once. Default true; in the paper the parent's T_retrans finds it.
    pub hearsay: bool,
    /// Most blocks that wait to be repaired. Default 4096.
    pub queue: usize,
    /// Time without progress after which a child is no longer waited for. It counts once more for
    /// each level of managers in the child's subtree, since these wait for their own children.
    /// Default 30 s.
    pub evict_after: Duration,
    /// For how long all children together may hold up the feed without progress, where anyone may
    /// become one. Default `None`: as long as each has until it is evicted.
    pub hold_up: Option<HoldUp>,
}

/// Time for which children may hold up a feed that is open to all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoldUp {
    /// At the beginning. Default 200 ms.
    pub first: Duration,
    /// For each time in which blocks are sent, this share of it. Default 0.05.
    pub share: f64,
}

impl Default for HoldUp {
    fn default() -> HoldUp {
        HoldUp { first: Duration::from_millis(200), share: 0.05 }
    }
}

/// Parameters of a source.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Identity of the node.
    pub node: NodeConfig,
    /// Shape of the feed's blocks. [`Shape::source`] is the source's own address.
    pub shape: Shape,
    /// Parameters of the control tree.
    pub tree: TreeConfig,
    /// Parameters of T_ack and T_retrans.
    pub timing: TimingConfig,
    /// Parameters of its service to its children.
    pub repair: RepairConfig,
    /// Rate, fixed when the group is created [TMTP, flow control]. With congestion control, the
    /// rate of a feed that is not slow.
    pub rate: Rate,
    /// Finds the rate that the paths to the receivers carry. Default `None`: `rate` is fixed, as in
    /// the paper.
    pub congestion: Option<CongestionConfig>,
    /// Most blocks that are sent and not acknowledged by all children. Default `None`: as many as
    /// the rate makes in T_retrans, as the paper defines the window. Its tests had 5 packets.
    pub window: Option<u32>,
    /// Most acknowledged blocks that are kept for late FETCHes. Default `None`: all of them. A
    /// pipe has a bound.
    pub history: Option<u32>,
    /// Most bytes a second that answer FETCHes, as a share of the rate. Default 0.5.
    pub fetch_share: f64,
    /// Credit of each host for fetching before others, where anyone may fetch. Default `None`:
    /// whatever it asks for.
    pub fetch_credit: Option<FetchCredit>,
    /// Secret that it sends last, and nobody knows before: by it receivers believe that the feed is
    /// over. Default `None`.
    pub last_word: Option<[u8; 32]>,
    /// Time between the last data and the first heartbeat. It doubles for each further one, so
    /// that the loss of the last packets is found soon. Default 20 ms.
    pub heartbeat_min: Duration,
    /// Longest time between heartbeats. Default 1 s.
    pub heartbeat_max: Duration,
}

/// Credit of each host for fetching from a feed that is open to all. Each block is answered once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FetchCredit {
    /// Bytes that it may ask for again. Default 64 KiB.
    pub first: u64,
    /// As many more for each byte that it asks for the first time. Default 1.25: where every fifth
    /// packet is lost, each block is asked for again.
    pub again: f64,
    /// Part of the rate that all share beyond that. Default 0.05.
    pub share: f64,
}

impl Default for FetchCredit {
    fn default() -> FetchCredit {
        FetchCredit { first: 64 << 10, again: 1.25, share: 0.05 }
    }
}

/// First block of a feed that a receiver wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Start {
    /// The first block. Blocks that were sent before the receiver joined are fetched.
    #[default]
    Everything,
    /// The first block sent after the receiver joined. The manifest is wanted in any case.
    Now,
}

/// Parameters of a receiver, which is a member, and a manager when it is elected.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Identity of the node.
    pub node: NodeConfig,
    /// Shape of the feed's blocks.
    pub shape: Shape,
    /// First block that the receiver wants. Default everything.
    pub start: Start,
    /// Parameters of the control tree.
    pub tree: TreeConfig,
    /// Parameters of T_ack and T_retrans, as a manager.
    pub timing: TimingConfig,
    /// Parameters of its service to its children, as a manager, and of its own NACKs.
    pub repair: RepairConfig,
    /// Most blocks beyond the first incomplete one that it tracks. Default 65,536.
    pub far_ahead: u32,
    /// Silence of the source after which it counts as gone. Default 10 min. A receiver that is done
    /// waits 5 s.
    pub patience: Duration,
    /// Cost at which it offers itself to routers with LMS. Default the latency.
    pub cost: Cost,
    /// Key with which it proves that it is done. Default `None`: it is believed.
    pub receipt: Option<ReceiptKey>,
    /// BLAKE3 digest of the source's last word. Default `None`: whoever sends as the source is
    /// believed that the feed is over.
    pub last_word: Option<[u8; 32]>,
}

impl Default for TreeConfig {
    fn default() -> TreeConfig {
        TreeConfig {
            max_children: 8,
            max_members: MEMBERS.all as u16,
            max_per_host: MEMBERS.most_of_host() as u16,
            rings: vec![2, 3, 4, 6, 8, 12, 16, 24, 32],
            ring_wait: Duration::from_millis(200),
            subnet_tries: 4,
            subnet_wait: Duration::from_millis(50),
            search_backoff: Duration::from_millis(500),
            search_backoff_max: Duration::from_secs(10),
            retry: Duration::from_millis(250),
            tries: 4,
            parent_silence: 3,
            parent_silence_min: Duration::from_secs(1),
            detached_patience: 4,
            child_silence: 20,
            child_silence_min: Duration::from_secs(5),
            bar: Duration::from_secs(1),
            takeover: Duration::from_secs(1),
            hop_slack: 2,
            answers_per_s: 200,
            answers_per_host: 50,
            leave_wait: Duration::from_secs(5),
            beacon_min: Duration::from_millis(50),
            beacon_max: Duration::from_millis(500),
            improve_every: None,
            improve_max: Duration::from_secs(160),
        }
    }
}

impl TreeConfig {
    /// Creates a tree that is improved while it stands.
    pub fn improving() -> TreeConfig {
        TreeConfig { improve_every: Some(Duration::from_secs(5)), ..TreeConfig::default() }
    }
}

impl Default for TimingConfig {
    fn default() -> TimingConfig {
        TimingConfig {
            t_ack: Duration::from_millis(100),
            intervals: 3,
            adaptive: true,
            t_ack_min: Duration::from_millis(50),
            t_ack_max: Duration::from_secs(2),
            acks_per_s: 1000,
        }
    }
}

impl TimingConfig {
    /// Creates the paper's timing, in which T_ack never changes.
    pub fn fixed(t_ack: Duration, intervals: u8) -> TimingConfig {
        TimingConfig { t_ack, intervals, adaptive: false, ..TimingConfig::default() }
    }
}

impl Default for RepairConfig {
    fn default() -> RepairConfig {
        RepairConfig {
            buffer: 32 << 20,
            nack_delay: 1.0,
            nack_delay_min: Duration::from_millis(5),
            hold_down: 1.0,
            nack_tries: 8,
            fetches: true,
            hearsay: true,
            queue: 4096,
            evict_after: Duration::from_secs(30),
            hold_up: None,
        }
    }
}

impl RepairConfig {
    /// Creates the paper's error control. A NACK goes out for each block that a later one shows to
    /// be missing, and the parent "immediately responds". Retransmission follows after T_retrans
    /// [TMTP, error control].
    pub fn paper() -> RepairConfig {
        RepairConfig {
            hold_down: 0.0,
            nack_tries: 1,
            fetches: false,
            hearsay: false,
            ..RepairConfig::default()
        }
    }
}

impl SourceConfig {
    /// Creates a source with the defaults.
    pub fn new(node: NodeConfig, shape: Shape, rate: Rate) -> SourceConfig {
        // Helpers go first.
        let helped = matches!(node.recovery, Recovery::Lms | Recovery::Srm);
        let timing = TimingConfig::default();
        let intervals = if helped { 2 * timing.intervals } else { timing.intervals };
        SourceConfig {
            node,
            shape,
            tree: TreeConfig::default(),
            timing: TimingConfig { intervals, ..timing },
            repair: RepairConfig::default(),
            rate,
            congestion: None,
            window: None,
            history: None,
            fetch_share: 0.5,
            fetch_credit: None,
            last_word: None,
            heartbeat_min: Duration::from_millis(20),
            heartbeat_max: Duration::from_secs(1),
        }
    }

    /// Fixes T_ack and n, as in the paper. The window is `window` blocks, or as long as
    /// T_retrans. The shape must have blocks of 1 symbol and no FEC. For the paper's own protocol,
    /// `repair` must be [`RepairConfig::paper`] besides, at all nodes.
    #[must_use]
    pub fn fixed(mut self, t_ack: Duration, intervals: u8, window: Option<u32>) -> SourceConfig {
        self.timing = TimingConfig::fixed(t_ack, intervals);
        self.window = window;
        self
    }

    /// Checks every number.
    ///
    /// # Errors
    ///
    /// Returns the first invalid parameter.
    pub fn check(&self) -> Result<(), ConfigError> {
        check(&self.node, &self.shape, &self.tree, &self.timing)?;
        if self.window == Some(0) {
            return Err(ConfigError::NoWindow);
        }
        Ok(())
    }
}

impl ReceiverConfig {
    /// Creates a receiver with the defaults.
    pub fn new(node: NodeConfig, shape: Shape) -> ReceiverConfig {
        ReceiverConfig {
            node,
            shape,
            start: Start::Everything,
            tree: TreeConfig::default(),
            timing: TimingConfig::default(),
            repair: RepairConfig::default(),
            far_ahead: 65_536,
            patience: Duration::from_mins(10),
            cost: Cost::Latency,
            receipt: None,
            last_word: None,
        }
    }

    /// Checks every number.
    ///
    /// # Errors
    ///
    /// Returns the first invalid parameter.
    pub fn check(&self) -> Result<(), ConfigError> {
        check(&self.node, &self.shape, &self.tree, &self.timing)
    }
}

/// Invalid parameter of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// K is 0.
    #[error("K is 0: then nobody could ever join; it is at least 1")]
    NoChildren,
    /// The scope is 0.
    #[error("a scope of 0 hops reaches nobody; it is at least 1")]
    NoScope,
    /// The rings do not grow, or there are none.
    #[error("the rings of a search must grow, from at least 1")]
    Rings,
    /// T_ack is 0, or longer than a message can say.
    #[error("T_ack of {0:?}; it is above 0 and at most a day")]
    TAck(Duration),
    /// n is below 2 [TMTP, flow control].
    #[error("T_retrans of {0} T_ack; at least 2")]
    Intervals(u8),
    /// Symbols have 0 bytes, or blocks 0 symbols.
    #[error("symbols of {symbol_len} bytes, {block_symbols} to a block; at least 1 of each")]
    Shape {
        /// Bytes of a symbol.
        symbol_len: u16,
        /// Symbols of a block.
        block_symbols: u8,
    },
    /// The window is 0.
    #[error("a window of 0 blocks; at least 1")]
    NoWindow,
    /// The node has no port.
    #[error("port 0, where nobody can answer")]
    NoPort,
    /// The node does not know its address, which its stamps need.
    #[error("the address {0}, where a node needs its own, which its stamps cover")]
    NoAddress(SocketAddr),
}

fn check(
    node: &NodeConfig,
    shape: &Shape,
    tree: &TreeConfig,
    timing: &TimingConfig,
) -> Result<(), ConfigError> {
    let Shape { symbol_len, block_symbols, .. } = *shape;
    let growing = tree.rings.windows(2).all(|pair| pair[0] < pair[1]);
    let bad_t_ack = [timing.t_ack, timing.t_ack_min, timing.t_ack_max]
        .into_iter()
        .find(|t_ack| t_ack.is_zero() || *t_ack > limits::DURATION);
    if tree.max_children == 0 {
        Err(ConfigError::NoChildren)
    } else if node.scope == 0 {
        Err(ConfigError::NoScope)
    } else if !growing || tree.rings.first().is_none_or(|&ring| ring == 0) {
        Err(ConfigError::Rings)
    } else if let Some(t_ack) = bad_t_ack {
        Err(ConfigError::TAck(t_ack))
    } else if timing.intervals < 2 {
        Err(ConfigError::Intervals(timing.intervals))
    } else if symbol_len == 0 || block_symbols == 0 {
        Err(ConfigError::Shape { symbol_len, block_symbols })
    } else if node.address.port() == 0 || shape.source.port() == 0 {
        Err(ConfigError::NoPort)
    } else if node.authentication != Authentication::Paper && node.address.ip().is_unspecified() {
        Err(ConfigError::NoAddress(node.address))
    } else {
        Ok(())
    }
}
