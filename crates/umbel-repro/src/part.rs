//! Parts of a paper's report that can be requested alone, as the command line names them.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The parts of a paper's report besides the paper's figures.
pub trait Extra: Copy + Ord + Send + Sync + 'static {
    /// Numbers of the paper's figures.
    const FIGURES: RangeInclusive<u32>;
    /// Those among them that are drawings, and have nothing to measure.
    const DRAWINGS: &'static [u32] = &[];
    /// The other parts with their names.
    const NAMED: &'static [(Self, &'static str)];
    /// Those of them that take so long that they run only if they are named.
    const COSTLY: &'static [Self] = &[];
}

/// A part of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part<X> {
    /// A figure of the paper, by its number there.
    Figure(u32),
    /// Another part.
    Extra(X),
}

/// Error of parsing the name of a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no part of the report: one of {names}, or a figure from {first} to {last}")]
pub struct PartError {
    text: String,
    first: u32,
    last: u32,
    names: String,
}

/// Returns whether the paper has a figure of this number with something to measure.
fn is_figure<X: Extra>(number: u32) -> bool {
    X::FIGURES.contains(&number) && !X::DRAWINGS.contains(&number)
}

impl<X: Extra> FromStr for Part<X> {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Part<X>, PartError> {
        if let Some((extra, _)) = X::NAMED.iter().find(|(_, name)| *name == text) {
            return Ok(Part::Extra(*extra));
        }
        let number = text.parse().ok().filter(|number| is_figure::<X>(*number));
        number.map(Part::Figure).ok_or_else(|| {
            let names: Vec<&str> = X::NAMED.iter().map(|(_, name)| *name).collect();
            let names = names.join(", ");
            let (first, last) = (*X::FIGURES.start(), *X::FIGURES.end());
            PartError { text: text.to_owned(), first, last, names }
        })
    }
}

impl<X: Extra> fmt::Display for Part<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Figure(number) => number.fmt(f),
            Part::Extra(extra) => {
                let named = X::NAMED.iter().find(|(known, _)| known == extra);
                f.write_str(named.map_or("", |(_, name)| name))
            }
        }
    }
}

/// The requested parts; all but the costly ones if none is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts<X>(BTreeSet<Part<X>>);

impl<X> Default for Parts<X> {
    /// Returns all parts but the costly ones.
    fn default() -> Parts<X> {
        Parts(BTreeSet::new())
    }
}

impl<X: Extra> FromIterator<Part<X>> for Parts<X> {
    fn from_iter<I: IntoIterator<Item = Part<X>>>(parts: I) -> Parts<X> {
        Parts(parts.into_iter().collect())
    }
}

impl<X: Extra, const N: usize> From<[Part<X>; N]> for Parts<X> {
    fn from(parts: [Part<X>; N]) -> Parts<X> {
        parts.into_iter().collect()
    }
}

impl<X: Extra> Parts<X> {
    /// Returns whether this part is requested.
    pub fn has(&self, part: Part<X>) -> bool {
        let is_costly = X::COSTLY.iter().any(|extra| part == Part::Extra(*extra));
        self.0.contains(&part) || self.0.is_empty() && !is_costly
    }

    /// Returns whether this part, which is not a figure, is requested.
    pub fn has_extra(&self, extra: X) -> bool {
        self.has(Part::Extra(extra))
    }

    /// Returns the requested figures of the paper.
    pub fn figures(&self) -> Vec<u32> {
        let figures = X::FIGURES.filter(|number| is_figure::<X>(*number));
        figures.filter(|number| self.has(Part::Figure(*number))).collect()
    }

    /// Returns the options that name the parts; none for all parts.
    pub fn settings(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|part| ("--figure".to_owned(), part.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Other {
        Example,
        Beyond,
        Crowd,
    }

    impl Extra for Other {
        const FIGURES: RangeInclusive<u32> = 3..=11;
        const NAMED: &'static [(Other, &'static str)] =
            &[(Other::Example, "example"), (Other::Beyond, "beyond"), (Other::Crowd, "crowd")];
        const COSTLY: &'static [Other] = &[Other::Crowd];
    }

    #[test]
    fn parts_are_read_as_they_are_written() {
        for part in [
            Part::Figure(3),
            Part::Figure(11),
            Part::Extra(Other::Example),
            Part::Extra(Other::Beyond),
        ] {
            assert_eq!(part.to_string().parse(), Ok(part));
        }
        for wrong in ["2", "12", "all", ""] {
            let error = wrong.parse::<Part<Other>>().unwrap_err().to_string();
            assert!(
                error.ends_with("one of example, beyond, crowd, or a figure from 3 to 11"),
                "{error}"
            );
        }
    }

    #[test]
    fn none_named_means_all_but_the_costly() {
        let all = Parts::<Other>::default();
        assert!(all.has(Part::Figure(7)) && all.has_extra(Other::Beyond));
        assert!(!all.has_extra(Other::Crowd));
        assert!(Parts::from([Part::Extra(Other::Crowd)]).has_extra(Other::Crowd));
        assert_eq!(all.figures().len(), 9);
        assert_eq!(all.settings().count(), 0);
        let some = Parts::from([Part::Extra(Other::Beyond), Part::Figure(4)]);
        assert!(!some.has(Part::Figure(7)) && some.has_extra(Other::Beyond));
        assert_eq!(some.figures(), [4]);
        let settings: Vec<(String, String)> = some.settings().collect();
        let options = [("--figure", "4"), ("--figure", "beyond")];
        assert_eq!(settings, options.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
