//! Bytes on their way from the library to the engine: read as fast as there is room for them.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use umbel_engine::host::Io;
use umbel_engine::smo::{Source, SourceCommand, SourceCommandError, Stream};

use super::library::{Library, Reading};

/// Most and fewest bytes read at once, and bytes that were read for all who do not take them.
const CHUNK: usize = 256 << 10;
const LEAST: usize = 16 << 10;
const WAITING: usize = 32 << 20;

type Machine<'a> = dyn Io<Source> + 'a;

/// Bytes that go from a reading to a stream.
#[derive(Debug)]
struct Delivery {
    to: Stream,
    /// Bytes of the document that are still to be read. A pipe has no end before it ends.
    left: Range<u64>,
    /// Whether the library is reading.
    asked: bool,
    /// Bytes that were read, but found no room.
    waiting: Option<Bytes>,
}

/// Progress of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more.
    Goes,
    /// All bytes are in the engine.
    Done(Stream),
    /// The document ended early, so that what was promised cannot be kept.
    Broken(Stream),
    /// Nobody takes the bytes any more.
    Unwanted(Stream),
}

/// All deliveries.
#[derive(Debug)]
pub(crate) struct Deliveries {
    /// Bytes read at once.
    chunk: usize,
    open: BTreeMap<Reading, Delivery>,
    readings: BTreeMap<Stream, Reading>,
}

impl Deliveries {
    /// Creates the deliveries to an engine whose streams hold this number of bytes.
    pub(crate) fn new(buffer: usize) -> Deliveries {
        // The engine has room for a quarter when it says that there is room again.
        let chunk = CHUNK.min(buffer / 4).max(1);
        Deliveries { chunk, open: BTreeMap::new(), readings: BTreeMap::new() }
    }

    /// Begins a delivery of these bytes of a document; up to `u64::MAX` is until the end.
    pub(crate) fn begin(
        &mut self,
        library: &mut dyn Library,
        reading: Reading,
        to: Stream,
        bytes: Range<u64>,
    ) {
        self.readings.insert(to, reading);
        let delivery = Delivery { to, left: bytes, asked: false, waiting: None };
        self.open.insert(reading, delivery);
        self.ask(library, reading);
    }

    /// Goes on with the stream that has room again.
    pub(crate) fn writable(
        &mut self,
        io: &mut Machine<'_>,
        library: &mut dyn Library,
        to: Stream,
    ) -> Progress {
        let Some(&reading) = self.readings.get(&to) else { return Progress::Goes };
        let waiting = self.open.get_mut(&reading).and_then(|delivery| delivery.waiting.take());
        if let Some(bytes) = waiting {
            return self.write(io, library, reading, bytes);
        }
        self.ask(library, reading);
        Progress::Goes
    }

    /// Takes bytes that were read; none at the end.
    pub(crate) fn read(
        &mut self,
        io: &mut Machine<'_>,
        library: &mut dyn Library,
        reading: Reading,
        bytes: Bytes,
    ) -> Progress {
        // The receivers may have left meanwhile.
        let Some(delivery) = self.open.get_mut(&reading) else { return Progress::Goes };
        delivery.asked = false;
        if !bytes.is_empty() {
            delivery.left.start += bytes.len() as u64;
            return self.write(io, library, reading, bytes);
        }
        let (to, promised) = (delivery.to, delivery.left.end != u64::MAX);
        self.end(library, to);
        if promised { Progress::Broken(to) } else { Progress::Done(to) }
    }

    /// Goes on reading after a gap.
    pub(crate) fn read_again(&mut self, library: &mut dyn Library, reading: Reading) {
        if let Some(delivery) = self.open.get_mut(&reading) {
            delivery.asked = false;
            self.ask(library, reading);
        }
    }

    /// Ends the delivery to a stream, if there is one.
    pub(crate) fn end(&mut self, library: &mut dyn Library, to: Stream) {
        if let Some(reading) = self.readings.remove(&to) {
            self.open.remove(&reading);
            library.close(reading);
        }
    }

    /// Returns the reading that is delivered to a stream.
    pub(crate) fn reading(&self, to: Stream) -> Option<Reading> {
        self.readings.get(&to).copied()
    }

    /// Returns the stream to which a reading is delivered.
    pub(crate) fn stream(&self, reading: Reading) -> Option<Stream> {
        self.open.get(&reading).map(|delivery| delivery.to)
    }

    fn write(
        &mut self,
        io: &mut Machine<'_>,
        library: &mut dyn Library,
        reading: Reading,
        bytes: Bytes,
    ) -> Progress {
        let Some(delivery) = self.open.get_mut(&reading) else { return Progress::Goes };
        let to = delivery.to;
        match io.command(SourceCommand::Write { to, bytes: bytes.clone() }) {
            Ok(()) => {}
            Err(SourceCommandError::Full { .. }) => {
                delivery.waiting = Some(bytes);
                return Progress::Goes;
            }
            Err(_) => {
                self.end(library, to);
                return Progress::Unwanted(to);
            }
        }
        if delivery.left.is_empty() {
            self.end(library, to);
            return Progress::Done(to);
        }
        self.ask(library, reading);
        Progress::Goes
    }

    /// Asks the library for the next bytes.
    fn ask(&mut self, library: &mut dyn Library, reading: Reading) {
        let readings = self.open.len().max(1);
        let Some(delivery) = self.open.get_mut(&reading) else { return };
        let left = usize::try_from(delivery.left.end - delivery.left.start).unwrap_or(usize::MAX);
        let share = (WAITING / readings).clamp(LEAST, CHUNK);
        let len = left.min(self.chunk).min(share);
        if len > 0 && !delivery.asked && delivery.waiting.is_none() {
            delivery.asked = true;
            library.read(reading, delivery.left.start, len);
        }
    }
}
