//! What a world is made of.

use std::time::Duration;

use super::link::LinkSpec;
use super::tcp::Kind;
use crate::congestion::CongestionConfig;
use crate::shares::Origin;
use crate::units::Rate;

/// Bytes of a packet.
pub(super) const PACKET: u32 = 1_428;

/// A receiver and what is between it and its link.
#[derive(Clone, Debug)]
pub(super) struct ReceiverSpec {
    /// The link that it is behind.
    pub(super) link: usize,
    pub(super) rtt: Duration,
    /// Share of packets lost behind the link, and the mean length of bursts of loss.
    pub(super) loss: f64,
    pub(super) burst: f64,
    /// Each packet is seen up to so much later.
    pub(super) jitter: Duration,
    /// Stalls of the machine in a second: 0.5 to 4 ms, after which all that came is seen at once.
    pub(super) stalls: f64,
    /// Its machine, if that is not always faster than the path.
    pub(super) host: Option<HostSpec>,
    /// Longest time by which a report is late.
    pub(super) report_late: Duration,
    /// Time at which it joins.
    pub(super) joins: Duration,
    /// Share of its reports that are lost.
    pub(super) report_loss: f64,
    pub(super) origin: Origin,
}

/// Returns host `n` of network `net`.
pub(super) fn origin(net: u8, n: usize) -> Origin {
    Origin::of([10, net, (n >> 8) as u8, n as u8].into())
}

impl ReceiverSpec {
    pub(super) fn new(link: usize, rtt: Duration) -> ReceiverSpec {
        ReceiverSpec {
            link,
            rtt,
            loss: 0.0,
            burst: 1.0,
            jitter: Duration::ZERO,
            stalls: 0.0,
            host: None,
            report_late: Duration::ZERO,
            joins: Duration::ZERO,
            report_loss: 0.0,
            origin: origin(0, link),
        }
    }
}

/// A machine that has other things to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostSpec {
    /// Packets in a second that it takes.
    pub(super) per_s: f64,
    /// Packets that its socket holds. The others are dropped.
    pub(super) socket: usize,
    /// Whether those that are dropped are reported as such.
    pub(super) counts: bool,
    /// Whether packets are stamped when they come, so that the time in the socket is not seen.
    pub(super) stamps: bool,
    /// Packets that are read at once, and are taken to have come at the same time.
    pub(super) together: usize,
    /// How often in a second it does something else, for 5 to 50 ms.
    pub(super) stalls: f64,
}

/// A world.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) links: Vec<LinkSpec>,
    pub(super) receivers: Vec<ReceiverSpec>,
    /// Kind of each competing flow and its round trip; all use the first link.
    pub(super) flows: Vec<(Kind, Duration)>,
    /// Time at which they begin.
    pub(super) flows_begin: Duration,
    pub(super) config: CongestionConfig,
    /// Round trip that the controller is told.
    pub(super) told_rtt: Option<Duration>,
    /// Rate at which the application has data; nothing in the pause.
    pub(super) source_rate: Option<f64>,
    pub(super) pause: Option<(Duration, Duration)>,
    /// How often in a second the source's machine holds packets back that are stamped, for up to
    /// 20 ms; and stops for as long before it stamps more.
    pub(super) clumps: f64,
    pub(super) seed: u64,
}

impl Spec {
    pub(super) fn new(links: Vec<LinkSpec>, receivers: Vec<ReceiverSpec>) -> Spec {
        let most = Rate::from_bits_per_s(20_000_000_000).unwrap();
        let told_rtt = receivers.iter().map(|receiver| receiver.rtt).max();
        Spec {
            links,
            receivers,
            flows: Vec::new(),
            flows_begin: Duration::ZERO,
            config: CongestionConfig::new(most, PACKET),
            told_rtt,
            source_rate: None,
            pause: None,
            clumps: 0.0,
            seed: 1,
        }
    }

    /// A path of its own for one receiver.
    pub(super) fn one(link: LinkSpec, receiver: ReceiverSpec) -> Spec {
        Spec::new(vec![link], vec![receiver])
    }
}
