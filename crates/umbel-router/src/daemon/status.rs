//! The daemon's report about itself.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::fast::FastCounts;
use super::lms::Counts;
use crate::control::ControlStatus;

/// The state of a daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Seconds since it began.
    pub seconds: f64,
    /// Number of the kernel's multicast routing table; none for the main one.
    pub table: Option<u32>,
    /// Reasons why it cannot work, in words.
    pub troubles: Vec<String>,
    /// Membership and trees, as the control plane knows them.
    pub control: ControlStatus,
    /// Packets that the kernel has forwarded, by channel.
    pub forwarded: Vec<Forwarded>,
    /// LMS, by family.
    pub lms: Vec<LmsStatus>,
}

/// Packets of a channel that the kernel has forwarded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forwarded {
    /// Its source.
    pub source: IpAddr,
    /// Its group.
    pub group: IpAddr,
    /// Interface by which it arrives.
    pub input: String,
    /// Interfaces by which it leaves.
    pub outputs: Vec<String>,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Packets that came by another interface.
    pub wrong_interface: u64,
}

/// LMS of one family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LmsStatus {
    /// The family: `IPv4` or `IPv6`.
    pub family: String,
    /// The router's address in turning points; none while it has no address.
    pub address: Option<SocketAddr>,
    /// The repliers.
    pub repliers: Vec<Replier>,
    /// Requests turned around here.
    pub turned: u64,
    /// Requests sent upstream.
    pub sent_up: u64,
    /// Requests from above sent to the replier.
    pub sent_down: u64,
    /// DMCASTs turned into multicasts.
    pub dmcasts: u64,
    /// Repliers given up because they did not answer.
    pub repliers_failed: u64,
    /// Datagrams that the engine discarded, by reason.
    pub drops: Vec<(String, u64)>,
    /// Datagrams beside the engine.
    pub datagrams: Counts,
    /// The fast path. Its counts are part of the numbers above, except for datagrams that came to
    /// the daemon's sockets.
    pub fast_path: FastPathStatus,
}

/// The program in the kernel that takes plain requests and DMCASTs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FastPathStatus {
    /// `on`, or why it is not.
    pub state: String,
    /// Interfaces whose packets it sees.
    pub interfaces: usize,
    /// Counts of its work.
    pub counts: FastCounts,
}

impl LmsStatus {
    /// Returns how many datagrams were discarded, by reason: those that the daemon discarded, and
    /// then those that the engine did.
    pub fn discarded(&self) -> impl Iterator<Item = (&str, u64)> {
        let own = [
            ("HostFlood", self.datagrams.flood),
            ("Unasked", self.datagrams.unasked),
            ("Overflow", self.datagrams.overflow),
            ("TooLong", self.datagrams.too_long),
            ("Unsent", self.datagrams.unsent),
        ];
        own.into_iter().chain(self.drops.iter().map(|(reason, count)| (reason.as_str(), *count)))
    }
}

/// The replier of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replier {
    /// Source of the channel.
    pub source: IpAddr,
    /// Its group.
    pub group: IpAddr,
    /// Its port.
    pub port: u16,
    /// Interface by which the replier is reached.
    pub interface: String,
    /// The replier, or the next router on the way to it.
    pub neighbour: SocketAddr,
    /// Its cost.
    pub cost: u32,
}
