//! Traces of runs.
//!
//! A [`Simulation`](crate::Simulation) reports to a [`Tracer`] every packet at every link, session
//! messages, joins and leaves, and the [`Note`]s that applications write. The tracers are:
//!
//! - [`PcapTracer`]: captured packets, for Wireshark.
//! - [`CsvTracer`]: a table with a row for each event ([`columns`]).
//! - [`HtmlTracer`]: a page that plays a small run.
//! - [`SummaryTracer`]: counts by kind, flow, link and node.
//! - [`HashTracer`]: one number that is equal for equal runs.
//! - [`FanOut`]: several tracers at once.
//!
//! [`open`] creates the tracer for the name of a file. The content of a file does not depend on the
//! machine or the day: equal runs produce equal files.

use std::any::Any;
use std::path::Path;

use umbel_engine::Instant;

use crate::network::Network;

pub mod columns;
mod csv;
mod error;
mod fan_out;
mod hash;
mod html;
mod output;
pub mod pcap;
mod record;
pub mod summary;

pub(crate) use self::output::create;
pub use csv::CsvTracer;
pub use error::TraceError;
pub use fan_out::FanOut;
pub use hash::HashTracer;
pub use html::HtmlTracer;
pub use pcap::{PcapFormat, PcapTracer};
pub use record::{
    ChannelParts, Hop, MembershipRecord, MessageRecord, Note, NoteRecord, PacketRecord,
};
pub use summary::{Summary, SummaryTracer};

/// Receives all events of a run, in the order of time.
pub trait Tracer: Any + Send {
    /// Called when a packet crossed a link, or failed to.
    fn packet(&mut self, record: &PacketRecord<'_>);

    /// Called when an application wrote a note into the trace.
    fn note(&mut self, record: &NoteRecord<'_>);

    /// Called when a message was sent on a session.
    fn message(&mut self, _record: &MessageRecord<'_>) {}

    /// Called when a host joined or left a channel.
    fn membership(&mut self, _record: &MembershipRecord) {}

    /// Returns whether the trace could not be written. If so, nothing more is written, and
    /// [`finish`](Tracer::finish) returns the error.
    fn failed(&self) -> bool {
        false
    }

    /// Ends the trace at the time that the run reached, and writes the data that is still held. No
    /// event is reported afterwards.
    ///
    /// # Errors
    ///
    /// Returns the first error in writing, now or earlier.
    fn finish(&mut self, _end: Instant) -> Result<(), TraceError> {
        Ok(())
    }
}

/// Creates the tracer for a file by its extension: `.pcapng`, `.pcap`, `.csv`, `.html`.
///
/// # Errors
///
/// Returns an error if there is no tracer for the extension, or if the file cannot be created.
pub fn open(path: &Path, network: &Network) -> Result<Box<dyn Tracer>, TraceError> {
    let extension = path.extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
    Ok(match extension.as_deref() {
        Some("pcapng") => Box::new(PcapTracer::create(path, PcapFormat::PcapNg, network)?),
        Some("pcap") => Box::new(PcapTracer::create(path, PcapFormat::Pcap, network)?),
        Some("csv") => Box::new(CsvTracer::create(path, network)?),
        Some("html") => Box::new(HtmlTracer::create(path, network)?),
        _ => return Err(TraceError::Extension(path.to_owned())),
    })
}

#[cfg(test)]
mod tests;
