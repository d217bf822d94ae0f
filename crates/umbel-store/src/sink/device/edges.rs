//! Pages that several blocks or symbols share. Of a page that is written in part the system would
//! read the rest first, and a disk would be slow with that. So the parts wait for each other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4_096;
/// Most pages that wait.
const MOST: usize = 1_024;

/// Pages of which some bytes are known, by their places.
#[derive(Debug, Default)]
pub(super) struct Edges(BTreeMap<u64, Edge>);

#[derive(Debug)]
struct Edge {
    bytes: Vec<u8>,
    /// Whether each byte is known.
    known: Vec<bool>,
}

impl Edge {
    fn nothing() -> Edge {
        Edge { bytes: vec![0; PAGE as usize], known: vec![false; PAGE as usize] }
    }
}

impl Edges {
    /// Writes whole pages to a file, and keeps the others until they are whole, or flushed.
    pub(super) fn write(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        let first = offset.next_multiple_of(PAGE).min(end);
        let last = (end / PAGE * PAGE).max(first);
        let part = |range: Range<u64>| {
            &bytes[(range.start - offset) as usize..(range.end - offset) as usize]
        };
        self.keep(file, part(offset..first), offset)?;
        if first < last {
            while let Some((&page, _)) = self.0.range(first..last).next() {
                self.0.remove(&page);
            }
            file.write_all_at(part(first..last), first)?;
        }
        self.keep(file, part(last..end), last)
    }

    /// Writes all that was kept.
    pub(super) fn flush(&mut self, file: &File) -> io::Result<()> {
        while let Some((page, Edge { bytes, known })) = self.0.pop_first() {
            let mut at = 0;
            for run in known.chunk_by(|a, b| a == b) {
                let end = at + run.len();
                if run[0] {
                    file.write_all_at(&bytes[at..end], page + at as u64)?;
                }
                at = end;
            }
        }
        Ok(())
    }

    /// Keeps bytes of one page.
    fn keep(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let page = offset / PAGE * PAGE;
        let edge = self.0.entry(page).or_insert_with(Edge::nothing);
        let place = (offset - page) as usize..(offset - page) as usize + bytes.len();
        edge.bytes[place.clone()].copy_from_slice(bytes);
        edge.known[place].fill(true);
        if edge.known.iter().all(|known| *known) {
            file.write_all_at(&edge.bytes, page)?;
            self.0.remove(&page);
        }
        if self.0.len() > MOST { self.flush(file) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_written_when_its_parts_are_there() {
        let file = tempfile::tempfile().unwrap();
        let mut edges = Edges::default();
        edges.write(&file, &[1; 5_000], 0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4_096);
        edges.write(&file, &[2; 5_000], 5_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8_192);
        assert_eq!(edges.0.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_anywhere_and_often_is_there_in_the_end(
            writes in proptest::collection::vec((0..20_000_u64, 0..10_000_usize), 1..30),
        ) {
            let file = tempfile::tempfile().unwrap();
            let mut model = vec![0xff; 30_000];
            file.write_all_at(&model, 0).unwrap();
            let mut edges = Edges::default();
            for (number, (offset, len)) in writes.into_iter().enumerate() {
                let bytes = vec![number as u8; len];
                edges.write(&file, &bytes, offset).unwrap();
                model[offset as usize..offset as usize + len].copy_from_slice(&bytes);
                if number % 7 == 6 {
                    edges.flush(&file).unwrap();
                }
            }
            edges.flush(&file).unwrap();
            let mut content = vec![0; 30_000];
            file.read_exact_at(&mut content, 0).unwrap();
            proptest::prop_assert!(content == model);
        }
    }
}
