//! Commands and events between the engines and their application.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::rlm::{Loss, MAX_NAME, ObjectHead};
use umbel_wire::{EmitError, Toi};

use crate::RateClass;

/// Maximum length of a unit in bytes; with its length it still fits a repair symbol.
pub const MAX_UNIT: usize = umbel_wire::control::MAX_UNIT;

/// Requests of a source's application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceCommand {
    /// Send a unit: what can be used by itself, or with the lower layers' units. Empty units are
    /// sent too.
    Unit {
        /// Its layer; 0 is the base.
        layer: u8,
        /// Its content; at most [`MAX_UNIT`] bytes.
        body: Bytes,
    },
    /// Send an object.
    Object {
        /// Its layer; 0 is the base.
        layer: u8,
        /// Its name; at most [`MAX_NAME`] bytes.
        name: String,
        /// Its content.
        body: Bytes,
    },
}

/// Reason for which a source did not take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceCommandError {
    /// The stream has no such layer.
    #[error("layer {layer}, but the stream has {layers}")]
    NoSuchLayer {
        /// The layer.
        layer: u8,
        /// Number of layers.
        layers: usize,
    },
    /// A unit that is too long for a packet.
    #[error("a unit of {0} bytes; at most {MAX_UNIT} fit a packet")]
    TooLong(usize),
    /// A name that is too long.
    #[error("a name of {0} bytes; at most {MAX_NAME}")]
    LongName(usize),
    /// Too many bytes of objects wait already. Try again later, or forgo the object.
    #[error("objects of {held} bytes wait already; there is room for {room}")]
    Full {
        /// Bytes that wait.
        held: usize,
        /// Bytes that may wait.
        room: usize,
    },
}

/// Reason for which a configuration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Too few or too many layers.
    #[error("{0} layers; a stream has 1 to {max}", max = RateClass::LAYERS)]
    Layers(usize),
    /// The base channel has no source, or its group is so high that not all layers have one.
    #[error("the base channel has no source, or no room for {0} consecutive groups")]
    Base(usize),
    /// The numbers of symbols are out of range.
    #[error(
        "a block of {source_symbols} + {repair_symbols} symbols; k is 1 to 254, k + r at most 255"
    )]
    Fec {
        /// Symbols of a block.
        source_symbols: u8,
        /// Its repair symbols.
        repair_symbols: u8,
    },
    /// Something cannot be written into a packet.
    #[error(transparent)]
    Emit(#[from] EmitError),
}

/// A source's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Counters of each layer.
    pub layers: Vec<LayerStats>,
    /// Estimated number of receivers; 0 without a control group.
    pub receivers: u64,
    /// Estimated number of receivers at each level from 1 on.
    pub at_level: Vec<u64>,
    /// Greatest loss that a receiver of the sample last told of.
    pub worst_loss: Loss,
    /// Join-experiments heard.
    pub experiments: u64,
}

/// Counters of one layer of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerStats {
    /// Packets sent, repairs included.
    pub packets: u64,
    /// Bytes of these, UDP payload.
    pub bytes: u64,
    /// Repair packets sent.
    pub repairs: u64,
    /// Units dropped since they waited too long or too many waited.
    pub dropped: u64,
    /// Units and packets of objects that wait now.
    pub waiting: usize,
}

/// Requests of a receiver's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// Receive the stream, from the base layer on.
    Join,
    /// Leave all channels, and say so to the others.
    Leave,
    /// Try no level above this one, from now on; at least 1. A higher level is left at once.
    LimitLevel(u8),
}

/// News for a receiver's application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// A unit, each once, in the order of arrival; a restored one comes late.
    Unit {
        /// Its layer; 0 is the base.
        layer: u8,
        /// A number that grows in the order in which the layer's units were sent, with gaps. It
        /// wraps with the source's block numbers, after 2^32 blocks.
        number: u64,
        /// Its content.
        body: Bytes,
    },
    /// A whole object whose digest is right.
    Object {
        /// Its layer; 0 is the base.
        layer: u8,
        /// Its number in its layer.
        toi: Toi,
        /// Its name, as the source wrote it. Not a path to be trusted.
        name: String,
        /// Its content.
        body: Bytes,
    },
    /// An object that can no longer be completed from what the source sends.
    ObjectMissing {
        /// Its layer; 0 is the base.
        layer: u8,
        /// Its number in its layer.
        toi: Toi,
        /// Its head, if it came.
        head: Option<ObjectHead>,
        /// The content that came, with zeros where something is missing. Empty without a head.
        held: Bytes,
        /// Missing bytes, ascending. All of them if the digest is wrong; none without a head.
        missing: Vec<Range<u64>>,
    },
    /// The level changed.
    Level {
        /// Number of layers that are received, or in independent mode the layer, counted from 1.
        /// 0 after [`ReceiverCommand::Leave`].
        level: u8,
        /// Reason of the change.
        reason: LevelReason,
    },
    /// A join-experiment began: the level rises to `level`.
    ExperimentStarted {
        /// The level.
        level: u8,
    },
    /// A join-experiment failed. The level falls again.
    ExperimentFailed {
        /// The experimental level.
        level: u8,
        /// Time from its start to the onset of congestion.
        after: Duration,
    },
    /// A join-experiment succeeded: the level stays.
    ExperimentSucceeded {
        /// The level.
        level: u8,
    },
}

/// Reason for a change of level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelReason {
    /// The receiver joined or left.
    Application,
    /// A join-experiment adds a layer.
    Experiment,
    /// A join-experiment failed.
    Failed,
    /// Lasting loss.
    Congestion,
    /// [`ReceiverCommand::LimitLevel`].
    Limit,
}

/// States of a receiver [RLM Fig. 6].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// S: steady.
    Steady,
    /// H: hysteresis, which absorbs transient congestion.
    Hysteresis,
    /// M: measures whether loss lasts.
    Measurement,
    /// D: waits until the network reflects a drop.
    Drop,
}

/// A receiver's counters and estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Level now.
    pub level: u8,
    /// State now; `None` outside.
    pub state: Option<State>,
    /// Packets received, without duplicates.
    pub packets: u64,
    /// Bytes of these, UDP payload.
    pub bytes: u64,
    /// Packets lost while their layer was received.
    pub lost: u64,
    /// Packets that came after they had been taken for lost.
    pub late: u64,
    /// Units restored from repairs.
    pub restored: u64,
    /// Packets dropped since the source had not signed them, though it signs.
    pub forged: u64,
    /// Packets dropped without a look, since more wrong signatures came than are verified. The
    /// source's may be among them.
    pub unchecked: u64,
    /// Join-experiments begun.
    pub experiments: u64,
    /// Of these, those that failed.
    pub failed: u64,
    /// Experiments of others heard.
    pub heard: u64,
    /// Experiments forgone since others experimented.
    pub suppressed: u64,
    /// Estimated detection-time: mean.
    pub detection_time: Duration,
    /// Estimated detection-time: deviation.
    pub detection_deviation: Duration,
    /// Estimated number of receivers, including this one.
    pub receivers: u64,
}

/// Reason for which a receiver did not take a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverCommandError {
    /// A level of 0, or above the number of layers.
    #[error("level {level}; the stream has 1 to {layers}")]
    NoSuchLevel {
        /// The level.
        level: u8,
        /// Number of layers.
        layers: u8,
    },
}
