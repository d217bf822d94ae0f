//! Every constant of the protocol, as a default that experiments can sweep.

use std::time::Duration;

use umbel_wire::stream::{LayerFec, StreamMode};
use umbel_wire::{Channel, Tsi};

use crate::bounds::{STREAM_CONTROL, WRONG_SIGNATURES};
use crate::bucket::Limit;
use crate::session_pacing::SessionRate;
use crate::units::Rate;

/// Rule by which a receiver chooses its level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControllerKind {
    /// Join-experiments that loss ends [RLM §3].
    #[default]
    Rlm,
    /// Join-experiments that end when the delay rises, mostly before anything is lost.
    Delay,
}

/// A layer of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// Reed–Solomon code over blocks of units, or of an object's symbols. A block of fewer units
    /// has fewer repairs, in proportion, rounded up. Default `None`.
    pub fec: Option<LayerFec>,
}

/// Configuration of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// The stream; unique together with the source address.
    pub tsi: Tsi,
    /// Channel of the base layer. Layer l is on group + l.
    pub base: Channel,
    /// The layers, the base first; 1 to [`LAYERS`](crate::RateClass::LAYERS).
    pub layers: Vec<LayerConfig>,
    /// Group in which receivers talk. The source only counts them there. Default `None`.
    pub control: Option<Channel>,
    /// Maximum number of units of a layer that wait for its pace. The oldest is dropped for a new
    /// one. Default 4,096.
    pub queue_units: usize,
    /// Maximum time for which a unit waits for the pace of its layer. Default 1 s.
    pub queue_time: Duration,
    /// Maximum number of bytes of a layer's objects that wait. Default 64 MiB.
    pub queue_object_bytes: usize,
    /// Time after its first unit at which a block is closed, full or not. Default 200 ms.
    pub block_time: Duration,
    /// Length of the symbols of objects in bytes. Default 1,280.
    pub symbol_len: u16,
    /// Number of copies of an object's head, spread over the object. Default 3.
    pub head_copies: u8,
    /// Rate and shortest interval of the session messages of all receivers, by which the source
    /// tells when one has left without a word.
    pub session: SessionConfig,
    /// Limit of the control messages that the source counts. Default 200/s, 400 at once.
    pub control_limit: Limit,
}

impl SourceConfig {
    /// Creates the default configuration of a stream with this number of layers.
    pub fn new(tsi: Tsi, base: Channel, layers: u8) -> SourceConfig {
        SourceConfig {
            tsi,
            base,
            layers: vec![LayerConfig { fec: None }; layers.into()],
            control: None,
            queue_units: 4096,
            queue_time: Duration::from_secs(1),
            queue_object_bytes: 64 << 20,
            block_time: Duration::from_millis(200),
            symbol_len: 1280,
            head_copies: 3,
            session: SessionConfig::default(),
            control_limit: STREAM_CONTROL.all,
        }
    }
}

/// Most hosts whose control messages are counted apart.
pub(super) const CONTROL_HOSTS: usize = 1024;

/// The key by which the packets of a stream are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    /// Public Ed25519 key of the source [RFC 8032].
    pub public: [u8; 32],
    /// Version of the announcement, which the signatures cover.
    pub version: u64,
}

/// Configuration of a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// The stream.
    pub tsi: Tsi,
    /// This receiver, by a number drawn at random.
    pub receiver: u64,
    /// Channels of the layers, the base first; 1 to [`LAYERS`](crate::RateClass::LAYERS), each with
    /// the same source.
    pub channels: Vec<Channel>,
    /// Rates of the layers, as announced. They are told in events; the protocol needs none.
    pub rates: Vec<Rate>,
    /// Group in which receivers talk. Default `None`: no shared learning.
    pub control: Option<Channel>,
    /// Whether a receiver at level n receives the first n layers or the n-th alone [RLM §2].
    /// Default [`StreamMode::Cumulative`].
    pub mode: StreamMode,
    /// Rule by which the level is chosen. Default [`ControllerKind::Rlm`].
    pub controller: ControllerKind,
    /// Greatest level that is tried. Default: all layers.
    pub max_level: u8,
    /// Constants of join-experiments.
    pub rlm: RlmConfig,
    /// Parameters of [`ControllerKind::Delay`], instead of some of these, and besides.
    pub delay: DelayConfig,
    /// Constants of loss detection.
    pub loss: LossConfig,
    /// Session messages.
    pub session: SessionConfig,
    /// Limit of the announcements of experiments of one sender. Default 1/s, 4 at once.
    pub experiments_of_one: Limit,
    /// Limit of the control messages of all. Default 200/s, 400 at once.
    pub control_limit: Limit,
    /// Limits of what is held before delivery.
    pub held: HeldConfig,
    /// Key of the source: only packets that it has signed are taken. Default `None`: whatever comes
    /// by the stream's channels, for experiments with the paper, which has no signatures.
    pub key: Option<StreamKey>,
    /// Limit of the packets with wrong signatures that are verified. Beyond it none is for a
    /// moment, right or wrong. Default 4,000/s, 4,000 at once.
    pub wrong_limit: Limit,
}

impl ReceiverConfig {
    /// Creates the default configuration for a stream on these channels.
    pub fn new(tsi: Tsi, receiver: u64, channels: Vec<Channel>) -> ReceiverConfig {
        ReceiverConfig {
            tsi,
            receiver,
            max_level: u8::try_from(channels.len()).unwrap_or(u8::MAX),
            channels,
            rates: Vec::new(),
            control: None,
            mode: StreamMode::Cumulative,
            controller: ControllerKind::default(),
            rlm: RlmConfig::default(),
            delay: DelayConfig::default(),
            loss: LossConfig::default(),
            session: SessionConfig::default(),
            experiments_of_one: Limit { per_s: 1, burst: 4 },
            control_limit: STREAM_CONTROL.all,
            held: HeldConfig::default(),
            key: None,
            wrong_limit: WRONG_SIGNATURES.all,
        }
    }
}

/// Constants of join-experiments [RLM Table 1], with the values of [RLM §4].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RlmConfig {
    /// Factor by which a failed experiment lengthens a join-timer: α; above 1. Default 2.
    pub backoff: f64,
    /// Factor by which a join-timer shrinks while its level is stable: β; below 1. Default 2/3.
    pub relaxation: f64,
    /// Weight of the mean in a detection-timer: k₁. Default 1.
    pub k1: f64,
    /// Weight of the deviation in a detection-timer: k₂. Default 2.
    pub k2: f64,
    /// Gain of the detection-time's mean: g₁. Default 0.25.
    pub g1: f64,
    /// Gain of the detection-time's deviation: g₂. Default 0.25.
    pub g2: f64,
    /// Detection-time assumed at first. The paper wants it conservative and gives no value; chosen:
    /// 2 s.
    pub detection_time: Duration,
    /// Deviation of the detection-time assumed at first. Chosen: 0.5 s.
    pub detection_deviation: Duration,
    /// Shortest mean of a join-timer. Default 5 s.
    pub join_timer_min: Duration,
    /// Longest mean of a join-timer with one receiver; it grows in proportion to their number.
    /// Default 600 s.
    pub join_timer_max: Duration,
    /// Longest mean of a join-timer, whatever the number of receivers is said to be. Chosen: 1 h.
    pub join_timer_ceiling: Duration,
    /// Share of lost packets in the M state above which a layer is dropped: T. The paper gives no
    /// value; chosen: 0.1.
    pub loss_threshold: f64,
    /// Number of packets that must be expected in the M state before loss is judged. Chosen: 20.
    pub loss_packets: u32,
    /// Number of experiments in a row that a receiver forgoes since others experiment. Then it goes
    /// ahead, so that no announcements can keep it down. The paper has no bound; chosen: 8.
    pub suppressions: u32,
}

impl Default for RlmConfig {
    fn default() -> RlmConfig {
        RlmConfig {
            backoff: 2.0,
            relaxation: 2.0 / 3.0,
            k1: 1.0,
            k2: 2.0,
            g1: 0.25,
            g2: 0.25,
            detection_time: Duration::from_secs(2),
            detection_deviation: Duration::from_millis(500),
            join_timer_min: Duration::from_secs(5),
            join_timer_max: Duration::from_mins(10),
            join_timer_ceiling: Duration::from_hours(1),
            loss_threshold: 0.1,
            loss_packets: 20,
            suppressions: 8,
        }
    }
}

/// Constants of [`ControllerKind::Delay`]. All are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DelayConfig {
    /// Rise of the queueing delay during an experiment that is congestion. Default 20 ms.
    pub threshold: Duration,
    /// The same as a share of the greatest queueing delay so far, if that is more. Default 0.25.
    pub share_of_greatest: f64,
    /// Number of losses during an experiment below which they are by chance. Default 3.
    pub losses: u64,
    /// Share of losses during an experiment below which they are by chance. Default 0.05.
    pub loss_share: f64,
    /// Replaces [`RlmConfig::k1`], since delays rise soon and detection-times are short. Default 3.
    pub k1: f64,
    /// Replaces [`RlmConfig::detection_time`]. Default 0.4 s.
    pub detection_time: Duration,
    /// Replaces [`RlmConfig::detection_deviation`]. Default 0.1 s.
    pub detection_deviation: Duration,
    /// Replaces [`RlmConfig::join_timer_min`]. Default 2 s.
    pub join_timer_min: Duration,
}

impl Default for DelayConfig {
    fn default() -> DelayConfig {
        DelayConfig {
            threshold: Duration::from_millis(20),
            share_of_greatest: 0.25,
            losses: 3,
            loss_share: 0.05,
            k1: 3.0,
            detection_time: Duration::from_millis(400),
            detection_deviation: Duration::from_millis(100),
            join_timer_min: Duration::from_secs(2),
        }
    }
}

/// Constants of loss detection. All are chosen; the paper's network does not reorder packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossConfig {
    /// Number of later packets of a layer after which a missing one is lost. Default 3.
    pub reorder_packets: u32,
    /// Time after which a missing packet is lost, however few follow it. Default 100 ms.
    pub reorder_time: Duration,
    /// Number of packets missing in a row above which a layer's numbers are taken for new ones.
    /// Default 10,000.
    pub restart_gap: u32,
}

impl Default for LossConfig {
    fn default() -> LossConfig {
        LossConfig {
            reorder_packets: 3,
            reorder_time: Duration::from_millis(100),
            restart_gap: 10_000,
        }
    }
}

/// Rate of session messages, from which the number of receivers is estimated as in RTCP
/// [RFC 3550 §6.3].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Rate of the session messages of all receivers, whatever their number. Default 5 kbit/s.
    pub rate: Rate,
    /// The shortest mean interval between two messages of a receiver. Default 5 s.
    pub min_interval: Duration,
    /// Number of mean intervals after which a silent receiver has left. Default 5.
    pub silent_intervals: u32,
}

impl SessionConfig {
    pub(super) fn pace(&self) -> SessionRate {
        // Sources send no session messages.
        SessionRate { rate: self.rate, source_share: 0.0, min_interval: self.min_interval }
    }
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        SessionConfig {
            rate: Rate::from_bits_per_s(5_000).expect("above 0"),
            min_interval: Duration::from_secs(5),
            silent_intervals: 5,
        }
    }
}

/// Limits of what a receiver holds of each layer before delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldConfig {
    /// Maximum number of incomplete blocks of units. Default 8.
    pub blocks: usize,
    /// Maximum number of bytes of these. Default 4 MiB.
    pub block_bytes: usize,
    /// Maximum number of incomplete objects. Default 4.
    pub objects: usize,
    /// Maximum number of bytes of these, and maximum length of an object. Default 32 MiB.
    pub object_bytes: usize,
    /// Time without a packet of an object after which it is given up. Default 5 s.
    pub object_patience: Duration,
}

impl Default for HeldConfig {
    fn default() -> HeldConfig {
        HeldConfig {
            blocks: 8,
            block_bytes: 4 << 20,
            objects: 4,
            object_bytes: 32 << 20,
            object_patience: Duration::from_secs(5),
        }
    }
}
