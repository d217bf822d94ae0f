//! The search for the records of an archive, which continues after a damaged one.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use memchr::memmem::Finder;

use super::arc;
use super::archive::{Archive, Tape};
use super::header::Format;
use super::inflate::{GZIP, Member, Packing, ZSTD, skip_frame};
use super::record::{self, Counted, Parsed, Problem, Response, Revisit};
use crate::origin::{SkipReason, Skipped};

/// What one archive has.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) responses: Vec<Response>,
    pub(super) revisits: Vec<Revisit>,
    pub(super) skipped: Skipped,
}

/// Reads the whole archive.
pub(super) fn run(archive: &Arc<Archive>) -> io::Result<Reading> {
    let mut scanner = Scanner { archive, format: Format::Warc, reading: Reading::default() };
    match archive.packing()? {
        Packing::Plain => scanner.plain()?,
        Packing::Gzip | Packing::Zstd => scanner.members()?,
    }
    Ok(scanner.reading)
}

struct Scanner<'a> {
    archive: &'a Arc<Archive>,
    format: Format,
    reading: Reading,
}

impl Scanner<'_> {
    fn plain(&mut self) -> io::Result<()> {
        let mut input = Counted::new(self.archive.tape(0), 0);
        loop {
            let start = input.offset();
            match record::read(&mut input, None, &mut self.format) {
                Ok(Parsed::End) => return Ok(()),
                Ok(parsed) => self.take(parsed, start),
                Err(problem) => {
                    self.skip(problem, start)?;
                    let Some(next) = self.next_record(start + 1)? else { return Ok(()) };
                    input = Counted::new(self.archive.tape(next), next);
                }
            }
        }
    }

    fn members(&mut self) -> io::Result<()> {
        let mut start = 0;
        while !self.archive.tape(start).fill_buf()?.is_empty() {
            if let Some(next) = skip_frame(self.archive, start)? {
                start = next;
                continue;
            }
            let mut records = Vec::new();
            match self.member(start, &mut records) {
                Ok(next) => {
                    for parsed in records {
                        self.take(parsed, start);
                    }
                    start = next;
                }
                Err(problem) => {
                    // No record of a member is valid before its checksum is verified.
                    let uri = records.into_iter().find_map(Parsed::into_uri);
                    self.skip(problem.with_uri(uri), start)?;
                    let Some(next) = self.next_member(start + 1)? else { return Ok(()) };
                    start = next;
                }
            }
        }
        Ok(())
    }

    /// Reads a member to its end. Returns the offset of the next one.
    fn member(&mut self, start: u64, records: &mut Vec<Parsed>) -> Result<u64, Problem> {
        let mut input = Counted::new(Member::open(self.archive, start)?, 0);
        loop {
            match record::read(&mut input, Some(start), &mut self.format)? {
                Parsed::End => return Ok(input.reader.end()),
                Parsed::Other => {}
                parsed => records.push(parsed),
            }
        }
    }

    fn take(&mut self, parsed: Parsed, start: u64) {
        match parsed {
            Parsed::Response(response) => self.reading.responses.push(response),
            Parsed::Damaged(what, uri) => self.leave_out(what, uri, start),
            Parsed::Revisit(revisit) => self.reading.revisits.push(revisit),
            Parsed::Other | Parsed::End => {}
        }
    }

    fn skip(&mut self, problem: Problem, start: u64) -> io::Result<()> {
        match problem {
            Problem::Io(error) => return Err(error),
            Problem::Corrupt(what, uri) => self.leave_out(what, uri, start),
        }
        Ok(())
    }

    fn leave_out(&mut self, what: &str, uri: Option<String>, start: u64) {
        let name = match uri {
            Some(uri) => format!("{uri} (at byte {start})"),
            None => format!("record at byte {start}"),
        };
        self.reading.skipped.add(name, SkipReason::Corrupt(what.to_owned()));
    }

    /// Returns the offset of the next line, at or after `from`, that begins like a record.
    fn next_record(&self, from: u64) -> io::Result<Option<u64>> {
        if self.format == Format::Arc {
            return self.next_document(from);
        }
        let line = find(self.archive.tape(from), &Finder::new(b"\nWARC/"), |_| Ok(true))?;
        Ok(line.map(|at| at + 1))
    }

    /// Returns the offset of the next line of an ARC file, after the one at `from`, that begins a
    /// document.
    fn next_document(&self, from: u64) -> io::Result<Option<u64>> {
        let mut tape = self.archive.tape(from);
        let mut line = Vec::new();
        let mut begins = false;
        loop {
            let start = tape.offset();
            line.clear();
            if (&mut tape).take(arc::MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            if begins && arc::Line::parse(&line).is_some() {
                return Ok(Some(start));
            }
            begins = line.ends_with(b"\n");
        }
    }

    /// Returns the offset of the next member, at or after `from`, that begins with a record.
    fn next_member(&self, from: u64) -> io::Result<Option<u64>> {
        let first = if self.archive.packing()? == Packing::Zstd { ZSTD } else { GZIP };
        find(self.archive.tape(from), &Finder::new(first), |at| {
            let mut start = Vec::new();
            let member = Member::open(self.archive, at);
            match member.and_then(|member| member.take(arc::MAX_LINE).read_until(b'\n', &mut start))
            {
                Ok(_) => {
                    Ok(start.starts_with(record::RECORD) || arc::Line::parse(&start).is_some())
                }
                Err(error) => match Problem::from(error) {
                    Problem::Io(error) => Err(error),
                    Problem::Corrupt(..) => Ok(false),
                },
            }
        })
    }
}

/// Returns the first offset at which `finder` matches and `accept` returns true.
fn find(
    mut tape: Tape,
    finder: &Finder<'_>,
    accept: impl Fn(u64) -> io::Result<bool>,
) -> io::Result<Option<u64>> {
    let overlap = finder.needle().len() - 1;
    let mut window: Vec<u8> = Vec::new();
    loop {
        let start = tape.offset() - window.len() as u64;
        let piece = tape.fill_buf()?;
        let len = piece.len();
        if len == 0 {
            return Ok(None);
        }
        window.extend_from_slice(piece);
        tape.consume(len);
        for at in finder.find_iter(&window) {
            if accept(start + at as u64)? {
                return Ok(Some(start + at as u64));
            }
        }
        window.drain(..window.len().saturating_sub(overlap));
    }
}
