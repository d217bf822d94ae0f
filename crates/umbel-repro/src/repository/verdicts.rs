//! The claims of the paper's text, and whether they hold.

use super::figures::BAD;
use crate::bounds::{LESS, MORE, around};
use crate::output::{Figure, FigureId, Row, Series};

/// Returns the rows of the table about these figures.
pub(super) fn rows(figures: &[Figure]) -> Vec<Row> {
    figures.iter().flat_map(|figure| Judge(figure).rows()).collect()
}

struct Judge<'a>(&'a Figure);

impl Judge<'_> {
    fn at(&self, series: &str, x: f64) -> f64 {
        let found = self.series(series);
        let points = found.into_iter().flat_map(|series| &series.points);
        // All points have whole numbers as x.
        let point = points.into_iter().find(|point| (point.x - x).abs() < 1e-9);
        point.map_or(f64::NAN, |point| point.y)
    }

    fn series(&self, name: &str) -> Option<&Series> {
        let mut all = self.0.panels.iter().flat_map(|panel| &panel.series);
        all.find(|series| series.name == name)
    }

    /// Returns a row for a delay near the reported one.
    fn near(&self, series: &str, x: f64, reported: &str, value: f64, tolerance: f64) -> Row {
        let what = format!("delay of {series} at {x} %");
        let measured = (self.at(series, x), "s");
        let row = Row::new(self.0.id, what, reported, measured, around(value, tolerance));
        row.at("", series, (x, value))
    }

    /// Returns a row for the greatest quotient of two delays, over all points that both have.
    fn greatest_quotient(&self, (a, b): (&str, &str), reported: &str, bounds: (f64, f64)) -> Row {
        let quotients = self.shares(a).into_iter().map(|x| self.at(a, x) / self.at(b, x));
        let greatest = quotients.fold(f64::NAN, f64::max);
        let what = format!("{a} over {b}, greatest of all shares");
        Row::new(self.0.id, what, reported, (greatest, ""), bounds)
    }

    /// Returns the values of x of a curve.
    fn shares(&self, series: &str) -> Vec<f64> {
        let found = self.series(series);
        found.into_iter().flat_map(|series| &series.points).map(|point| point.x).collect()
    }

    /// Returns a row for the quotient of a delay and the best of others at a point.
    fn best(
        &self,
        (series, others): (&str, &[&str]),
        x: f64,
        reported: &str,
        bounds: (f64, f64),
    ) -> Row {
        let delays = others.iter().map(|series| self.at(series, x));
        let best = delays.fold(f64::NAN, f64::min);
        let what = format!("{series} over the best of {} at {x} %", others.join(", "));
        Row::new(self.0.id, what, reported, (self.at(series, x) / best, ""), bounds)
    }

    /// Returns a row for the quotient of two delays at a point.
    fn quotient(&self, (a, b): (&str, &str), x: f64, reported: &str, bounds: (f64, f64)) -> Row {
        let what = format!("{a} over {b} at {x} %");
        let measured = (self.at(a, x) / self.at(b, x), "");
        Row::new(self.0.id, what, reported, measured, bounds)
    }

    fn rows(&self) -> Vec<Row> {
        match self.0.id {
            FigureId::Paper(3) => self.retransmission(),
            FigureId::Paper(4) => self.constant(),
            FigureId::Paper(5) => self.notification(),
            FigureId::Paper(6) => self.constant_with_notification(),
            FigureId::Paper(7) => self.variable(),
            FigureId::Paper(8) => self.rescheduled_variable(),
            FigureId::Paper(9) => self.knowledge(),
            FigureId::Paper(10) => self.exact(),
            FigureId::Paper(11) => self.scheduler(),
            _ => Vec::new(),
        }
    }

    fn retransmission(&self) -> Vec<Row> {
        let mut rows = vec![
            self.near("R(∞)", 2.0, "695 s", 695.0, 0.3),
            self.near("R(10)", 2.0, "460 s", 460.0, 0.15),
            self.near("R(0)", 2.0, "over 840 s", 840.0, 0.15),
            Row::new(
                "3",
                "loss where R(∞) and R(0) cross",
                "about 8 % (\"near 10 %\")",
                (self.crossing("R(∞)", "R(0)"), "%"),
                (6.0, 11.0),
            ),
        ];
        for x in [6.0, 10.0, 20.0, 30.0] {
            rows.push(self.near("R(0)", x, "about 15 min from 6 % to 30 %", 900.0, 0.15));
        }
        rows.push(self.quotient(("R(1)", "R(∞)"), 1.0, "less than 1", LESS));
        rows.push(self.quotient(("R(1)", "R(10)"), 2.0, "more than 1", MORE));
        rows.push(self.quotient(("R(1)", "R(10)"), 4.0, "more than 1", MORE));
        rows.push(self.best(
            ("R(10)", &["R(∞)", "R(0)", "R(1)", "R(3)"]),
            4.0,
            "best of all",
            LESS,
        ));
        rows
    }

    /// Returns where one curve rises above another, with linear interpolation between measured
    /// points.
    fn crossing(&self, rising: &str, flat: &str) -> f64 {
        let found = self.series(rising);
        let xs: Vec<f64> =
            found.into_iter().flat_map(|s| &s.points).map(|p| p.x).filter(|&x| x > 0.0).collect();
        let above = |x: f64| self.at(rising, x) - self.at(flat, x);
        let crossing = xs.windows(2).find(|pair| above(pair[0]) <= 0.0 && above(pair[1]) > 0.0);
        crossing.map_or(f64::NAN, |pair| {
            let (low, high) = (above(pair[0]), above(pair[1]));
            pair[0] + (pair[1] - pair[0]) * low / (low - high)
        })
    }

    fn constant(&self) -> Vec<Row> {
        let [none, tenth, fifth, third] =
            ["FEC(0)+R(∞)", "FEC(0.1)+R(∞)", "FEC(0.2)+R(∞)", "FEC(0.3)+R(∞)"];
        vec![
            self.near(none, 4.0, "about 17.5 min", 1050.0, 0.2),
            self.near(tenth, 4.0, "about 17.5 min", 1050.0, 0.2),
            self.quotient((tenth, none), 4.0, "about 1 % worse: more than 1", MORE),
            self.quotient((fifth, none), 4.0, "under 0.85", (0.85 * 0.8, LESS.1)),
            self.quotient((third, none), 4.0, "almost half off: about 0.55", (0.44, 0.66)),
            self.near(fifth, 0.0, "507 s", 507.0, 0.15),
            self.near(third, 0.0, "539 s", 539.0, 0.15),
            self.quotient((third, fifth), 0.0, "1.06", (MORE.0, 1.06 * 1.15)),
        ]
    }

    fn notification(&self) -> Vec<Row> {
        let gain = self.at("R(0)", 6.0) - self.at("R(0)+notify", 6.0);
        vec![
            self.near("R(∞)", 6.0, "815 s", 815.0, 0.3),
            self.near("R(∞)+notify", 6.0, "944 s", 944.0, 0.3),
            self.quotient(("R(∞)+notify", "R(∞)"), 6.0, "1.16", MORE),
            Row::new(
                "5",
                "gain of R(0) by notify at 6 %",
                "about 30 s",
                (gain, "s"),
                around(30.0, 0.3),
            ),
            self.quotient(("R(0)+notify", "R(0)"), 6.0, "0.95 to 0.97", LESS),
        ]
    }

    fn constant_with_notification(&self) -> Vec<Row> {
        let (plain, notify) = ("FEC(0.2)+R(∞)", "FEC(0.2)+R(∞)+notify");
        vec![
            self.near(plain, 6.0, "just over 17 min", 1030.0, 0.2),
            self.near(notify, 6.0, "just over 22 min", 1330.0, 0.2),
            self.quotient((notify, plain), 6.0, "1.3", MORE),
        ]
    }

    fn variable(&self) -> Vec<Row> {
        let (fixed, retransmitting) = ("FEC(0.1)+R(∞)", "FEC(0.05R)+R(∞)");
        vec![
            self.near(fixed, 10.0, "about 1450 s", 1450.0, 0.25),
            self.near(retransmitting, 10.0, "1100 s", 1100.0, 0.25),
            self.quotient((retransmitting, fixed), 10.0, "0.76", LESS),
            self.quotient(("FEC(0.03R)+R(∞)", "FEC(0.01R)+R(∞)"), 10.0, "less than 1", LESS),
            self.quotient(("FEC(0.05R)+R(0)", retransmitting), 10.0, "0.95", LESS),
        ]
    }

    fn rescheduled_variable(&self) -> Vec<Row> {
        let [one, three, five] = ["FEC(0.01R)+R(0)", "FEC(0.03R)+R(0)", "FEC(0.05R)+R(0)"];
        vec![
            self.near(one, 10.0, "560 s", 560.0, 0.25),
            self.near(three, 10.0, "780 s", 780.0, 0.25),
            self.near(five, 10.0, "1040 s", 1040.0, 0.25),
            self.quotient((one, three), 10.0, "0.72", LESS),
            self.quotient((three, five), 10.0, "0.75", LESS),
            self.best((one, &[three, five]), 100.0, "another factor may be helpful", MORE),
        ]
    }

    fn knowledge(&self) -> Vec<Row> {
        let [none, padded, more, most] = [
            "FEC(maxloss)+R(0)",
            "FEC(maxloss+0.05)+R(0)",
            "FEC(maxloss+0.1)+R(0)",
            "FEC(maxloss+0.2)+R(0)",
        ];
        let across = "less than 1 across the plot";
        let mut rows: Vec<Row> = BAD
            .iter()
            .map(|&x| self.quotient((none, padded), f64::from(x), across, LESS))
            .collect();
        rows.push(self.greatest_quotient((padded, more), across, LESS));
        rows.push(self.greatest_quotient((more, most), across, LESS));
        rows
    }

    fn exact(&self) -> Vec<Row> {
        vec![
            self.near("R(∞)", 10.0, "about 28 min", 1680.0, 0.25),
            self.near("R(0)", 10.0, "about 16 min", 960.0, 0.25),
            self.near("R(∞)+no-ecc", 10.0, "57 min", 3420.0, 0.25),
            self.near("R(0)+no-ecc", 10.0, "28 min", 1680.0, 0.25),
            self.quotient(("R(∞)", "R(∞)+no-ecc"), 10.0, "0.49", LESS),
            self.quotient(("R(0)", "R(0)+no-ecc"), 10.0, "0.57", LESS),
        ]
    }

    fn scheduler(&self) -> Vec<Row> {
        let reported = "1100 s (the text has \"about 110 minutes\")";
        let mut rows = vec![self.near("R(0), R/Q", 45.0, reported, 1100.0, 0.25)];
        for policy in ["R(0)", "FEC(0.01R)+R(0)", "FEC(0.05R)+R(0)"] {
            let (plain, fill) = (format!("{policy}, R/Q"), format!("{policy}, R/(Q/fill)"));
            let row = self.quotient((&fill, &plain), 45.0, "equal", (0.95, 1.05));
            rows.push(
                row.same(
                    0.05,
                    "5 %, set before any run: two curves of one line in the paper's plot",
                ),
            );
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Verdict, testing};

    fn figure(number: u32, curves: &[(&str, &[(f64, f64)])]) -> Figure {
        let curve =
            |&(name, points): &(&str, &[(f64, f64)])| testing::curve(name, points.iter().copied());
        testing::figure(number, [("", curves.iter().map(curve).collect())])
    }

    #[test]
    fn the_papers_own_numbers_pass_and_others_miss() {
        let paper: &[(&str, &[(f64, f64)])] = &[
            ("R(∞)", &[(10.0, 1680.0)]),
            ("R(0)", &[(10.0, 960.0)]),
            ("R(∞)+no-ecc", &[(10.0, 3420.0)]),
            ("R(0)+no-ecc", &[(10.0, 1680.0)]),
        ];
        let rows_of_paper = rows(&[figure(10, paper)]);
        assert_eq!(rows_of_paper.len(), 6);
        assert!(rows_of_paper.iter().all(|row| row.verdict() == Verdict::Ok));
        let wrong: &[(&str, &[(f64, f64)])] = &[("R(0)", &[(10.0, 2000.0)])];
        let rows_of_wrong = rows(&[figure(10, wrong)]);
        assert!(rows_of_wrong.iter().all(|row| row.verdict() == Verdict::Miss));
    }

    #[test]
    fn padding_that_helps_anywhere_in_figure_9_is_a_miss() {
        let padded = |helped: f64| {
            let level =
                |y: f64| BAD.iter().map(|&x| (f64::from(x), y)).collect::<Vec<(f64, f64)>>();
            let mut second = level(110.0);
            second[1].1 = helped;
            let (first, third, fourth) = (level(100.0), level(120.0), level(130.0));
            let curves: &[(&str, &[(f64, f64)])] = &[
                ("FEC(maxloss)+R(0)", &first),
                ("FEC(maxloss+0.05)+R(0)", &second),
                ("FEC(maxloss+0.1)+R(0)", &third),
                ("FEC(maxloss+0.2)+R(0)", &fourth),
            ];
            let rows = rows(&[figure(9, curves)]);
            assert_eq!(rows.len(), BAD.len() + 2);
            rows.iter().filter(|row| row.verdict() == Verdict::Miss).count()
        };
        assert_eq!(padded(110.0), 0);
        assert_eq!(padded(93.0), 1, "5 % of bad clients count as any other share");
        assert_eq!(padded(125.0), 1, "more padding than 0.05 is to be worse, too");
    }

    #[test]
    fn curves_cross_between_points() {
        let curves: &[(&str, &[(f64, f64)])] = &[
            ("up", &[(0.0, 900.0), (2.0, 100.0), (4.0, 300.0), (6.0, 700.0)]),
            ("flat", &[(0.0, 400.0), (2.0, 400.0), (4.0, 400.0), (6.0, 400.0)]),
        ];
        let figure = figure(3, curves);
        assert!((Judge(&figure).crossing("up", "flat") - 4.5).abs() < 1e-9);
        assert!(Judge(&figure).crossing("flat", "nothing").is_nan());
    }
}
