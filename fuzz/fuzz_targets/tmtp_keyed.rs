//! Fuzzes source and receiver of an open feed whose nodes have keys, in a network that drops,
//! repeats, alters and makes up.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-engine/src/testing/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::tmtp_keyed(bytes));
