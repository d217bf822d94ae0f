//! Every constant of the daemon.

use std::net::IpAddr;
use std::time::Duration;

use umbel_engine::bucket::Limit;

use crate::bounds::LMS_DATAGRAMS;
use crate::control::ControlConfig;

/// UDP port at which routers take datagrams of LMS. Default 7706.
pub const LMS_PORT: u16 = 7706;

/// Configuration of the daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names of the interfaces that take part; empty for all that can. Interfaces that do not exist
    /// take part when they appear.
    pub interfaces: Vec<String>,
    /// Number of the kernel's multicast routing table; `None` for the main one. Default `None`.
    pub table: Option<u32>,
    /// Constants of membership and trees.
    pub control: ControlConfig,
    /// LMS; `None` if the router does not take part in it.
    pub lms: Option<LmsConfig>,
}

/// Whether requests and DMCASTs are taken by a program in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastPathMode {
    /// They are where the kernel permits it.
    #[default]
    Auto,
    /// The daemon takes all of them.
    Off,
    /// The router does not start without.
    Required,
}

/// Configuration of LMS.
#[derive(Clone, Debug)]
pub struct LmsConfig {
    /// UDP port at which the router takes datagrams. Default [`LMS_PORT`].
    pub port: u16,
    /// The router's addresses in turning points, at most one of each family. By default the first
    /// one of the interface with the lowest number.
    pub addresses: Vec<IpAddr>,
    /// Whether an attached source is the replier of all links
    /// ([`RouterConfig::source_as_replier`](umbel_engine::lms::RouterConfig::source_as_replier)).
    /// Default false: its link carries the fewest repairs.
    pub source_as_replier: bool,
    /// Limit on the datagrams of LMS that are taken from one host on an interface. Default 2,000 a
    /// second, 1,000 at once: as many requests as a receiver makes, a fifth of what is passed on of
    /// one channel and interface.
    pub datagrams_of_host: Limit,
    /// Limit on those of all hosts of one interface of which none was of use yet. Default 50,000 a
    /// second, 5,000 at once.
    pub datagrams: Limit,
    /// Number of DMCASTs that a steered request permits for each unit it asks for, beside the
    /// engine's own limits. Default 4: repeated requests, and repliers that crossed.
    pub dmcasts_per_unit: u32,
    /// Time for which a steered request permits DMCASTs. Default 10 s.
    pub credit_lifetime: Duration,
    /// Whether a program in the kernel takes what it can. Default [`FastPathMode::Auto`].
    pub fast_path: FastPathMode,
    /// Time to live of repairs from the turning point down. Default 64.
    pub repair_hops: u8,
}

impl Default for LmsConfig {
    fn default() -> LmsConfig {
        LmsConfig {
            port: LMS_PORT,
            addresses: Vec::new(),
            source_as_replier: false,
            datagrams_of_host: LMS_DATAGRAMS.of_host(),
            datagrams: LMS_DATAGRAMS.all,
            dmcasts_per_unit: 4,
            credit_lifetime: Duration::from_secs(10),
            fast_path: FastPathMode::Auto,
            repair_hops: 64,
        }
    }
}
