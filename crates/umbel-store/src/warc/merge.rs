//! The items of a crawl: the captures of all its archives, one for each URL.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use umbel_wire::repository::ItemKind;

use super::archive::Archive;
use super::record::Response;
use super::scan::Reading;
use crate::origin::{Found, Place, Scan, SkipReason};

/// Collects what archives have.
#[derive(Default)]
pub(super) struct Merge {
    scan: Scan,
    /// Index of the item of each URI.
    by_uri: HashMap<String, usize>,
    /// Indices of items whose status is not 200.
    other_status: HashSet<usize>,
}

impl Merge {
    /// Returns the items of all archives. Of those with a `label`, it is put before the names of
    /// what is left out.
    pub(super) fn run<'a>(
        readings: impl Iterator<Item = (&'a str, &'a Arc<Archive>, &'a Reading)> + Clone,
    ) -> Scan {
        let mut merge = Merge::default();
        let mut by_payload = HashMap::new();
        for (label, archive, reading) in readings.clone() {
            merge.scan.skipped.add_all(label, &reading.skipped);
            for response in &reading.responses {
                merge.add(found(archive, response), response.status);
                if let Some(payload) = response.payload {
                    by_payload.entry(payload).or_insert((archive, response));
                }
            }
        }
        for (label, _, reading) in readings {
            for revisit in &reading.revisits {
                let original = revisit.payload.and_then(|payload| by_payload.get(&payload));
                if let Some((archive, response)) = original {
                    let name = revisit.uri.clone();
                    let item = found(archive, response);
                    let modified_ns = revisit.date_ns.or(item.modified_ns);
                    merge.add(Found { name, modified_ns, ..item }, response.status);
                } else if !merge.by_uri.contains_key(&revisit.uri) {
                    let name = format!("{label}{}", revisit.uri);
                    merge.scan.skipped.add(name, SkipReason::Revisit);
                }
            }
        }
        merge.scan.other_status = merge.other_status.len() as u64;
        merge.scan
    }

    /// Adds an item, unless there is a later one of the same URI.
    fn add(&mut self, found: Found, status: Option<u16>) {
        let index = match self.by_uri.entry(found.name.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(self.scan.items.len());
                self.scan.items.push(found);
                self.scan.items.len() - 1
            }
            Entry::Occupied(occupied) => {
                let item = &mut self.scan.items[*occupied.get()];
                // A revisit may refer to what is served anyhow.
                if !item.place.is_same_version(&found.place) {
                    self.scan.skipped.add(found.name.clone(), SkipReason::OlderCapture);
                }
                if found.modified_ns < item.modified_ns {
                    return;
                }
                *item = found;
                *occupied.get()
            }
        };
        if status.is_none_or(|status| status == 200) {
            self.other_status.remove(&index);
        } else {
            self.other_status.insert(index);
        }
    }
}

fn found(archive: &Arc<Archive>, response: &Response) -> Found {
    Found {
        name: response.uri.clone(),
        size: response.size,
        modified_ns: response.date_ns,
        mode: None,
        kind: ItemKind::File,
        holes: None,
        media_type: response.media_type.clone(),
        place: Place::Record(Arc::clone(archive), response.record),
    }
}
