//! Numbers of a paper beside the measured ones, and verdicts on them.

use std::fmt;

use umbel_sim::statistics::{t_quantile, t_tail};

use super::{Band, Mark};

/// A number that the paper reports, beside the measured one.
///
/// A statement of the paper about an order is a row, too: a ratio or a difference, with the bound
/// that the order implies.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the figure ([`FigureId`](super::FigureId)'s), or of the section.
    pub figure: String,
    /// The measured quantity.
    pub what: String,
    /// The paper's words or number.
    pub reported: String,
    /// The measured number; NaN, a miss, if nothing could be measured.
    pub measured: f64,
    /// The unit of `measured`, `low` and `high`; empty for a plain number.
    pub unit: &'static str,
    /// The least number that agrees with the paper; `-∞` for no bound.
    pub low: f64,
    /// The greatest number that agrees with the paper; `∞` for no bound.
    pub high: f64,
    /// Claim of the text.
    pub kind: Kind,
    /// Certainty of the measured number.
    pub certainty: Certainty,
    /// Reason why nothing can be concluded from the number, so that it is not judged.
    pub remark: Option<&'static str>,
    /// Reason why another run may measure quite another number, so that it is undecided.
    pub doubt: Option<&'static str>,
    /// The reported value as a point of a curve of the figure, with the name of its panel.
    pub place: Option<(String, Mark)>,
    /// The reported range of a whole curve of the figure, with the name of its panel.
    pub range: Option<(String, Band)>,
}

/// Claim of a text about a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// That it has a value, about.
    Near,
    /// That it is more, or less, than something.
    Order,
    /// That two things, whose quotient it is, are the same. Not to find a difference shows nothing.
    /// So both of "it is less by more than the margin" and "it is more" are to be refuted at 5 %
    /// each [Schuirmann, "A comparison of the two one-sided tests procedure", 1987].
    Same {
        /// Greatest difference from 1 that still counts as the same.
        margin: f64,
        /// Reason for the margin.
        why: &'static str,
    },
}

/// Certainty of a measured number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Certainty {
    /// It is computed, not estimated.
    Exact,
    /// Infinitely many runs have a number that differs by so many standard errors as Student's t
    /// distribution has it.
    Estimated {
        /// The standard error.
        error: f64,
        /// Degrees of freedom of the distribution.
        freedom: usize,
    },
    /// There were too few runs to tell: fewer than five of an experiment that it rests on.
    Unknown,
}

/// Whether a measured number agrees with the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval of the number lies within the bounds.
    Ok,
    /// The whole interval lies outside, or nothing was measured.
    Miss,
    /// A bound lies within the interval, or there were too few runs to know it.
    Undecided,
    /// The number is not judged ([`Row::remark`]).
    Remark,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Ok => "ok",
            Verdict::Miss => "miss",
            Verdict::Undecided => "undecided",
            Verdict::Remark => "remark",
        })
    }
}

impl Row {
    /// Creates a row from an exact number with its unit, and the bounds between which it should
    /// lie.
    pub fn new(
        figure: impl fmt::Display,
        what: impl Into<String>,
        reported: impl Into<String>,
        (measured, unit): (f64, &'static str),
        (low, high): (f64, f64),
    ) -> Row {
        let (what, reported) = (what.into(), reported.into());
        let figure = figure.to_string();
        let (kind, certainty) = (Kind::of(low, high), Certainty::Exact);
        let (remark, doubt, place, range) = (None, None, None, None);
        Row {
            figure,
            what,
            reported,
            measured,
            unit,
            low,
            high,
            kind,
            certainty,
            remark,
            doubt,
            place,
            range,
        }
    }

    /// Sets the place of the reported value in the figure: panel, curve and point.
    #[must_use]
    pub fn at(self, panel: &str, series: &str, (x, y): (f64, f64)) -> Row {
        let (series, reported) = (series.to_owned(), self.reported.clone());
        Row { place: Some((panel.to_owned(), Mark { series, x, y, reported })), ..self }
    }

    /// Sets the curve of the figure that has reported values all along: panel, curve and range.
    #[must_use]
    pub fn along(self, panel: &str, series: &str, (low, high): (f64, f64)) -> Row {
        let (series, reported) = (series.to_owned(), self.reported.clone());
        let band = Band { series, low, high, reported };
        Row { range: Some((panel.to_owned(), band)), ..self }
    }

    /// Makes a row that is not judged, with the reason: it could not fail, or repeats another.
    #[must_use]
    pub fn unjudged(self, why: &'static str) -> Row {
        Row { remark: Some(why), ..self }
    }

    /// Makes a row that claims that two things are the same. Their quotient, which is measured, is
    /// 1 within a margin, for which there is a reason.
    #[must_use]
    pub fn same(self, margin: f64, why: &'static str) -> Row {
        let (low, high) = (1.0 - margin, 1.0 + margin);
        Row { low, high, kind: Kind::Same { margin, why }, ..self }
    }

    /// Returns whether the measured number lies within the bounds, limits included, as far as its
    /// certainty allows to say so.
    pub fn verdict(&self) -> Verdict {
        let (least, greatest) = self.interval();
        if self.remark.is_some() {
            Verdict::Remark
        } else if self.measured.is_nan() {
            Verdict::Miss
        } else if self.doubt.is_some() {
            Verdict::Undecided
        } else if self.agrees(least) && self.agrees(greatest) {
            Verdict::Ok
        } else if self.certainty == Certainty::Exact || greatest < self.low || least > self.high {
            Verdict::Miss
        } else {
            Verdict::Undecided
        }
    }

    /// Returns whether the measured number lies within the bounds, however sure it is.
    pub(crate) fn is_within(&self) -> bool {
        self.agrees(self.measured)
    }

    fn agrees(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns the ends of the interval that decides; NaN if they are unknown. The number of
    /// infinitely many runs lies in it with 95 % probability, or 90 % if both sides of it are
    /// tested, as of [`Kind::Same`].
    pub fn interval(&self) -> (f64, f64) {
        let half = match self.certainty {
            Certainty::Exact => 0.0,
            Certainty::Estimated { error, freedom } => {
                t_quantile(self.kind.tail(), freedom) * error
            }
            Certainty::Unknown => f64::NAN,
        };
        (self.measured - half, self.measured + half)
    }

    /// Returns the probability of a number that lies as far within the bounds as the measured one,
    /// or further, if the true number lay outside. It is the greater one of two one-sided tests.
    /// NaN if the row is not judged, not estimated, or in doubt.
    pub fn p(&self) -> f64 {
        match self.certainty {
            _ if self.remark.is_some() || self.doubt.is_some() || self.measured.is_nan() => {
                f64::NAN
            }
            Certainty::Exact | Certainty::Unknown => f64::NAN,
            Certainty::Estimated { error: 0.0, .. } => {
                f64::from(u8::from(!self.agrees(self.measured)))
            }
            Certainty::Estimated { error, freedom } => {
                let sides = [self.measured - self.low, self.high - self.measured];
                sides.map(|inside| t_tail(inside / error, freedom)).into_iter().fold(0.0, f64::max)
            }
        }
    }

    /// Returns the reason of the margin, of the doubt, or of not being judged.
    pub(super) fn why(&self) -> Option<&'static str> {
        let margin = match self.kind {
            Kind::Same { why, .. } => Some(why),
            Kind::Near | Kind::Order => None,
        };
        self.remark.or(self.doubt).or(margin)
    }
}

impl Kind {
    /// Returns what a text with these bounds claims.
    fn of(low: f64, high: f64) -> Kind {
        if low.is_infinite() ^ high.is_infinite() { Kind::Order } else { Kind::Near }
    }

    /// Returns the probability that a number lies above the interval that decides.
    fn tail(self) -> f64 {
        match self {
            Kind::Near | Kind::Order => 0.025,
            Kind::Same { .. } => 0.05,
        }
    }

    /// Returns the name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Near => "near",
            Kind::Order => "order",
            Kind::Same { .. } => "same",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotient(measured: f64, error: f64) -> Row {
        let certainty = Certainty::Estimated { error, freedom: 4 };
        Row { certainty, ..Row::new(1, "a over b", "equal", (measured, ""), (0.95, 1.05)) }
    }

    #[test]
    fn what_is_the_same_is_tested_from_both_sides_at_5_percent() {
        // Half of the interval of 90 % is 2.13 times the error, of that of 95 % 2.78 times.
        let near = quotient(1.0, 0.02);
        let same = near.clone().same(0.05, "the curves' width");
        assert_eq!((near.verdict(), same.verdict()), (Verdict::Undecided, Verdict::Ok));
        assert!(near.p() > 0.025 && near.p() < 0.05, "{}", near.p());
        assert_eq!(near.p().to_bits(), same.p().to_bits());
        assert_eq!(same.why(), Some("the curves' width"));
        let wide = quotient(1.0, 0.1).same(0.05, "");
        assert_eq!(wide.verdict(), Verdict::Undecided, "no difference was found, none was refuted");
        assert_eq!(quotient(1.2, 0.02).same(0.05, "").verdict(), Verdict::Miss);
    }

    #[test]
    fn a_bound_on_one_side_is_an_order_whose_p_is_that_of_one_test() {
        let certainty = Certainty::Estimated { error: 0.1, freedom: 4 };
        let bounds = (f64::NEG_INFINITY, 1.0);
        let row = Row { certainty, ..Row::new(1, "a over b", "less", (0.8, ""), bounds) };
        assert_eq!(row.kind, Kind::Order);
        assert!((row.p() - t_tail(2.0, 4)).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_estimated_has_no_p() {
        let row = Row::new(1, "a", "b", (1.0, ""), (0.0, 2.0));
        assert!(row.p().is_nan() && quotient(f64::NAN, 0.1).p().is_nan());
        assert!(quotient(1.0, 0.1).unjudged("by definition").p().is_nan());
        assert!(Row { doubt: Some("it drifts"), ..quotient(1.0, 0.1) }.p().is_nan());
        let certain = [1.0, 2.0].map(|measured| quotient(measured, 0.0).p());
        assert!(certain[0] < 0.5 && certain[1] > 0.5, "{certain:?}");
    }
}
