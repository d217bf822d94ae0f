//! Every constant of the repository's protocol, as a default that experiments can sweep.

use std::time::Duration;

use umbel_wire::repository::ControlKey;
use umbel_wire::{Channel, Tsi};

use super::policy::Policy;
use super::scheduler::SchedulerKind;
use crate::units::Rate;

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Name and version of the program, told to clients.
    pub agent: String,
    /// The session of all data packets.
    pub tsi: Tsi,
    /// The data channel.
    pub channel: Channel,
    /// The highest rate of data packets. The engine asks for less while most clients cannot take
    /// it ([`SourceEvent::Rate`](super::SourceEvent::Rate)).
    pub rate: Rate,
    /// UDP payload of a full data packet in bytes.
    pub packet_len: usize,
    /// Forward error correction, retransmission and notification [Repository §3]. Default `auto`.
    pub policy: Policy,
    /// Which item comes next [Repository §2.2]. Default `gain`; with a policy that is set by hand,
    /// [`Policy::usual_scheduler`] is `rq`.
    pub scheduler: SchedulerKind,
    /// The token that clients must show, if any.
    pub token: Option<String>,
    /// Transmissions are announced to everyone at once in this group, to clients who hear it.
    /// Default none: on the sessions.
    pub control: Option<ControlConfig>,
    /// Transmissions are chosen and announced this long before their first packet leaves, or up to
    /// half as long again, as long as the channel is busy. Default 10 ms. Zero chooses at the last
    /// moment, as the paper does.
    pub lookahead: Duration,
    /// How a large item is cut into transmissions.
    pub segment: SegmentConfig,
    /// What the first packet on an idle channel waits for.
    pub start: StartConfig,
    /// When NAKs come, and how long they are gathered.
    pub naks: NakConfig,
    /// How the paper is read, by a policy that is set by hand. `auto` has nothing to do with it.
    pub reading: PaperReading,
    /// Share of the packets that `auto` sends for the oldest request, 0 to 1. It bounds how long a
    /// client can wait. Default 1/16.
    pub oldest_share: f64,
    /// Most items that one client may have outstanding. Default 4,000,000.
    pub max_items_per_client: usize,
    /// Loss estimates above this do not raise FEC(f·loss): such a client is served by later
    /// transmissions, so that it does not hold up the others. Default 0.5.
    pub loss_cap: f64,
}

/// How a large item is cut into transmissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Time that a transmission takes, about. NAKs follow each, so that repairs travel while the
    /// item goes on. Default 100 ms; [`Duration::MAX`] sends each item in one, as the paper does.
    pub time: Duration,
    /// Most bytes of a transmission: clients hold its incomplete blocks in memory until the repair
    /// comes. Default 8 MiB.
    pub max_bytes: u64,
    /// Fewest packets of a transmission. Default 512.
    pub min_packets: u32,
    /// Number of clients that doubles a transmission, so that announcements and NAKs stay cheap
    /// beside the data. Default 64.
    pub clients: u32,
}

impl Default for SegmentConfig {
    fn default() -> SegmentConfig {
        SegmentConfig {
            time: Duration::from_millis(100),
            max_bytes: 8 << 20,
            min_packets: 512,
            clients: 64,
        }
    }
}

/// What the first packet on an idle channel waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartConfig {
    /// Time beyond the slowest client's round trip, so that clients have joined. Default 5 ms.
    pub join_lead: Duration,
    /// An item waits until no further client has asked for it for this long, so that those who are
    /// started together are served together. Default 25 ms.
    pub quiet: Duration,
    /// Longest wait as a share of the item's own channel time. Default 0.03.
    pub fraction: f64,
    /// Longest wait. Default 200 ms.
    pub most: Duration,
}

impl Default for StartConfig {
    fn default() -> StartConfig {
        StartConfig {
            join_lead: Duration::from_millis(5),
            quiet: Duration::from_millis(25),
            fraction: 0.03,
            most: Duration::from_millis(200),
        }
    }
}

/// When NAKs come, and how long they are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NakConfig {
    /// NAKs of one transmission spread over this time for each client that wants the item
    /// [Repository §3.2.3]. Default 20 µs.
    pub spread_per_client: Duration,
    /// Limits of the spread. Default 0 to 200 ms.
    pub spread: (Duration, Duration),
    /// NAKs are gathered for the spread, the slowest client's round trip and this long before a
    /// retransmission is planned, so that it serves them all. Default 2 ms.
    pub margin: Duration,
}

impl NakConfig {
    /// Returns over what time the NAKs of so many clients spread.
    pub(super) fn spread_of(&self, clients: usize) -> Duration {
        let (least, most) = self.spread;
        (self.spread_per_client * clients as u32).clamp(least, most)
    }
}

impl Default for NakConfig {
    fn default() -> NakConfig {
        NakConfig {
            spread_per_client: Duration::from_micros(20),
            spread: (Duration::ZERO, Duration::from_millis(200)),
            margin: Duration::from_millis(2),
        }
    }
}

/// How a policy that is set by hand reads what the paper leaves open (`docs/papers/repository.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperReading {
    /// A transmission whose clients have all finished or gone is cut short. Default true; the
    /// paper's transmissions are not.
    pub cut_short: bool,
    /// NAKs are gathered for all of their time, even when every client has answered. Default
    /// false.
    pub gather_fully: bool,
    /// While NAKs are awaited the channel carries nothing else. Default false: it goes on with
    /// the next item.
    pub wait_for_naks: bool,
    /// A NAK joins the retransmission of its item that is being gathered, whatever its size
    /// [Repository §3.2.4]. Default true. If not, each NAK is judged by itself.
    pub join_repairs: bool,
    /// Retransmissions are announced to everyone who wants the item, as on a control channel that
    /// all hear [Repository §5.1], but to those who came while it was sent and were not told.
    /// Default false: to those whose NAKs they answer.
    pub open_repairs: bool,
    /// Retransmissions are expanded, as passes are [Repository §3.1]. Default true.
    pub expand_repairs: bool,
    /// Rescheduled items are sent whole (as in the paper) rather than only what is missing, and
    /// count so in what a client has outstanding. Default false.
    pub reschedule_whole: bool,
}

impl Default for PaperReading {
    fn default() -> PaperReading {
        PaperReading {
            cut_short: true,
            gather_fully: false,
            wait_for_naks: false,
            join_repairs: true,
            open_repairs: false,
            expand_repairs: true,
            reschedule_whole: false,
        }
    }
}

impl SourceConfig {
    /// The defaults for a channel.
    pub fn new(tsi: Tsi, channel: Channel, rate: Rate) -> SourceConfig {
        SourceConfig {
            agent: concat!("umbel/", env!("CARGO_PKG_VERSION")).to_owned(),
            tsi,
            channel,
            rate,
            packet_len: 1400,
            policy: Policy::Auto,
            scheduler: SchedulerKind::Gain,
            token: None,
            control: None,
            lookahead: Duration::from_millis(10),
            segment: SegmentConfig::default(),
            start: StartConfig::default(),
            naks: NakConfig::default(),
            reading: PaperReading::default(),
            oldest_share: 1.0 / 16.0,
            max_items_per_client: 4_000_000,
            loss_cap: 0.5,
        }
    }
}

/// The multicast control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlConfig {
    /// The group: any-source multicast.
    pub channel: Channel,
    /// Authenticates what is said there. Nobody outside may guess it.
    pub key: ControlKey,
    /// Seed of the server's own random stream there.
    pub seed: u64,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Name and version of the program, told to the server.
    pub agent: String,
    /// Shown to a server that admits by token.
    pub token: Option<String>,
    /// The data channel is left when nothing that is wanted was announced or repaired for this
    /// long. Default 500 ms.
    pub linger: Duration,
    /// An announced transmission that brings no packet for this long makes the client go on by
    /// unicast. Default 5 s; `None` never does.
    pub fallback_after: Option<Duration>,
    /// While on unicast, how often multicast is probed. Default 5 s.
    pub probe_every: Duration,
    /// The end of a transmission is assumed when its time has passed and then nothing came for
    /// this long. Default 1 s.
    pub end_slack: Duration,
    /// When a wanted item sees no packet, announcement or end for this long, the client asks for
    /// it again. Default 20 s.
    pub ask_again_after: Duration,
    /// A NAK waits at least this long, and then for a random part of the announced spread
    /// [Repository §3.2.3]. Default 0; the paper's begins at 30 ms.
    pub nak_delay_min: Duration,
    /// Seed of the client's own random stream (NAK delays).
    pub seed: u64,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            agent: concat!("umbel/", env!("CARGO_PKG_VERSION")).to_owned(),
            token: None,
            linger: Duration::from_millis(500),
            fallback_after: Some(Duration::from_secs(5)),
            probe_every: Duration::from_secs(5),
            end_slack: Duration::from_secs(1),
            ask_again_after: Duration::from_secs(20),
            nak_delay_min: Duration::ZERO,
            seed: 0,
        }
    }
}
