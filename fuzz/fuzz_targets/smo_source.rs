//! Fuzzes a TCP-SMO source behind what anyone says.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-engine/src/testing/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::smo_source(bytes));
