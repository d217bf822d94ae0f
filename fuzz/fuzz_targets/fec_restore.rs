//! Fuzzes `Code::encode` and `Code::restore`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-fec/tests/common/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::restore(bytes));
