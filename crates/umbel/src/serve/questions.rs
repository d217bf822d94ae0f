//! The line of questions to the librarian. Clients take turns, and each has its own in order. So
//! one that asks much does not make the others wait for all of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use umbel_engine::SessionId;

use super::librarian::Question;

/// Cost of a question beside its patterns, in bytes.
const COST: usize = 64;
/// Greatest cost of all questions of one client that wait.
const MOST_OF_ONE: usize = 4 << 20;

/// A question, and the place from which the rest of its answer begins: an item or a block.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) question: Question,
    pub(super) from: u64,
}

/// Next action of the librarian.
#[derive(Debug)]
pub(super) enum Next {
    Answer(Job),
    /// Look whether the path has changed.
    Rescan,
    /// End, since the server does.
    End,
}

/// The line, which the engine's thread fills and the librarian empties.
#[derive(Debug, Default)]
pub(super) struct Questions {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    clients: BTreeMap<SessionId, Waiting>,
    /// Clients with questions, in the order of their turns.
    turns: VecDeque<SessionId>,
    /// The client whose question is being answered, unless it has left.
    served: Option<SessionId>,
    rescan: bool,
    ended: bool,
}

/// The questions of one client.
#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    cost: usize,
}

impl Questions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a question.
    ///
    /// # Errors
    ///
    /// Returns the question if its client has too many that wait.
    pub(super) fn put(&self, question: Question) -> Result<(), Question> {
        let mut state = self.state();
        match question.session() {
            None => state.rescan = true,
            Some(session) => {
                let waiting = state.clients.entry(session).or_default();
                let cost = cost(&question);
                if waiting.cost + cost > MOST_OF_ONE {
                    return Err(question);
                }
                waiting.cost += cost;
                waiting.jobs.push_back(Job { question, from: 0 });
                if waiting.jobs.len() == 1 && state.served != Some(session) {
                    state.turns.push_back(session);
                }
            }
        }
        self.news.notify_one();
        Ok(())
    }

    /// Ends a step of an answer. The rest of it comes when it is the client's turn again.
    pub(super) fn end_step(&self, rest: Option<Job>) {
        let mut state = self.state();
        let Some(session) = state.served.take() else { return };
        let Some(waiting) = state.clients.get_mut(&session) else { return };
        if let Some(rest) = rest {
            waiting.cost += cost(&rest.question);
            waiting.jobs.push_front(rest);
        }
        if waiting.jobs.is_empty() {
            state.clients.remove(&session);
        } else {
            state.turns.push_back(session);
        }
    }

    /// Forgets the questions of a client that has left.
    pub(super) fn forget(&self, session: SessionId) {
        let mut state = self.state();
        state.clients.remove(&session);
        state.turns.retain(|waiting| *waiting != session);
        state.served.take_if(|served| *served == session);
    }

    /// Ends the line.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.news.notify_one();
    }

    /// Waits for the next step, or until it is time to look for changes.
    pub(super) fn next(&self, scan_at: Option<Instant>) -> Next {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            let left = scan_at.map(|at| at.saturating_duration_since(now));
            if state.ended {
                return Next::End;
            }
            if std::mem::take(&mut state.rescan) || left.is_some_and(|left| left.is_zero()) {
                return Next::Rescan;
            }
            if let Some(job) = state.take() {
                return Next::Answer(job);
            }
            state = match left {
                Some(left) => {
                    let woken = self.news.wait_timeout(state, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl State {
    /// Takes the first question of the client whose turn it is.
    fn take(&mut self) -> Option<Job> {
        let session = self.turns.pop_front()?;
        let waiting = self.clients.get_mut(&session)?;
        let job = waiting.jobs.pop_front()?;
        waiting.cost -= cost(&job.question);
        self.served = Some(session);
        Some(job)
    }
}

fn cost(question: &Question) -> usize {
    COST + question.patterns().iter().map(|pattern| pattern.len() + COST).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use umbel_wire::Toi;

    use super::*;

    fn digests(session: u64, toi: u32) -> Question {
        Question::Digests { session: SessionId(session), toi: Toi(toi) }
    }

    /// Returns the client and the item of the next question.
    fn next(questions: &Questions) -> (u64, u32, Job) {
        match questions.next(Some(Instant::now() + std::time::Duration::from_mins(1))) {
            Next::Answer(job) => match job.question {
                Question::Digests { session, toi } => (session.0, toi.0, job),
                ref other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clients_take_turns_however_much_one_of_them_asks() {
        let questions = Questions::default();
        for toi in 0..1_000 {
            questions.put(digests(1, toi)).unwrap();
        }
        questions.put(digests(2, 7)).unwrap();
        questions.put(digests(2, 8)).unwrap();
        let mut order = Vec::new();
        for step in 0..6 {
            let (session, toi, job) = next(&questions);
            order.push((session, toi));
            // The first answer has two steps.
            questions.end_step((step == 0).then_some(Job { from: 5, ..job }));
        }
        assert_eq!(order, [(1, 0), (2, 7), (1, 0), (2, 8), (1, 1), (1, 2)]);
    }

    #[test]
    fn ten_times_as_many_questions_as_may_wait_are_refused_and_others_are_not() {
        let questions = Questions::default();
        let most = MOST_OF_ONE / COST;
        let asked = (0..10 * most as u32).map(|toi| questions.put(digests(1, toi)));
        assert_eq!(asked.flatten().count(), most);
        questions.put(digests(2, 1)).unwrap();
        let (_, _, job) = next(&questions);
        questions.put(digests(1, 1)).unwrap();
        // Those of a client that leaves are forgotten, also the one that is being answered.
        questions.forget(SessionId(1));
        questions.end_step(Some(job));
        let (session, ..) = next(&questions);
        assert_eq!(session, 2);
        questions.end_step(None);
        assert!(questions.state().clients.is_empty() && questions.state().turns.is_empty());
        questions.put(Question::Rescan).unwrap();
        assert!(matches!(questions.next(None), Next::Rescan));
        questions.end();
        assert!(matches!(questions.next(None), Next::End));
    }
}
