//! BASEP: the sender-initiated reliable multicast that TMTP is compared with [TMTP "The Test
//! Environment"], with a window (`WIN_BASEP`) and without (`BURST_BASEP`).
//!
//! The source multicasts packets as fast as its host lets it. It keeps a state for each receiver,
//! and expects an ACK from each for each packet. It multicasts a packet to all again if an ACK is
//! missing after a time-out of twice the round trip to the farthest receiver. A receiver
//! acknowledges every packet, also a repeated one, since its ACK may have been lost. It never sends
//! requests.
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
//! The receiver's state is a window of packets that came, each delivered once and in order. When it
//! has all of them it answers `GOT_IT` instead of an ACK.
//!
//! # Scope and limitations
//!
//! It exists for comparison. There is no congestion control, the receivers are known beforehand,
//! and the time-out is configured, as it was in the paper's tests. A receiver that does not
//! acknowledge a packet after [`SourceConfig::retransmissions`] of it is given up. One that is gone
//! thus does not stop the others forever.
//!
//! Input from the network is bounded. ACKs count only from the named receivers, and a packet causes
//! at most one ACK. An ACK causes no datagram.
//!
//! # Validation
//!
//! `tests.rs` here drives each engine by hand, `tests/world.rs` runs them together with losses and
//! a partition. The simulator's `basep` runs them on its networks, and `umbel repro tmtp` makes the
//! curves of [TMTP Fig. 6] and [TMTP Fig. 7] with them.

mod api;
mod config;
mod drops;
mod receiver;
mod source;
#[cfg(test)]
mod tests;

pub use api::{
    ReceiverEvent, ReceiverStats, SourceCommand, SourceCommandError, SourceEvent, SourceStats,
};
pub use config::{ReceiverConfig, SourceConfig};
pub use drops::{DropReason, Drops};
pub use receiver::Receiver;
pub use source::Source;
