//! RLM, receiver-driven layered multicast [RLM]: a source sends each layer of a live stream on a
//! channel of its own, and each receiver joins as many layers as its own path carries.
//!
//! - [`SourceCommand`], [`SourceStats`]: the source takes units or objects for its layers. It takes
//!   no part in the adaptation.
//! - [`ReceiverCommand`], [`ReceiverEvent`], [`ReceiverStats`]: the receiver delivers them, and
//!   chooses its level by join-experiments.

mod api;
mod config;
mod drops;

pub use api::{
    ConfigError, LayerStats, LevelReason, MAX_UNIT, ReceiverCommand, ReceiverCommandError,
    ReceiverEvent, ReceiverStats, SourceCommand, SourceCommandError, SourceStats, State,
};
pub use config::{
    ControllerKind, HeldConfig, LayerConfig, LayerFec, LossConfig, Mode, ReceiverConfig, RlmConfig,
    SessionConfig, SourceConfig,
};
pub use drops::{DropReason, Drops};
