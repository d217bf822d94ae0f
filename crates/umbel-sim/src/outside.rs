//! Surroundings of a host besides its network and its engine: sessions, disks, users.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::address::address_of;
use bytes::Bytes;
use umbel_engine::host::{PortError, PortSpec, SessionNews};
use umbel_engine::{Address, Instant, SessionId};

use crate::app::Context;
use crate::network::NodeId;

/// Surroundings of a host whose input is an `I`.
pub trait Outside<I>: Send + 'static {
    /// Opens a port. The simulated network needs none.
    ///
    /// # Errors
    ///
    /// If a scenario makes it fail.
    fn open(&mut self, _context: &mut Context<'_>, _spec: &PortSpec) -> Result<(), PortError> {
        Ok(())
    }

    /// Closes the port that covers an address.
    fn close(&mut self, _context: &mut Context<'_>, _address: &Address) {}

    /// Sends a message of the engine to the far end of a session.
    fn send(&mut self, context: &mut Context<'_>, session: SessionId, message: Bytes) {
        if let Ok(node) = u32::try_from(session.0) {
            context.send_message(NodeId(node), message);
        }
    }

    /// Handles a message that another host has sent.
    fn message(&mut self, _context: &mut Context<'_>, _from: NodeId, _message: Bytes) {}

    /// Releases everything, since the host has stopped.
    fn stop(&mut self, _context: &mut Context<'_>) {}

    /// Returns the next input that is due now.
    fn poll(&mut self, context: &mut Context<'_>) -> Option<I>;

    /// Returns the time when [`poll`](Outside::poll) has input next.
    fn next(&self) -> Option<Instant> {
        None
    }
}

/// Empty surroundings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl<I> Outside<I> for Alone {
    fn poll(&mut self, _context: &mut Context<'_>) -> Option<I> {
        None
    }
}

/// Sessions with other hosts, numbered by their nodes. The first message opens a session, an empty
/// one closes it.
#[derive(Debug, Default)]
pub struct NodeSessions {
    open: BTreeSet<NodeId>,
    news: VecDeque<SessionNews>,
}

/// Returns the number of the session with a host.
pub fn session_with(node: NodeId) -> SessionId {
    SessionId(u64::from(node.0))
}

impl NodeSessions {
    /// Returns the number of open sessions.
    pub fn count(&self) -> usize {
        self.open.len()
    }
}

impl Outside<SessionNews> for NodeSessions {
    fn close(&mut self, context: &mut Context<'_>, address: &Address) {
        if let Address::Session(session) = address {
            self.send(context, *session, Bytes::new());
        }
    }

    fn message(&mut self, _context: &mut Context<'_>, from: NodeId, message: Bytes) {
        let session = session_with(from);
        if message.is_empty() {
            self.open.remove(&from);
            let reason = String::new();
            self.news.push_back(SessionNews::Closed { session, reason, retryable: false });
            return;
        }
        if self.open.insert(from) {
            let remote = address_of(from).into();
            self.news.push_back(SessionNews::Opened { session, remote, rtt: Duration::ZERO });
        }
        self.news.push_back(SessionNews::Message { session, message });
    }

    fn poll(&mut self, _context: &mut Context<'_>) -> Option<SessionNews> {
        self.news.pop_front()
    }
}
