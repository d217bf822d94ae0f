//! Fuzzes the table of sessions behind SAP packets of anyone.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel::checks;

fuzz_target!(|bytes: &[u8]| checks::directory(bytes));
