//! How sure each row of a report is: the jackknife over seeds.
//!
//! A row is a function of all outcomes: a mean, the quotient of two, the place where curves cross.
//! So it is computed anew without the first seed, without the second, and so on. How far these
//! numbers lie apart tells its standard error, whatever the function; and since all experiments
//! have the same seeds, what they share cancels out in quotients and differences [Efron and Stein,
//! "The jackknife estimate of variance", 1981]. It is rough for greatest and least values.

use crate::estimate::t_quantile;
use crate::output::{Certainty, Row};
use crate::pool::{Experiment, Outcomes};

/// Least number of runs that a verdict rests on.
pub(crate) const MIN_RUNS: usize = 5;

/// Computes rows from outcomes, and how sure each of them is. Outcomes come back as they were.
pub(crate) fn judged<E: Experiment>(
    outcomes: &mut Outcomes<E>,
    rows: impl Fn(&Outcomes<E>) -> Vec<Row>,
) -> Vec<Row> {
    let mut all = rows(outcomes);
    let unsure = |rows: &mut [Row]| rows.iter_mut().for_each(|r| r.certainty = Certainty::Unknown);
    let most = outcomes.values().map(Vec::len).max().unwrap_or(0);
    if most < MIN_RUNS {
        unsure(&mut all);
        return all;
    }
    let few = take_those_that_ran_too_rarely(outcomes);
    let least = outcomes.values().map(Vec::len).min().unwrap_or(0);
    let without_few = if few.is_empty() { all.clone() } else { rows(outcomes) };
    let replicates: Vec<Vec<Row>> = (0..most).map(|seed| without(outcomes, seed, &rows)).collect();
    outcomes.extend(few);
    if replicates.iter().chain([&without_few]).any(|other| other.len() != all.len()) {
        unsure(&mut all);
        return all;
    }
    for (n, row) in all.iter_mut().enumerate() {
        // What changes if the rare ones are left out depends on them.
        let is_sure = row.measured.to_bits() == without_few[n].measured.to_bits();
        let values: Vec<f64> = replicates.iter().map(|rows| rows[n].measured).collect();
        row.certainty = match half_width(&values, least) {
            half if is_sure && half.is_finite() => {
                Certainty::Within(row.measured - half, row.measured + half)
            }
            _ => Certainty::Unknown,
        };
    }
    all
}

fn take_those_that_ran_too_rarely<E: Experiment>(outcomes: &mut Outcomes<E>) -> Outcomes<E> {
    let few = outcomes.iter().filter(|(_, runs)| runs.len() < MIN_RUNS);
    let few: Vec<E> = few.map(|(experiment, _)| experiment.clone()).collect();
    few.into_iter().filter_map(|experiment| outcomes.remove_entry(&experiment)).collect()
}

/// Computes rows without one of the seeds.
fn without<E: Experiment>(
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

/// Returns half the width of the 95 % confidence interval, from the values without one seed each.
fn half_width(values: &[f64], runs: usize) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    t_quantile(runs - 1) * ((n - 1.0) / n * squares).sqrt()
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
        let Certainty::Within(low, high) = rows[0].certainty else { panic!("{rows:?}") };
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
}
