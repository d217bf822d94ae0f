//! The multicast repository: clients ask a server for subsets of its items; a control channel
//! announces, a data channel carries [Repository §2].
//!
//! - [`source`]: the server's engine.
//! - [`receiver`]: the client's engine.
//! - [`scheduler`]: which item is sent next [Repository §2.2].
//! - [`policy`]: forward error correction and retransmission [Repository §3].
//! - [`config`]: every constant.

pub mod config;
mod control;
pub mod drops;
mod missing;
pub mod policy;
pub mod receiver;
pub mod scheduler;
pub mod source;
#[cfg(test)]
mod tests;

pub use config::{ControlConfig, ReceiverConfig, SourceConfig};
pub use receiver::{Receiver, ReceiverCommand, ReceiverEvent};
pub use source::{Source, SourceCommand, SourceEvent};
