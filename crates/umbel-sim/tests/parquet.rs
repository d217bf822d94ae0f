//! What a run writes as Parquet, read back: the same as its comma-separated values.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use umbel_sim::scenario::Scenario;
use umbel_sim::scenario::report::Report;
use umbel_sim::trace::{FanOut, open};

/// Sixty clients that lose packets, so that each column of a trace and of results is used.
const SCENARIO: &str = r#"
duration = "2h"
topology = { generator = "star", receivers = 60, access = { down = { loss = "5%" } } }

[repository]
rate = "140k"
items = 40
item_packets = 60

[[repository.clients]]
hosts = ["h*"]
want = 20
every = "1s"
"#;

/// Runs the scenario with a trace in each of the formats.
fn run(traces: &[&Path]) -> Report {
    let scenario = Scenario::from_toml(SCENARIO, Path::new(".")).unwrap();
    let mut run = scenario.start(1).unwrap();
    let mut all = FanOut::new();
    for path in traces {
        all.add(open(path, run.simulation().network()).unwrap());
    }
    run.set_tracer(Box::new(all));
    while run.go_on(Duration::from_hours(1)) {}
    run.finish_trace().unwrap();
    run.report()
}

/// Returns each row of a CSV file. No cell of these has a comma or a quotation mark.
fn csv_rows(text: &str) -> Vec<Vec<Option<String>>> {
    let cell = |cell: &str| (!cell.is_empty()).then(|| cell.to_owned());
    text.lines().map(|line| line.split(',').map(cell).collect()).collect()
}

/// Returns the names of the columns and each row of a Parquet file, as texts.
fn parquet_rows(reader: &SerializedFileReader<File>) -> Vec<Vec<Option<String>>> {
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let mut rows = vec![fields.iter().map(|field| Some(field.name().to_owned())).collect()];
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let cells = row.get_column_iter().map(|(_, field)| match field {
            Field::Null => None,
            Field::Long(value) => Some(value.to_string()),
            Field::Double(value) => Some(value.to_string()),
            Field::Str(text) => Some(text.clone()),
            other => panic!("{other:?}"),
        });
        rows.push(cells.collect());
    }
    rows
}

fn reader(path: &Path) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(path).unwrap()).unwrap()
}

#[test]
fn a_trace_of_several_row_groups_has_the_rows_of_that_in_csv() {
    let folder = tempfile::tempdir().unwrap();
    let [csv, parquet] = ["run.csv", "run.parquet"].map(|name| folder.path().join(name));
    run(&[&csv, &parquet]);
    let expected = csv_rows(&std::fs::read_to_string(csv).unwrap());
    let reader = reader(&parquet);
    assert!(reader.metadata().num_row_groups() > 1, "{} rows", expected.len());
    let rows = parquet_rows(&reader);
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected);
    }
}

#[test]
fn a_table_of_results_has_the_rows_of_that_in_csv() {
    let folder = tempfile::tempdir().unwrap();
    let report = run(&[]);
    assert!(!report.results.tables.is_empty());
    for table in &report.results.tables {
        let path = folder.path().join(table.name).with_extension("parquet");
        table.write(&path).unwrap();
        let mut csv = Vec::new();
        table.write_csv(&mut csv).unwrap();
        let rows = parquet_rows(&reader(&path));
        assert_eq!(rows.len(), 1 + table.rows());
        assert_eq!(rows, csv_rows(&String::from_utf8(csv).unwrap()), "{}", table.name);
    }
}
