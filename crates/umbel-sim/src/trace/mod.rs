//! What a run tells about itself.
//!
//! A [`Simulation`](crate::Simulation) tells a [`Tracer`] of every packet at every link, of
//! session messages, of joins and leaves, and of the [`Note`]s that applications write. Here are
//! the tracers:
//!
//! - [`PcapTracer`]: captured packets, for Wireshark.
//! - [`CsvTracer`], and `ParquetTracer` with the feature `parquet`: a table with a row for each
//!   thing that happened ([`columns`]).
//! - [`HtmlTracer`]: a page that plays a small run.
//! - [`SummaryTracer`]: counts by kind, flow, link and node.
//! - [`HashTracer`]: one number that two runs have in common if they are the same.
//! - [`FanOut`]: several at once.
//!
//! [`open`] makes the one that the name of a file asks for. What a file says does not depend on the
//! machine or the day: equal runs give equal files.

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
#[cfg(feature = "parquet")]
mod parquet;
pub mod pcap;
mod record;
pub mod summary;

pub use csv::CsvTracer;
pub use error::TraceError;
pub use fan_out::FanOut;
pub use hash::HashTracer;
pub use html::HtmlTracer;
#[cfg(feature = "parquet")]
pub use parquet::ParquetTracer;
pub use pcap::{PcapFormat, PcapTracer};
pub use record::{
    ChannelParts, Hop, MembershipRecord, MessageRecord, Note, NoteRecord, PacketRecord,
};
pub use summary::{Summary, SummaryTracer};

/// Is told everything that happens in a run, in the order of time.
pub trait Tracer: Any + Send {
    /// A packet crossed a link, or did not.
    fn packet(&mut self, record: &PacketRecord<'_>);

    /// An application wrote something into the trace.
    fn note(&mut self, record: &NoteRecord<'_>);

    /// A message was sent on a session.
    fn message(&mut self, _record: &MessageRecord<'_>) {}

    /// A host joined or left a channel.
    fn membership(&mut self, _record: &MembershipRecord) {}

    /// Whether the trace could not be written: nothing more is written, and
    /// [`finish`](Tracer::finish) will say why.
    fn failed(&self) -> bool {
        false
    }

    /// Ends the trace at the time that the run reached, and writes what is still held. Nothing is
    /// told any more after it.
    ///
    /// # Errors
    ///
    /// The first reason why something could not be written, now or earlier.
    fn finish(&mut self, _end: Instant) -> Result<(), TraceError> {
        Ok(())
    }
}

/// The tracer for a file, chosen by its extension: `.pcapng`, `.pcap`, `.csv`, `.parquet`,
/// `.html`.
///
/// # Errors
///
/// When there is no tracer for the extension, or the file cannot be created. `.parquet` needs the
/// feature `parquet`.
pub fn open(path: &Path, network: &Network) -> Result<Box<dyn Tracer>, TraceError> {
    let extension = path.extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
    Ok(match extension.as_deref() {
        Some("pcapng") => Box::new(PcapTracer::create(path, PcapFormat::PcapNg, network)?),
        Some("pcap") => Box::new(PcapTracer::create(path, PcapFormat::Pcap, network)?),
        Some("csv") => Box::new(CsvTracer::create(path, network)?),
        #[cfg(feature = "parquet")]
        Some("parquet") => Box::new(ParquetTracer::create(path, network)?),
        #[cfg(not(feature = "parquet"))]
        Some("parquet") => return Err(TraceError::WithoutParquet(path.to_owned())),
        Some("html") => Box::new(HtmlTracer::create(path, network)?),
        _ => return Err(TraceError::Extension(path.to_owned())),
    })
}

#[cfg(test)]
mod tests;
