//! Every constant of LMS, as a default that experiments can sweep.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use umbel_wire::{Channel, Tsi};

use crate::bounds::{DMCASTS, LMS_CHANNELS, STEERED};
use crate::bucket::Limit;
use crate::reliable::WindowLimits;

/// Limits of the units that an end-point keeps for repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Greatest number of units. Default 4096.
    pub units: usize,
    /// Greatest number of bytes of payload. Default 8 MiB.
    pub bytes: usize,
}

impl Default for HistoryLimits {
    fn default() -> HistoryLimits {
        HistoryLimits { units: 4096, bytes: 8 << 20 }
    }
}

/// Handling of requests by an end-point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplierConfig {
    /// Limits of the units kept.
    pub history: HistoryLimits,
    /// A request that comes within this time after the reply to the same place is late, and is
    /// ignored [LMS §III-A]. `None` is one round trip to the source. Default `None`.
    pub ignore_period: Option<Duration>,
    /// The same for first requests, after a reply or after an overheard repair. A first requestor
    /// may be much farther from the source than the replier. Second requests are not delayed by it.
    /// Default 1 s.
    pub ignore_first: Duration,
    /// Number of replies remembered for that. Default 1024.
    pub remembered_replies: usize,
    /// Limit on repairs. Default 20,000 a second, 1,000 at once.
    pub repairs: Limit,
    /// A request for a unit this far beyond the last known one is invalid. Default 1024.
    pub far_ahead: u64,
}

impl Default for ReplierConfig {
    fn default() -> ReplierConfig {
        ReplierConfig {
            history: HistoryLimits::default(),
            ignore_period: None,
            ignore_first: Duration::from_secs(1),
            remembered_replies: 1024,
            repairs: Limit { per_s: 20_000, burst: 1_000 },
            far_ahead: 1024,
        }
    }
}

/// Configuration of a source.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// The channel that it sends on. Its source address is this host's.
    pub channel: Channel,
    /// The session of all its messages.
    pub tsi: Tsi,
    /// Handling of requests.
    pub replier: ReplierConfig,
    /// Greatest number of units that wait for the pacer. Default 4096.
    pub queue: usize,
    /// Time from the last unit to the first heartbeat. It doubles with each further one. Default
    /// 50 ms.
    pub heartbeat_min: Duration,
    /// The longest time between heartbeats. Default 1 s.
    pub heartbeat_max: Duration,
    /// Round trip to the far receivers, used where the ignore period follows from it. Default
    /// 200 ms.
    pub rtt: Duration,
    /// Unstamped requests, which passed no router with LMS, are answered by unicast. After this
    /// number for one unit within the ignore period, the next answer is multicast to all. Default
    /// 3.
    pub multicast_after: u32,
    /// Limit on answered pings. Default 1,000 a second, 1,000 at once.
    pub pongs: Limit,
}

impl SourceConfig {
    /// Creates the default configuration for a channel.
    pub fn new(channel: Channel, tsi: Tsi) -> SourceConfig {
        SourceConfig {
            channel,
            tsi,
            replier: ReplierConfig::default(),
            queue: 4096,
            heartbeat_min: Duration::from_millis(50),
            heartbeat_max: Duration::from_secs(1),
            rtt: Duration::from_millis(200),
            multicast_after: 3,
            pongs: Limit { per_s: 1_000, burst: 1_000 },
        }
    }
}

/// Cost that a receiver advertises. The lower it is, the sooner the receiver is made replier
/// [LMS §II-D].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// Fixed cost; with `None` the receiver never offers itself.
    Fixed(Option<u32>),
    /// Round trip to the source in microseconds. Of the receivers below a router, the one with the
    /// shortest is the nearest to the router too.
    Latency,
    /// Round trip to the source times `1 + weight · loss`, where `loss` is the share of data units
    /// whose original did not reach this receiver.
    LatencyAndLoss {
        /// Weight of loss. 50 makes 2 % of loss as bad as twice the distance.
        weight: f64,
    },
}

/// First unit of the stream that a receiver wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    /// The first unit that anyone still has.
    Everything,
    /// This number of units before the first one that it hears of.
    Back(u64),
}

/// Configuration of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// The channel; it has a source.
    pub channel: Channel,
    /// The expected session; `None` takes the first one that it hears. Default `None`.
    pub tsi: Option<Tsi>,
    /// Start of its reception. Default everything.
    pub horizon: Horizon,
    /// Limits of the units held before delivery.
    pub window: WindowLimits,
    /// Handling of requests.
    pub replier: ReplierConfig,
    /// Cost that it advertises. Default the latency.
    pub cost: Cost,
    /// Time between advertisements. Default 2 s.
    pub advertise_every: Duration,
    /// Whether replies come by unicast, and the receiver then answers the requests that it heard
    /// meanwhile [LMS §II-I]. Default false.
    pub two_step: bool,
    /// Number of places remembered that wait for the same missing unit. Default 16.
    pub remembered_requests: usize,
    /// Delay from the detection of a loss to the first request. Default 0 [LMS §I]. Networks that
    /// reorder need some.
    pub request_delay: Duration,
    /// A request is repeated after this many round trips to the source, and four times their
    /// deviation. The time doubles with each repetition. Default 2: a replier may be farther away
    /// than the source, but not more than twice.
    pub request_timeout_rtts: f64,
    /// Limits of the time between two requests. Default 10 ms to 2 s.
    pub request_timeout: (Duration, Duration),
    /// Greatest random extension of each time between requests, as a share. Default 0.25.
    pub request_jitter: f64,
    /// The times between requests stop doubling at this multiple of the first. Default 4.
    pub request_backoff: u32,
    /// Number of requests without an answer after which every other one tells the turning point
    /// that the replier failed [LMS §III-C]. Default 2.
    pub failed_after: u8,
    /// Limit on requests. Default 2,000 a second, 200 at once; the excess waits.
    pub requests: Limit,
    /// Greatest number of units in one request, 1 to 33. With 1, no request makes more than one
    /// DMCAST. Default 1.
    pub units_per_request: u8,
    /// Round trip to the source assumed until it is measured. Default 200 ms.
    pub initial_rtt: Duration,
    /// Time between two measurements of the round trip. Default 10 s.
    pub ping_every: Duration,
    /// Election on a multi-access LAN; `None` if the receiver has a link of its own. Default
    /// `None`.
    pub lan: Option<LanConfig>,
}

impl ReceiverConfig {
    /// Creates the default configuration for a channel.
    pub fn new(channel: Channel) -> ReceiverConfig {
        ReceiverConfig {
            channel,
            tsi: None,
            horizon: Horizon::Everything,
            window: WindowLimits::default(),
            replier: ReplierConfig::default(),
            cost: Cost::Latency,
            advertise_every: Duration::from_secs(2),
            two_step: false,
            remembered_requests: 16,
            request_delay: Duration::ZERO,
            request_timeout_rtts: 2.0,
            request_timeout: (Duration::from_millis(10), Duration::from_secs(2)),
            request_jitter: 0.25,
            request_backoff: 4,
            failed_after: 2,
            requests: Limit { per_s: 2_000, burst: 200 },
            units_per_request: 1,
            initial_rtt: Duration::from_millis(200),
            ping_every: Duration::from_secs(10),
            lan: None,
        }
    }
}

/// The election of a LAN's replier [LMS §III-D].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanConfig {
    /// A channel that reaches only the hosts of this LAN: a link-local group.
    pub channel: Channel,
    /// The receiver's own address there.
    pub address: IpAddr,
    /// Time between two messages of the replier. The others expect one in three times this time.
    /// Default 500 ms.
    pub every: Duration,
}

impl LanConfig {
    /// Creates the default configuration for a channel.
    pub fn new(channel: Channel, address: IpAddr) -> LanConfig {
        LanConfig { channel, address, every: Duration::from_millis(500) }
    }
}

/// Configuration of a router.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// Its address, as written into turning points.
    pub address: SocketAddr,
    /// Whether the source, if it is an attached host, is the replier of all links: an optimization
    /// [LMS §II-C], for latency. Without it the topmost replier makes requests on behalf of all,
    /// and the source answers to everyone ([`SourceConfig::multicast_after`]); its link then
    /// carries the fewest repairs. Default true.
    pub source_as_replier: bool,
    /// Lifetime of a replier's offer [LMS §III-C]. Default 7 s: three advertisements.
    pub offer_lifetime: Duration,
    /// Time between its own advertisements to the router above. Default 2 s.
    pub advertise_every: Duration,
    /// Least time between two of them. Default 10 ms.
    pub advertise_gap: Duration,
    /// A replier is kept until another is cheaper by this share. Default 0.1.
    pub stickiness: f64,
    /// Greatest number of links that share a replier. With more links, sets are chained
    /// [LMS §III-E]. Default 32; at least 1.
    pub set_size: usize,
    /// A replier that is said to have failed is asked to advertise, and asked again after this
    /// time. Default 100 ms.
    pub solicit_timeout: Duration,
    /// Number of times that it is asked before it is given up. Default 3.
    pub solicits: u32,
    /// Time for which a replier that has answered is not asked again. Default 1 s.
    pub solicit_gap: Duration,
    /// Least time for which a turning point is valid for DMCASTs. It is valid for at most twice
    /// this time. Default 30 s.
    pub tag_lifetime: Duration,
    /// Limit on requests and reports by one interface for one channel. Default 10,000 a second,
    /// 2,000 at once.
    pub requests: Limit,
    /// Limit on DMCASTs for one channel. Default 20,000 a second, 2,000 at once.
    pub dmcasts: Limit,
    /// Greatest number of channels, and of services, that it keeps state for. When there are as
    /// many, the link and the host that have named most give way to others. Default 4096.
    pub channels: usize,
    /// Cost that a hop adds to that of an anycast server. Default 1.
    pub anycast_hop_cost: u32,
    /// The secret by which it recognizes its own turning points; different after each start. Its
    /// first 16 bytes are the key of their tags.
    pub secret: [u8; 32],
}

impl RouterConfig {
    /// Creates the default configuration for a router.
    pub fn new(address: SocketAddr, secret: [u8; 32]) -> RouterConfig {
        RouterConfig {
            address,
            source_as_replier: true,
            offer_lifetime: Duration::from_secs(7),
            advertise_every: Duration::from_secs(2),
            advertise_gap: Duration::from_millis(10),
            stickiness: 0.1,
            set_size: 32,
            solicit_timeout: Duration::from_millis(100),
            solicits: 3,
            solicit_gap: Duration::from_secs(1),
            tag_lifetime: Duration::from_secs(30),
            requests: STEERED.all,
            dmcasts: DMCASTS.all,
            channels: LMS_CHANNELS.all,
            anycast_hop_cost: 1,
            secret,
        }
    }
}
