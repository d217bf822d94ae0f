//! Protocol engines without I/O.
//!
//! An engine is a plain struct. Datagrams, commands and the time go in; datagrams, membership
//! changes, timers and events come out. It never reads a clock, opens a socket, spawns, or draws
//! from a global generator. The network driver and the simulator can therefore host the very same
//! code. [`Engine`] states the one rule about the order of calls.

#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type,
        clippy::print_stderr,
        clippy::print_stdout,
        reason = "what it does is a function of what it is given"
    )
)]

#[cfg(test)]
extern crate self as umbel_engine;

pub mod basep;
pub mod bounds;
pub mod bucket;
mod census;
pub mod chance;
pub mod congestion;
pub mod drops;
mod engine;
pub mod host;
pub mod lms;
pub mod load;
pub mod pgm;
mod recovery;
pub mod reliable;
pub mod repository;
pub mod rlm;
pub mod router;
mod runs;
pub mod seal;
mod session_pacing;
pub mod shares;
pub mod smo;
pub mod srm;
pub mod symbols;
#[cfg(test)]
mod testing;
mod time;

mod timers;
pub mod tmtp;
mod transmit;
pub mod units;

pub use engine::Engine;
pub use router::RouterEngine;
pub use time::Instant;
pub use transmit::{
    Address, Allowance, Datagram, MTU_RESERVE, Membership, RateClass, SessionId, Transmit,
    TransmitBuf,
};

/// Signs a message with the key of its sender, Ed25519 [RFC 8032]. The same message has the same
/// signature.
pub type Sign = Box<dyn Fn(&[u8]) -> [u8; 64] + Send>;
