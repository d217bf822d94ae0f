//! Fuzzes the client of a repository behind what servers and channels say.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-engine/src/testing/checks/mod.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::repository_client(bytes));
