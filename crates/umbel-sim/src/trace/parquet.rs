//! Table of a run as a Parquet file.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use umbel_engine::Instant;

use super::columns::{self, COLUMNS, Cell, ColumnType, Row};
use super::output::create;
use super::{MembershipRecord, MessageRecord, NoteRecord, PacketRecord, TraceError, Tracer};
use crate::network::Network;

/// Number of rows that are gathered before they are written together: up to some 20 MB of memory.
const ROW_GROUP: usize = 1 << 17;

/// Writes the same rows as [`CsvTracer`](super::CsvTracer), typed and compressed with Snappy, in a
/// tenth of the size. Integers are 64 bits wide, numbers doubles, texts UTF-8. Every column may be
/// empty except `time_ns`, `event`, `node` and `node_name`.
///
/// The file can be read only after [`finish`](Tracer::finish).
pub struct ParquetTracer {
    network: Network,
    path: PathBuf,
    writer: Option<SerializedFileWriter<File>>,
    columns: Vec<Column>,
    rows: usize,
    error: Option<ParquetError>,
}

/// Values of a column that are not written yet.
struct Column {
    values: Values,
    /// For each row 1 if it has a value, 0 if it is empty.
    present: Vec<i16>,
    required: bool,
}

enum Values {
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
    Texts(Vec<ByteArray>),
}

impl ParquetTracer {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be created or written.
    pub fn create(path: &Path, network: &Network) -> Result<ParquetTracer, TraceError> {
        let file = create(path)?;
        let writer =
            writer(file).map_err(|source| TraceError::Parquet { path: path.to_owned(), source })?;
        Ok(ParquetTracer {
            network: network.clone(),
            path: path.to_owned(),
            writer: Some(writer),
            columns: COLUMNS.iter().map(|&(name, kind)| Column::new(name, kind)).collect(),
            rows: 0,
            error: None,
        })
    }

    fn end_row(&mut self) {
        self.rows += 1;
        if self.rows == ROW_GROUP {
            self.write_rows();
        }
    }

    /// Writes the gathered rows.
    fn write_rows(&mut self) {
        if self.rows == 0 {
            return;
        }
        if let Some(writer) = &mut self.writer
            && let Err(error) = write_group(writer, &self.columns)
        {
            // A file without some rows in its middle is useless, so it is given up.
            self.writer = None;
            self.error = Some(error);
        }
        self.columns.iter_mut().for_each(Column::clear);
        self.rows = 0;
    }
}

impl std::fmt::Debug for ParquetTracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetTracer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Tracer for ParquetTracer {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        add(&mut self.columns, &columns::packet(&self.network, record));
        self.end_row();
    }

    fn note(&mut self, record: &NoteRecord<'_>) {
        add(&mut self.columns, &columns::note(&self.network, record));
        self.end_row();
    }

    fn message(&mut self, record: &MessageRecord<'_>) {
        add(&mut self.columns, &columns::message(&self.network, record));
        self.end_row();
    }

    fn membership(&mut self, record: &MembershipRecord) {
        add(&mut self.columns, &columns::membership(&self.network, record));
        self.end_row();
    }

    fn failed(&self) -> bool {
        self.error.is_some()
    }

    fn finish(&mut self, _end: Instant) -> Result<(), TraceError> {
        self.write_rows();
        let closed = match (self.error.take(), self.writer.take()) {
            (Some(error), _) => Err(error),
            (None, Some(writer)) => writer.close().map(|_| ()),
            (None, None) => Ok(()),
        };
        closed.map_err(|source| TraceError::Parquet { path: self.path.clone(), source })
    }
}

/// Creates the writer and begins the file.
fn writer(file: File) -> Result<SerializedFileWriter<File>, ParquetError> {
    let mut schema = String::from("message umbel_trace {\n");
    for (name, kind) in COLUMNS {
        let presence = if is_required(name) { "required" } else { "optional" };
        let kind = match kind {
            ColumnType::Integer => format!("int64 {name}"),
            ColumnType::Number => format!("double {name}"),
            ColumnType::Text => format!("binary {name} (UTF8)"),
        };
        let _ = writeln!(schema, "{presence} {kind};");
    }
    schema.push('}');
    let schema = Arc::new(parse_message_type(&schema)?);
    let mut properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    // Numbers that only grow are small as differences, but would each be new to a dictionary.
    for name in ["time_ns", "packet", "arrives_ns"] {
        properties = properties
            .set_column_dictionary_enabled(name.into(), false)
            .set_column_encoding(name.into(), Encoding::DELTA_BINARY_PACKED);
    }
    SerializedFileWriter::new(file, schema, Arc::new(properties.build()))
}

fn is_required(column: &str) -> bool {
    matches!(column, "time_ns" | "event" | "node" | "node_name")
}

fn add(columns: &mut [Column], row: &Row<'_>) {
    for (column, cell) in columns.iter_mut().zip(row) {
        column.add(cell);
    }
}

fn write_group(
    writer: &mut SerializedFileWriter<File>,
    columns: &[Column],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut out) = group.next_column()? else { break };
        let present = (!column.required).then_some(&column.present[..]);
        match &column.values {
            Values::Integers(values) => {
                out.typed::<Int64Type>().write_batch(values, present, None)?
            }
            Values::Numbers(values) => {
                out.typed::<DoubleType>().write_batch(values, present, None)?
            }
            Values::Texts(values) => {
                out.typed::<ByteArrayType>().write_batch(values, present, None)?
            }
        };
        out.close()?;
    }
    group.close().map(|_| ())
}

impl Column {
    fn new(name: &str, kind: ColumnType) -> Column {
        let values = match kind {
            ColumnType::Integer => Values::Integers(Vec::new()),
            ColumnType::Number => Values::Numbers(Vec::new()),
            ColumnType::Text => Values::Texts(Vec::new()),
        };
        Column { values, present: Vec::new(), required: is_required(name) }
    }

    /// Adds a value of the column's own type, or none.
    fn add(&mut self, cell: &Cell<'_>) {
        let present = match (&mut self.values, cell) {
            (Values::Integers(values), Cell::Integer(value)) => {
                values.push(i64::try_from(*value).unwrap_or(i64::MAX));
                true
            }
            (Values::Numbers(values), Cell::Number(value)) => {
                values.push(*value);
                true
            }
            (Values::Texts(values), Cell::Text(text)) => {
                values.push(ByteArray::from(text.as_bytes().to_vec()));
                true
            }
            _ => false,
        };
        self.present.push(i16::from(present));
    }

    fn clear(&mut self) {
        match &mut self.values {
            Values::Integers(values) => values.clear(),
            Values::Numbers(values) => values.clear(),
            Values::Texts(values) => values.clear(),
        }
        self.present.clear();
    }
}
