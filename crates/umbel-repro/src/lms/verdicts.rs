//! The claims of the paper's text, and whether they hold.
//!
//! The paper has curves without numbers, and a text that rounds them: "about" stands for 20 % here
//! unless noted.

use super::figures::{LINKS, RECEIVERS, SOURCE, SPARSE, TREE_LINKS};
use crate::bounds::{LESS, MORE, around, around_range, up_to};
use crate::output::{Figure, FigureId, Row};

/// Returns the rows of the table about these figures.
pub(super) fn rows(figures: &[Figure]) -> Vec<Row> {
    let mut rows: Vec<Row> = figures.iter().flat_map(|figure| Judge(figure).rows()).collect();
    rows.extend(table_1(figures));
    rows
}

/// Tolerance of "about".
const ABOUT: f64 = 0.2;
/// Bounds of "peaks of 15 to 20 %", with that tolerance.
const PEAKS: (f64, f64) = (0.15 * (1.0 - ABOUT), 0.2 * (1.0 + ABOUT));

/// Creates a row for a plain number.
pub(super) fn row(
    figure: &str,
    what: impl Into<String>,
    reported: &str,
    measured: f64,
    bounds: (f64, f64),
) -> Row {
    Row::new(figure, what, reported, (measured, ""), bounds)
}

/// Returns the mean of a curve's values.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the greatest value, NaN for none.
fn greatest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// Returns the least value, NaN for none.
fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

/// Returns the quotient of each value and the previous one.
fn steps(values: &[f64]) -> Vec<f64> {
    values.windows(2).map(|pair| pair[1] / pair[0]).collect()
}

struct Judge<'a>(&'a Figure);

impl Judge<'_> {
    fn row(&self, what: String, reported: &str, measured: f64, bounds: (f64, f64)) -> Row {
        row(&self.0.id.to_string(), what, reported, measured, bounds)
    }

    /// Returns a row for the mean latency of a curve, of which the paper reports a range.
    fn latency(
        &self,
        (panel, series): (&str, &str),
        reported: &str,
        range: (f64, f64),
        tolerance: f64,
    ) -> Row {
        let what = format!("{series} latency, {panel}");
        let measured = mean(&self.0.values(panel, series));
        let row = self.row(what, reported, measured, around_range(range, tolerance));
        row.along(panel, series, range)
    }

    /// Returns a row for the greatest exposure of a curve, of which the paper reports these bounds.
    fn exposure(&self, place: &str, reported: &str, bounds: (f64, f64)) -> Row {
        let what = format!("greatest exposure, {place}");
        let measured = greatest(&self.0.values("exposure", place));
        self.row(what, reported, measured, bounds).along("exposure", place, bounds)
    }

    fn rows(&self) -> Vec<Row> {
        match self.0.id {
            FigureId::Paper(11) => self.binary_trees(),
            FigureId::Paper(12) => self.random(),
            FigureId::Paper(13) => self.transit_stub(),
            FigureId::Paper(14) => self.srm(),
            FigureId::Paper(15) => self.pgm(),
            FigureId::Paper(16) => self.repeated(),
            _ => Vec::new(),
        }
    }

    fn binary_trees(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (n, latency) in self.0.values(SOURCE, "average").into_iter().enumerate() {
            let height = n + 3;
            let what = format!("average latency, {SOURCE}, height {height}");
            let row = self.row(what, "about 1.0 at every height", latency, around(1.0, 0.1));
            rows.push(row.at(SOURCE, "average", (height as f64, 1.0)));
        }
        let falls = greatest(&steps(&self.0.values(RECEIVERS, "average")));
        let what = format!("average latency over that of one height less, {RECEIVERS}, greatest");
        rows.push(self.row(what, "falls with height", falls, LESS));
        let maxima = self.0.values(RECEIVERS, "maximum");
        let what = format!("maximum latency over that of one height less, {RECEIVERS}, least");
        rows.push(self.row(what, "rises with height", least(&steps(&maxima)), MORE));
        let what = format!("maximum latency, {RECEIVERS}, greatest");
        rows.push(self.row(what, "never reaches 2", greatest(&maxima), up_to(1.999_9)));
        rows.push(self.latency((TREE_LINKS, "average"), "about 1", (1.0, 1.0), ABOUT));
        rows.push(self.exposure(SOURCE, "0", (0.0, 0.0)));
        for place in [RECEIVERS, TREE_LINKS] {
            rows.push(self.exposure(place, "under 15 %", up_to(0.15)));
            let exposure = self.0.values("exposure", place);
            let what = format!("exposure over that of one height less, {place}, greatest");
            rows.push(self.row(what, "falls with height", greatest(&steps(&exposure)), LESS));
        }
        rows
    }

    fn random(&self) -> Vec<Row> {
        let about = |curve, reported, value| self.latency(curve, reported, (value, value), ABOUT);
        let mut rows = vec![
            self.latency((SOURCE, "average"), "0.3 to 0.4", (0.3, 0.4), ABOUT),
            about((RECEIVERS, "average"), "about 0.5", 0.5),
            about((LINKS, "average"), "about 0.6", 0.6),
            about((SOURCE, "maximum"), "about 1", 1.0),
            about((RECEIVERS, "maximum"), "about 1.25", 1.25),
            about((LINKS, "maximum"), "about 1.25", 1.25),
            self.exposure(SOURCE, "0", (0.0, 0.0)),
            self.exposure(RECEIVERS, "under 3 %", up_to(0.03)),
            self.exposure(LINKS, "under 1 %", up_to(0.01)),
        ];
        let of = |receivers: u32| mean(&self.0.values(SPARSE, &format!("{receivers} receivers")));
        for (more, fewer) in [(20, 5), (100, 20)] {
            let what = format!("latency with {more} receivers over that with {fewer}");
            rows.push(self.row(what, "falls", of(more) / of(fewer), LESS));
        }
        rows
    }

    fn transit_stub(&self) -> Vec<Row> {
        let [high, middle, low] = ["transit–transit", "transit–stub", "stub–stub"]
            .map(|class| format!("loss at {class} links"));
        let peak = |place: &str| greatest(&self.0.values("exposure", place));
        let average = |place: &str| mean(&self.0.values(place, "average"));
        let mut rows = vec![
            self.latency((LINKS, "average"), "about 0.5", (0.5, 0.5), ABOUT),
            self.row(
                format!("average latency, {high} over {LINKS}"),
                "a little more",
                average(&high) / average(LINKS),
                (MORE.0, 1.3),
            ),
            self.row(format!("greatest exposure, {low}"), "low", peak(&low), up_to(0.05)),
        ];
        for place in [&high, &middle] {
            let row = self.exposure(place, "peaks of 15 to 20 %", PEAKS);
            rows.push(row.along("exposure", place, (0.15, 0.2)));
            let what = format!("greatest exposure, {place} over {low}");
            rows.push(self.row(what, "more", peak(place) / peak(&low), MORE));
        }
        rows
    }

    fn srm(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for place in [SOURCE, RECEIVERS, LINKS] {
            rows.push(self.latency((place, "average"), "about 2", (2.0, 2.0), ABOUT));
        }
        rows.push(self.latency((LINKS, "maximum"), "about 4", (4.0, 4.0), 0.3));
        rows.push(self.latency((LINKS, "minimum"), "about 1", (1.0, 1.0), 0.3));
        let counts = |what: &str| mean(&self.0.values(&format!("{what} for each loss"), LINKS));
        let requests = counts("requests");
        let what = format!("requests for each loss, {LINKS}");
        rows.push(self.row(what, "low", requests, up_to(2.0)));
        let (repairs, bounds) = (counts("repairs"), around_range((4.0, 6.0), ABOUT));
        let what = format!("repairs for each loss, {LINKS}");
        let row = self.row(what, "4 to 6", repairs, bounds);
        rows.push(row.along("repairs for each loss", LINKS, (4.0, 6.0)));
        rows
    }

    fn pgm(&self) -> Vec<Row> {
        vec![
            self.latency((SOURCE, "average"), "0.8", (0.8, 0.8), 0.15),
            self.latency((RECEIVERS, "average"), "about 1.0", (1.0, 1.0), 0.05),
            self.latency((LINKS, "average"), "about 0.9", (0.9, 0.9), 0.15),
        ]
    }

    fn repeated(&self) -> Vec<Row> {
        let of = |curve: &str, sum_up: fn(&[f64]) -> f64| sum_up(&self.0.values("", curve));
        let what = "repeated retransmissions for each loss";
        vec![
            self.row(
                format!("{what}, no wait, mean of the graphs"),
                "up to 9 to 13",
                of("no wait", mean),
                around_range((9.0, 13.0), ABOUT),
            ),
            self.row(
                format!("{what}, no wait, greatest"),
                "up to 9 to 13",
                of("no wait", greatest),
                around_range((9.0, 13.0), ABOUT),
            )
            .along("", "no wait", (9.0, 13.0)),
            self.row(
                format!("{what}, wait at the source, greatest"),
                "gone",
                of("wait of an RTT", greatest),
                (0.0, 0.0),
            ),
        ]
    }
}

/// Returns the rows of Table I, which sums up the figures about random graphs.
fn table_1(figures: &[Figure]) -> Vec<Row> {
    let find = |number| figures.iter().find(|figure| figure.id == FigureId::Paper(number));
    let (Some(lms), Some(srm), Some(pgm)) = (find(12), find(14), find(15)) else {
        return Vec::new();
    };
    let latencies = |figure: &Figure| {
        [SOURCE, RECEIVERS, LINKS].map(|place| mean(&figure.values(place, "average")))
    };
    let [lms_latency, srm_latency, pgm_latency] = [lms, srm, pgm].map(latencies);
    let table = |what: &str, reported: &str, measured, bounds| {
        row("Table I", what, reported, measured, bounds)
    };
    let repeats = |row: Row| row.unjudged("it sums up rows of Figures 12, 14 and 15");
    let share = around_range((0.3, 0.6), ABOUT);
    let mut rows = vec![
        repeats(table("LMS, least average latency", "30 to 60 %", least(&lms_latency), share)),
        repeats(table(
            "LMS, greatest average latency",
            "30 to 60 %",
            greatest(&lms_latency),
            share,
        )),
        table(
            "LMS, average exposure, loss at links between routers",
            "0.5 %",
            mean(&lms.values("exposure", LINKS)),
            around(0.005, ABOUT),
        ),
        repeats(table(
            "SRM, average latency",
            "over 200 %",
            mean(&srm_latency),
            (2.0 * 0.8, MORE.1),
        )),
    ];
    for (what, value) in [("least", least(&pgm_latency)), ("greatest", greatest(&pgm_latency))] {
        let what = format!("PGM, {what} average latency");
        let bounds = around_range((0.8, 1.0), 0.15);
        rows.push(repeats(table(&what, "80 to 100 %", value, bounds)));
    }
    let [l, s, p] = [lms_latency, srm_latency, pgm_latency].map(|all| mean(&all));
    rows.push(table("LMS over PGM, average latency", "less", l / p, LESS));
    rows.push(table("PGM over SRM, average latency", "less", p / s, LESS));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Verdict;
    use crate::output::testing;

    /// A name, and curves with names and values.
    type Given<'a> = (&'a str, &'a [(&'a str, &'a [f64])]);

    /// Creates a figure with points at 0, 1, and so on.
    fn figure(number: u32, panels: &[Given<'_>]) -> Figure {
        let curve = |&(name, values): &(&str, &[f64])| {
            testing::curve(name, (0..).map(f64::from).zip(values.iter().copied()))
        };
        let panels =
            panels.iter().map(|&(title, curves)| (title, curves.iter().map(curve).collect()));
        testing::figure(number, panels)
    }

    fn verdicts(figures: &[Figure]) -> Vec<Verdict> {
        rows(figures).iter().map(Row::verdict).collect()
    }

    #[test]
    fn the_papers_own_numbers_pass_and_others_miss() {
        let paper = figure(
            15,
            &[
                (SOURCE, &[("average", &[0.7, 0.9])]),
                (RECEIVERS, &[("average", &[1.0, 1.0])]),
                (LINKS, &[("average", &[0.9, 0.9])]),
            ],
        );
        assert_eq!(verdicts(&[paper]), [Verdict::Ok; 3]);
        let other = figure(15, &[(SOURCE, &[("average", &[1.4, 1.2])])]);
        assert_eq!(verdicts(&[other]), [Verdict::Miss; 3]);
    }

    #[test]
    fn a_curve_that_rises_once_does_not_fall() {
        let of = |exposure: &[f64]| {
            let curves: &[(&str, &[f64])] = &[(TREE_LINKS, exposure)];
            let rows = rows(&[figure(11, &[("exposure", curves)])]);
            let found = rows.iter().find(|row| {
                row.what == format!("exposure over that of one height less, {TREE_LINKS}, greatest")
            });
            found.unwrap().verdict()
        };
        assert_eq!(of(&[0.1, 0.08, 0.05]), Verdict::Ok);
        assert_eq!(of(&[0.1, 0.05, 0.08]), Verdict::Miss);
    }

    #[test]
    fn what_was_not_run_is_a_miss() {
        for number in 11..=16 {
            let rows = rows(&[figure(number, &[])]);
            assert!(!rows.is_empty(), "{number}");
            assert!(rows.iter().all(|row| row.verdict() == Verdict::Miss), "{number}");
        }
    }
}
