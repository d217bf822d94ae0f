//! Tables of results as Parquet files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::table::{Column, Table};
use crate::trace::{TraceError, create};

/// Writes a table, compressed with Snappy. Whole numbers are 64 bits wide, numbers doubles that may
/// be missing, texts UTF-8.
pub(super) fn write(table: &Table, path: &Path) -> Result<(), TraceError> {
    let file = create(path)?;
    fill(table, file).map_err(|source| TraceError::Parquet { path: path.to_owned(), source })
}

fn fill(table: &Table, file: File) -> Result<(), ParquetError> {
    let kind = |(name, column): &(String, Column)| {
        // Names of swept keys have dots, which separate the parts of a path there.
        let name = name.replace('.', "_");
        match column {
            Column::Integers(_) => format!("required int64 {name};\n"),
            Column::Numbers(_) => format!("optional double {name};\n"),
            Column::Texts(_) => format!("required binary {name} (UTF8);\n"),
        }
    };
    let columns: String = table.columns.iter().map(kind).collect();
    let schema = parse_message_type(&format!("message umbel_{} {{\n{columns}}}", table.name))?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, column) in &table.columns {
        let Some(mut out) = group.next_column()? else { break };
        match column {
            Column::Integers(values) => {
                let number = |value: &u64| i64::try_from(*value).unwrap_or(i64::MAX);
                let values: Vec<i64> = values.iter().map(number).collect();
                out.typed::<Int64Type>().write_batch(&values, None, None)?
            }
            Column::Numbers(values) => {
                let present: Vec<i16> = values.iter().map(|x| i16::from(x.is_some())).collect();
                let values: Vec<f64> = values.iter().flatten().copied().collect();
                out.typed::<DoubleType>().write_batch(&values, Some(&present), None)?
            }
            Column::Texts(values) => {
                let text = |text: &String| ByteArray::from(text.as_bytes().to_vec());
                let values: Vec<ByteArray> = values.iter().map(text).collect();
                out.typed::<ByteArrayType>().write_batch(&values, None, None)?
            }
        };
        out.close()?;
    }
    group.close()?;
    writer.close().map(|_| ())
}
