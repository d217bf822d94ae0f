//! Every constant of TMTP, as a default that experiments can sweep.

use std::net::SocketAddr;
use std::time::Duration;

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_wire::tmtp::{Manifest, NodeId, limits};
use umbel_wire::{Channel, Tsi};

use crate::units::Rate;

/// Who a node is and where its feed goes.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The node's name to others, drawn at random at each start.
    pub id: NodeId,
    /// What its user calls it, for reports; cut to [`limits::NAME_LEN`] bytes. Default empty.
    pub name: String,
    /// The feed: the source's session.
    pub feed: Tsi,
    /// The data channel: from the source to everyone.
    pub data: Channel,
    /// The domain group: any-source multicast of searches, beacons, NACKs and repairs.
    pub domain: Channel,
    /// The node's own address for what is sent to it alone. Others learn the IP address from what
    /// they receive, so only the port must be right at a receiver; it is all a wildcard needs.
    pub address: SocketAddr,
    /// No search goes farther than so many hops, and no radius is larger. At least 1. Default 32.
    pub scope: u8,
    /// Key that all who are admitted to the feed share. A node that has one takes only children
    /// that have it too. Default `None`: everyone is admitted.
    pub admission: Option<[u8; 32]>,
    /// Seed of the node's own random streams.
    pub seed: u64,
}

/// What the blocks of a feed look like. Every node of a feed knows it from the session directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Where the source takes what is sent to it alone.
    pub source: SocketAddr,
    /// Bytes of a symbol; at least 1.
    pub symbol_len: u16,
    /// Most source symbols of a block, k; at least 1. With 1 a block is a packet, as in the paper.
    pub block_symbols: u8,
    /// Repairs are symbols not sent before in the domain instead of the very packets that were
    /// lost. Means little with blocks of 1 symbol.
    pub fec: bool,
    /// The first blocks that say what the others contain; `None` in a pipe.
    pub manifest: Option<Manifest>,
}

/// The control tree.
#[derive(Clone, Debug)]
pub struct TreeConfig {
    /// K: most managers as children. Local members do not count. At least 1. Default 8.
    pub max_children: u16,
    /// Most local members of a domain. Default 4096: a bound of memory, not of the protocol.
    pub max_members: u16,
    /// Most children at one IP address, so that no host takes all places. Default 256.
    pub max_per_host: u16,
    /// Hop limits of an expanding-ring search, ascending; those above the scope are left out and
    /// the scope is the last. Default 2, 3, 4, 6, 8, 12, 16, 24, 32.
    pub rings: Vec<u8>,
    /// Responses to a search are collected for so long before the closest is chosen, and a ring
    /// without any is given up. Default 200 ms; at least the round trip to the ring's edge.
    pub ring_wait: Duration,
    /// How often a node searches its own subnet before it becomes its manager. Default 4.
    pub subnet_tries: u8,
    /// The time between those searches, times 1 to 2 at random, and before a JOIN_REQUEST within
    /// the subnet is repeated. Default 50 ms.
    pub subnet_wait: Duration,
    /// Without any parent within the scope the search begins anew after about this, then twice as
    /// long, and so on up to `search_backoff_max`; always after this if some answered and had no
    /// room. Default 500 ms.
    pub search_backoff: Duration,
    /// Default 10 s.
    pub search_backoff_max: Duration,
    /// JOIN_REQUEST, LEAVE_TREE and FIND_NEW_PARENT are repeated after this, then twice as long.
    /// Default 250 ms.
    pub retry: Duration,
    /// How often they are sent before the other is given up. Default 4.
    pub tries: u8,
    /// A parent from which nothing was heard for so many T_ack has failed. Default 3.
    pub parent_silence: u32,
    /// But not sooner than this. Default 1 s.
    pub parent_silence_min: Duration,
    /// A parent that is heard, but cut off from the source, is left after so many times the time
    /// that counts as silence. Default 4.
    pub detached_patience: u32,
    /// A child from which nothing was heard for so many T_ack has gone. Default 20.
    pub child_silence: u32,
    /// But not sooner than this. Default 5 s.
    pub child_silence_min: Duration,
    /// A node that did not answer a JOIN_REQUEST, failed as a parent or told nonsense is not asked
    /// again for this long; twice as long each time, until it serves as a parent. No child is taken
    /// for as long from a host of which one held up the feed. Default 1 s.
    pub bar: Duration,
    /// Time for which a manager with children hears another one before it gives way. Doubles with
    /// each time. Default 1 s.
    pub takeover: Duration,
    /// A node's own hop count is believed if it is at most so many above what was measured in the
    /// other direction. Default 2.
    pub hop_slack: u8,
    /// Most WILLING_TO_BE_PARENT, JOIN_CONFIRM and refusals a second, and at once. Default 200.
    pub answers_per_s: u32,
    /// Most of these to one IP address. Default 50.
    pub answers_per_host: u32,
    /// A departing manager waits so long for its children to find new parents. Default 5 s.
    pub leave_wait: Duration,
    /// Least time between two beacons. They are sent every T_ack, but not more often. Default
    /// 50 ms.
    pub beacon_min: Duration,
    /// Most time between two beacons, so that a few that are lost are no failure of the parent.
    /// Default 500 ms.
    pub beacon_max: Duration,
}

/// T_ack and T_retrans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingConfig {
    /// T_ack, as long as nothing better is known; of a receiver, until its parent tells. Default
    /// 100 ms. The paper had 1.1 s.
    pub t_ack: Duration,
    /// n: T_retrans is so many T_ack; at least 2. Default 3 [TMTP, flow control].
    pub intervals: u8,
    /// T_ack follows the round trip to the farthest child and the number of children. Default
    /// true; the paper fixes it. A manager that does not adapt takes its parent's.
    pub adaptive: bool,
    /// The shortest adaptive T_ack. Default 50 ms.
    pub t_ack_min: Duration,
    /// The longest adaptive T_ack. Default 2 s.
    pub t_ack_max: Duration,
    /// Most ACKs a second that a parent asks for: T_ack grows with its children. Default 1000.
    pub acks_per_s: u32,
}

/// What a parent does for its children. The rate of repairs is that of all data packets: the
/// host's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RepairConfig {
    /// Bytes of symbols that a manager keeps for its children. Once full it drops and does not
    /// acknowledge new data [TMTP, flow control]. Default 32 MiB.
    pub buffer: u64,
    /// NACKs are delayed by up to so many round trips to the farthest child of the domain.
    /// Default 1.
    pub nack_delay: f64,
    /// The shortest span over which NACKs are spread. Default 5 ms.
    pub nack_delay_min: Duration,
    /// After a repair, NACKs for its block are ignored for so many round trips to the farthest
    /// child. Default 1.
    pub hold_down: f64,
    /// Most blocks that wait to be repaired. Default 4096.
    pub queue: usize,
    /// A child that makes no progress for this long is no longer waited for; as much longer for
    /// each level of managers in its subtree, since these wait for their own children. Default
    /// 30 s.
    pub evict_after: Duration,
}

/// How a source behaves.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Who it is.
    pub node: NodeConfig,
    /// What its blocks look like; [`Shape::source`] is its own address.
    pub shape: Shape,
    /// The control tree.
    pub tree: TreeConfig,
    /// T_ack and T_retrans.
    pub timing: TimingConfig,
    /// What it does for its children.
    pub repair: RepairConfig,
    /// The maximum rate, fixed when the group is created [TMTP, flow control].
    pub rate: Rate,
    /// The rate is lowered while most children cannot keep up, or while most of them lose so much of
    /// it that slowing down helps, and raised again up to `rate`. Default true; the paper has a fixed
    /// rate.
    pub adaptive_rate: bool,
    /// The lowest adaptive rate, as a share of `rate`. Default 0.02.
    pub min_rate_share: f64,
    /// Most blocks that are sent and not acknowledged by all children. Default `None`: what the
    /// rate makes in T_retrans, as the paper defines the window; its tests had 5 packets.
    pub window: Option<u32>,
    /// Blocks that were acknowledged are kept for late FETCHes as long as there are at most so
    /// many. Default `None`: all of them; a pipe has a bound.
    pub history: Option<u32>,
    /// Most bytes a second that answer FETCHes, as a share of the rate. Default 0.5.
    pub fetch_share: f64,
    /// The first heartbeat follows the last data after this, each further one after twice the
    /// time, so that the loss of the last packets is found soon. Default 20 ms.
    pub heartbeat_min: Duration,
    /// The longest time between heartbeats. Default 1 s.
    pub heartbeat_max: Duration,
}

/// From where on a receiver wants a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Start {
    /// From the first block; what was sent before it joined is fetched.
    #[default]
    Everything,
    /// From the first block sent after it joined; the manifest in any case.
    Now,
}

/// How a receiver behaves: a member, and a manager when it is elected.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Who it is.
    pub node: NodeConfig,
    /// What the blocks look like.
    pub shape: Shape,
    /// From where on it wants the feed. Default everything.
    pub start: Start,
    /// The control tree.
    pub tree: TreeConfig,
    /// T_ack and T_retrans, as a manager.
    pub timing: TimingConfig,
    /// What it does for its children, as a manager, and for itself.
    pub repair: RepairConfig,
    /// Most blocks of which it keeps track beyond the first incomplete one. Default 65,536.
    pub far_ahead: u32,
}

impl NodeConfig {
    /// The defaults for a node.
    pub fn new(
        id: NodeId,
        feed: Tsi,
        (data, domain): (Channel, Channel),
        address: SocketAddr,
        seed: u64,
    ) -> NodeConfig {
        NodeConfig {
            id,
            name: String::new(),
            feed,
            data,
            domain,
            address,
            scope: 32,
            admission: None,
            seed,
        }
    }
}

/// The streams of random numbers of one node. A draw from one shifts none of the others.
#[derive(Clone, Copy, Debug)]
pub(super) enum Draws {
    /// Nonces, tokens and backoffs of the control tree.
    Tree,
    /// Delays of NACKs, and nonces of FETCHes.
    Recovery,
}

impl NodeConfig {
    /// Returns a stream of random numbers that follows from the seed.
    pub(super) fn random(&self, draws: Draws) -> Xoshiro256PlusPlus {
        let stream = match draws {
            Draws::Tree => 0x7472_6565,
            Draws::Recovery => 0x6465_6c69_7665_7279,
        };
        Xoshiro256PlusPlus::seed_from_u64(self.seed ^ stream)
    }
}

impl Default for TreeConfig {
    fn default() -> TreeConfig {
        TreeConfig {
            max_children: 8,
            max_members: 4096,
            max_per_host: 256,
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
        }
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
    /// As in the paper: T_ack never changes.
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
            queue: 4096,
            evict_after: Duration::from_secs(30),
        }
    }
}

impl SourceConfig {
    /// The defaults for a source.
    pub fn new(node: NodeConfig, shape: Shape, rate: Rate) -> SourceConfig {
        SourceConfig {
            node,
            shape,
            tree: TreeConfig::default(),
            timing: TimingConfig::default(),
            repair: RepairConfig::default(),
            rate,
            adaptive_rate: true,
            min_rate_share: 0.02,
            window: None,
            history: None,
            fetch_share: 0.5,
            heartbeat_min: Duration::from_millis(20),
            heartbeat_max: Duration::from_secs(1),
        }
    }

    /// Makes the source what the paper describes: fixed T_ack, n and rate, and a window of so many
    /// blocks, or what T_retrans gives. The shape must have blocks of 1 symbol and no FEC.
    #[must_use]
    pub fn fixed(mut self, t_ack: Duration, intervals: u8, window: Option<u32>) -> SourceConfig {
        self.timing = TimingConfig::fixed(t_ack, intervals);
        self.adaptive_rate = false;
        self.window = window;
        self
    }

    /// Checks every number.
    ///
    /// # Errors
    ///
    /// The first that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        check(&self.node, &self.shape, &self.tree, &self.timing)?;
        if self.window == Some(0) {
            return Err(ConfigError::NoWindow);
        }
        Ok(())
    }
}

impl ReceiverConfig {
    /// The defaults for a receiver.
    pub fn new(node: NodeConfig, shape: Shape) -> ReceiverConfig {
        ReceiverConfig {
            node,
            shape,
            start: Start::Everything,
            tree: TreeConfig::default(),
            timing: TimingConfig::default(),
            repair: RepairConfig::default(),
            far_ahead: 65_536,
        }
    }

    /// Checks every number.
    ///
    /// # Errors
    ///
    /// The first that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        check(&self.node, &self.shape, &self.tree, &self.timing)
    }
}

/// A number of a configuration that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// K = 0.
    #[error("K is 0: then nobody could ever join; it is at least 1")]
    NoChildren,
    /// A scope of 0.
    #[error("a scope of 0 hops reaches nobody; it is at least 1")]
    NoScope,
    /// Rings that do not grow, or none.
    #[error("the rings of a search must grow, from at least 1")]
    Rings,
    /// T_ack of no time, or of more than a message can say.
    #[error("T_ack of {0:?}; it is above 0 and at most a day")]
    TAck(Duration),
    /// n below 2 [TMTP, flow control].
    #[error("T_retrans of {0} T_ack; at least 2")]
    Intervals(u8),
    /// Symbols of 0 bytes or blocks of 0 symbols.
    #[error("symbols of {symbol_len} bytes, {block_symbols} to a block; at least 1 of each")]
    Shape {
        /// Bytes of a symbol.
        symbol_len: u16,
        /// Symbols of a block.
        block_symbols: u8,
    },
    /// A window of no block.
    #[error("a window of 0 blocks; at least 1")]
    NoWindow,
    /// A node without a port.
    #[error("port 0, where nobody can answer")]
    NoPort,
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
    } else {
        Ok(())
    }
}
