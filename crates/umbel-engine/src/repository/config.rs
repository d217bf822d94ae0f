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
    /// Transmissions are chosen and announced this long before their first packet leaves, as
    /// long as the channel is busy. Default 10 ms. Zero chooses at the last moment, as the paper
    /// does.
    pub lookahead: Duration,
    /// A large item is sent in transmissions of about this length, with NAKs after each, so that
    /// repairs travel while the item goes on. Default 100 ms. The paper's items are sent in one:
    /// [`Duration::MAX`].
    pub segment: Duration,
    /// Most bytes in a transmission that is cut by `segment`: clients hold its incomplete blocks
    /// in memory until the repair comes. Default 8 MiB.
    pub segment_max_bytes: u64,
    /// Fewest packets in a transmission that is cut by `segment`. Default 512.
    pub segment_min_packets: u32,
    /// How many clients make a segment twice as long, so that announcements and NAKs stay cheap
    /// beside the data. Default 64.
    pub segment_clients: u32,
    /// On an idle channel, the first packet waits for the slowest client's round trip and this
    /// long, so that clients have joined. Default 5 ms.
    pub join_lead: Duration,
    /// On an idle channel, an item waits until nobody else who wants it has come in for this
    /// long, so that those who are started together get it together. Default 25 ms.
    pub gather_quiet: Duration,
    /// But not longer than this share of the item's own channel time. Default 0.03.
    pub gather_fraction: f64,
    /// And not longer than this. Default 200 ms.
    pub gather_max: Duration,
    /// A transmission whose clients have all finished or gone is cut short. Default true; the
    /// paper's transmissions are not.
    pub cut_short: bool,
    /// NAKs of one transmission spread over this time for each client that wants the item
    /// [Repository §3.2.3]. Default 20 µs.
    pub nak_spread_per_client: Duration,
    /// Limits of the NAK spread. Default 0 to 200 ms.
    pub nak_spread: (Duration, Duration),
    /// NAKs are gathered for the spread, the slowest client's round trip and this long before a
    /// retransmission is planned, so that it serves them all. Default 2 ms.
    pub nak_margin: Duration,
    /// NAKs are gathered for all of that time, even when every client has answered. Default
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
    /// The share of packets that `auto` sends for the oldest request, 0 to 1, which bounds how long
    /// a client can wait. Default 1/16.
    pub oldest_share: f64,
    /// Most items that one client may have outstanding. Default 4,000,000.
    pub max_items_per_client: usize,
    /// Loss estimates above this do not raise FEC(f·loss): such a client is served by later
    /// transmissions, so that it does not hold up the others. Default 0.5.
    pub loss_cap: f64,
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
            segment: Duration::from_millis(100),
            segment_max_bytes: 8 << 20,
            segment_min_packets: 512,
            segment_clients: 64,
            join_lead: Duration::from_millis(5),
            gather_quiet: Duration::from_millis(25),
            gather_fraction: 0.03,
            gather_max: Duration::from_millis(200),
            cut_short: true,
            nak_spread_per_client: Duration::from_micros(20),
            nak_spread: (Duration::ZERO, Duration::from_millis(200)),
            nak_margin: Duration::from_millis(2),
            gather_fully: false,
            wait_for_naks: false,
            join_repairs: true,
            open_repairs: false,
            expand_repairs: true,
            reschedule_whole: false,
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
