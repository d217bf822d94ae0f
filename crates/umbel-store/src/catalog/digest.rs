//! Digests of contents, on demand and in the background.

use std::ops::Range;
use std::sync::Weak;

use crossbeam_channel::Receiver;
use umbel_wire::Digest;

use super::Catalog;
use crate::Fault;
use crate::origin::Body;

/// Maximum number of bytes per read.
const CHUNK: u64 = 256 * 1024;

/// Computes the digest of a whole content.
pub(super) fn of_item(body: &dyn Body, size: u64) -> Result<Digest, Fault> {
    of_range(body, 0..size)
}

/// Computes the digest of a part of a content.
pub(super) fn of_range(body: &dyn Body, range: Range<u64>) -> Result<Digest, Fault> {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; (range.end - range.start).min(CHUNK) as usize];
    let mut offset = range.start;
    while offset < range.end {
        let len = (range.end - offset).min(CHUNK) as usize;
        body.read_at(offset, &mut chunk[..len])?;
        hasher.update(&chunk[..len]);
        offset += len as u64;
    }
    Ok(Digest(hasher.finalize().into()))
}

/// Computes the digests of all items on offer, again after each refresh, until the catalog is
/// dropped.
pub(super) fn run(catalog: &Weak<Catalog>, refreshed: &Receiver<()>) {
    loop {
        let Some(snapshot) = catalog.upgrade().map(|catalog| catalog.snapshot()) else { return };
        for item in &snapshot.items {
            let Some(catalog) = catalog.upgrade() else { return };
            if item.known_digest().is_none()
                && let Err(error) = catalog.digest(item.toi())
            {
                tracing::debug!("no digest: {error}");
            }
            if !refreshed.is_empty() {
                break;
            }
        }
        drop(snapshot);
        if refreshed.recv().is_err() {
            return;
        }
    }
}
