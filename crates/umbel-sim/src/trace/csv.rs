//! Table of a run as comma-separated values [RFC 4180].

use std::io::{self, Write};
use std::path::Path;

use umbel_engine::Instant;

use super::columns::{self, COLUMNS, Cell, Row};
use super::output::Output;
use super::{MembershipRecord, MessageRecord, NoteRecord, PacketRecord, TraceError, Tracer};
use crate::network::Network;

/// Writes one line for each event, below a line with the names of the columns.
///
/// Columns and their meaning are those of [`columns`]. Cells that do not apply are empty. Numbers
/// with a fraction are written so that they read back as the same number.
#[derive(Debug)]
pub struct CsvTracer {
    network: Network,
    output: Output,
}

impl CsvTracer {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be created.
    pub fn create(path: &Path, network: &Network) -> Result<CsvTracer, TraceError> {
        let mut output = Output::create(path)?;
        output.write(|file| writeln!(file, "{}", COLUMNS.join(",")));
        Ok(CsvTracer { network: network.clone(), output })
    }
}

impl Tracer for CsvTracer {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        let row = columns::packet(&self.network, record);
        self.output.write(|file| write_row(file, &row));
    }

    fn note(&mut self, record: &NoteRecord<'_>) {
        let row = columns::note(&self.network, record);
        self.output.write(|file| write_row(file, &row));
    }

    fn message(&mut self, record: &MessageRecord<'_>) {
        let row = columns::message(&self.network, record);
        self.output.write(|file| write_row(file, &row));
    }

    fn membership(&mut self, record: &MembershipRecord) {
        let row = columns::membership(&self.network, record);
        self.output.write(|file| write_row(file, &row));
    }

    fn failed(&self) -> bool {
        self.output.failed()
    }

    fn finish(&mut self, _end: Instant) -> Result<(), TraceError> {
        self.output.finish()
    }
}

fn write_row(file: &mut impl Write, row: &Row<'_>) -> io::Result<()> {
    for (index, cell) in row.iter().enumerate() {
        if index > 0 {
            file.write_all(b",")?;
        }
        match cell {
            Cell::Empty => {}
            Cell::Integer(value) => write!(file, "{value}")?,
            Cell::Number(value) => write!(file, "{value}")?,
            Cell::Text(text) => write_text(file, text)?,
        }
    }
    file.write_all(b"\n")
}

/// Quotes a text that would otherwise be read as more than one value. An empty text is quoted too,
/// so that it is not read as no text.
fn write_text(file: &mut impl Write, text: &str) -> io::Result<()> {
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        return file.write_all(text.as_bytes());
    }
    write!(file, "\"{}\"", text.replace('"', "\"\""))
}
