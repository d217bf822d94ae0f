//! Every constant of the protocol, as a default that experiments can sweep.

use std::num::NonZeroU32;
use std::time::Duration;

use umbel_wire::Channel;

use crate::bounds::{SMO_ALONE, SMO_CONNECTIONS, SMO_HALF_OPEN};

/// Stream that a new connection receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Join {
    /// It belongs to [`MasterId::FIRST`](super::MasterId::FIRST), from the current position on.
    #[default]
    AtOnce,
    /// It begins at position 0, and waits for
    /// [`Attach`](super::SourceCommand::Attach) or for data of its own.
    Asked,
}

/// When bytes are released: the paper's function F [SMO §II-C].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Release {
    /// When all children have acknowledged them.
    #[default]
    Slowest,
    /// When this share of the children has. Those that are left behind are removed when the bytes
    /// that they need are no longer in the buffer.
    Percentile(f64),
    /// When their room is needed.
    Buffer,
}

/// Extent to which the master may send: the paper's function G [SMO §II-F].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fairness {
    /// As far as every child permits.
    #[default]
    Strict,
    /// The median of the children's congestion windows, between `a` and `b` times the least
    /// average one [SMO eq. 1]. `a <= b`.
    Essential {
        /// Lower bound.
        a: f64,
        /// Upper bound.
        b: f64,
    },
}

/// Which of the children's round trips is the group's [SMO §II-E].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RttChoice {
    /// The greatest.
    #[default]
    Maximum,
    /// The greatest of this share of the children with the shortest ones.
    Percentile(f64),
}

/// Congestion avoidance of each child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// [RFC 5681].
    #[default]
    Reno,
    /// [RFC 9438].
    Cubic,
}

/// When a child is removed because it holds up the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RemovalRules {
    /// Time without progress while data is outstanding. Default 60 s.
    pub stall: Duration,
    /// Time for which it keeps its window closed, or smaller than a segment. Default 120 s.
    pub closed_window: Duration,
    /// Time for which bytes of a master wait to be sent at most, because a child does not permit
    /// it. A child that holds them up then is removed. Where a master has no children, they are
    /// dropped. Default none; several RTTs are the least that makes sense.
    pub wait: Option<Duration>,
    /// Longest smoothed RTT. Default none.
    pub rtt: Option<Duration>,
    /// Least average congestion window in segments, judged after
    /// [`judged_after`](RemovalRules::judged_after). Default none.
    pub window: Option<f64>,
    /// Time after which a connection's RTT and window are judged. Default 10 s.
    pub judged_after: Duration,
}

impl Default for RemovalRules {
    fn default() -> RemovalRules {
        RemovalRules {
            stall: Duration::from_mins(1),
            closed_window: Duration::from_mins(2),
            wait: None,
            rtt: None,
            window: None,
            judged_after: Duration::from_secs(10),
        }
    }
}

/// Configuration of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// Port to which clients connect, and source port of all segments.
    pub port: u16,
    /// Channel of the first master.
    pub channel: Channel,
    /// Stream that a new connection receives.
    pub join: Join,
    /// Longest payload of a segment. Default 1,460, for Ethernet and IPv4; IPv6 needs 1,440.
    pub mss: u16,
    /// Sequence number of position 0. Default `None`: it is drawn.
    pub base: Option<u32>,
    /// Bytes that a master or a child alone holds at most. Half of a master's are for released
    /// bytes, which those need who are behind. Default 8 MiB.
    pub buffer: usize,
    /// When bytes are released.
    pub release: Release,
    /// Extent to which a master may send.
    pub fairness: Fairness,
    /// Which RTT is the group's.
    pub rtt: RttChoice,
    /// Congestion avoidance.
    pub congestion: Congestion,
    /// Initial congestion window in segments. Default 10 [RFC 6928].
    pub initial_window: u32,
    /// Share of a master's children above which a retransmission is multicast. Default 0.05
    /// [SMO §II-E].
    pub threshold: f64,
    /// Bounds of the time for which retransmissions of a segment are gathered. A quarter of the
    /// group's RTT makes a repair hardly later, and children at like distances are counted
    /// together. Default 1 ms to 20 ms.
    pub gather: (Duration, Duration),
    /// Segments to a child by unicast of which one is left out, on average, to find receivers that
    /// acknowledge what they lack; 0 for none. It is sent a round trip later, so that a child with
    /// a window of more than 16 segments has it more rarely. Default 256, or 16 windows.
    pub skip_every: u32,
    /// Acknowledgements of a window that each child is heard with at least, a quarter of that where
    /// much of the window waits in queues. Others can be dropped on their way
    /// ([`AckFilter`](super::AckFilter)), where nothing is missing; in real-time mode none are.
    /// With few, a window that bounds the stream is later by up to this share. Default `None`: all
    /// are wanted.
    pub acks_per_window: Option<NonZeroU32>,
    /// Segments for whose room in the window new data waits, if these are no more than an eighth of
    /// it, so that they leave as one frame: fewer frames bring fewer acknowledgements, as
    /// receivers acknowledge each. Only where the slowest receiver bounds all
    /// ([`Fairness::Strict`]), and not in real-time mode. Default 1: nothing waits.
    pub frame: u32,
    /// Age at which bytes are released: real-time mode, in which nothing is left out. Default
    /// `None`.
    pub real_time: Option<Duration>,
    /// When children are removed.
    pub removal: RemovalRules,
    /// Number of connections at most. When all are taken, the host that has most gives up the one
    /// that asked longest ago for a host that has fewer. Default 10,000.
    pub children: usize,
    /// Bytes held at most for children that are served alone, a quarter of it for one host, beyond
    /// 64 KiB and a write of each. Default 256 MiB.
    pub alone: usize,
    /// Number of half-open connections at most, a sixteenth of it for one host. The oldest give way.
    /// Default 65,536, about 25 MB, so that a client has 8 s to answer in a flood of 8,000 SYNs a
    /// second under other addresses.
    pub half_open: usize,
    /// Bytes that a child may send before the host consumes them, at most 65,535, which is the
    /// default.
    pub receive_buffer: u16,
    /// RTO before an RTT is known. Default 1 s [RFC 6298 §2.1].
    pub initial_rto: Duration,
    /// Bounds of the RTO. Default 200 ms, as stacks use today, to 60 s [RFC 6298 §2.5].
    pub rto: (Duration, Duration),
    /// Transmissions of a SYN/ACK at most. Default 5.
    pub syn_ack_transmissions: u32,
    /// Time after which an idle connection is probed. Default 60 s.
    pub keep_alive: Duration,
    /// Number of probes without an answer after which it is removed. Default 5.
    pub keep_alive_probes: u32,
    /// Time for which a receiver may leave its side open after it has acknowledged the source's
    /// FIN: that of FIN-WAIT-2, which [RFC 9293 §3.6] leaves open. Default 60 s.
    pub fin_wait: Duration,
    /// Duration of TIME-WAIT. Default 60 s.
    pub time_wait: Duration,
}

impl SourceConfig {
    /// Creates the default configuration for this port and channel.
    pub fn new(port: u16, channel: Channel) -> SourceConfig {
        SourceConfig {
            port,
            channel,
            join: Join::default(),
            mss: if channel.group.is_ipv6() { 1440 } else { 1460 },
            base: None,
            buffer: 8 << 20,
            release: Release::default(),
            fairness: Fairness::default(),
            rtt: RttChoice::default(),
            congestion: Congestion::default(),
            initial_window: 10,
            threshold: 0.05,
            gather: (Duration::from_millis(1), Duration::from_millis(20)),
            skip_every: 256,
            acks_per_window: None,
            frame: 1,
            real_time: None,
            removal: RemovalRules::default(),
            children: SMO_CONNECTIONS.all,
            alone: SMO_ALONE.all,
            half_open: SMO_HALF_OPEN.all,
            receive_buffer: u16::MAX,
            initial_rto: Duration::from_secs(1),
            rto: (Duration::from_millis(200), Duration::from_mins(1)),
            syn_ack_transmissions: 5,
            keep_alive: Duration::from_mins(1),
            keep_alive_probes: 5,
            fin_wait: Duration::from_mins(1),
            time_wait: Duration::from_mins(1),
        }
    }
}
