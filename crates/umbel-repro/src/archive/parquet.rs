//! Runs as Parquet files, beside those of comma-separated values.

use std::path::PathBuf;

use umbel_sim::scenario::report::{Column, Table};

use super::{Archive, ArchiveError, Use};
use crate::output::csv;

impl Archive {
    /// Writes each file of runs as Parquet, too. Columns whose cells are all whole numbers have
    /// that type, those whose cells are numbers or empty are doubles, the others texts.
    ///
    /// Where nothing runs nothing is written.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written.
    #[allow(clippy::disallowed_methods, reason = "runs are kept here")]
    pub fn write_parquet(&self) -> Result<(), ArchiveError> {
        if self.to == Use::Redraw {
            return Ok(());
        }
        let kinds: Vec<&str> = self.sheets().keys().copied().collect();
        for path in kinds.into_iter().map(|kind| self.path(kind)).filter(|path| path.exists()) {
            let text = std::fs::read_to_string(&path)
                .map_err(|source| ArchiveError::Read { path: path.clone(), source })?;
            let to: PathBuf = path.with_extension("parquet");
            table(&text).write(&to)?;
        }
        Ok(())
    }
}

/// Returns the table of a file of runs.
fn table(text: &str) -> Table {
    // The first line says where the runs come from.
    let mut lines = text.lines().skip(1).filter_map(csv::fields);
    let names = lines.next().unwrap_or_default();
    let rows: Vec<Vec<String>> = lines.filter(|row| row.len() == names.len()).collect();
    let column = |n: usize| {
        let cells = || rows.iter().map(|row| row[n].as_str());
        let integers: Option<Vec<u64>> = cells().map(|cell| cell.parse().ok()).collect();
        let numbers: Option<Vec<Option<f64>>> = cells()
            .map(|cell| match cell {
                "" => Some(None),
                cell => cell.parse().ok().map(Some),
            })
            .collect();
        match (integers, numbers) {
            (Some(integers), _) => Column::Integers(integers),
            (None, Some(numbers)) => Column::Numbers(numbers),
            (None, None) => Column::Texts(cells().map(str::to_owned).collect()),
        }
    };
    let columns = names.iter().enumerate().map(|(n, name)| (name.as_str(), column(n)));
    Table::new("runs", columns.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_type_of_their_cells() {
        let text = "# runs of x, program y, options none\nexperiment,seed,delay,all\n\
                    \"A { n: 1, m: 2 }\",1,0.5,true\nB,2,,false\n";
        let table = table(text);
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["experiment", "seed", "delay", "all"]);
        assert_eq!(table.column("seed"), Some(&Column::Integers(vec![1, 2])));
        assert_eq!(table.column("delay"), Some(&Column::Numbers(vec![Some(0.5), None])));
        let texts = ["A { n: 1, m: 2 }", "B"].map(str::to_owned);
        assert_eq!(table.column("experiment"), Some(&Column::Texts(texts.into())));
        assert!(matches!(table.column("all"), Some(Column::Texts(_))));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.parquet");
        table.write(&path).unwrap();
        assert!(std::fs::read(path).unwrap().starts_with(b"PAR1"));
    }
}
