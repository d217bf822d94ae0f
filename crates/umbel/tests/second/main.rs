//! The second tier: what is too long to be in everybody's way. Attacks on real programs, and all
//! that happens to them between the hosts of a lab; `tests/all` has one such test of each command.
//!
//! `cargo test -p umbel --test second lab::send` runs one module. `soak*` take minutes and are
//! ignored.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod attacks;
mod lab;
#[path = "../support/mod.rs"]
mod support;
