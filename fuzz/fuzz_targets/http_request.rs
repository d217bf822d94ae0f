//! Fuzzes the heads of requests to `umbel smo serve --http`, and their ranges.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel::checks;

fuzz_target!(|bytes: &[u8]| checks::http_request(bytes));
