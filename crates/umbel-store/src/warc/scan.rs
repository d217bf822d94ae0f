//! The search for the records of an archive, which continues after a damaged one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Read};
use std::sync::Arc;

use memchr::memmem::Finder;

use super::archive::{Archive, Tape};
use super::content::inflate;
use super::record::{self, Counted, Parsed, Problem, Response};
use crate::origin::{Found, Place, Scan, SkipReason};

/// The first bytes of a `gzip` member with the only defined compression method [RFC 1952 §2.3.1].
const GZIP: &[u8] = &[0x1f, 0x8b, 8];
/// The first bytes of a record.
const RECORD: &[u8] = b"WARC/";

/// Reads the whole archive.
pub(super) fn run(archive: &Arc<Archive>) -> io::Result<Scan> {
    let mut scanner = Scanner {
        archive,
        scan: Scan::default(),
        by_uri: HashMap::new(),
        other_status: HashSet::new(),
        revisits: Vec::new(),
    };
    if archive.tape(0).fill_buf()?.starts_with(GZIP) {
        scanner.members()?;
    } else {
        scanner.plain()?;
    }
    Ok(scanner.finish())
}

struct Scanner<'a> {
    archive: &'a Arc<Archive>,
    scan: Scan,
    /// Index of the item of each URI.
    by_uri: HashMap<String, usize>,
    /// Indices of items whose status is not 200.
    other_status: HashSet<usize>,
    /// URIs of revisits.
    revisits: Vec<String>,
}

impl Scanner<'_> {
    fn plain(&mut self) -> io::Result<()> {
        let mut input = Counted { reader: self.archive.tape(0), position: 0 };
        loop {
            let start = input.position;
            match record::read(&mut input, None) {
                Ok(Parsed::End) => return Ok(()),
                Ok(parsed) => self.take(parsed, start),
                Err(problem) => {
                    self.skip(problem, start)?;
                    let Some(next) = self.next_record(start + 1)? else { return Ok(()) };
                    input = Counted { reader: self.archive.tape(next), position: next };
                }
            }
        }
    }

    fn members(&mut self) -> io::Result<()> {
        let mut start = 0;
        while !self.archive.tape(start).fill_buf()?.is_empty() {
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
    fn member(&self, start: u64, records: &mut Vec<Parsed>) -> Result<u64, Problem> {
        let mut input = Counted { reader: inflate(self.archive.tape(start)), position: 0 };
        loop {
            match record::read(&mut input, Some(start))? {
                Parsed::End => return Ok(input.reader.into_inner().into_inner().offset()),
                Parsed::Other => {}
                parsed => records.push(parsed),
            }
        }
    }

    fn take(&mut self, parsed: Parsed, start: u64) {
        match parsed {
            Parsed::Response(response) => self.add(response),
            Parsed::Damaged(what, uri) => self.leave_out(what, uri, start),
            Parsed::Revisit(uri) => self.revisits.push(uri),
            Parsed::Other | Parsed::End => {}
        }
    }

    /// Adds an item, unless there is a later one of the same URI.
    fn add(&mut self, response: Response) {
        let Response { uri, date_ns, media_type, size, status, record } = response;
        let found = Found {
            name: uri,
            size,
            modified_ns: date_ns,
            mode: None,
            media_type,
            place: Place::Record(Arc::clone(self.archive), record),
        };
        let index = match self.by_uri.entry(found.name.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(self.scan.items.len());
                self.scan.items.push(found);
                self.scan.items.len() - 1
            }
            Entry::Occupied(occupied) => {
                let item = &mut self.scan.items[*occupied.get()];
                self.scan.skipped.add(found.name.clone(), SkipReason::OlderCapture);
                if found.modified_ns < item.modified_ns {
                    return;
                }
                *item = found;
                *occupied.get()
            }
        };
        if status.is_none_or(|status| status == 200) {
            self.other_status.remove(&index);
        } else {
            self.other_status.insert(index);
        }
    }

    fn finish(mut self) -> Scan {
        for uri in self.revisits {
            if !self.by_uri.contains_key(&uri) {
                self.scan.skipped.add(uri, SkipReason::Revisit);
            }
        }
        self.scan.other_status = self.other_status.len() as u64;
        self.scan
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
        self.scan.skipped.add(name, SkipReason::Corrupt(what.to_owned()));
    }

    /// Returns the offset of the next line, at or after `from`, that begins like a record.
    fn next_record(&self, from: u64) -> io::Result<Option<u64>> {
        let finder = Finder::new(b"\nWARC/");
        Ok(find(self.archive.tape(from), &finder, |_| Ok(true))?.map(|at| at + 1))
    }

    /// Returns the offset of the next member, at or after `from`, that begins with a record.
    fn next_member(&self, from: u64) -> io::Result<Option<u64>> {
        find(self.archive.tape(from), &Finder::new(GZIP), |at| {
            let mut first = [0; RECORD.len()];
            match inflate(self.archive.tape(at)).read_exact(&mut first) {
                Ok(()) => Ok(first == RECORD),
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
