//! Fuzzes `AdmitList::parse`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel::checks;

fuzz_target!(|bytes: &[u8]| checks::admit_list(bytes));
