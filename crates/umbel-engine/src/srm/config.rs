//! Every constant of SRM, as a default that experiments can sweep.

use std::time::Duration;

use umbel_wire::Channel;
use umbel_wire::srm::MemberId;

use crate::reliable::WindowLimits;
use crate::session_pacing::SessionRate;
use crate::units::Rate;

/// Configuration of a member.
#[derive(Clone, Debug)]
pub struct Config {
    /// The member's name. No two members of a group, present or recent, share one. Draw it at
    /// random if no authority assigns names.
    pub id: MemberId,
    /// The group: any-source multicast.
    pub channel: Channel,
    /// Request timers are uniform on [C1·d, (C1 + C2)·d], d being the distance to the source: C1
    /// and C2. Default 2, 2 [SRM, simulations].
    pub request_timer: (f64, f64),
    /// Repair timers are uniform on [D1·d, (D1 + D2)·d], d being the distance to the requester:
    /// D1 and D2. Default `None`: both are log₁₀ of the group's size, at least 1 [SRM,
    /// simulations]. ns-2 has 1, 1.
    pub repair_timer: Option<(f64, f64)>,
    /// Whether C1, C2, D1 and D2 adapt to the observed duplicates and delays
    /// [SRM, adaptive timers]. Default false.
    pub adaptive: bool,
    /// Number of distances after a repair for which requests for its unit are ignored. Default 3.
    pub hold_down: f64,
    /// Distance assumed for a member whose distance was not measured yet. Default 50 ms.
    pub default_distance: Duration,
    /// Least distance that is used, so that no claim makes timers run out at once. Default 100 µs.
    pub min_distance: Duration,
    /// Greatest plausible distance; anything above was not measured but made up. Default 10 s.
    pub max_distance: Duration,
    /// Back-off stops once the time between two requests for a unit may reach this, or four times
    /// the first interval if that is longer. Default 2 s; in the paper it never stops.
    pub max_request_interval: Duration,
    /// A unit not repaired for this long is given up. Default 5 min.
    pub give_up_after: Duration,
    /// Number of hops to which the first request for a unit and its repairs are limited
    /// [SRM, local recovery]. Default `None`: everywhere.
    pub local_scope: Option<u8>,
    /// Whether a late joiner recovers earlier units, from the horizon that the source states.
    /// Default true. Otherwise it begins with the first unit that it hears of.
    pub recover_from_horizon: bool,
    /// Whether units are delivered in the order of their numbers. Default true. Otherwise each is
    /// delivered when it comes, so that none waits for another that is lost.
    pub in_order: bool,
    /// Session messages.
    pub session: SessionConfig,
    /// Greatest rate of this member's requests and repairs. Default 1 Mbit/s.
    pub recovery_rate: Rate,
    /// Number of bytes of requests and repairs that may leave at once. Default 64 KiB.
    pub recovery_burst: u64,
    /// Limits of the units held of each source before delivery.
    pub window: WindowLimits,
    /// Units and bytes of other sources that are kept for repairs, and the same of its own. Default
    /// 4096 units, 4 MiB.
    pub history: (usize, usize),
    /// Greatest number of sources at a time. Default 64.
    pub max_sources: usize,
    /// Greatest number of members whose distance is kept. Default 1024.
    pub max_peers: usize,
    /// Greatest number of repairs that wait for their timers. Default 1024.
    pub max_repairs: usize,
    /// Whether to report each step of recovery ([`Event::Step`](super::Event::Step)). Default
    /// false.
    pub observe: bool,
}

/// Rate and content of a member's session messages [SRM, session messages]. The interval is
/// computed as in RTCP [RFC 3550 §6.3].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionConfig {
    /// Rate of session messages of the whole group, whatever its size. Default 50 kbit/s: 5 % of 1
    /// Mbit/s.
    pub rate: Rate,
    /// Share of the rate reserved for sources, while they are less than this share of the members.
    /// Default 0.25 [RFC 3550 §6.2].
    pub source_share: f64,
    /// The shortest mean interval between two messages of a member. Default 1 s.
    pub min_interval: Duration,
    /// Time after a data unit at which its source sends an extra session message without echoes.
    /// The time doubles with each further one, up to the usual interval. The loss of a last unit is
    /// thus found soon, as with PGM's heartbeat SPMs [RFC 3208 §5.1.5]. Default 50 ms; `None` sends
    /// none, as in the paper.
    pub heartbeat: Option<Duration>,
    /// Greatest number of echoes in a message; at most
    /// [`limits::ECHOES`](umbel_wire::srm::limits::ECHOES). Default 32.
    pub echoes: usize,
    /// Greatest number of sources in a message; at most
    /// [`limits::SOURCES`](umbel_wire::srm::limits::SOURCES). Default 16.
    pub sources: usize,
    /// Number of mean intervals after which a silent member has left. Default 5 [RFC 3550 §6.3.5].
    pub silent_intervals: u32,
}

impl Config {
    /// Creates the default configuration for a member of a group.
    pub fn new(id: MemberId, channel: Channel) -> Config {
        Config {
            id,
            channel,
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

impl SessionConfig {
    pub(super) fn pace(&self) -> SessionRate {
        let SessionConfig { rate, source_share, min_interval, .. } = *self;
        SessionRate { rate, source_share, min_interval }
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
