//! Timers of nodes, one for each node.

use umbel_engine::Instant;

use crate::network::NodeId;

const NEVER: u64 = u64::MAX;

/// Timers of all nodes. A timer that moves to a later time leaves its event in the queue, and is
/// scheduled again when that event comes up. So a timer that is moved with every packet costs an
/// occasional event, not one a packet.
#[derive(Debug)]
pub(crate) struct Timers(Vec<Timer>);

#[derive(Clone, Copy, Debug)]
struct Timer {
    /// Time when the program wants to be woken.
    wanted: u64,
    /// Time of the earliest event in the queue; later ones are ignored.
    scheduled: u64,
}

/// Reaction to the event of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Wake the program.
    Now,
    /// Schedule another event.
    Later(Instant),
    /// Do nothing.
    Never,
}

impl Timers {
    pub(super) fn new(nodes: usize) -> Timers {
        Timers(vec![Timer { wanted: NEVER, scheduled: NEVER }; nodes])
    }

    /// Sets, moves or clears a timer. Returns the time of an event to schedule, if one is missing.
    pub(super) fn set(&mut self, node: NodeId, at: Option<Instant>) -> Option<Instant> {
        let timer = &mut self.0[node.0 as usize];
        timer.wanted = at.map_or(NEVER, Instant::as_nanos);
        if timer.wanted >= timer.scheduled {
            return None;
        }
        timer.scheduled = timer.wanted;
        at
    }

    /// Notes that an event has come up.
    pub(crate) fn on_event(&mut self, node: NodeId, now: Instant) -> Due {
        let timer = &mut self.0[node.0 as usize];
        if timer.scheduled != now.as_nanos() {
            return Due::Never;
        }
        timer.scheduled = timer.wanted;
        if timer.wanted == NEVER {
            Due::Never
        } else if timer.wanted > now.as_nanos() {
            Due::Later(Instant::from_nanos(timer.wanted))
        } else {
            *timer = Timer { wanted: NEVER, scheduled: NEVER };
            Due::Now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0);

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn a_timer_that_moves_later_reuses_its_event() {
        let mut timers = Timers::new(1);
        assert_eq!(timers.set(NODE, Some(at(10))), Some(at(10)));
        assert_eq!(timers.set(NODE, Some(at(30))), None);
        assert_eq!(timers.on_event(NODE, at(10)), Due::Later(at(30)));
        assert_eq!(timers.on_event(NODE, at(30)), Due::Now);
    }

    #[test]
    fn a_timer_that_moves_earlier_ignores_its_old_event() {
        let mut timers = Timers::new(1);
        timers.set(NODE, Some(at(30)));
        assert_eq!(timers.set(NODE, Some(at(10))), Some(at(10)));
        assert_eq!(timers.on_event(NODE, at(10)), Due::Now);
        assert_eq!(timers.on_event(NODE, at(30)), Due::Never);
    }

    #[test]
    fn a_cleared_timer_does_not_fire() {
        let mut timers = Timers::new(1);
        timers.set(NODE, Some(at(10)));
        assert_eq!(timers.set(NODE, None), None);
        assert_eq!(timers.on_event(NODE, at(10)), Due::Never);
        assert_eq!(timers.set(NODE, Some(at(20))), Some(at(20)));
    }
}
