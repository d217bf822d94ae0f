//! Fuzzes source and receiver of a feed with a token and a list, in a network that drops, repeats,
//! alters and makes up.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-engine/src/testing/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::tmtp_closed(bytes));
