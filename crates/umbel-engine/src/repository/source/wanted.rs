//! The clients' demand on the channel.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use umbel_fec::Partition;
use umbel_wire::repository::Need;
use umbel_wire::{Oti, Toi};

use super::item::{Demand, Item};
use crate::repository::missing::Missing;
use crate::repository::scheduler::Scheduler;
use crate::{Instant, SessionId};

/// The items that clients want, and their ranking.
#[derive(Debug)]
pub(super) struct Wanted {
    items: BTreeMap<Toi, Item>,
    pub(super) scheduler: Scheduler,
}

impl Wanted {
    pub(super) fn new(scheduler: Scheduler) -> Wanted {
        Wanted { items: BTreeMap::new(), scheduler }
    }

    /// Returns the number of wanted items.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn get(&self, toi: Toi) -> Option<&Item> {
        self.items.get(&toi)
    }

    pub(super) fn get_mut(&mut self, toi: Toi) -> Option<&mut Item> {
        self.items.get_mut(&toi)
    }

    /// Returns the item, and adds it if no client wanted it before.
    pub(super) fn enter(&mut self, toi: Toi, oti: Oti, partition: Partition) -> &mut Item {
        self.items.entry(toi).or_insert_with(|| Item::new(oti, partition))
    }

    pub(super) fn remove(&mut self, toi: Toi) {
        self.items.remove(&toi);
        self.scheduler.unhold(toi);
    }

    /// Returns the symbols that a need names, or `None` if the client does not want the item.
    pub(super) fn missing(&self, session: SessionId, toi: Toi, need: &Need) -> Option<Missing> {
        let item = self.items.get(&toi).filter(|item| item.demands.contains_key(&session))?;
        Some(Missing::from_need(need, &item.partition))
    }

    /// Adds to a client's missing symbols.
    pub(super) fn lack(
        &mut self,
        now: Instant,
        (session, toi): (SessionId, Toi),
        missing: &Missing,
        whole: bool,
    ) {
        if let Some(demand) = self.demand(session, toi) {
            demand.missing.merge(missing);
            self.rank(now, session, toi, whole);
        }
    }

    /// Notes that a client will have these blocks, unless a NAK says otherwise.
    pub(super) fn expect(&mut self, now: Instant, session: SessionId, toi: Toi, blocks: &[u32]) {
        if let Some(demand) = self.demand(session, toi) {
            for &block in blocks {
                demand.missing.clear(block..block + 1);
            }
            self.rank(now, session, toi, false);
        }
    }

    /// Notes that clients have these blocks, unless NAKs say otherwise. The ranking stays.
    pub(super) fn deliver(&mut self, toi: Toi, sessions: &BTreeSet<SessionId>, blocks: Range<u32>) {
        for &session in sessions {
            if let Some(demand) = self.demand(session, toi) {
                demand.missing.clear(blocks.clone());
            }
        }
    }

    /// Ranks the item by a client's missing symbols. With `whole`, a client that is missing
    /// anything counts as missing everything.
    pub(super) fn rank(&mut self, now: Instant, session: SessionId, toi: Toi, whole: bool) {
        let Some(item) = self.items.get(&toi) else { return };
        let Some(demand) = item.demands.get(&session) else { return };
        match item.outstanding(&demand.missing, whole) {
            0 => self.scheduler.wait(session, toi),
            symbols if self.scheduler.contains(session, toi) => {
                self.scheduler.resize(session, toi, symbols);
            }
            symbols => self.scheduler.add(now, session, toi, symbols),
        }
    }

    /// Ranks the item by its clients' missing symbols. Clients whose request was taken out stay
    /// out.
    pub(super) fn rerank(&mut self, toi: Toi, whole: bool) {
        let Some(item) = self.items.get(&toi) else { return };
        for (&session, demand) in &item.demands {
            match item.outstanding(&demand.missing, whole) {
                0 => self.scheduler.wait(session, toi),
                symbols => self.scheduler.resize(session, toi, symbols),
            }
        }
    }

    /// Returns the number of runs of an item that count against the client's limit.
    pub(super) fn charged(&self, session: SessionId, toi: Toi) -> usize {
        let demand = self.items.get(&toi).and_then(|item| item.demands.get(&session));
        demand.map_or(0, |demand| demand.charged)
    }

    fn demand(&mut self, session: SessionId, toi: Toi) -> Option<&mut Demand> {
        self.items.get_mut(&toi)?.demands.get_mut(&session)
    }
}
