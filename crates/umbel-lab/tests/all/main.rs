//! Labs on this machine, in one binary, so that tests that wait do so side by side.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cleanup;
mod impaired;
mod multicast;
mod plain;
mod support;
mod throughput;
