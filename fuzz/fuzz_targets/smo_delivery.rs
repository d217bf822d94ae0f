//! Fuzzes a delivery at a receiver's host, which packets of anybody pass.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-engine/src/testing/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::smo_delivery(bytes));
