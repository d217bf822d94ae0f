//! Finished transmissions, and the clients that have answered them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use umbel_wire::Toi;

use super::transmission::Transmission;
use crate::{Instant, SessionId};

/// NAKs about a transmission are understood for this long after their gathering ends.
const REMEMBERED: Duration = Duration::from_mins(1);

/// A transmission whose last packet has left.
#[derive(Debug)]
struct Ended {
    blocks: Range<u32>,
    /// End of the time in which NAKs are gathered.
    gather_until: Instant,
    /// Clients that listened and have neither sent a NAK nor finished the item.
    unanswered: BTreeSet<SessionId>,
}

/// Transmissions about which NAKs are understood.
#[derive(Debug, Default)]
pub(super) struct Answers {
    ended: BTreeMap<(Toi, u32), Ended>,
    /// The same transmissions in the order in which they ended, with the time at which each is
    /// forgotten.
    order: VecDeque<(Instant, Toi, u32)>,
}

impl Answers {
    /// Waits for answers to a finished transmission.
    pub(super) fn await_from(
        &mut self,
        listeners: BTreeSet<SessionId>,
        transmission: &Transmission,
        gather_until: Instant,
    ) {
        let &Transmission { toi, id, ref blocks, .. } = transmission;
        let ended = Ended { blocks: blocks.clone(), gather_until, unanswered: listeners };
        self.ended.insert((toi, id), ended);
        self.order.push_back((gather_until + REMEMBERED, toi, id));
    }

    /// Returns the transmission's blocks and the end of its gathering time, if it is known.
    pub(super) fn about(&self, toi: Toi, transmission: u32) -> Option<(Range<u32>, Instant)> {
        let ended = self.ended.get(&(toi, transmission))?;
        Some((ended.blocks.clone(), ended.gather_until))
    }

    /// Notes that a client has named its missing symbols of an item, or has none missing. Returns
    /// whether answers of other clients are still being gathered.
    pub(super) fn hear(&mut self, now: Instant, session: SessionId, toi: Toi) -> bool {
        let mut waiting = false;
        for (_, ended) in self.ended.range_mut((toi, 0)..=(toi, u32::MAX)) {
            ended.unanswered.remove(&session);
            waiting |= !ended.unanswered.is_empty() && ended.gather_until > now;
        }
        waiting
    }

    /// Returns the end of the last transmission's gathering time, if answers are missing.
    pub(super) fn awaited_until(&self, now: Instant) -> Option<Instant> {
        let &(_, toi, id) = self.order.back()?;
        let ended = self.ended.get(&(toi, id))?;
        let awaited = !ended.unanswered.is_empty() && ended.gather_until > now;
        awaited.then_some(ended.gather_until)
    }

    /// Forgets the transmissions of an item.
    pub(super) fn forget(&mut self, toi: Toi) {
        let ended: Vec<_> = self.ended.range((toi, 0)..=(toi, u32::MAX)).map(|(&k, _)| k).collect();
        for key in ended {
            self.ended.remove(&key);
        }
    }

    /// Forgets transmissions about which no further NAK is expected.
    pub(super) fn forget_old(&mut self, now: Instant) {
        while let Some((_, toi, id)) = self.order.pop_front_if(|(until, ..)| *until <= now) {
            self.ended.remove(&(toi, id));
        }
    }

    /// Returns the time at which the oldest transmission is forgotten.
    pub(super) fn next_forgotten(&self) -> Option<Instant> {
        self.order.front().map(|&(at, ..)| at)
    }
}
