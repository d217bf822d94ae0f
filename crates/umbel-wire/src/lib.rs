//! Wire formats: parses and emits ALC/LCT data packets and Umbel's control messages, nothing else.
//!
//! - [`alc`]: data packets, [RFC 5775] over [RFC 5651] with the FEC Payload ID of the scheme, and a
//!   diagram of the 24-byte header. `lct.rs` parses the header variants that other sources send.
//! - [`basep`]: the messages of the sender-initiated protocol that TMTP is compared with.
//! - [`checksum`], [`ip`]: what is around the packets, for programs below sockets.
//! - [`control`]: the versioned header and the TLV body that every control message shares.
//! - [`datagram`]: UDP datagrams with their IP headers and Router Alert.
//! - [`lms`]: the messages between endpoints and routers of LMS.
//! - [`membership`], [`igmp`], [`mld`]: what hosts and multicast routers tell each other.
//! - [`pgm`]: the messages of the subset of PGM.
//! - [`pim`]: what multicast routers tell each other.
//! - [`repository`]: the messages between a repository's server and its clients.
//! - [`rlm`]: the messages of layered streams, and the head of their objects.
//! - [`rtp`]: what a relay reads and changes in RTP packets.
//! - [`sap`], [`sdp`], [`session`]: session announcements in the formats of standard tools, and
//!   what all sessions of Umbel share. [`signed`]: the signature under them.
//! - [`feed`], [`stream`]: the descriptions of a TMTP feed and of an RLM stream.
//! - [`small_block`]: data packets that carry the length of their source block.
//! - [`srm`]: the messages of SRM, reliable multicast among equals.
//! - [`tcp`]: the segments of TCP-SMO.
//! - [`tmtp`]: the messages of TMTP, a feed with a control tree.
//! - `ids.rs`, `oti.rs`: the identifiers and object parameters that all of them carry.
//!
//! Parsing borrows from the datagram and checks every length before it is used. Emitting a data
//! packet allocates nothing. Parsed values lie within the ranges documented on their types;
//! anything else is refused with a [`ParseError`]. No input makes a parser panic or allocate memory
//! out of proportion to the input's length.

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
pub mod datagram;
mod error;
pub mod feed;
pub mod ids;
pub mod igmp;
pub mod ip;
mod lct;
pub mod lms;
pub mod membership;
pub mod mld;
pub mod oti;
pub mod pgm;
pub mod pim;
pub mod reception;
pub mod repository;
pub mod rlm;
pub mod rtp;
pub mod sap;
pub mod sdp;
pub mod sealed;
pub mod session;
pub mod signed;
pub mod small_block;
pub mod srm;
pub mod stream;
pub mod tcp;
pub mod tmtp;

pub use alc::{DataHeader, DataPacket};
pub use control::Parsed;
pub use error::{EmitError, ParseError};
pub use ids::{Channel, Digest, Toi, Tsi};
pub use oti::{Oti, OtiError, Scheme};
pub use small_block::{SmallBlockHeader, SmallBlockPacket};
