//! Datagrams for which a socket had no room.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use umbel_engine::{Instant, TransmitBuf};

use crate::interface::Interface;
use crate::udp::{MAX_WAIT, NO_MEMORY_WAIT, Progress, Room, SendError, Sender};

/// Maximum number of batches that may wait. Further ones are lost, as in a full queue on the way.
const MOST: usize = 64;

/// A way out that may have no room.
pub(crate) trait Outlet {
    /// Sends datagrams, each a head and a body, as far as there is room.
    ///
    /// # Errors
    ///
    /// If one cannot leave. It and the rest count as lost.
    fn try_send<'a>(
        &mut self,
        to: SocketAddr,
        hop_limit: Option<u8>,
        datagrams: impl ExactSizeIterator<Item = (&'a [u8], &'a Bytes)>,
    ) -> Result<Progress, SendError>;

    /// Returns the interface by which it sends.
    fn interface(&self) -> &Interface;
}

impl Outlet for Sender {
    fn try_send<'a>(
        &mut self,
        to: SocketAddr,
        hop_limit: Option<u8>,
        datagrams: impl ExactSizeIterator<Item = (&'a [u8], &'a Bytes)>,
    ) -> Result<Progress, SendError> {
        Sender::try_send(self, to, hop_limit, datagrams)
    }

    fn interface(&self) -> &Interface {
        Sender::interface(self)
    }
}

/// Batches in the order in which they are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    batches: VecDeque<Batch>,
    /// When to retry, if the system does not report room.
    retry_at: Option<Instant>,
    /// Time since which there has been no room.
    since: Instant,
}

/// The condition for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// The latest time.
    pub(crate) at: Instant,
    /// Whether the socket reports room before that.
    pub(crate) on_room: bool,
}

#[derive(Debug)]
struct Batch {
    to: SocketAddr,
    hop_limit: Option<u8>,
    buf: TransmitBuf,
    /// Number of its datagrams that have been sent.
    sent: usize,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Returns when to [flush](Waiting::flush), or `None` if nothing waits.
    pub(crate) fn retry(&self) -> Option<Retry> {
        let give_up_at = self.since + MAX_WAIT;
        let at = self.retry_at.unwrap_or(give_up_at);
        (!self.is_empty()).then_some(Retry { at, on_room: self.retry_at.is_none() })
    }

    /// Returns whether to flush without a report of room.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.retry().is_some_and(|retry| retry.at <= now)
    }

    /// Sends a batch behind those that wait. If datagrams have to wait, takes the contents of
    /// `buf`.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        sender: &mut impl Outlet,
        to: SocketAddr,
        hop_limit: Option<u8>,
        buf: &mut TransmitBuf,
    ) -> Result<(), SendError> {
        let mut sent = 0;
        if self.batches.is_empty() {
            let progress = sender.try_send(to, hop_limit, buf.iter())?;
            if progress.room == Room::Enough {
                return Ok(());
            }
            sent = progress.report.datagrams;
            self.since = now;
            self.retry_at = (progress.room == Room::NoMemory).then_some(now + NO_MEMORY_WAIT);
        }
        if self.batches.len() >= MOST {
            return Err(SendError::Stuck(sender.interface().name.clone()));
        }
        let buf = std::mem::take(buf);
        self.batches.push_back(Batch { to, hop_limit, buf, sent });
        Ok(())
    }

    /// Sends the waiting datagrams, as far as there is room now. Drops all of them if there was no
    /// room for a second.
    pub(crate) fn flush(
        &mut self,
        now: Instant,
        sender: &mut impl Outlet,
    ) -> Result<(), SendError> {
        while let Some(batch) = self.batches.front_mut() {
            let rest = batch.buf.iter().skip(batch.sent);
            let progress = match sender.try_send(batch.to, batch.hop_limit, rest) {
                Ok(progress) => progress,
                Err(error) => {
                    self.batches.pop_front();
                    return Err(error);
                }
            };
            batch.sent += progress.report.datagrams;
            if progress.report.datagrams > 0 {
                self.since = now;
            }
            self.retry_at = (progress.room == Room::NoMemory).then_some(now + NO_MEMORY_WAIT);
            if progress.room != Room::Enough {
                if now - self.since >= MAX_WAIT {
                    *self = Waiting::default();
                    return Err(SendError::Stuck(sender.interface().name.clone()));
                }
                return Ok(());
            }
            self.batches.pop_front();
        }
        Ok(())
    }
}
