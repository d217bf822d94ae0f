//! The item that a client writes to a block device.
//!
//! What the device has already is compared with the digests of the item's blocks, on a thread of its
//! own, since all of the device may have to be read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use umbel_engine::host::Mailbox;
use umbel_store::sink::{Prepared, Preparer, SinkError};
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Digest, Toi};

/// What was found of an item.
type Found = (Toi, Result<Prepared, SinkError>);

/// The item of a device.
pub(super) struct DeviceItem {
    preparer: Preparer,
    mailbox: Mailbox<Toi>,
    /// The item, while the digests of its blocks are awaited.
    waiting: Option<ItemInfo>,
    /// Number of the newest comparison. Those of sessions before it count for nothing.
    newest: Arc<AtomicU64>,
    found: Arc<Mutex<Option<Found>>>,
}

impl DeviceItem {
    /// Creates it. `mailbox` is told when an item was compared.
    pub(super) fn new(preparer: Preparer, mailbox: Mailbox<Toi>) -> DeviceItem {
        let (newest, found) = (Arc::default(), Arc::default());
        DeviceItem { preparer, mailbox, waiting: None, newest, found }
    }

    /// Waits for the digests of an item's blocks.
    pub(super) fn wait(&mut self, info: &ItemInfo) {
        self.waiting = Some(info.clone());
    }

    /// Begins to compare the item if its digests were awaited. Returns whether they were.
    pub(super) fn compare(&mut self, toi: Toi, digests: &[Digest]) -> bool {
        let Some(info) = self.waiting.take_if(|info| info.toi == toi) else { return false };
        let (preparer, digests) = (self.preparer.clone(), digests.to_vec());
        let (mailbox, found) = (self.mailbox.clone(), self.found.clone());
        let newest = self.newest.clone();
        let number = newest.fetch_add(1, Ordering::AcqRel) + 1;
        let run = move || {
            let prepared = preparer.prepare_on_device(&info, &digests);
            if newest.load(Ordering::Acquire) != number {
                return;
            }
            *found.lock().unwrap_or_else(PoisonError::into_inner) = Some((toi, prepared));
            mailbox.put(toi);
        };
        let thread = std::thread::Builder::new().name("umbel-compare".to_owned()).spawn(run);
        if let Err(error) = thread {
            let error = SinkError::Thread { source: Arc::new(error) };
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some((toi, Err(error)));
            self.mailbox.put(toi);
        }
        true
    }

    /// Returns what was found of an item.
    pub(super) fn take(&mut self, toi: Toi) -> Option<Result<Prepared, SinkError>> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.take_if(|(of, _)| *of == toi).map(|(_, prepared)| prepared)
    }
}
