//! The descriptors kept open, so that a version outlives its name.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use umbel_wire::Toi;

use crate::Fault;
use crate::origin::Body;

/// The contents used last, open.
pub(super) struct Handles(Mutex<LruCache<Toi, Arc<dyn Body>>>);

impl Handles {
    /// Keeps at most `capacity` contents open.
    pub(super) fn new(capacity: NonZeroUsize) -> Handles {
        Handles(Mutex::new(LruCache::new(capacity)))
    }

    /// The content of an object, opened by `open` if it is not open already.
    pub(super) fn get_or_open(
        &self,
        toi: Toi,
        open: impl FnOnce() -> Result<Arc<dyn Body>, Fault>,
    ) -> Result<Arc<dyn Body>, Fault> {
        if let Some(body) = self.0.lock().get(&toi) {
            return Ok(Arc::clone(body));
        }
        let body = open()?;
        let evicted = self.0.lock().push(toi, Arc::clone(&body));
        // Closing can take time: not under the lock.
        drop(evicted);
        Ok(body)
    }

    /// The content of an object if it is open, without counting as a use.
    pub(super) fn peek(&self, toi: Toi) -> Option<Arc<dyn Body>> {
        self.0.lock().peek(&toi).cloned()
    }
}
