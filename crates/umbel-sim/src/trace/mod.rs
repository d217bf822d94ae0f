//! What a run tells about itself.
//!
//! A [`Simulation`](crate::Simulation) tells a [`Tracer`] of every packet at every link, of
//! session messages, of joins and leaves, and of the [`Note`]s that applications write. Here are
//! the tracers:
//!
//! - `record.rs`: what they are told.
//! - [`FanOut`]: several at once.

use std::any::Any;

use umbel_engine::Instant;

mod error;
mod fan_out;
mod record;

pub use error::TraceError;
pub use fan_out::FanOut;
pub use record::{
    ChannelParts, Hop, MembershipRecord, MessageRecord, Note, NoteRecord, PacketRecord,
};

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
