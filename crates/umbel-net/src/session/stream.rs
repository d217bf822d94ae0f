//! Messages over a QUIC stream, as both ends write and read them.

use std::time::Duration;

use bytes::Bytes;
use quinn::{ConnectionError, ReadError, RecvStream, SendStream, WriteError};

use super::frame::{FrameError, Framer};
use super::outbox::{Ending, Outbox};

/// Maximum number of bytes read from a stream at once.
pub(super) const READ_CHUNK: usize = 64 * 1024;

/// The reason why no more messages come.
#[derive(Debug)]
pub(super) enum ReadEnd {
    /// The peer has finished the stream.
    Finished,
    /// The peer stopped in the middle of a message.
    Abandoned,
    /// The connection is lost.
    Lost(ConnectionError),
    /// The stream does not consist of valid messages.
    Bad(FrameError),
}

impl From<ReadError> for ReadEnd {
    fn from(error: ReadError) -> ReadEnd {
        match error {
            ReadError::ConnectionLost(error) => ReadEnd::Lost(error),
            _ => ReadEnd::Abandoned,
        }
    }
}

/// Reads messages.
#[derive(Debug)]
pub(super) struct Reader {
    stream: RecvStream,
    framer: Framer,
}

impl Reader {
    pub(super) fn new(stream: RecvStream, max_message: usize) -> Reader {
        Reader { stream, framer: Framer::new(max_message) }
    }

    /// Returns the next message if it has already arrived.
    pub(super) fn buffered_message(&mut self) -> Result<Option<Bytes>, ReadEnd> {
        self.framer.next_message().map_err(ReadEnd::Bad)
    }

    /// Waits for more bytes. Bytes that arrived before the connection was lost are still returned.
    pub(super) async fn fill(&mut self) -> Result<(), ReadEnd> {
        match self.stream.read_chunk(READ_CHUNK, true).await? {
            Some(chunk) => {
                self.framer.push(&chunk.bytes);
                Ok(())
            }
            None if self.framer.buffered() > 0 => Err(ReadEnd::Abandoned),
            None => Err(ReadEnd::Finished),
        }
    }

    /// Returns the number of bytes held of an unfinished message.
    pub(super) fn held(&self) -> usize {
        self.framer.buffered()
    }
}

/// Writes the contents of an [`Outbox`].
#[derive(Debug)]
pub(super) struct Writer {
    stream: SendStream,
    /// Chunks taken from the outbox that QUIC has not accepted yet. They are kept here so that
    /// writing can be interrupted and resumed.
    batch: Vec<Bytes>,
}

impl Writer {
    pub(super) fn new(stream: SendStream) -> Writer {
        Writer { stream, batch: Vec::new() }
    }

    /// Writes until the outbox has an ending, then follows it: drains and finishes the stream, or
    /// leaves it. Returns `None` if the peer stopped reading permanently.
    pub(super) async fn run(mut self, outbox: &Outbox) -> Option<Ending> {
        tokio::select! {
            biased;
            _ = outbox.ended(|_| true) => {}
            result = self.write(outbox) => result.ok()?,
        }
        let ending = outbox.ending()?;
        if self.drained(outbox, ending.drain).await {
            return Some(ending);
        }
        // A stream that is merely dropped would end as if it were complete.
        let _ = self.stream.reset(ending.code.on_wire());
        outbox.ending()
    }

    /// Returns whether all waiting data has reached the peer in time.
    async fn drained(&mut self, outbox: &Outbox, within: Duration) -> bool {
        if within.is_zero() {
            return false;
        }
        tokio::select! {
            biased;
            _ = outbox.ended(|ending| ending.drain.is_zero()) => false,
            drained = tokio::time::timeout(within, self.drain(outbox)) => drained == Ok(true),
        }
    }

    /// Writes until the outbox is empty and has ended.
    async fn write(&mut self, outbox: &Outbox) -> Result<(), WriteError> {
        loop {
            if self.batch.is_empty() {
                self.batch = outbox.next_batch().await;
                if self.batch.is_empty() {
                    return Ok(());
                }
            }
            let written = self.stream.write_chunks(&mut self.batch).await?;
            self.batch.drain(..written.chunks);
            outbox.written(written.bytes);
        }
    }

    /// Writes the rest and waits until the peer has acknowledged it.
    async fn drain(&mut self, outbox: &Outbox) -> bool {
        if self.write(outbox).await.is_err() || self.stream.finish().is_err() {
            return false;
        }
        outbox.written(0);
        self.stream.stopped().await == Ok(None)
    }
}
