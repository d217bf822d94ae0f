//! Parquet read back.

use std::fs::File;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::Field;

use super::tables::parse_csv;
use super::*;

/// Returns the rows of a Parquet file as texts.
fn parse_parquet(path: &Path) -> Vec<Vec<Option<String>>> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let fields = reader.metadata().file_metadata().schema().get_fields();
    let names = fields.iter().map(|field| Some(field.name().to_owned())).collect();
    let mut rows = vec![names];
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

#[test]
fn csv_and_parquet_have_the_same_rows() {
    let directory = tempfile::tempdir().unwrap();
    let csv = parse_csv(&String::from_utf8(written(directory.path(), "run.csv")).unwrap());
    written(directory.path(), "run.parquet");
    let parquet = parse_parquet(&directory.path().join("run.parquet"));
    assert_eq!(csv.len(), 1 + 18);
    assert_eq!(csv, parquet);
}

#[test]
fn a_parquet_file_of_several_row_groups_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("long.parquet");
    let mut tracer = open(&path, &network()).unwrap();
    let runs = 8_000;
    for _ in 0..runs {
        tell(&mut *tracer);
    }
    tracer.finish(END).unwrap();
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.metadata().num_row_groups(), 2);
    assert_eq!(reader.metadata().file_metadata().num_rows(), runs * 18);
}
