//! Packets on the wire: ALC/LCT data packets and Umbel's control messages; parse and emit,
//! nothing else.
//!
//! - [`alc`]: data packets, [RFC 5775] over [RFC 5651] with the FEC Payload ID of the scheme.
//! - [`control`]: the versioned header and the TLV body that every control message shares.
//! - [`repository`]: the messages between a repository's server and its clients.
//!
//! Parsing borrows from the datagram and checks every length before it is used; emitting a data
//! packet allocates nothing.

pub mod ids;
pub mod oti;
pub mod repository;

pub use ids::{Channel, Digest, Toi, Tsi};
pub use oti::{Oti, Scheme};
