//! Many runs on all cores, with results that do not depend on the number of cores.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::archive::Archive;
use crate::record::Record;

/// A simulation that can run with any seed. Equal experiments run once for all figures that need
/// them. `Debug` writes all that makes experiments differ: by that their runs are found again.
pub trait Experiment: Clone + Ord + Send + Sync + fmt::Debug {
    /// Measurements of a run.
    type Outcome: Send + Record;

    /// Name of the file that keeps the runs, without `.csv`: one for each kind of a report.
    const RUNS: &'static str = "runs";

    /// Runs the simulation. The outcome depends only on the experiment and the seed.
    fn run(&self, seed: u64) -> Self::Outcome;

    /// Returns the approximate duration of a run in any unit. The longest experiments start first.
    fn work(&self) -> u64;
}

/// Receives the progress of the runs. It is called from several threads.
pub trait Progress: Sync {
    /// Reports that all runs come to about `total` units of work. May be called again when more is
    /// known; completed work stays completed.
    fn expect(&self, total: u64);

    /// Reports `work` more completed units.
    fn advance(&self, work: u64);
}

/// Ignores the progress.
impl Progress for () {
    fn expect(&self, _total: u64) {}

    fn advance(&self, _work: u64) {}
}

/// Returns the number of cores available to run on.
#[allow(clippy::disallowed_methods, reason = "outcomes do not depend on the number of threads")]
pub fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Outcomes of each experiment, in the order of the seeds.
pub type Outcomes<E> = BTreeMap<E, Vec<<E as Experiment>::Outcome>>;

/// Number of runs of each experiment: the seeds are 1 to this number.
pub type Runs<E> = BTreeMap<E, u32>;

/// Returns the work of these runs.
pub fn work<E: Experiment>(runs: &Runs<E>) -> u64 {
    runs.iter().map(|(experiment, &seeds)| experiment.work() * u64::from(seeds)).sum()
}

/// The threads on which experiments run, and the archive of their outcomes.
#[derive(Clone, Debug)]
pub struct Pool {
    threads: usize,
    archive: Option<Arc<Archive>>,
}

impl Default for Pool {
    /// Returns all cores, without an archive.
    fn default() -> Pool {
        Pool::of(all_cores())
    }
}

impl Pool {
    /// Creates a pool of this number of threads, without an archive.
    pub fn of(threads: usize) -> Pool {
        Pool { threads, archive: None }
    }

    /// Keeps outcomes in an archive, and takes those from there that it has.
    #[must_use]
    pub fn keeping(self, archive: Arc<Archive>) -> Pool {
        Pool { archive: Some(archive), ..self }
    }

    /// Returns a pool of one thread with the same archive.
    #[must_use]
    pub fn one_by_one(&self) -> Pool {
        Pool { threads: 1, archive: self.archive.clone() }
    }

    /// Runs the experiments.
    pub fn run_all<E: Experiment>(&self, runs: &Runs<E>, progress: &dyn Progress) -> Outcomes<E> {
        let all = runs.iter().flat_map(|(experiment, &seeds)| {
            (1..=u64::from(seeds)).map(move |seed| (experiment, seed))
        });
        let Some(archive) = &self.archive else {
            return gather(run(&all.collect::<Vec<_>>(), self.threads, None, progress));
        };
        let (mut done, mut left) = (Vec::new(), Vec::new());
        for (experiment, seed) in all {
            match archive.find(experiment, seed) {
                Some(outcome) => {
                    progress.advance(experiment.work());
                    done.push((experiment, seed, outcome));
                }
                None => left.push((experiment, seed)),
            }
        }
        if archive.may_run() {
            done.extend(run(&left, self.threads, Some(archive), progress));
        }
        gather(done)
    }
}

/// Outcomes of runs, each with its experiment and seed.
type Done<'a, E> = Vec<(&'a E, u64, <E as Experiment>::Outcome)>;

/// Returns the outcomes in the order of their experiments and seeds.
fn gather<E: Experiment>(mut done: Done<'_, E>) -> Outcomes<E> {
    done.sort_by_key(|&(_, seed, _)| seed);
    let mut outcomes = Outcomes::<E>::new();
    for (experiment, _, outcome) in done {
        outcomes.entry(experiment.clone()).or_default().push(outcome);
    }
    outcomes
}

/// Runs the experiments on `threads` threads.
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "outcomes do not depend on threads and time"
)]
fn run<'a, E: Experiment>(
    runs: &[(&'a E, u64)],
    threads: usize,
    archive: Option<&Archive>,
    progress: &dyn Progress,
) -> Done<'a, E> {
    let mut runs = runs.to_vec();
    runs.sort_by_key(|(experiment, _)| std::cmp::Reverse(experiment.work()));
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(runs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, runs.len().max(1)) {
            scope.spawn(|| {
                while let Some(&(experiment, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let began = std::time::Instant::now();
                    let outcome = experiment.run(seed);
                    if let Some(archive) = archive {
                        archive.keep(experiment, seed, began.elapsed().as_secs_f64(), &outcome);
                    }
                    progress.advance(experiment.work());
                    let mut done = done.lock().expect("no thread panics while it holds the lock");
                    done.push((experiment, seed, outcome));
                }
            });
        }
    });
    done.into_inner().expect("no thread panics while it holds the lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Square(u64);

    #[derive(Debug, PartialEq, Eq)]
    struct Value {
        value: u64,
    }

    crate::record::record!(Value { value });

    impl Experiment for Square {
        type Outcome = Value;

        fn run(&self, seed: u64) -> Value {
            Value { value: self.0 * self.0 + seed }
        }

        fn work(&self) -> u64 {
            self.0
        }
    }

    #[derive(Default)]
    struct Sum {
        total: AtomicUsize,
        done: AtomicUsize,
    }

    impl Progress for Sum {
        fn expect(&self, total: u64) {
            self.total.store(total as usize, Ordering::Relaxed);
        }

        fn advance(&self, work: u64) {
            self.done.fetch_add(work as usize, Ordering::Relaxed);
        }
    }

    #[test]
    fn outcomes_do_not_depend_on_the_number_of_threads() {
        let runs: Runs<Square> = (0..20).map(|n| (Square(n), if n == 5 { 1 } else { 3 })).collect();
        let one = Pool::of(1).run_all(&runs, &());
        for threads in [0, 2, 7, 100] {
            assert!(Pool::of(threads).run_all(&runs, &()) == one);
        }
        let values = |n| one[&Square(n)].iter().map(|run| run.value).collect::<Vec<u64>>();
        assert_eq!(values(4), [17, 18, 19]);
        assert_eq!(values(5), [26]);
        assert_eq!(one.len(), 20);
    }

    #[test]
    fn progress_ends_where_it_was_said_to() {
        let (sum, runs) = (Sum::default(), (0..5).map(|n| (Square(n), 2)).collect());
        sum.expect(work(&runs));
        Pool::of(2).run_all(&runs, &sum);
        assert_eq!(sum.total.into_inner(), 20);
        assert_eq!(sum.done.into_inner(), 20);
    }

    #[test]
    fn nothing_to_run_is_no_problem() {
        assert!(Pool::of(2).run_all(&Runs::<Square>::new(), &()).is_empty());
    }
}
