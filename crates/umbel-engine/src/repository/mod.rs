//! The multicast repository: clients ask a server for subsets of its items. Transmissions are
//! announced on a control channel and carried on a data channel [Repository §2].
//!
//! - [`source`]: the server's engine.
//! - [`receiver`]: the client's engine.
//! - [`scheduler`]: the choice of the next item [Repository §2.2].
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
mod symbol_digest;
#[cfg(test)]
mod tests;
mod token;

pub use config::{ControlConfig, ReceiverConfig, SealConfig, SourceConfig};
pub use receiver::{Receiver, ReceiverCommand, ReceiverEvent};
pub use source::{Source, SourceCommand, SourceEvent};
pub use symbol_digest::symbol_digest;
pub use token::Token;
