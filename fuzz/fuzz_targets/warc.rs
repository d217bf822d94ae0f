//! Fuzzes `read_warc`, which accepts any bytes. Every item that it finds must be readable.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_store::read_warc;

fuzz_target!(|data: &[u8]| {
    let contents = read_warc(data.to_vec());
    for (name, content) in contents.items {
        assert!(content.is_ok(), "{name} was found but cannot be read: {content:?}");
    }
});
