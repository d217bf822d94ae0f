//! Fuzzes LMS in a router, behind what anyone sends.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-engine/src/testing/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::lms_router(bytes));
