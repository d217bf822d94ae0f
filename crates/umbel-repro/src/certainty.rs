//! Certainty of each row of a report: the jackknife over seeds.
//!
//! A row is a function of all outcomes: a mean, the quotient of two, the place where curves cross.
//! So it is computed anew without the first seed, without the second, and so on. The spread of
//! these numbers is a measure of its standard error, whatever the function. Since all experiments
//! have the same seeds, common parts cancel out in quotients and differences [Efron and Stein, "The
//! jackknife estimate of variance", 1981]. It is rough for greatest and least values.
//!
//! Where experiments are a sample themselves, such as ten random graphs, a row is also computed
//! without each of them. The wider interval counts.

use std::collections::BTreeSet;

use umbel_sim::statistics::t_quantile;

use crate::output::{Certainty, Row};
use crate::pool::{Experiment, Outcomes};

/// Least number of seeds that a verdict rests on.
pub(crate) const MIN_SEEDS: usize = 5;

/// Relation of the runs of a report to each other.
pub(crate) struct Design<E: Experiment> {
    /// Number of runs that count as one seed.
    pub(crate) runs_per_seed: usize,
    /// Returns the number of the sampled thing that an experiment uses, such as a random graph.
    pub(crate) group: fn(&E) -> Option<u32>,
    /// Returns why the runs of an experiment do not measure what they should, if they do not.
    pub(crate) doubt: fn(&E, &[E::Outcome]) -> Option<&'static str>,
}

impl<E: Experiment> Default for Design<E> {
    /// Returns the design of independent experiments, with a run for each seed.
    fn default() -> Design<E> {
        Design { runs_per_seed: 1, group: |_| None, doubt: |_, _| None }
    }
}

/// Computes rows from the outcomes of independent experiments, and how sure each of them is.
/// Outcomes come back as they were.
pub(crate) fn judged<E: Experiment>(
    outcomes: &mut Outcomes<E>,
    rows: impl Fn(&Outcomes<E>) -> Vec<Row>,
) -> Vec<Row> {
    Design::default().judged(outcomes, rows)
}

impl<E: Experiment> Design<E> {
    /// Computes rows from outcomes, and how sure each of them is. Outcomes come back as they were.
    pub(crate) fn judged(
        &self,
        outcomes: &mut Outcomes<E>,
        rows: impl Fn(&Outcomes<E>) -> Vec<Row>,
    ) -> Vec<Row> {
        let mut all = rows(outcomes);
        self.tell_doubts(outcomes, &mut all, &rows);
        let few = take(outcomes, |_, runs| runs.len() < MIN_SEEDS * self.runs_per_seed);
        let without_few = rows(outcomes);
        let most = outcomes.values().map(Vec::len).max().unwrap_or(0);
        let least = outcomes.values().map(Vec::len).min().unwrap_or(0);
        let seeds: Vec<Vec<Row>> =
            (0..most).map(|seed| without_seed(outcomes, seed, &rows)).collect();
        let groups: Vec<Vec<Row>> = (self.groups(outcomes).into_iter())
            .map(|group| self.without_group(outcomes, group, &rows))
            .collect();
        outcomes.extend(few);
        for (n, row) in all.iter_mut().enumerate() {
            // The change without the rare ones depends on them.
            let is_sure = most > 0 && is_unchanged(row, without_few.get(n));
            let over_seeds = estimated(n, &seeds, least);
            let over_groups = estimated(n, &groups, groups.len());
            row.certainty = match (is_sure, over_seeds) {
                (true, Some(seeds)) => wider(seeds, over_groups),
                _ => Certainty::Unknown,
            };
        }
        all
    }

    /// Notes in each row why its number may be another, if it rests on such experiments.
    fn tell_doubts(
        &self,
        outcomes: &mut Outcomes<E>,
        all: &mut [Row],
        rows: impl Fn(&Outcomes<E>) -> Vec<Row>,
    ) {
        let doubts =
            outcomes.iter().filter_map(|(experiment, runs)| (self.doubt)(experiment, runs));
        for doubt in doubts.collect::<BTreeSet<&str>>() {
            let taken =
                take(outcomes, |experiment, runs| (self.doubt)(experiment, runs) == Some(doubt));
            let without = rows(outcomes);
            outcomes.extend(taken);
            for (n, row) in all.iter_mut().enumerate() {
                if !is_unchanged(row, without.get(n)) {
                    row.doubt = Some(doubt);
                }
            }
        }
    }

    fn groups(&self, outcomes: &Outcomes<E>) -> BTreeSet<u32> {
        outcomes.keys().filter_map(self.group).collect()
    }

    /// Computes rows without the experiments of a group.
    fn without_group(
        &self,
        outcomes: &mut Outcomes<E>,
        group: u32,
        rows: impl Fn(&Outcomes<E>) -> Vec<Row>,
    ) -> Vec<Row> {
        let taken = take(outcomes, |experiment, _| (self.group)(experiment) == Some(group));
        let computed = rows(outcomes);
        outcomes.extend(taken);
        computed
    }
}

/// Takes those experiments from the outcomes of which this is true.
fn take<E: Experiment>(
    outcomes: &mut Outcomes<E>,
    is_meant: impl Fn(&E, &[E::Outcome]) -> bool,
) -> Outcomes<E> {
    let meant = outcomes.iter().filter(|(experiment, runs)| is_meant(experiment, runs));
    let meant: Vec<E> = meant.map(|(experiment, _)| experiment.clone()).collect();
    meant.into_iter().filter_map(|experiment| outcomes.remove_entry(&experiment)).collect()
}

/// Computes rows without one of the seeds.
fn without_seed<E: Experiment>(
    outcomes: &mut Outcomes<E>,
    seed: usize,
    rows: impl Fn(&Outcomes<E>) -> Vec<Row>,
) -> Vec<Row> {
    let left_out: Vec<_> =
        outcomes.values_mut().map(|runs| (seed < runs.len()).then(|| runs.remove(seed))).collect();
    let computed = rows(outcomes);
    for (runs, outcome) in outcomes.values_mut().zip(left_out) {
        if let Some(outcome) = outcome {
            runs.insert(seed, outcome);
        }
    }
    computed
}

fn is_unchanged(row: &Row, other: Option<&Row>) -> bool {
    other.is_some_and(|other| other.measured.to_bits() == row.measured.to_bits())
}

/// Returns the certainty of a row from its numbers without one part of the sample each. The sample
/// has this number of parts; the result is `None` if it is unknown.
fn estimated(row: usize, without: &[Vec<Row>], parts: usize) -> Option<Certainty> {
    let values: Option<Vec<f64>> =
        without.iter().map(|rows| rows.get(row).map(|row| row.measured)).collect();
    let values = values.filter(|_| parts > 1)?;
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = ((n - 1.0) / n * squares).sqrt();
    error.is_finite().then_some(Certainty::Estimated { error, freedom: parts - 1 })
}

/// Returns the one with the wider interval.
fn wider(a: Certainty, b: Option<Certainty>) -> Certainty {
    let width = |certainty: Certainty| match certainty {
        Certainty::Estimated { error, freedom } => t_quantile(0.025, freedom) * error,
        Certainty::Exact | Certainty::Unknown => 0.0,
    };
    b.filter(|b| width(*b) > width(a)).unwrap_or(a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimate;
    use crate::output::Verdict;

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Named(&'static str);

    #[derive(Debug, PartialEq)]
    struct Value {
        value: f64,
    }

    crate::record::record!(Value { value });

    impl Experiment for Named {
        type Outcome = Value;

        fn run(&self, seed: u64) -> Value {
            Value { value: seed as f64 }
        }

        fn work(&self) -> u64 {
            1
        }
    }

    fn outcomes(of: &[(&'static str, &[f64])]) -> Outcomes<Named> {
        let values = |runs: &[f64]| runs.iter().map(|&value| Value { value }).collect();
        of.iter().map(|&(name, runs)| (Named(name), values(runs))).collect()
    }

    fn mean(outcomes: &Outcomes<Named>, name: &'static str) -> f64 {
        let values = |runs: &Vec<Value>| runs.iter().map(|run| run.value).collect::<Vec<f64>>();
        outcomes.get(&Named(name)).map_or(f64::NAN, |runs| Estimate::of(&values(runs)).mean)
    }

    fn row(measured: f64, bounds: (f64, f64)) -> Row {
        Row::new("1", "what", "reported", (measured, ""), bounds)
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_students_t() {
        let runs = [1.0, 2.0, 3.0, 4.0, 7.0];
        let mut all = outcomes(&[("a", &runs)]);
        let rows = judged(&mut all, |all| vec![row(mean(all, "a"), (0.0, 9.0))]);
        let (low, high) = rows[0].interval();
        let estimate = Estimate::of(&runs);
        assert!((low - (estimate.mean - estimate.ci95)).abs() < 1e-9);
        assert!((high - (estimate.mean + estimate.ci95)).abs() < 1e-9);
        assert!(all == outcomes(&[("a", &runs)]));
    }

    #[test]
    fn what_all_experiments_share_cancels_out() {
        let noise = [10.0, 90.0, 40.0, 70.0, 20.0];
        let twice = noise.map(|value| 2.0 * value);
        let mut all = outcomes(&[("a", &noise), ("b", &twice)]);
        let rows = judged(&mut all, |all| {
            vec![
                row(mean(all, "b") / mean(all, "a"), (1.9, 2.1)),
                row(mean(all, "a"), (45.0, 47.0)),
            ]
        });
        assert_eq!(
            rows.iter().map(Row::verdict).collect::<Vec<_>>(),
            [Verdict::Ok, Verdict::Undecided]
        );
    }

    #[test]
    fn what_rests_on_few_runs_is_undecided() {
        let of = |runs: &[(&'static str, &[f64])]| {
            let rows = judged(&mut outcomes(runs), |all| vec![row(mean(all, "a"), (0.0, 9.0)); 1]);
            rows[0].verdict()
        };
        assert_eq!(of(&[("a", &[1.0; 5])]), Verdict::Ok);
        assert_eq!(of(&[("a", &[1.0; 4])]), Verdict::Undecided);
        assert_eq!(of(&[("a", &[1.0; 4]), ("b", &[1.0; 5])]), Verdict::Undecided);
        assert_eq!(of(&[("a", &[1.0; 5]), ("b", &[1.0])]), Verdict::Ok);
        assert_eq!(of(&[("b", &[1.0; 5])]), Verdict::Miss);
    }

    #[test]
    fn a_gate_counts_seeds_and_not_the_runs_of_each() {
        let of = |runs: &[f64]| {
            let design = Design { runs_per_seed: 2, ..Design::default() };
            let rows = |all: &Outcomes<Named>| vec![row(mean(all, "a"), (0.0, 9.0))];
            design.judged(&mut outcomes(&[("a", runs)]), rows)[0].verdict()
        };
        assert_eq!(of(&[1.0; 9]), Verdict::Undecided);
        assert_eq!(of(&[1.0; 10]), Verdict::Ok);
    }

    #[test]
    fn what_differs_between_graphs_is_uncertain_though_seeds_agree() {
        let runs = [("graph 1", &[1.0; 5][..]), ("graph 2", &[2.0; 5]), ("graph 3", &[6.0; 5])];
        let number = |named: &Named| named.0.strip_prefix("graph ")?.parse().ok();
        let rows = |all: &Outcomes<Named>| {
            let means: Vec<f64> = all.keys().map(|named| mean(all, named.0)).collect();
            vec![row(Estimate::of(&means).mean, (2.5, 3.5))]
        };
        let mut all = outcomes(&runs);
        assert_eq!(judged(&mut all, rows)[0].verdict(), Verdict::Ok);
        let design = Design { group: number, ..Design::default() };
        let judged = &design.judged(&mut all, rows)[0];
        assert_eq!(judged.verdict(), Verdict::Undecided);
        let (low, high) = judged.interval();
        let Estimate { mean, ci95 } = Estimate::of(&[1.0, 2.0, 6.0]);
        assert!((low - (mean - ci95)).abs() < 1e-9 && (high - (mean + ci95)).abs() < 1e-9);
        assert!(all == outcomes(&runs));
    }

    #[test]
    fn what_rests_on_doubtful_runs_is_undecided_with_the_reason() {
        let doubt = |named: &Named, _: &[Value]| (named.0 == "b").then_some("it drifts");
        let design = Design { doubt, ..Design::default() };
        let mut all = outcomes(&[("a", &[1.0; 5]), ("b", &[1.0; 5])]);
        let rows = |all: &Outcomes<Named>| {
            ["a", "b"].map(|name| row(mean(all, name), (0.0, 9.0))).to_vec()
        };
        let rows = design.judged(&mut all, rows);
        let told: Vec<_> = rows.iter().map(|row| (row.verdict(), row.doubt)).collect();
        assert_eq!(told, [(Verdict::Ok, None), (Verdict::Undecided, Some("it drifts"))]);
    }
}
