//! Many runs on all cores, with results that do not depend on the number of cores.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A simulation that can run with any seed. Equal experiments run once for all figures that need
/// them.
pub trait Experiment: Clone + Ord + Send + Sync {
    /// Measurements of a run.
    type Outcome: Send;

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

/// Runs the experiments on `threads` threads.
#[allow(clippy::disallowed_methods, reason = "outcomes do not depend on the number of threads")]
pub fn run_all<E: Experiment>(
    runs: &Runs<E>,
    threads: usize,
    progress: &dyn Progress,
) -> Outcomes<E> {
    let mut runs: Vec<(&E, u64)> = runs
        .iter()
        .flat_map(|(experiment, &seeds)| (1..=u64::from(seeds)).map(move |seed| (experiment, seed)))
        .collect();
    runs.sort_by_key(|(experiment, _)| std::cmp::Reverse(experiment.work()));
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(runs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, runs.len().max(1)) {
            scope.spawn(|| {
                while let Some(&(experiment, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let outcome = experiment.run(seed);
                    progress.advance(experiment.work());
                    let mut done = done.lock().expect("no thread panics while it holds the lock");
                    done.push((experiment, seed, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no thread panics while it holds the lock");
    done.sort_by_key(|&(_, seed, _)| seed);
    let mut outcomes = Outcomes::<E>::new();
    for (experiment, _, outcome) in done {
        outcomes.entry(experiment.clone()).or_default().push(outcome);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
    struct Square(u64);

    impl Experiment for Square {
        type Outcome = u64;

        fn run(&self, seed: u64) -> u64 {
            self.0 * self.0 + seed
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
        let one = run_all(&runs, 1, &());
        for threads in [0, 2, 7, 100] {
            assert!(run_all(&runs, threads, &()) == one);
        }
        assert_eq!(one[&Square(4)], [17, 18, 19]);
        assert_eq!(one[&Square(5)], [26]);
        assert_eq!(one.len(), 20);
    }

    #[test]
    fn progress_ends_where_it_was_said_to() {
        let (sum, runs) = (Sum::default(), (0..5).map(|n| (Square(n), 2)).collect());
        sum.expect(work(&runs));
        run_all(&runs, 2, &sum);
        assert_eq!(sum.total.into_inner(), 20);
        assert_eq!(sum.done.into_inner(), 20);
    }

    #[test]
    fn nothing_to_run_is_no_problem() {
        assert!(run_all(&Runs::<Square>::new(), 2, &()).is_empty());
    }
}
