//! Packets on the wire: ALC/LCT data packets and Umbel's control messages; parse and emit,
//! nothing else.
//!
//! - [`alc`]: data packets, [RFC 5775] over [RFC 5651] with the FEC Payload ID of the scheme.
//!   The 24-byte header is drawn there; `lct.rs` reads the shapes that other sources send.
//! - [`basep`]: the messages of the sender-initiated protocol that TMTP is compared with.
//! - [`checksum`], [`ip`], [`igmp`]: what is around the packets, for programs below sockets.
//! - [`control`]: the versioned header and the TLV body that every control message shares.
//! - [`lms`]: what the end-points and routers of LMS say to each other.
//! - [`pgm`]: the messages of the subset of PGM.
//! - [`repository`]: the messages between a repository's server and its clients.
//! - [`sap`], [`sdp`], [`feed`]: sessions on the air, in the way of standard tools; what a feed of
//!   TMTP says of itself.
//! - [`small_block`]: data packets that say the length of their source block.
//! - [`srm`]: the messages of SRM, reliable multicast among equals.
//! - [`tmtp`]: the messages of TMTP, a feed with a control tree.
//! - `ids.rs`, `oti.rs`: the names and numbers that all of them carry.
//!
//! Parsing borrows from the datagram and checks every length before it is used; emitting a data
//! packet allocates nothing. What was parsed keeps to the ranges in the comments of its type:
//! [`ParseError`] says why anything else was refused. No input makes a parser panic, and none
//! makes it allocate out of proportion to its own length.

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

pub mod alc;
pub mod basep;
mod channel;
pub mod checksum;
mod codec;
pub mod control;
mod error;
pub mod feed;
pub mod ids;
pub mod igmp;
pub mod ip;
mod lct;
pub mod lms;
pub mod oti;
pub mod pgm;
pub mod repository;
pub mod sap;
pub mod sdp;
pub mod small_block;
pub mod srm;
pub mod tmtp;

pub use alc::{DataHeader, DataPacket};
pub use control::Parsed;
pub use error::{EmitError, ParseError};
pub use ids::{Channel, Digest, Toi, Tsi};
pub use oti::{Oti, OtiError, Scheme};
pub use small_block::{SmallBlockHeader, SmallBlockPacket};
