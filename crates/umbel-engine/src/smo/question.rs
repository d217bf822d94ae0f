//! Questions to children that are silent: nothing was heard of them for two round trips, or since
//! something was multicast to them again.
//!
//! Only the acknowledgement may be lost. A helper hands its receiver nothing that the receiver has,
//! so that a retransmission by multicast then brings no other. What is acknowledged after one could
//! also have come before, so that nobody would know whether anything was lost. A question tells: a
//! segment by unicast with one byte that was acknowledged before [RFC 9293 §3.8.4]. Linux answers
//! one without a byte once in half a second only (`tcp_invalid_ratelimit`).
//!
//! ```text
//!                 silent            its turn            it leaves
//!   None ────────────────────▶ Waits ─────────▶ Due ─────────────▶ Asked
//!     ▲                          │ ▲              no answer for long │
//!     │                          │ └─────────────────────────────────┤
//!     └───────── progress ───────┴──── answer: progress, or none ────┘
//! ```

use std::time::Duration;

use crate::Instant;

/// Time between two questions of a source: 50,000 a second. As many answers are what the paper's
/// server could process [SMO §V-B]. Thousands at once would overflow queues once more.
const INTERVAL: Duration = Duration::from_micros(20);

/// The question to a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Question {
    /// There is none.
    #[default]
    None,
    /// It has its turn at this time.
    Waits(Instant),
    /// It leaves next.
    Due,
    /// It left at this time, and is not answered yet.
    Asked(Instant),
}

impl Question {
    /// Returns when it has its turn, while it waits for it.
    pub(super) fn turn(self) -> Option<Instant> {
        match self {
            Question::Waits(at) => Some(at),
            _ => None,
        }
    }

    /// Returns when it left, until it is answered.
    pub(super) fn asked_at(self) -> Option<Instant> {
        match self {
            Question::Asked(at) => Some(at),
            _ => None,
        }
    }

    /// Makes it due if its turn has come. Returns whether it has.
    pub(super) fn take_turn(&mut self, now: Instant) -> bool {
        let has_come = self.turn().is_some_and(|at| at <= now);
        if has_come {
            *self = Question::Due;
        }
        has_come
    }
}

/// The turns of a source's questions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    next: Instant,
}

impl Turns {
    /// Returns a question that waits for the next turn.
    pub(super) fn next(&mut self, now: Instant) -> Question {
        let at = self.next.max(now);
        self.next = at + INTERVAL;
        Question::Waits(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ms;

    #[test]
    fn questions_have_their_turns_one_after_the_other() {
        let mut turns = Turns::default();
        let all: Vec<Question> = (0..101).map(|_| turns.next(ms(1))).collect();
        assert_eq!((all[0].turn(), all[100].turn()), (Some(ms(1)), Some(ms(3))));
        assert_eq!(turns.next(ms(5)), Question::Waits(ms(5)));
        let mut question = all[100];
        assert!(!question.take_turn(ms(2)) && question.take_turn(ms(3)));
        assert_eq!((question, question.take_turn(ms(4))), (Question::Due, false));
        assert_eq!(Question::Asked(ms(4)).asked_at(), Some(ms(4)));
    }
}
