//! Sensitivity: which verdicts hinge on the values that were chosen or fitted.
//!
//! One value at a time is set lower and higher, or to the other reading. All experiments then run
//! again with the same seeds, and each number is compared with its bounds. A number *flips* if it
//! lies within them with one value and outside with the other.
//!
//! A few seeds do, so that flips are those of the numbers, not of verdicts with their intervals.

use std::collections::BTreeSet;

use crate::output::{Bar, Figure, FigureId, Panel, Row, Section, Table, Verdict};
use crate::pool::{Experiment, Outcomes, Runs};

/// Maximum number of seeds.
const SEEDS: u32 = 2;

/// Another value in the place of one that was chosen or fitted.
pub(crate) struct Change<E, V> {
    /// The value, with what was chosen.
    pub(crate) value: &'static str,
    /// What takes its place.
    pub(crate) other: &'static str,
    /// Whether that is the lower one of two.
    pub(crate) is_lower: bool,
    /// Returns an experiment with the other value.
    pub(crate) apply: fn(&E) -> V,
}

/// Experiments of a report, and the changes that are tried on them.
///
/// `V` is an experiment with all that can be changed, `E` the one in the report.
pub(crate) struct Sensitivity<E: 'static, V: 'static> {
    pub(crate) experiments: BTreeSet<E>,
    /// Returns an experiment as it is in the report.
    pub(crate) unchanged: fn(&E) -> V,
    pub(crate) changes: &'static [Change<E, V>],
    pub(crate) seeds: u32,
}

/// What a change did to the numbers.
struct Effect {
    /// Names of the numbers that are outside of their bounds now.
    leave: Vec<String>,
    /// Names of those that are within now.
    enter: Vec<String>,
    /// Mean of the changes of the numbers, as shares of them.
    mean_change: f64,
}

impl Effect {
    fn flips(&self) -> usize {
        self.leave.len() + self.enter.len()
    }
}

impl<E, V> Sensitivity<E, V>
where
    E: Experiment<Outcome = V::Outcome> + 'static,
    V: Experiment<Outcome: Clone>,
{
    fn seeds(&self) -> u32 {
        self.seeds.min(SEEDS)
    }

    /// Returns the runs with all changes, and without any.
    pub(crate) fn runs(&self) -> Runs<V> {
        let all = self.experiments.iter().flat_map(|experiment| {
            let changed = self.changes.iter().map(|change| (change.apply)(experiment));
            changed.chain([(self.unchanged)(experiment)])
        });
        all.map(|experiment| (experiment, self.seeds())).collect()
    }

    /// Returns the outcomes with a change as those of the report's experiments.
    fn outcomes(&self, of: &Outcomes<V>, apply: fn(&E) -> V) -> Outcomes<E> {
        let found = self.experiments.iter().filter_map(|experiment| {
            Some((experiment.clone(), of.get(&apply(experiment))?.clone()))
        });
        found.collect()
    }

    /// Returns the section of the report. `rows` computes the numbers that are varied.
    pub(crate) fn section(
        &self,
        of: &Outcomes<V>,
        scope: &str,
        rows: impl Fn(&Outcomes<E>) -> Vec<Row>,
    ) -> Section {
        let chosen = rows(&self.outcomes(of, self.unchanged));
        let effects: Vec<Effect> = (self.changes.iter())
            .map(|change| effect(&chosen, &rows(&self.outcomes(of, change.apply))))
            .collect();
        let judged = chosen.iter().filter(|row| row.verdict() != Verdict::Remark).count();
        let sure = effects.iter().filter(|effect| effect.flips() == 0).count();
        Section {
            title: "Sensitivity".to_owned(),
            text: format!(
                "Which of {judged} numbers hinge on values that were chosen or fitted: each is set \
                 lower and higher, or to the other reading, one at a time, with the same {} seeds. A \
                 number flips if it is within its bounds with one value and outside with the other. \
                 Intervals are left out of that, so that a number near a bound can flip by chance. \
                 {sure} of {} changes flip none. {scope}",
                self.seeds(),
                effects.len()
            ),
            figures: vec![self.tornado(&effects)],
            tables: vec![self.table(&effects)],
        }
    }

    fn table(&self, effects: &[Effect]) -> Table {
        let head = ["value", "instead", "flips", "leave", "enter", "mean change (%)", "numbers"];
        let row = |(change, effect): (&Change<E, V>, &Effect)| {
            let leave = effect.leave.iter().map(|name| format!("leaves: {name}"));
            let enter = effect.enter.iter().map(|name| format!("enters: {name}"));
            vec![
                change.value.to_owned(),
                change.other.to_owned(),
                effect.flips().to_string(),
                effect.leave.len().to_string(),
                effect.enter.len().to_string(),
                format!("{:.1}", effect.mean_change * 100.0),
                leave.chain(enter).collect::<Vec<_>>().join("; "),
            ]
        };
        Table {
            name: "sensitivity",
            head: head.map(str::to_owned).into(),
            rows: self.changes.iter().zip(effects).map(row).collect(),
        }
    }

    /// Returns the tornado plot: the values on which most hinges are at the top.
    fn tornado(&self, effects: &[Effect]) -> Figure {
        let mut bars: Vec<Bar> = Vec::new();
        for (change, effect) in self.changes.iter().zip(effects) {
            let side = Some((change.other.to_owned(), effect.flips() as f64));
            let place = usize::from(!change.is_lower);
            match bars.iter_mut().find(|bar| bar.name == change.value) {
                Some(bar) if bar.sides[place].is_none() => bar.sides[place] = side,
                _ => {
                    let mut sides = [None, None];
                    sides[place] = side;
                    bars.push(Bar { name: change.value.to_owned(), sides });
                }
            }
        }
        let length = |bar: &Bar| bar.sides.iter().flatten().map(|(_, flips)| *flips).sum::<f64>();
        bars.sort_by(|a, b| length(b).total_cmp(&length(a)));
        let panel = Panel { x_label: "numbers that flip".to_owned(), bars, ..Panel::default() };
        Figure {
            id: FigureId::Sensitivity,
            title: "Numbers that hinge on chosen values".to_owned(),
            panels: vec![panel],
            caption: "The bar to the left is that of the lower value.".to_owned(),
        }
    }
}

fn effect(chosen: &[Row], changed: &[Row]) -> Effect {
    let (mut leave, mut enter, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    for row in chosen.iter().filter(|row| row.verdict() != Verdict::Remark) {
        let is_it = |other: &&Row| (&other.figure, &other.what) == (&row.figure, &row.what);
        let Some(other) = changed.iter().find(is_it) else { continue };
        let name = || {
            let [from, to] = [row.measured, other.measured].map(|number| format!("{number:.3}"));
            format!("{}, {}: {from} to {to}", row.figure, row.what)
        };
        match (row.is_within(), other.is_within()) {
            (true, false) => leave.push(name()),
            (false, true) => enter.push(name()),
            _ => {}
        }
        let change = (other.measured / row.measured - 1.0).abs();
        changes.extend(change.is_finite().then_some(change));
    }
    let mean_change = changes.iter().sum::<f64>() / changes.len().max(1) as f64;
    Effect { leave, enter, mean_change }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::record;

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Doubling(u32);

    #[derive(Clone, Debug, PartialEq)]
    struct Value {
        value: f64,
    }

    record!(Value { value });

    impl Experiment for Doubling {
        type Outcome = Value;

        fn run(&self, seed: u64) -> Value {
            Value { value: f64::from(self.0) * 2.0 + seed as f64 }
        }

        fn work(&self) -> u64 {
            1
        }
    }

    const CHANGES: &[Change<Doubling, Doubling>] = &[
        Change { value: "length, 4", other: "2", is_lower: true, apply: |e| Doubling(e.0 / 2) },
        Change { value: "length, 4", other: "8", is_lower: false, apply: |e| Doubling(e.0 * 2) },
        Change { value: "no matter", other: "yes", is_lower: false, apply: Clone::clone },
    ];

    fn rows(outcomes: &Outcomes<Doubling>) -> Vec<Row> {
        let value = outcomes.get(&Doubling(4)).map_or(f64::NAN, |runs| runs[0].value);
        let row = |what: &str, bounds| Row::new(1, what, "", (value, ""), bounds);
        vec![
            row("narrow", (8.0, 10.0)),
            row("wide", (0.0, 100.0)),
            row("missed", (12.0, 20.0)),
            row("by definition", (9.0, 9.0)).unjudged("it is so"),
        ]
    }

    #[test]
    fn flips_are_those_of_numbers_that_cross_a_bound() {
        let sensitivity = Sensitivity {
            experiments: [Doubling(4)].into(),
            unchanged: Clone::clone,
            changes: CHANGES,
            seeds: 5,
        };
        let runs = sensitivity.runs();
        // What a change leaves alone runs once.
        assert_eq!(runs, [2, 4, 8].map(|n| (Doubling(n), SEEDS)).into());
        let outcomes = crate::pool::Pool::of(1).run_all(&runs, &());
        let section = sensitivity.section(&outcomes, "", rows);
        let table = &section.tables[0];
        let counts: Vec<&str> = table.rows.iter().map(|row| row[2].as_str()).collect();
        assert_eq!(counts, ["1", "2", "0"]);
        assert_eq!(table.rows[0][6], "leaves: 1, narrow: 9.000 to 5.000");
        assert!(table.rows[1][6].ends_with("enters: 1, missed: 9.000 to 17.000"), "{table:?}");
        assert_eq!(table.rows[2][5], "0.0");
        let bars = &section.figures[0].panels[0].bars;
        let named = |text: &str, flips| Some((text.to_owned(), flips));
        assert_eq!(bars[0].sides, [named("2", 1.0), named("8", 2.0)]);
        assert_eq!(bars[1].sides, [None, named("yes", 0.0)]);
        assert!(section.text.contains("of 3 numbers") && section.text.contains("1 of 3 changes"));
    }
}
