//! Fuzzes the file of senders that are known.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel::checks;

fuzz_target!(|bytes: &[u8]| checks::known_senders(bytes));
