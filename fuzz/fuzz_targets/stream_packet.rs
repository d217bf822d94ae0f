//! Fuzzes `SignedPacket::split`, and the packet that it is read as without the signature.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-wire/tests/common/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::stream_packet(bytes));
