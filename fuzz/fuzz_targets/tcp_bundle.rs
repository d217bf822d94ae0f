//! Fuzzes `tcp::Bundle::parse`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-wire/tests/common/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::tcp_bundle(bytes));
