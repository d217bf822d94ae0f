//! Tables of results: a row for each receiver, loss or link.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::trace::{TraceError, create};

/// Values of a column, one for each row.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Whole numbers.
    Integers(Vec<u64>),
    /// Numbers; `None` where there was nothing to measure.
    Numbers(Vec<Option<f64>>),
    /// Texts.
    Texts(Vec<String>),
}

impl Column {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        match self {
            Column::Integers(values) => values.len(),
            Column::Numbers(values) => values.len(),
            Column::Texts(values) => values.len(),
        }
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a value as text that reads back as the same value; empty for none.
    pub fn text(&self, row: usize) -> String {
        match self {
            Column::Integers(values) => values[row].to_string(),
            Column::Numbers(values) => values[row].map(|x| x.to_string()).unwrap_or_default(),
            Column::Texts(values) => values[row].clone(),
        }
    }
}

/// Table with a name. All columns have the same length.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Name, which is that of its file.
    pub name: &'static str,
    /// Columns with their names.
    pub columns: Vec<(String, Column)>,
}

impl Table {
    /// Creates a table of columns with their names.
    pub fn new(name: &'static str, columns: Vec<(&str, Column)>) -> Table {
        let columns = columns.into_iter().map(|(name, column)| (name.to_owned(), column));
        Table { name, columns: columns.collect() }
    }

    /// Puts columns before the others that have the same value in each row: names and texts, and
    /// the seed.
    #[must_use]
    pub fn of_run(mut self, keys: &[(String, String)], seed: u64) -> Table {
        let rows = self.rows();
        let text = |(name, text): &(String, String)| {
            (name.clone(), Column::Texts(vec![text.clone(); rows]))
        };
        let seed = ("seed".to_owned(), Column::Integers(vec![seed; rows]));
        self.columns.splice(0..0, keys.iter().map(text).chain([seed])).for_each(drop);
        self
    }

    /// Adds the rows of a table with the same columns.
    pub fn append(&mut self, other: Table) {
        for ((_, mine), (_, theirs)) in self.columns.iter_mut().zip(other.columns) {
            match (mine, theirs) {
                (Column::Integers(mine), Column::Integers(theirs)) => mine.extend(theirs),
                (Column::Numbers(mine), Column::Numbers(theirs)) => mine.extend(theirs),
                (Column::Texts(mine), Column::Texts(theirs)) => mine.extend(theirs),
                _ => {}
            }
        }
    }

    /// Writes the table as [`Table::write_csv`] does to a file of its name in a directory.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), TraceError> {
        let path = dir.join(self.name).with_extension("csv");
        let mut file = BufWriter::new(create(&path)?);
        self.write_csv(&mut file)
            .and_then(|()| file.flush())
            .map_err(|source| TraceError::Write { path, source })
    }

    /// Returns a column by its name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(column, _)| *column == name).map(|(_, column)| column)
    }

    /// Returns the numbers of a column, without those that are missing; empty for texts.
    pub fn numbers(&self, name: &str) -> Vec<f64> {
        match self.column(name) {
            Some(Column::Integers(values)) => values.iter().map(|value| *value as f64).collect(),
            Some(Column::Numbers(values)) => values.iter().flatten().copied().collect(),
            Some(Column::Texts(_)) | None => Vec::new(),
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// Writes the table as comma-separated values [RFC 4180], below a line with the names. A
    /// missing value is empty.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(out, "{}", names.join(","))?;
        for row in 0..self.rows() {
            for (index, (_, column)) in self.columns.iter().enumerate() {
                let separator = if index > 0 { "," } else { "" };
                write!(out, "{separator}{}", quoted(&column.text(row)))?;
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Quotes a text that would otherwise be read as more than one value.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_written_as_it_reads_back() {
        let table = Table::new(
            "x",
            vec![
                ("who", Column::Texts(vec!["a,b".to_owned(), "c \"d\"".to_owned()])),
                ("n", Column::Integers(vec![1, u64::MAX])),
                ("share", Column::Numbers(vec![Some(0.1), None])),
            ],
        );
        let mut csv = Vec::new();
        table.write_csv(&mut csv).unwrap();
        let expected = "who,n,share\n\"a,b\",1,0.1\n\"c \"\"d\"\"\",18446744073709551615,\n";
        assert_eq!(String::from_utf8(csv).unwrap(), expected);
        assert_eq!((table.rows(), table.numbers("share")), (2, vec![0.1]));
        assert_eq!(table.column("none"), None);
    }

    #[test]
    fn tables_of_runs_are_joined() {
        let table = |n| Table::new("x", vec![("n", Column::Integers(vec![n, n + 1]))]);
        let keys = |loss: &str| vec![("loss".to_owned(), loss.to_owned())];
        let mut joined = table(1).of_run(&keys("1%"), 7);
        joined.append(table(5).of_run(&keys("2%"), 8));
        let mut csv = Vec::new();
        joined.write_csv(&mut csv).unwrap();
        let expected = "loss,seed,n\n1%,7,1\n1%,7,2\n2%,8,5\n2%,8,6\n";
        assert_eq!(String::from_utf8(csv).unwrap(), expected);
    }

    #[test]
    fn a_table_has_a_file_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::new(
            "x",
            vec![
                ("n", Column::Integers(vec![3, 4])),
                ("x", Column::Numbers(vec![None, Some(0.5)])),
                ("who", Column::Texts(vec!["a".to_owned(), "b".to_owned()])),
            ],
        );
        table.write(folder.path()).unwrap();
        let written = std::fs::read_to_string(folder.path().join("x.csv")).unwrap();
        assert_eq!(written, "n,x,who\n3,,a\n4,0.5,b\n");
        assert!(table.write(&folder.path().join("no")).is_err());
    }
}
