//! Fuzzes a block of a pipe, as a receiver takes it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-store/tests/common/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::pipe_block(bytes));
