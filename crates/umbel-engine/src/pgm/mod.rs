//! The subset of PGM that the LMS paper compares with [RFC 3208; LMS §IV-H].
//!
//! A source multicasts numbered data units (ODATA) and, now and then, its state (SPM). A receiver
//! that finds a unit missing sends a NAK to the PGM node above it. That node confirms it with a
//! multicast NCF, notes the interface, and passes one NAK per unit on towards the source. The
//! source confirms too and retransmits (RDATA). Routers pass the retransmission on where they noted
//! a NAK, and forget the note.
//!
//! A receiver keeps a state for each missing unit [RFC 3208 §6.3]:
//!
//! ```text
//!             gap                    back-off over: NAK
//!  (fine) ──────────▶ BackOff ─────────────────────────▶ WaitNcf
//!    ▲                 ▲    │ NCF (another's NAK)          │  │
//!    │ unit came       │    └───────────────┐ ┌────────────┘  │ no NCF for `nak_repeat`;
//!    │ (from any       │                    ▼ ▼ NCF           │ `ncf_retries` of these: given up
//!    │  state)         ├──────────────── WaitData             │
//!    │                 │ no unit for `nak_rdata`;             │
//!    │                 │ `data_retries` of these: given up    │
//!    │                 └──────────────────────────────────────┘
//! ```
//!
//! A router keeps a state for each unit that was requested [RFC 3208 §7.4]:
//!
//! ```text
//!            NAK: note the interface, NCF, NAK up               NCF from above
//!  (nothing) ────────────────────────────────────▶ Unconfirmed ───────────────▶ Confirmed
//!      ▲                                            │    ▲ │                     │     │
//!      │ RDATA: out on the noted interfaces         │    └─┘ NAK up again        │     │
//!      ├────────────────────────────────────────────┴──────  every `nak_repeat`   │     │
//!      ├── `nak_retries` without an NCF, or `state_expiry` over ─────────────────┴─────┘
//! ```
//!
//! A further NAK adds its interface and is confirmed. It goes up only when the last one did so
//! `nak_elimination` ago, so that one NAK per unit reaches the source at a time.
//!
//! *Repeated retransmissions* [LMS §IV-H]: a NAK that comes after the retransmission has passed
//! finds no state and causes another one. To avoid this, the source waits before it retransmits
//! ([`SourceConfig::wait`]), until the NAKs of the farthest receivers have set up state. 0 turns
//! that off.
//!
//! *Designated local repairers*: a receiver with [`ReceiverConfig::designated`] answers NAKs with
//! the units that it holds. A router whose [`RouterConfig::repairer`] names it asks it first, and
//! the node above if it does not confirm.
//!
//! # Scope and limitations
//!
//! Implemented are SPM, ODATA, RDATA, NAK and NCF ([`umbel_wire::pgm`]). Left out are NAK
//! anticipation, NAK lists, POLL, FEC, congestion control and source-path failover. Designated
//! repairers do not redirect NAKs themselves; they are configured. A channel carries one session.
//! Routers without PGM between two with it do not matter, since the SPM names the destination of
//! NAKs.
//!
//! Input from the network is bounded: state by [`RouterConfig::interface_states`], NAKs upstream by
//! elimination, retransmissions by the pacer. A NAK causes at most one of each.
//!
//! # Validation
//!
//! `tests/` here drives each engine by hand, and runs them together with losses, a partition and a
//! router's restart. The simulator's `pgm` runs them on its networks, and `umbel repro lms`
//! reproduces [LMS Fig. 15] and [LMS Fig. 16] with them.

mod api;
mod config;
mod drops;
mod receiver;
mod router;
mod source;
#[cfg(test)]
mod tests;

pub use api::{
    ReceiverEvent, ReceiverStats, RouterStats, SourceCommand, SourceCommandError, SourceStats,
};
pub use config::{ReceiverConfig, RouterConfig, SourceConfig};
pub use drops::{DropReason, Drops};
pub use receiver::Receiver;
pub use router::Router;
pub use source::Source;
