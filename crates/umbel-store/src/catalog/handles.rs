//! A cache of open descriptors, so that a version outlives its name.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use umbel_wire::Toi;

use crate::Fault;
use crate::origin::Body;

/// The most recently used contents, open.
pub(super) struct Handles(Mutex<LruCache<Toi, Arc<dyn Body>>>);

impl Handles {
    /// Creates a cache that keeps at most `capacity` contents open.
    pub(super) fn new(capacity: NonZeroUsize) -> Handles {
        Handles(Mutex::new(LruCache::new(capacity)))
    }

    /// Returns the content of an object. Calls `open` if it is not open already, and again if there
    /// are too few descriptors and others can be closed.
    pub(super) fn get_or_open(
        &self,
        toi: Toi,
        open: impl Fn() -> Result<Arc<dyn Body>, Fault>,
    ) -> Result<Arc<dyn Body>, Fault> {
        if let Some(body) = self.0.lock().get(&toi) {
            return Ok(Arc::clone(body));
        }
        let body = loop {
            match open() {
                Err(fault) if fault.is_shortage() => {
                    let evicted = self.0.lock().pop_lru();
                    if evicted.is_none() {
                        return Err(fault);
                    }
                }
                opened => break opened?,
            }
        };
        let evicted = self.0.lock().push(toi, Arc::clone(&body));
        // Closing can take time, so it happens outside the lock.
        drop(evicted);
        Ok(body)
    }

    /// Returns the content of an object if it is open. Does not count as a use.
    pub(super) fn peek(&self, toi: Toi) -> Option<Arc<dyn Body>> {
        self.0.lock().peek(&toi).cloned()
    }
}
