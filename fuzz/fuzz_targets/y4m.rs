//! Fuzzes a reader of Y4M, which a user or a program gives.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-video/tests/common/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::y4m(bytes));
