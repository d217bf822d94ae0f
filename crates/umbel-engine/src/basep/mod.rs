//! BASEP: the sender-initiated reliable multicast that TMTP is compared with [TMTP "The Test
//! Environment"], with a window (`WIN_BASEP`) and without (`BURST_BASEP`).
//!
//! The source multicasts packets as fast as its host lets it. It keeps a state for each receiver,
//! expects an ACK from each for each packet, and multicasts a packet to all again when an ACK is
//! missing after a time-out of twice the round trip to the farthest receiver. A receiver acknowledges
//! whatever comes, also again, since its ACK may have been lost; it never asks for anything.
//!
//! The source keeps a state for each packet:
//!
//! ```text
//!             window, pacer            all have acknowledged
//!  (queued) ────────────────▶ Waiting ──────────────────────▶ (forgotten, from the first on)
//!                              │  ▲                  ▲
//!                     time-out │  │ pacer: sent      │ all have acknowledged
//!                              ▼  │ again            │
//!                             Due ───────────────────┘
//! ```
//!
//! The receiver's state is a window of packets that came; each is delivered once and in order. With
//! all of them it answers `GOT_IT` instead of an ACK.
//!
//! # Scope and limitations
//!
//! It exists to be compared with: there is no congestion control, the receivers are known beforehand,
//! and the time-out is configured, as it was in the paper's tests. A receiver that does not
//! acknowledge a packet after [`SourceConfig::retransmissions`] of it is given up, so that one that is
//! gone does not stop the others for ever.
//!
//! What comes from the network is bounded: ACKs count only from the receivers that were named, and a
//! packet makes at most one ACK. An ACK makes nothing.
//!
//! # Validation
//!
//! `tests.rs` here drives each engine by hand; the simulator's `basep` runs them together, and `umbel
//! repro tmtp` makes the curves of [TMTP Fig. 6] and [TMTP Fig. 7] with them.

mod config;
mod drops;
mod receiver;
mod source;
#[cfg(test)]
mod tests;

pub use config::{ReceiverConfig, SourceConfig};
pub use drops::{DropReason, Drops};
pub use receiver::{Receiver, ReceiverEvent, ReceiverStats};
pub use source::{Source, SourceCommand, SourceCommandError, SourceEvent, SourceStats};
