//! Symbols missing after a transmission, gathered until all clients have answered.

use std::collections::{BTreeMap, BTreeSet};

use umbel_wire::Toi;

use crate::repository::missing::Missing;
use crate::{Instant, SessionId};

/// NAKs that wait for others of the same item, so that one transmission serves them all.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    items: BTreeMap<Toi, Gathered>,
    /// The same items in the order of their due times.
    due: BTreeSet<(Instant, Toi)>,
}

/// The NAKs gathered for an item.
#[derive(Debug)]
struct Gathered {
    needs: BTreeMap<SessionId, Missing>,
    due: Instant,
}

impl Gathering {
    /// Adds a client's missing symbols. The first NAK of an item sets the end of its gathering.
    pub(super) fn add(&mut self, toi: Toi, session: SessionId, missing: &Missing, due: Instant) {
        let gathered = self.items.entry(toi).or_insert_with(|| {
            self.due.insert((due, toi));
            Gathered { needs: BTreeMap::new(), due }
        });
        gathered.needs.entry(session).or_default().merge(missing);
    }

    /// Returns the due time of the first item.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|&(due, _)| due)
    }

    /// Takes out an item that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(Toi, BTreeMap<SessionId, Missing>)> {
        let &(_, toi) = self.due.first().filter(|&&(due, _)| due <= now)?;
        self.take(toi).map(|needs| (toi, needs))
    }

    /// Takes out an item.
    pub(super) fn take(&mut self, toi: Toi) -> Option<BTreeMap<SessionId, Missing>> {
        let gathered = self.items.remove(&toi)?;
        self.due.remove(&(gathered.due, toi));
        Some(gathered.needs)
    }

    /// Forgets this client's NAK about the item.
    pub(super) fn forget(&mut self, toi: Toi, session: SessionId) {
        if let Some(gathered) = self.items.get_mut(&toi) {
            gathered.needs.remove(&session);
            if gathered.needs.is_empty() {
                self.take(toi);
            }
        }
    }
}
