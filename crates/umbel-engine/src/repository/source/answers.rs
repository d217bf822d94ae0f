//! Transmissions that are over, and who has answered to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use umbel_wire::Toi;

use super::transmission::Transmission;
use crate::{Instant, SessionId};

/// NAKs about a transmission are understood for this long after they were gathered.
const REMEMBERED: Duration = Duration::from_mins(1);

/// A transmission whose last packet has left.
#[derive(Debug)]
struct Ended {
    blocks: Range<u32>,
    /// Until when NAKs are gathered.
    gather_until: Instant,
    /// Clients that listened and have neither sent a NAK nor finished the item.
    unanswered: BTreeSet<SessionId>,
}

/// Transmissions about which NAKs are understood.
#[derive(Debug, Default)]
pub(super) struct Answers {
    ended: BTreeMap<(Toi, u32), Ended>,
    /// The same in the order in which they ended, with the time when they are forgotten.
    order: VecDeque<(Instant, Toi, u32)>,
}

impl Answers {
    /// Waits for answers to a transmission that is over.
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

    /// Returns the blocks of a transmission and until when NAKs about it are gathered, if it is
    /// known.
    pub(super) fn about(&self, toi: Toi, transmission: u32) -> Option<(Range<u32>, Instant)> {
        let ended = self.ended.get(&(toi, transmission))?;
        Some((ended.blocks.clone(), ended.gather_until))
    }

    /// Notes that a client has said what it lacks of an item, or that it lacks nothing. Returns
    /// whether answers of others are still gathered.
    pub(super) fn hear(&mut self, now: Instant, session: SessionId, toi: Toi) -> bool {
        let mut waiting = false;
        for (_, ended) in self.ended.range_mut((toi, 0)..=(toi, u32::MAX)) {
            ended.unanswered.remove(&session);
            waiting |= !ended.unanswered.is_empty() && ended.gather_until > now;
        }
        waiting
    }

    /// Returns until when answers to the last transmission are gathered, if any are missing.
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

    /// Forgets transmissions about which no NAK is expected any more.
    pub(super) fn forget_old(&mut self, now: Instant) {
        while let Some((_, toi, id)) = self.order.pop_front_if(|(until, ..)| *until <= now) {
            self.ended.remove(&(toi, id));
        }
    }

    /// Returns when the oldest transmission is forgotten.
    pub(super) fn next_forgotten(&self) -> Option<Instant> {
        self.order.front().map(|&(at, ..)| at)
    }
}
