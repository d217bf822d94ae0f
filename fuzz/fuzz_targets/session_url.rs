//! Fuzzes `SessionUrl::from_str`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-net/tests/common/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::session_url(bytes));
