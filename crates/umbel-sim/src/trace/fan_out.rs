//! Several tracers at once.

use std::any::Any;

use umbel_engine::Instant;

use super::{MembershipRecord, MessageRecord, NoteRecord, PacketRecord, TraceError, Tracer};

/// Forwards each report to several tracers, in the order in which they were added.
#[derive(Default)]
pub struct FanOut {
    tracers: Vec<Box<dyn Tracer>>,
}

impl FanOut {
    /// Creates a fan-out without tracers.
    pub fn new() -> FanOut {
        FanOut::default()
    }

    /// Adds a tracer.
    pub fn add(&mut self, tracer: Box<dyn Tracer>) {
        self.tracers.push(tracer);
    }

    /// Returns the first tracer that is a `T`, for its result.
    pub fn get<T: Tracer>(&self) -> Option<&T> {
        self.tracers.iter().find_map(|tracer| {
            let tracer: &dyn Any = &**tracer;
            tracer.downcast_ref()
        })
    }
}

impl std::fmt::Debug for FanOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FanOut of {} tracers", self.tracers.len())
    }
}

impl Tracer for FanOut {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        self.tracers.iter_mut().for_each(|tracer| tracer.packet(record));
    }

    fn note(&mut self, record: &NoteRecord<'_>) {
        self.tracers.iter_mut().for_each(|tracer| tracer.note(record));
    }

    fn message(&mut self, record: &MessageRecord<'_>) {
        self.tracers.iter_mut().for_each(|tracer| tracer.message(record));
    }

    fn membership(&mut self, record: &MembershipRecord) {
        self.tracers.iter_mut().for_each(|tracer| tracer.membership(record));
    }

    fn failed(&self) -> bool {
        self.tracers.iter().any(|tracer| tracer.failed())
    }

    /// Ends all tracers, and returns the first error.
    fn finish(&mut self, end: Instant) -> Result<(), TraceError> {
        let results = self.tracers.iter_mut().map(|tracer| tracer.finish(end));
        results.fold(Ok(()), Result::and)
    }
}
