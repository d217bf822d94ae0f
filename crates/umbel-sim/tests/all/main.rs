//! The integration tests of this crate in one binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod allocation;
mod formulas;
mod traces;
