//! Fuzzes `SapPacket::parse`, and `Description::parse` on the description in it.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-wire/tests/common/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::sap_packet(bytes));
