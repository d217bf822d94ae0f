//! Questions to children that are silent: nothing was heard of them for two round trips, or since
//! something was multicast to them again.
//!
//! Only the acknowledgement may be lost. A helper hands its receiver nothing that the receiver has,
//! so that a retransmission by multicast then brings no other. What is acknowledged after one could
//! also have come before, so that nobody would know whether anything was lost. A question tells: a
//! segment by unicast with one byte that was acknowledged before [RFC 9293 §3.8.4]. Linux answers
//! one without a byte once in half a second only (`tcp_invalid_ratelimit`).
//!
//! Acknowledgements that left before the question came may wait in a queue for longer than a round
//! trip, and tell of less. The answer of most receivers names the byte as a duplicate (D-SACK,
//! [RFC 2883 §4]). Nothing else of these counts as an answer, and answers are samples of the round
//! trip. Others are known by questions without such an answer: of them what comes counts, unless
//! it comes within half of a round trip.
//!
//! ```text
//!                 silent            its turn            it leaves
//!   None ────────────────────▶ Waits ─────────▶ Due ─────────────▶ Asked
//!     ▲                          │ ▲              no answer for long │
//!     │                          │ └─────────────────────────────────┤
//!     └───────── progress ───────┴──── answer: progress, or none ────┘
//! ```

use std::time::Duration;

use umbel_wire::tcp::{SackBlocks, Seq};

use crate::Instant;

/// Time between two questions of a source: 50,000 a second. As many answers are what the paper's
/// server could process [SMO §V-B]. Thousands at once would overflow queues once more.
const INTERVAL: Duration = Duration::from_micros(20);
/// Questions without a D-SACK after which other answers count.
const MAX_UNMARKED: u8 = 4;
/// Questions without an answer after which the time for the next does not grow any more.
const MAX_UNANSWERED: u8 = 6;

/// State of a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
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

/// Whether a receiver names the byte of a question in its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    Unknown,
    Always,
    Never,
}

/// The question to a child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    state: State,
    /// When the first one left of those that are not answered.
    since: Option<Instant>,
    /// Questions without an answer since the last progress.
    unanswered: u8,
    marks: Marks,
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// When the question left. It may be the answer to an earlier one: the first of them.
    pub(super) asked_at: Instant,
    /// The round trip, if that is certain.
    pub(super) rtt: Option<Duration>,
}

impl Question {
    /// Creates that of a child that is not asked.
    pub(super) fn new(has_sack: bool) -> Question {
        let marks = if has_sack { Marks::Unknown } else { Marks::Never };
        Question { state: State::None, since: None, unanswered: 0, marks }
    }

    /// Begins one that has its turn at this time.
    pub(super) fn begin(&mut self, turn: Instant) {
        self.state = State::Waits(turn);
    }

    /// Ends it.
    pub(super) fn end(&mut self) {
        (self.state, self.since) = (State::None, None);
    }

    /// Ends it, since the child has made progress, or has answered.
    pub(super) fn on_heard(&mut self) {
        self.end();
        self.unanswered = 0;
    }

    /// Returns when it has its turn, while it waits for it.
    pub(super) fn turn(&self) -> Option<Instant> {
        match self.state {
            State::Waits(at) => Some(at),
            _ => None,
        }
    }

    /// Returns whether it leaves next.
    pub(super) fn is_due(&self) -> bool {
        self.state == State::Due
    }

    /// Returns whether it left, and is not answered yet.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked(_))
    }

    /// Makes it due if its turn has come. Returns whether it has.
    pub(super) fn take_turn(&mut self, now: Instant) -> bool {
        let has_come = self.turn().is_some_and(|at| at <= now);
        if has_come {
            self.state = State::Due;
        }
        has_come
    }

    /// Notes that it leaves.
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.state = State::Asked(now);
        self.since.get_or_insert(now);
    }

    /// Returns when it has no answer any more, if one is late after this time. The next ones wait
    /// for twice as long each.
    pub(super) fn unanswered_at(&self, late: Duration) -> Option<Instant> {
        match self.state {
            State::Asked(at) => Some(at + late * (1 << self.unanswered.min(MAX_UNANSWERED))),
            _ => None,
        }
    }

    /// Notes that it has no answer.
    pub(super) fn on_unanswered(&mut self) {
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// Returns the answer, if a segment that acknowledges so much, with these blocks, can be it.
    /// The question had the byte before `una`. `soon` is the time within which no answer can come.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        soon: Duration,
        una: Seq,
        ack: Seq,
        blocks: &SackBlocks,
    ) -> Option<Answer> {
        let duplicate = blocks.as_slice().first().filter(|(_, right)| right.since(ack) <= 0);
        if duplicate.is_some() {
            self.marks = Marks::Always;
        }
        let State::Asked(last) = self.state else { return None };
        let asked_at = self.since.unwrap_or(last);
        if duplicate.is_some_and(|(left, right)| left.since(una) < 0 && right.since(una) >= 0) {
            let rtt = (asked_at == last).then(|| now.since(last));
            return Some(Answer { asked_at, rtt });
        }
        if self.marks == Marks::Unknown && self.unanswered >= MAX_UNMARKED {
            self.marks = Marks::Never;
        }
        let may_be = self.marks == Marks::Never && now.since(last) >= soon;
        may_be.then_some(Answer { asked_at, rtt: None })
    }
}

/// The turns of a source's questions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turns {
    next: Instant,
}

impl Turns {
    /// Takes the next turn, and returns when it is.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let at = self.next.max(now);
        self.next = at + INTERVAL;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ms;

    #[test]
    fn questions_have_their_turns_one_after_the_other() {
        let mut turns = Turns::default();
        let all: Vec<Instant> = (0..101).map(|_| turns.next(ms(1))).collect();
        assert_eq!((all[0], all[100]), (ms(1), ms(3)));
        assert_eq!(turns.next(ms(5)), ms(5));
        let mut question = Question::new(true);
        question.begin(all[100]);
        assert!(!question.take_turn(ms(2)) && question.take_turn(ms(3)));
        assert!(question.is_due() && !question.take_turn(ms(4)));
        question.on_sent(ms(4));
        assert_eq!(question.unanswered_at(MS), Some(ms(5)));
    }

    const MS: Duration = Duration::from_millis(1);
    const UNA: Seq = Seq(1000);

    fn blocks(left: u32, right: u32) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        blocks.push(Seq(left), Seq(right));
        blocks
    }

    #[test]
    fn an_answer_names_the_byte() {
        let (mut question, none) = (Question::new(true), SackBlocks::default());
        assert_eq!(question.answer(ms(1), MS, UNA, UNA, &blocks(999, 1000)), None);
        question.on_sent(ms(1));
        for (left, right) in [(999, 1000), (900, 1000), (999, 1001)] {
            let answer = Answer { asked_at: ms(1), rtt: Some(MS) };
            assert_eq!(
                question.answer(ms(2), MS, UNA, UNA.plus(1), &blocks(left, right)),
                Some(answer)
            );
        }
        for (left, right) in [(1000, 1001), (990, 999), (999, 999), (999, 1002)] {
            assert_eq!(question.answer(ms(9), MS, UNA, UNA.plus(1), &blocks(left, right)), None);
        }
        assert_eq!(question.answer(ms(9), MS, UNA, UNA, &none), None);
    }

    #[test]
    fn who_names_no_byte_is_believed_after_some_questions() {
        let none = SackBlocks::default();
        let answer = Answer { asked_at: ms(1), rtt: None };
        let mut question = Question::new(true);
        question.on_sent(ms(1));
        assert_eq!(question.answer(ms(2), MS, UNA, UNA, &none), None);
        (0..MAX_UNMARKED).for_each(|_| question.on_unanswered());
        assert_eq!(question.answer(ms(1), MS, UNA, UNA, &none), None);
        assert_eq!(question.answer(ms(2), MS, UNA, UNA, &none), Some(answer));
        question.on_heard();
        // A late D-SACK shows better.
        question.on_sent(ms(3));
        assert!(question.answer(ms(4), MS, UNA, UNA, &none).is_some());
        question.end();
        assert_eq!(question.answer(ms(5), MS, UNA, UNA, &blocks(999, 1000)), None);
        question.on_sent(ms(6));
        assert_eq!(question.answer(ms(9), MS, UNA, UNA, &none), None);

        let mut question = Question::new(false);
        question.on_sent(ms(1));
        assert_eq!(question.answer(ms(1), MS, UNA, UNA, &none), None);
        assert_eq!(question.answer(ms(2), MS, UNA, UNA, &none), Some(answer));
    }

    #[test]
    fn the_answer_may_be_that_to_an_earlier_question() {
        let mut question = Question::new(true);
        question.on_sent(ms(1));
        question.on_unanswered();
        question.begin(ms(3));
        question.on_sent(ms(3));
        assert_eq!(question.unanswered_at(MS), Some(ms(5)));
        let answer = question.answer(ms(4), MS, UNA, UNA, &blocks(999, 1000));
        assert_eq!(answer, Some(Answer { asked_at: ms(1), rtt: None }));
        question.on_heard();
        assert!(!question.is_asked() && question.unanswered_at(MS).is_none());
        question.on_sent(ms(5));
        let answer = question.answer(ms(6), MS, UNA, UNA, &blocks(999, 1000));
        assert_eq!(answer, Some(Answer { asked_at: ms(5), rtt: Some(MS) }));
    }
}
