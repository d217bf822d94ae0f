//! Every constant of SRM, as a default that experiments can sweep.

use std::time::Duration;

use umbel_wire::Channel;
use umbel_wire::srm::MemberId;

use crate::stream::WindowLimits;
use crate::units::Rate;

/// How a member behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The member's name. No two members of a group, present or recent, share one: draw it at
    /// random where nobody hands names out.
    pub id: MemberId,
    /// The group: any-source multicast.
    pub channel: Channel,
    /// Seed of the member's own random stream.
    pub seed: u64,
    /// Request timers are uniform on [C1·d, (C1 + C2)·d], d being the distance to the source: C1
    /// and C2. Default 2, 2 [SRM, simulations].
    pub request_timer: (f64, f64),
    /// Repair timers are uniform on [D1·d, (D1 + D2)·d], d being the distance to the requester:
    /// D1 and D2. Default `None`: both are log₁₀ of the group's size, at least 1 [SRM,
    /// simulations]. ns-2 has 1, 1.
    pub repair_timer: Option<(f64, f64)>,
    /// C1, C2, D1 and D2 follow the duplicates and delays that are seen [SRM, adaptive timers].
    /// Default false.
    pub adaptive: bool,
    /// After a repair, requests for its unit are ignored for so many distances. Default 3.
    pub hold_down: f64,
    /// The distance to a member that was not measured yet. Default 50 ms.
    pub default_distance: Duration,
    /// Distances count as at least this, so that no claim makes timers run out at once. Default
    /// 100 µs.
    pub min_distance: Duration,
    /// A distance above this was not measured but made up. Default 10 s.
    pub max_distance: Duration,
    /// Back-off goes no further once the time between two requests for a unit may reach this, or
    /// four times the first interval if that is longer. Default 2 s; the paper has no end to it.
    pub max_request_interval: Duration,
    /// A unit that nobody repairs for this long is given up. Default 5 min.
    pub give_up_after: Duration,
    /// The first request for a unit goes only so many hops, and so do its repairs [SRM, local
    /// recovery]. Default `None`: everywhere.
    pub local_scope: Option<u8>,
    /// Whether a late joiner recovers what was sent before, from the horizon that the source
    /// states. Default true; if not it begins with the first unit that it hears of.
    pub recover_from_horizon: bool,
    /// Units are delivered in the order of their numbers. Default true; if not each is delivered
    /// when it comes, so that none waits for another that is lost.
    pub in_order: bool,
    /// Session messages.
    pub session: SessionConfig,
    /// The rate of this member's requests and repairs is at most this. Default 1 Mbit/s.
    pub recovery_rate: Rate,
    /// So many bytes of requests and repairs may leave at once. Default 64 KiB.
    pub recovery_burst: u64,
    /// What is held of each source before it is delivered.
    pub window: WindowLimits,
    /// Units and bytes of other sources that are kept for repairs, and as many of its own.
    /// Default 4096 units, 4 MiB.
    pub history: (usize, usize),
    /// Most sources at a time. Default 64.
    pub max_sources: usize,
    /// Most members whose distance is kept. Default 1024.
    pub max_peers: usize,
    /// Most repairs that wait for their timers. Default 1024.
    pub max_repairs: usize,
    /// Report each step of recovery ([`Event::Step`](super::Event::Step)). Default false.
    pub observe: bool,
}

/// How often and how much a member tells of itself [SRM, session messages]. The interval is
/// computed as RTCP does [RFC 3550 §6.3].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionConfig {
    /// Rate of session messages of the whole group, whatever its size. Default 50 kbit/s: 5 % of
    /// 1 Mbit/s.
    pub rate: Rate,
    /// The share of it that is for sources, as long as they are fewer than that among the members.
    /// Default 0.25 [RFC 3550 §6.2].
    pub source_share: f64,
    /// The shortest mean interval between two messages of a member. Default 1 s.
    pub min_interval: Duration,
    /// After a data unit its source sends an extra session message without echoes in this time,
    /// then in twice, four times the time and so on, up to the usual interval, so that the loss of
    /// a last unit is found soon, as with PGM's heartbeat SPMs [RFC 3208 §5.1.5]. Default 50 ms;
    /// `None` sends none, as in the paper.
    pub heartbeat: Option<Duration>,
    /// Most echoes of a message; at most [`limits::ECHOES`](umbel_wire::srm::limits::ECHOES).
    /// Default 32.
    pub echoes: usize,
    /// Most sources of a message; at most [`limits::SOURCES`](umbel_wire::srm::limits::SOURCES).
    /// Default 16.
    pub sources: usize,
    /// A member not heard of for so many mean intervals has left. Default 5 [RFC 3550 §6.3.5].
    pub silent_intervals: u32,
}

impl Config {
    /// The defaults for a member of a group.
    pub fn new(id: MemberId, channel: Channel, seed: u64) -> Config {
        Config {
            id,
            channel,
            seed,
            request_timer: (2.0, 2.0),
            repair_timer: None,
            adaptive: false,
            hold_down: 3.0,
            default_distance: Duration::from_millis(50),
            min_distance: Duration::from_micros(100),
            max_distance: Duration::from_secs(10),
            max_request_interval: Duration::from_secs(2),
            give_up_after: Duration::from_mins(5),
            local_scope: None,
            recover_from_horizon: true,
            in_order: true,
            session: SessionConfig::default(),
            recovery_rate: Rate::from_bits_per_s(1_000_000).expect("above 0"),
            recovery_burst: 64 << 10,
            window: WindowLimits::default(),
            history: (4096, 4 << 20),
            max_sources: 64,
            max_peers: 1024,
            max_repairs: 1024,
            observe: false,
        }
    }
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        SessionConfig {
            rate: Rate::from_bits_per_s(50_000).expect("above 0"),
            source_share: 0.25,
            min_interval: Duration::from_secs(1),
            heartbeat: Some(Duration::from_millis(50)),
            echoes: 32,
            sources: 16,
            silent_intervals: 5,
        }
    }
}
