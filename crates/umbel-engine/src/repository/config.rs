//! Every constant of the repository's protocol, as a default that experiments can sweep.

use std::time::Duration;

use umbel_wire::repository::{ControlKey, GroupSecret, SymbolKey};
use umbel_wire::{Channel, Tsi};

use super::policy::Policy;
use super::scheduler::SchedulerKind;
use super::token::Token;
use crate::congestion::CongestionConfig;
use crate::units::Rate;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Name and version of the program, told to clients.
    pub agent: String,
    /// The session of all data packets.
    pub tsi: Tsi,
    /// The data channel.
    pub channel: Channel,
    /// The rate of data packets, or with [`congestion`](SourceConfig::congestion) the highest.
    pub rate: Rate,
    /// Congestion control of the data channel: the rate is found and followed
    /// ([`SourceEvent::Rate`](super::SourceEvent::Rate)). Default none: the rate is fixed, as the
    /// paper's is.
    pub congestion: Option<CongestionConfig>,
    /// UDP payload of a full data packet in bytes.
    pub packet_len: usize,
    /// Forward error correction, retransmission and notification [Repository §3]. Default `auto`.
    pub policy: Policy,
    /// Rule that chooses the next item [Repository §2.2]. Default `gain`; with a policy that is set
    /// by hand, [`Policy::usual_scheduler`] is `rq`.
    pub scheduler: SchedulerKind,
    /// The token that clients must show, if any.
    pub token: Option<Token>,
    /// Time in which a client has to say `Hello` after it has opened its session. Default 5 s.
    pub hello_wait: Duration,
    /// Multicast control channel, where transmissions are announced at once to all clients that
    /// hear it. Default none: they are announced on the sessions.
    pub control: Option<ControlConfig>,
    /// Sealing of the data channel and the control group, for admitted clients only. Default none.
    pub seal: Option<SealConfig>,
    /// Transmissions are chosen and announced this long before their first packet leaves, or up to
    /// half as long again, while the channel is busy. Default 10 ms. Zero chooses at the last
    /// moment, as the paper does.
    pub lookahead: Duration,
    /// Division of a large item into transmissions.
    pub segment: SegmentConfig,
    /// Waits of the first packet on an idle channel.
    pub start: StartConfig,
    /// Timing of NAKs, and of their gathering.
    pub naks: NakConfig,
    /// Reading of the paper by a policy that is set by hand. `auto` ignores it.
    pub reading: PaperReading,
    /// Share of the packets that `auto` sends for the oldest request, 0 to 1. It bounds a client's
    /// waiting time. Default 1/16.
    pub oldest_share: f64,
    /// Greatest number of items that one client may have outstanding. Default 4,000,000.
    pub max_items_per_client: usize,
    /// Loss estimates above this do not raise FEC(f·loss). Later transmissions serve such a client,
    /// so that it does not hold up the others. Default 0.5.
    pub loss_cap: f64,
}

/// Division of a large item into transmissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentConfig {
    /// Approximate duration of a transmission. NAKs follow each, so that repairs travel while the
    /// item goes on. Default 100 ms; [`Duration::MAX`] sends each item in one, as the paper does.
    pub time: Duration,
    /// Greatest number of bytes of a transmission. Clients hold its incomplete blocks in memory
    /// until the repair comes. Default 8 MiB.
    pub max_bytes: u64,
    /// Smallest number of packets of a transmission. Default 512.
    pub min_packets: u32,
    /// Number of clients that doubles a transmission, so that announcements and NAKs stay cheap
    /// compared with the data. Default 64.
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

/// Waits of the first packet on an idle channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartConfig {
    /// Time beyond the slowest client's round trip, so that clients have joined. Default 5 ms.
    pub join_lead: Duration,
    /// An item waits until no further client has asked for it for this long, so that clients
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

/// Timing of NAKs, and of their gathering.
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
    /// Returns the time over which the NAKs of this number of clients spread.
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

/// Reading of the paper's open points by a policy that is set by hand
/// (`docs/papers/repository.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaperReading {
    /// Whether a transmission is cut short once all its clients have finished or left. Default
    /// true; the paper's transmissions are not.
    pub cut_short: bool,
    /// Whether NAKs are gathered for their full time, even when every client has answered. Default
    /// false.
    pub gather_fully: bool,
    /// Whether the channel carries nothing else while NAKs are awaited. Default false: it goes on
    /// with the next item.
    pub wait_for_naks: bool,
    /// Whether a NAK of any size joins the retransmission of its item that is being gathered
    /// [Repository §3.2.4]. Default true. Otherwise each NAK is judged by itself.
    pub join_repairs: bool,
    /// Whether retransmissions are announced to every client that wants the item, as on a control
    /// channel that all hear [Repository §5.1]. Clients that came while the item was sent and were
    /// not told are left out. Default false: only the clients whose NAKs are answered are told.
    pub open_repairs: bool,
    /// Whether retransmissions are expanded, as passes are [Repository §3.1]. Default true.
    pub expand_repairs: bool,
    /// Whether rescheduled items are sent whole (as in the paper) rather than only their missing
    /// symbols. They then also count as whole in a client's outstanding request. Default false.
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
    /// Creates the default configuration for a channel.
    pub fn new(tsi: Tsi, channel: Channel, rate: Rate) -> SourceConfig {
        SourceConfig {
            agent: concat!("umbel/", env!("CARGO_PKG_VERSION")).to_owned(),
            tsi,
            channel,
            rate,
            congestion: None,
            packet_len: 1400,
            policy: Policy::Auto,
            scheduler: SchedulerKind::Gain,
            token: None,
            hello_wait: Duration::from_secs(5),
            control: None,
            seal: None,
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
    /// Key that authenticates the group's messages unless they are sealed. It must not be guessable
    /// by outsiders.
    pub key: ControlKey,
}

/// Sealing with group keys, which change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealConfig {
    /// Secret of the first key: random, and never used before. The engine asks for the others with
    /// [`SourceEvent::DrawSecret`](super::SourceEvent::DrawSecret).
    pub secret: GroupSecret,
    /// Longest time for which a key is used. Default 1 h.
    pub change_every: Duration,
    /// Shortest time between changes, as when clients leave one after the other. A millisecond is
    /// added for each client. Default 1 s.
    pub change_gap: Duration,
    /// Longest wait for clients to confirm the next key. Default 5 s.
    pub confirm_wait: Duration,
}

impl SealConfig {
    /// Creates the default configuration with the secret of the first key.
    pub fn new(secret: GroupSecret) -> SealConfig {
        SealConfig {
            secret,
            change_every: Duration::from_hours(1),
            change_gap: Duration::from_secs(1),
            confirm_wait: Duration::from_secs(5),
        }
    }
}

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Name and version of the program, told to the server.
    pub agent: String,
    /// Token shown to a server that admits by token.
    pub token: Option<Token>,
    /// Time after which the data channel is left, if nothing that is wanted was announced or
    /// repaired meanwhile. Default 500 ms.
    pub linger: Duration,
    /// Time without any packet of an announced transmission after which the client continues by
    /// unicast. Default 5 s; `None` never does.
    pub fallback_after: Option<Duration>,
    /// Interval between probes of multicast while on unicast. Default 5 s.
    pub probe_every: Duration,
    /// Number of times that a block may be damaged by multicast. Then it comes on the session.
    /// Default 2.
    pub most_damages: u32,
    /// Key of the digests of symbols that the client asks for. It must not be guessable by others.
    pub symbol_key: SymbolKey,
    /// Silence after a transmission's expected end after which it counts as over. Default 1 s.
    pub end_slack: Duration,
    /// Time without a packet, announcement or end after which the client asks for a wanted item
    /// again. Default 20 s.
    pub ask_again_after: Duration,
    /// Shortest delay of a NAK, to which a random part of the announced spread is added [Repository
    /// §3.2.3]. Default 0; the paper's begins at 30 ms.
    pub nak_delay_min: Duration,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            agent: concat!("umbel/", env!("CARGO_PKG_VERSION")).to_owned(),
            token: None,
            linger: Duration::from_millis(500),
            fallback_after: Some(Duration::from_secs(5)),
            probe_every: Duration::from_secs(5),
            most_damages: 2,
            symbol_key: SymbolKey::default(),
            end_slack: Duration::from_secs(1),
            ask_again_after: Duration::from_secs(20),
            nak_delay_min: Duration::ZERO,
        }
    }
}
