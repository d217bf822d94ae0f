//! A sink that has no room.

use std::time::Duration;

use crate::Instant;

/// Longest time between two attempts with a sink that has no room.
const LONGEST_REFUSAL: Duration = Duration::from_secs(2);

/// Room in the sink. A sink without room is tried with one block at a time, less and less often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// The sink had no room, and has not taken a symbol since.
    refusing: Option<Refusing>,
    /// Time at which the sink last took a symbol.
    stored_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Refusing {
    /// Nothing is asked for before this.
    until: Instant,
    /// Attempts so far.
    tries: u32,
}

impl Room {
    /// Assumes that there is room.
    pub(super) fn new() -> Room {
        Room { refusing: None, stored_at: Instant::EPOCH }
    }

    /// Learns that the sink took a symbol.
    pub(super) fn on_stored(&mut self, now: Instant) {
        *self = Room { refusing: None, stored_at: now };
    }

    /// Learns that the sink took none. A sink that takes a symbol now and then gets everything in
    /// time. One that takes nothing for a T_ack is not to be flooded.
    pub(super) fn on_refused(&mut self, now: Instant, t_ack: Duration) {
        if now.since(self.stored_at) >= t_ack {
            self.refusing.get_or_insert(Refusing { until: now + t_ack, tries: 0 });
        }
    }

    /// Learns that there is room again.
    pub(super) fn reopen(&mut self) {
        self.refusing = None;
    }

    /// Returns whether the sink has no room.
    pub(super) fn is_refusing(&self) -> bool {
        self.refusing.is_some()
    }

    /// Returns when blocks may be asked for.
    pub(super) fn opens_at(&self) -> Instant {
        self.refusing.map_or(Instant::EPOCH, |refusing| refusing.until)
    }

    /// Returns how many blocks may be asked for now, at most `most`; `None` if none may. Counts as
    /// an attempt if there is no room.
    pub(super) fn may_ask(&mut self, now: Instant, t_ack: Duration, most: usize) -> Option<usize> {
        let Some(refusing) = &mut self.refusing else { return Some(most) };
        if refusing.until > now {
            return None;
        }
        let wait = t_ack.saturating_mul(1 << refusing.tries.min(16)).min(LONGEST_REFUSAL);
        *refusing = Refusing { until: now + wait, tries: refusing.tries + 1 };
        Some(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T_ACK: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn a_sink_that_takes_nothing_is_tried_less_and_less_often() {
        let mut room = Room::new();
        room.on_stored(at(1000));
        room.on_refused(at(1099), T_ACK);
        assert_eq!(room.may_ask(at(1099), T_ACK, 7), Some(7), "it may be full for a moment");
        room.on_refused(at(1100), T_ACK);
        let mut tries = Vec::new();
        for ms in 1100..8000 {
            room.on_refused(at(ms), T_ACK);
            tries.extend(room.may_ask(at(ms), T_ACK, 7).map(|blocks| (ms, blocks)));
        }
        let times = [1200, 1300, 1500, 1900, 2700, 4300, 6300];
        assert_eq!(tries, times.map(|ms| (ms, 1)));
        room.on_stored(at(8000));
        assert_eq!(room.may_ask(at(8000), T_ACK, 7), Some(7));
    }
}
