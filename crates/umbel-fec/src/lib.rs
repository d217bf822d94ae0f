//! Erasure codes behind one interface, and the partition of an object into source blocks.
//!
//! [`Partition`] maps the bytes of an object to source symbols [RFC 5052 §9.1]. [`Code`] makes
//! repair symbols of a source block and restores a block from any sufficient set of its symbols.
//! There are three schemes:
//!
//! | scheme | symbols a block | symbols needed | fresh symbols later |
//! |---|---|---|---|
//! | no code [RFC 5445 §3] | 65,535 | every one | none |
//! | Reed–Solomon over GF(2^8) [RFC 5510] | 255 | any k | until 255 in all |
//! | RaptorQ [RFC 6330] | 56,403 source | k, rarely one or two more | 2^24 in all |
//!
//! Reed–Solomon is our own implementation. The kernels of [`gf256`] combine many symbols at once
//! with the processor's vector instructions, and decoding computes only the lost symbols. RaptorQ
//! is the `raptorq` crate, behind checks of all input that would make it panic.
//!
//! Nothing here reads a clock, does I/O, starts a thread or panics on input. Threads can share all
//! types. The whole process shares the caches (generator matrices, encoding plans).
//!
//! # Validation
//!
//! The kernels are tested against the scalar one, and Reed–Solomon against a naive transcription of
//! the RFC's matrix formula. Both codes are tested against implementations by others;
//! `docs/concepts/codes.md` has the findings.

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

mod checks;
mod code;
mod cut;
mod error;
pub mod gf256;
mod no_code;
mod partition;
mod raptorq;
mod reed_solomon;
mod symbol_set;

pub use code::{Code, Restored};
pub use cut::Cut;
pub use error::FecError;
pub use gf256::Kernel;
pub use partition::Partition;
pub use reed_solomon::{Points, ReedSolomon};
pub use symbol_set::SymbolSet;
