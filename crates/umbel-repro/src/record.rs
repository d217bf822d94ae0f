//! Outcomes of runs as rows of a table, and back again to the last digit.

use umbel_engine::load::ProcessingLoad;
use umbel_engine::smo::{SourceStats, Traffic};

/// The cells of a row that were not read yet.
pub type Cells<'a> = std::slice::Iter<'a, String>;

/// Measurements of a run, as cells of a row.
pub trait Record: Sized {
    /// Returns the names of the columns.
    fn columns() -> Vec<String>;

    /// Appends a cell for each column.
    fn write(&self, cells: &mut Vec<String>);

    /// Reads what [`write`](Record::write) wrote; `None` if these are other cells.
    fn read(cells: &mut Cells<'_>) -> Option<Self>;
}

/// A value in a single cell.
pub(crate) trait Cell: Sized {
    fn text(&self) -> String;

    fn parse(text: &str) -> Option<Self>;
}

/// Implements [`Cell`] for types whose texts read back exactly. A number that is none is `NaN`, an
/// infinite one `inf`.
macro_rules! plain {
    ($($type:ty),+) => {
        $(impl Cell for $type {
            fn text(&self) -> String {
                self.to_string()
            }

            fn parse(text: &str) -> Option<$type> {
                text.parse().ok()
            }
        })+
    };
}

plain!(bool, f64, u8, u32, u64, usize);

/// Writes the elements with spaces between them.
impl<T: Cell> Cell for Vec<T> {
    fn text(&self) -> String {
        self.iter().map(Cell::text).collect::<Vec<String>>().join(" ")
    }

    fn parse(text: &str) -> Option<Vec<T>> {
        text.split_whitespace().map(T::parse).collect()
    }
}

/// Writes the elements with colons between them.
impl<T: Cell, const N: usize> Cell for [T; N] {
    fn text(&self) -> String {
        self.each_ref().map(Cell::text).join(":")
    }

    fn parse(text: &str) -> Option<[T; N]> {
        let all: Option<Vec<T>> = text.split(':').map(T::parse).collect();
        all?.try_into().ok()
    }
}

impl<A: Cell, B: Cell> Cell for (A, B) {
    fn text(&self) -> String {
        [self.0.text(), self.1.text()].join(":")
    }

    fn parse(text: &str) -> Option<(A, B)> {
        let (a, b) = text.split_once(':')?;
        Some((A::parse(a)?, B::parse(b)?))
    }
}

impl<A: Cell, B: Cell, C: Cell> Cell for (A, B, C) {
    fn text(&self) -> String {
        [self.0.text(), self.1.text(), self.2.text()].join(":")
    }

    fn parse(text: &str) -> Option<(A, B, C)> {
        let [a, b, c] = text.split(':').collect::<Vec<&str>>().try_into().ok()?;
        Some((A::parse(a)?, B::parse(b)?, C::parse(c)?))
    }
}

/// Writes empty cells for nothing.
impl<T: Record> Record for Option<T> {
    fn columns() -> Vec<String> {
        T::columns()
    }

    fn write(&self, cells: &mut Vec<String>) {
        match self {
            Some(record) => record.write(cells),
            None => cells.extend(T::columns().iter().map(|_| String::new())),
        }
    }

    fn read(cells: &mut Cells<'_>) -> Option<Option<T>> {
        let width = T::columns().len();
        let own = cells.as_slice().get(..width)?;
        if own.iter().all(String::is_empty) {
            *cells = cells.as_slice()[width..].iter();
            return Some(None);
        }
        T::read(cells).map(Some)
    }
}

/// Implements [`Record`] for a struct, with a column for each field. Fields after `with` have their
/// own columns, whose names begin with the field's.
macro_rules! record {
    ($type:ty { $($field:ident),* $(,)? } $(with { $($nested:ident: $nested_type:ty),+ $(,)? })?) => {
        impl $crate::record::Record for $type {
            fn columns() -> Vec<String> {
                let columns = [$(stringify!($field).to_owned()),*].into_iter();
                $($(
                    let nested = <$nested_type as $crate::record::Record>::columns();
                    let named = |name| format!(concat!(stringify!($nested), "_{}"), name);
                    let columns = columns.chain(nested.into_iter().map(named));
                )+)?
                columns.collect()
            }

            fn write(&self, cells: &mut Vec<String>) {
                $(cells.push($crate::record::Cell::text(&self.$field));)*
                $($($crate::record::Record::write(&self.$nested, cells);)+)?
            }

            fn read(cells: &mut $crate::record::Cells<'_>) -> Option<Self> {
                Some(Self {
                    $($field: $crate::record::Cell::parse(cells.next()?)?,)*
                    $($($nested: $crate::record::Record::read(cells)?,)+)?
                })
            }
        }
    };
}
pub(crate) use record;

record!(ProcessingLoad { acks, nacks, timers, retransmissions });
record!(Traffic { segments, bytes });
record!(SourceStats {
    connected, acknowledged_bytes, segments, control, timeouts, loss_events
} with {
    multicast: Traffic, multicast_again: Traffic, unicast: Traffic, unicast_again: Traffic
});

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Sample {
        delay: f64,
        rates: Vec<f64>,
        levels: Vec<(f64, u8)>,
        worst: [f64; 3],
        all: bool,
        load: ProcessingLoad,
        tree: Option<Traffic>,
    }

    record!(Sample { delay, rates, levels, worst, all } with {
        load: ProcessingLoad, tree: Option<Traffic>
    });

    #[test]
    fn what_is_written_reads_back_to_the_last_digit() {
        let load = ProcessingLoad { acks: 1, nacks: 2, timers: 3, retransmissions: u64::MAX };
        let sample = Sample {
            delay: 1.0 / 3.0,
            rates: vec![0.1 + 0.2, f64::INFINITY, 1e-300, -0.0],
            levels: vec![(1.5, 1), (2.25, 2)],
            worst: [0.0, 5e300, f64::MIN_POSITIVE],
            all: true,
            load,
            tree: Some(Traffic { segments: 7, bytes: 0 }),
        };
        let bare = Sample { rates: Vec::new(), levels: Vec::new(), tree: None, ..sample.clone() };
        for sample in [sample, bare] {
            let mut cells = Vec::new();
            sample.write(&mut cells);
            assert_eq!(cells.len(), Sample::columns().len());
            let mut rest = cells.iter();
            assert_eq!(Sample::read(&mut rest), Some(sample));
            assert_eq!(rest.len(), 0);
            assert_eq!(Sample::read(&mut cells[1..].iter()), None);
        }
        assert_eq!(Sample::columns()[5..7], ["load_acks", "load_nacks"]);
        assert!(f64::parse(&f64::NAN.text()).unwrap().is_nan());
    }
}
