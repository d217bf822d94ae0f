//! Fuzzes a decoder of layered video behind what anyone sends.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/umbel-video/tests/common/checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::video_packets(bytes));
