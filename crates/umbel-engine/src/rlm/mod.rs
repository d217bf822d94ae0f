//! RLM, receiver-driven layered multicast [RLM §1]. A source sends each layer of a live stream on
//! its own channel. Each receiver joins as many layers as its own path carries.
//!
//! - [`Source`]: takes units or objects for its layers, protects them, sends them at each layer's
//!   pace. It takes no part in the adaptation.
//! - [`Receiver`]: delivers them, and chooses its level by join-experiments. It adds a layer, and
//!   drops it again if packets are lost within the detection-time.
//!
//! The state machine of [RLM Fig. 6]; L is a loss, T a threshold of the loss rate, T_J a join-timer
//! and T_D a detection-timer:
//!
//! ```text
//!      T_J (add)                   L, not experimenting
//!     ┌───────┐      ┌──────────────────────────────────────▶ H ┐
//!     │       ▼      │                                          │ T_D
//!     └────── S ─────┤  L, experimenting below another          ▼
//!     ┌────── ▲ ▲    ├────────────────────────────────────────▶ M ─ T_D ─▶ S
//!     │       │ │    │  L, the highest experiment is mine       │
//!     └───────┘ │    └─────────────(drop)────────▶ D ◀──(drop)──┘ L > T
//!   T_D (relax) │                                  │
//!               └────────────── T_D ───────────────┘
//! ```
//!
//! | part of the receiver | does |
//! |---|---|
//! | `controller/machine.rs` | the states above |
//! | `controller/{join_timers, detection, experiments, loss_rate}.rs` | what they rest on |
//! | `controller/{delay, queueing}.rs` | the same states, with the rise of the delay as the sign of congestion |
//! | `receiver/loss.rs` | which packets of a layer were lost, and which only come late |
//! | `receiver/group.rs` | the number of receivers, and the limits of what they may say |
//! | `receiver/subscription.rs` | the channels of a level, cumulative or independent |
//! | `receiver/{units, objects}.rs` | reassembly |
//! | `receiver/authenticity.rs` | which packets are the source's, if it signs them |
//!
//! A source may sign each packet ([`umbel_wire::rlm::signed`] has the format). A receiver that has
//! its key then takes nothing else: what others send counts for no loss, restores no unit, and
//! spoils no object. It costs 68 bytes and a signature a packet, and a verification at each
//! receiver. Each packet is right or wrong by itself, so a loss costs no others, and nothing waits.
//!
//! # Scope and limitations
//!
//! The base layer is never dropped: a path that does not carry it has lasting loss. The channels of
//! a stream have one source. Loss that no congestion causes looks like congestion; a path that
//! loses one packet in a hundred hardly ever lets an experiment succeed.
//!
//! Any host that can send to the control group can delay others, within bounds. Announcements are
//! limited for each sender and in all. An experiment is forgone [`RlmConfig::suppressions`] times
//! in a row at most. Loss that falls together with an announced experiment backs off a join-timer,
//! up to [`RlmConfig::join_timer_ceiling`] however many receivers there are said to be.
//!
//! A host that can send with the address of the source makes a receiver look at
//! [`ReceiverConfig::wrong_limit`] wrong signatures a second. What it sends beyond that hides
//! packets of the source in proportion.
//!
//! # Validation
//!
//! `controller/machine_tests.rs` has each transition, `tests/` runs the engines against each other
//! over bottlenecks, losses and floods. `umbel repro rlm` computes [RLM Fig. 8] to [RLM Fig. 13]
//! with them; `docs/papers/rlm.md` tells how the paper was read, and what misses.

mod api;
mod config;
mod controller;
mod drops;
mod receiver;
mod signing;
mod source;
mod symbols;
#[cfg(test)]
mod tests;

pub use api::{
    ConfigError, LayerStats, LevelReason, MAX_UNIT, ReceiverCommand, ReceiverCommandError,
    ReceiverEvent, ReceiverStats, SourceCommand, SourceCommandError, SourceStats, State,
};
pub use config::{
    ControllerKind, DelayConfig, HeldConfig, LayerConfig, LossConfig, ReceiverConfig, RlmConfig,
    SessionConfig, SourceConfig, StreamKey,
};
pub use drops::{DropReason, Drops};
pub use receiver::Receiver;
pub use signing::Signing;
pub use source::Source;
