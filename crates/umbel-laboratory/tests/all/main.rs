//! The real `umbel-laboratory`: its commands, its files and its errors.
//!
//! Some tests need the real `umbel`, too, beside it: `cargo test --workspace` builds both.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod command_line;
mod lab;
mod repro;
mod sim;
mod support;
