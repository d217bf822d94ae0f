//! The real programs: on one host, and one test of each command between the hosts of a lab. One
//! binary, so that tests that wait do so side by side. `tests/second` has more of the lab.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod lab;
mod program;
#[path = "../support/mod.rs"]
mod support;
