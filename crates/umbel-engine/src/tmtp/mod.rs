//! TMTP, the Tree-based Multicast Transport Protocol: one source sends a feed to whoever listens,
//! and a control tree of domain managers repairs losses and keeps the source from running ahead.
//!
//! \[TMTP\] is Yavatkar, Griffioen and Sudan, *A Reliable Dissemination Protocol for Interactive
//! Collaborative Applications*, ACM Multimedia 1995.

mod api;
mod asks;
mod buffer;
mod catch_up;
mod children;
mod concast;
pub mod config;
mod domain;
pub mod drops;
mod intervals;
mod receiver;
mod reception;
mod repairs;
mod runs;
mod shelf;
mod source;
mod survey;
#[cfg(test)]
#[allow(dead_code, reason = "more scenarios come")]
mod tests;
mod throttle;
mod tree;

pub use api::{
    BlockCount, FEED, Purpose, ReceiverCommand, ReceiverCommandError, ReceiverEvent, ReceiverStats,
    SourceCommand, SourceCommandError, SourceEvent, SourceStats, TreeView,
};
pub use config::{
    ConfigError, NodeConfig, ReceiverConfig, RepairConfig, Shape, SourceConfig, Start,
    TimingConfig, TreeConfig,
};
pub use drops::{DropReason, Drops};
pub use receiver::Receiver;
pub use source::Source;
pub use umbel_wire::tmtp::NodeId;
