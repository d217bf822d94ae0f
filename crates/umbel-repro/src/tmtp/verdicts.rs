//! The claims of the paper's text, and whether they hold.
//!
//! The text has no numbers for Figures 6 and 7, only comparisons of the curves. Here "slowly" is
//! under a fifth of the others' growth, and "almost no increase" under 20 %. "Steeply" and
//! "sharply" are a quotient of over four between the greatest and the least value.

use super::LOSS;
use super::figures::{DELAY, LOAD, estimate};
use super::transfer::{Outcome, Protocol, Transfer};
use crate::bounds::{LESS, MORE, around};
use crate::output::{Figure, FigureId, Row};
use crate::pool::Outcomes;

const TMTP: &str = "TMTP";
const BASELINES: [&str; 2] = ["WIN_BASEP", "BURST_BASEP"];

/// Tolerance of "almost no increase".
const FLAT: f64 = 0.2;
/// Bounds of "steeply" and "sharply": the quotient of the greatest and the least value.
const STEEP: (f64, f64) = (4.0, f64::INFINITY);

/// Returns the rows of the table about these figures.
pub(super) fn rows(figures: &[Figure]) -> Vec<Row> {
    figures.iter().flat_map(|figure| Judge(figure).rows()).collect()
}

struct Judge<'a>(&'a Figure);

impl Judge<'_> {
    fn row(&self, what: String, reported: &str, measured: f64, bounds: (f64, f64)) -> Row {
        Row::new(self.0.id, what, reported, (measured, ""), bounds)
    }

    /// Returns the first and the last value of a curve.
    fn ends(&self, panel: &str, series: &str) -> (f64, f64) {
        let values = self.0.values(panel, series);
        let end = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN);
        (end(values.first()), end(values.last()))
    }

    /// Returns the rise of a curve over that of another.
    fn rises(&self, panel: &str, series: &str, other: &str) -> f64 {
        let rise = |series| {
            let (first, last) = self.ends(panel, series);
            last - first
        };
        rise(series) / rise(other)
    }

    /// Returns the quotient of a curve's last and first value.
    fn growth(&self, panel: &str, series: &str) -> f64 {
        let (first, last) = self.ends(panel, series);
        last / first
    }

    /// Returns the greatest quotient of two curves at one point.
    fn greatest_quotient(&self, panel: &str, series: &str, other: &str) -> f64 {
        let (a, b) = (self.0.values(panel, series), self.0.values(panel, other));
        a.iter().zip(&b).map(|(a, b)| a / b).fold(f64::NAN, f64::max)
    }

    /// Returns the quotient of two curves' last values.
    fn last_quotient(&self, panel: &str, series: &str, other: &str) -> f64 {
        self.ends(panel, series).1 / self.ends(panel, other).1
    }

    fn rows(&self) -> Vec<Row> {
        match self.0.id {
            FigureId::Paper(6) => self.size(),
            FigureId::Paper(7) => self.group(),
            _ => Vec::new(),
        }
    }

    fn size(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for other in BASELINES {
            let what = format!("load of {other} with 30 KB over that with 3 KB");
            let growth = self.growth(LOAD, other);
            let row = self.row(what, "significant increase", growth, STEEP);
            rows.push(row.unjudged("it is ten times the packets, each acknowledged by everyone"));
            let what = format!("increase of load from 3 to 30 KB, TMTP over {other}");
            let rises = self.rises(LOAD, TMTP, other);
            rows.push(self.row(what, "only a small increase", rises, (f64::NEG_INFINITY, 0.2)));
            let what = format!("increase of delay from 3 to 30 KB, TMTP over {other}");
            let rises = self.rises(DELAY, TMTP, other);
            rows.push(self.row(what, "significantly lower rate", rises, LESS));
            let what = format!("delay, TMTP over {other}, greatest of all sizes");
            let quotient = self.greatest_quotient(DELAY, TMTP, other);
            rows.push(self.row(what, "lower for all file sizes", quotient, LESS));
        }
        let what = "delay with 30 KB, WIN_BASEP over BURST_BASEP".to_owned();
        let quotient = self.last_quotient(DELAY, BASELINES[0], BASELINES[1]);
        rows.push(self.row(what, "higher", quotient, MORE));
        rows
    }

    fn group(&self) -> Vec<Row> {
        let load = self.growth(LOAD, TMTP);
        let what = "load of TMTP with 30 receivers over that with 5".to_owned();
        let row = self.row(what, "almost no increase", load, around(1.0, FLAT));
        let mut rows = vec![
            row.unjudged("the five sites of the smallest group hold all children of the sender"),
        ];
        let delays = self.0.values(DELAY, TMTP);
        let beyond_10 = match &delays[..] {
            [_, ten, .., last] => last / ten,
            _ => f64::NAN,
        };
        let what = "delay of TMTP with 30 receivers over that with 10".to_owned();
        let row = self.row(what, "almost constant", beyond_10, around(1.0, FLAT));
        rows.push(row.same(FLAT, "a fifth is what \"almost\" stands for here"));
        for other in BASELINES {
            let what = format!("load of {other} with 30 receivers over that with 5");
            let growth = self.growth(LOAD, other);
            let row = self.row(what, "sharp increase", growth, STEEP);
            rows.push(row.unjudged("it is six times the receivers, who acknowledge each packet"));
            let what = format!("delay of {other} with 30 receivers over that with 5");
            rows.push(self.row(what, "grows", self.growth(DELAY, other), MORE));
            let what = format!("delay with 30 receivers, TMTP over {other}");
            let quotient = self.last_quotient(DELAY, TMTP, other);
            rows.push(self.row(what, "significantly lower", quotient, LESS));
        }
        rows
    }
}

/// Returns the rows about retransmissions of 30 packets to 30 receivers
/// [TMTP "Performance Measures"].
pub(super) fn retransmissions(outcomes: &Outcomes<Transfer>) -> Vec<Row> {
    let mean = |protocol, value: fn(&Outcome) -> f64| {
        let transfer = Transfer { protocol, receivers: 30, packets: 30, loss: LOSS };
        estimate(outcomes, transfer, value).mean
    };
    let row = |what: &str, reported: &str, measured, bounds| {
        Row::new("retransmissions", what, reported, (measured, ""), bounds)
    };
    let burst = mean(Protocol::BurstBasep, |outcome| f64::from(outcome.by_sender));
    let all = mean(Protocol::TMTP, |outcome| f64::from(outcome.by_sender + outcome.by_others));
    let concurrent = mean(Protocol::TMTP, |outcome| f64::from(outcome.concurrent));
    let manager = mean(Protocol::TMTP, |outcome| outcome.manager_load);
    let sender = mean(Protocol::TMTP, |outcome| outcome.load.total() as f64);
    vec![
        row("BURST_BASEP, global", "9", burst, around(9.0, 0.2)).unjudged("the loss is chosen so"),
        row("TMTP, in all domains", "6", all, around(6.0, 0.5)),
        row("TMTP over BURST_BASEP", "far fewer: 0.67", all / burst, LESS),
        row("TMTP, share of concurrent ones", "4 of 6", concurrent / all, around(0.67, 0.25)),
        row("load of a manager over the sender's", "about the same", manager / sender, (0.5, 2.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Verdict, testing};

    type Curves<'a> = [(&'a str, &'a [f64]); 3];

    fn figure(number: u32, load: Curves<'_>, delay: Curves<'_>) -> Figure {
        let panel = |curves: Curves<'_>| {
            let curve = |(name, values): (&str, &[f64])| {
                testing::curve(name, (0..).map(f64::from).zip(values.iter().copied()))
            };
            curves.map(curve).to_vec()
        };
        testing::figure(number, [(LOAD, panel(load)), (DELAY, panel(delay))])
    }

    fn verdicts(figure: Figure) -> Vec<Verdict> {
        rows(&[figure]).iter().map(Row::verdict).collect()
    }

    #[test]
    fn curves_as_the_paper_tells_them_pass() {
        let load = [
            (TMTP, &[10.0, 20.0, 40.0][..]),
            ("WIN_BASEP", &[100.0, 500.0, 1_000.0]),
            ("BURST_BASEP", &[100.0, 500.0, 1_000.0]),
        ];
        let delay = [
            (TMTP, &[1.0, 2.0, 3.0][..]),
            ("WIN_BASEP", &[2.0, 10.0, 20.0]),
            ("BURST_BASEP", &[2.0, 5.0, 10.0]),
        ];
        let judged = |figure| -> Vec<Verdict> {
            verdicts(figure).into_iter().filter(|verdict| *verdict != Verdict::Remark).collect()
        };
        assert_eq!(judged(figure(6, load, delay)), [Verdict::Ok; 7]);
        let flat = [(TMTP, &[10.0, 10.0, 11.0][..]), load[1], load[2]];
        let level = [(TMTP, &[2.0, 3.0, 3.1][..]), delay[1], delay[2]];
        assert_eq!(judged(figure(7, flat, level)), [Verdict::Ok; 5]);
    }

    #[test]
    fn curves_the_other_way_round_miss() {
        let curves = [
            (TMTP, &[10.0, 20.0, 90.0][..]),
            ("WIN_BASEP", &[5.0, 6.0, 4.9]),
            ("BURST_BASEP", &[5.0, 6.0, 4.95]),
        ];
        let verdicts = verdicts(figure(7, curves, curves));
        let misses = verdicts.iter().filter(|verdict| **verdict == Verdict::Miss).count();
        assert_eq!((misses, verdicts.len()), (5, 8));
    }

    #[test]
    fn what_was_not_run_is_a_miss() {
        for number in [6, 7] {
            let rows = verdicts(testing::figure(number, [("", Vec::new())]));
            assert!(rows.contains(&Verdict::Miss) && !rows.contains(&Verdict::Ok));
        }
        let rows = retransmissions(&Outcomes::new());
        assert!(rows.iter().all(|row| row.verdict() == Verdict::Miss || row.remark.is_some()));
    }
}
