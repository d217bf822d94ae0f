//! Bytes held for children that are served alone: one budget for all, and at most a quarter of it
//! for one host.
//!
//! A child that reads nothing would otherwise hold a whole buffer, and a host with a thousand such
//! children a thousand. A child may hold half of what is left to its host and to all, so that
//! however many there are, something is left for the next [Choudhury, Hahne 1998]. A few bytes are
//! always allowed, or nothing would go on.

use std::collections::BTreeMap;

use super::Source;
use crate::bounds::SMO_ALONE;
use crate::shares::Origin;
use crate::smo::child::Served;

/// Bytes that a child may hold whatever others do.
const LEAST: usize = 64 << 10;
/// Share of the budget that one host may hold.
const HOST_SHARE: usize = SMO_ALONE.all / SMO_ALONE.most_of_host();
/// Share of the budget after which what is held is counted anew.
const COUNT_SHARE: usize = 16;

/// An estimate of what is held, never too low.
#[derive(Clone, Debug, Default)]
pub(super) struct Alone {
    all: usize,
    origins: BTreeMap<Origin, usize>,
    /// Bytes written since it was exact.
    written: usize,
}

impl Alone {
    pub(super) fn note(&mut self, origin: Origin, bytes: usize) {
        self.all += bytes;
        *self.origins.entry(origin).or_default() += bytes;
        self.written += bytes;
    }
}

impl Source {
    /// Returns the number of bytes that a child of this host may hold.
    pub(super) fn may_hold(&mut self, origin: Origin) -> usize {
        let budget = self.config.alone;
        if self.alone.written >= budget / COUNT_SHARE {
            self.count_alone();
        }
        let held = self.alone.origins.get(&origin).copied().unwrap_or(0);
        let left =
            (budget / HOST_SHARE).saturating_sub(held).min(budget.saturating_sub(self.alone.all));
        (left / 2).clamp(LEAST, self.config.buffer.max(LEAST))
    }

    fn count_alone(&mut self) {
        let mut alone = Alone::default();
        for &slot in self.ids.values() {
            let child = self.children.of(slot);
            if let Served::Alone(Some(buffer)) = &child.served {
                alone.note(Origin::of(child.peer.ip()), buffer.held());
            }
        }
        self.alone = Alone { written: 0, ..alone };
    }
}
