//! The real program on one host: its commands, its errors, and sessions over loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad_input;
mod cli;
mod demo;
mod local;
mod new_protocol;
mod repro;
mod sim;
mod support;
mod told;
