//! What a source tells of its masters and children. It has no state itself.

use super::Source;
use crate::smo::api::{ChildId, ChildReport, MasterId, MasterReport};
use crate::smo::child::{Child, Served};
use crate::smo::master::Master;

impl Source {
    /// Returns the position up to which a master's stream was multicast.
    pub fn position(&self, master: MasterId) -> Option<u64> {
        Some(self.master(self.master_place(master)?)?.nxt)
    }

    /// Returns the number of children of a master.
    pub fn members(&self, master: MasterId) -> usize {
        let place = self.master_place(master).and_then(|place| self.master(place));
        place.map_or(0, Master::len)
    }

    /// Returns the child that holds up the others of a master, if any does.
    pub fn slowest(&self, master: MasterId) -> Option<ChildId> {
        let slot = self.master(self.master_place(master)?)?.bottleneck()?;
        Some(self.children.get(slot)?.id)
    }

    /// Returns what each master is at. Costs O(n) in the number of children.
    pub fn masters(&self) -> impl Iterator<Item = MasterReport> + '_ {
        self.masters.iter().flatten().map(|master| MasterReport {
            master: master.id,
            channel: master.channel,
            children: master.len(),
            hearing: master.hearing(),
            position: master.nxt,
            rtt: master.rtt(),
            window: master.window(&self.config),
            slowest: self.slowest(master.id),
        })
    }

    /// Returns the accounting of a child.
    pub fn report(&self, child: ChildId) -> Option<ChildReport> {
        self.report_of(*self.ids.get(&child)?)
    }

    /// Returns the accounting of each child, in the order in which they connected.
    pub fn children(&self) -> impl Iterator<Item = ChildReport> + '_ {
        self.ids.values().filter_map(|&slot| self.report_of(slot))
    }

    fn report_of(&self, slot: u32) -> Option<ChildReport> {
        self.children.get(slot).map(|child| self.report_on(child))
    }

    pub(super) fn report_on(&self, child: &Child) -> ChildReport {
        let view = self.view(child);
        let master = match child.served {
            Served::Master(place, _) => self.master(place).map(|master| master.id),
            _ => None,
        };
        ChildReport {
            child: child.id,
            peer: child.peer,
            since: child.established,
            received: (child.una - child.began_at).saturating_sub(child.fin_acked.is_some().into()),
            state: child.state(&view),
            master,
            hears: child.hearing.hears,
            acknowledged: child.una,
            outstanding: view.sent.saturating_sub(child.una),
            rtt: child.rtt.smoothed(),
            congestion_window: child.window.bytes(),
            receive_window: child.permits.size(),
            unicast_bytes: child.unicast_bytes,
            unicast_again: child.unicast_again,
            loss_events: child.loss_events,
            timeouts: child.timeouts,
            received_bytes: child.inbox.total(),
        }
    }
}
