//! Checks that must hold for any bytes. The fuzz targets run them, and the tests run them on the
//! corpora of the fuzz targets.

#![allow(unreachable_pub, reason = "shared by test binaries")]

use umbel_store::feed::Manifest;

/// Checks that a parsed manifest can be emitted and parsed again.
pub fn manifest(bytes: &[u8]) {
    let Ok(manifest) = Manifest::parse(bytes) else { return };
    let again = manifest.emit().expect("it was short enough");
    assert_eq!(Manifest::parse(&again), Ok(manifest));
}
