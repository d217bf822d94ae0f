//! The subset of PGM that the LMS paper compares with [RFC 3208; LMS §IV-H].
//!
//! A source multicasts numbered data units (ODATA) and, now and then, its state (SPM). A receiver
//! that finds a unit missing sends a NAK to the PGM node above it, which confirms it with a
//! multicast NCF, notes the interface, and passes one NAK per unit on towards the source. The
//! source confirms too and retransmits (RDATA); routers let the retransmission through where
//! they noted a NAK, and forget the note.
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
//! A router keeps a state for each unit that was asked for [RFC 3208 §7.4]:
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
//! A further NAK adds its interface and is confirmed; it goes up only when the last one did so
//! `nak_elimination` ago, so that one NAK per unit reaches the source at a time.
//!
//! *Repeated retransmissions* [LMS §IV-H]: a NAK that comes after the retransmission has passed finds
//! no state and makes another one. The source avoids this by waiting before it retransmits,
//! [`SourceConfig::wait`], until the NAKs of the farthest receivers have set up state; 0 turns that
//! off.
//!
//! *Designated local repairers*: a receiver with [`ReceiverConfig::designated`] answers NAKs with
//! what it holds. A router whose [`RouterConfig::repairer`] names it asks it first, and the node above
//! when it does not confirm.
//!
//! # Scope and limitations
//!
//! Spoken are SPM, ODATA, RDATA, NAK and NCF ([`umbel_wire::pgm`]). Left out are NAK anticipation,
//! NAK lists, POLL, FEC, congestion control, source-path failover and the redirection of NAKs by
//! designated repairers themselves: it is configured. A channel carries one session. Routers
//! without PGM between two with it do not matter: the SPM tells where NAKs go.
//!
//! What comes from the network is bounded: state by [`RouterConfig::interface_states`], NAKs upstream
//! by elimination, retransmissions by the pacer, and a NAK makes at most one of each.
//!
//! # Validation
//!
//! `tests/` here drives each engine by hand; the simulator's `pgm` runs them together, and `umbel repro
//! lms` reproduces [LMS Fig. 15] and [LMS Fig. 16] with them.

mod config;
mod drops;
mod receiver;
mod router;
mod source;
#[cfg(test)]
mod tests;

pub use config::{ReceiverConfig, RouterConfig, SourceConfig};
pub use drops::{DropReason, Drops};
pub use receiver::{Receiver, ReceiverEvent, ReceiverStats};
pub use router::{Router, RouterStats};
pub use source::{Source, SourceCommand, SourceCommandError, SourceStats};
