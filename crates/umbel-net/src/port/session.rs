//! Sessions as ports. Messages leave by QUIC, and news arrive in the host's mailbox.

use std::time::Duration;

use umbel_engine::{Address, Instant, SessionId, Transmit, TransmitBuf};

use super::Port;
use crate::session::{ClientSession, SessionHandle};
use crate::udp::SendError;

/// Maximum time for the last messages of a client to reach the server.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// All sessions of a server.
#[derive(Debug)]
pub struct SessionsPort(pub SessionHandle);

impl Port for SessionsPort {
    fn covers(&self, address: &Address) -> bool {
        matches!(address, Address::Session(_))
    }

    fn send(
        &mut self,
        _now: Instant,
        transmit: &Transmit,
        buf: &mut TransmitBuf,
    ) -> Result<(), SendError> {
        if let Address::Session(session) = transmit.to {
            for message in buf.messages() {
                // The host learns the end of a session from its news.
                let _ = self.0.send(session, message);
            }
        }
        Ok(())
    }
}

/// A client's session. Closing the port closes the session, once the server has the last messages.
#[derive(Debug)]
pub struct SessionPort {
    id: SessionId,
    session: Option<ClientSession>,
}

impl SessionPort {
    /// Creates the port of a session with this number.
    pub fn new(id: SessionId, session: ClientSession) -> SessionPort {
        SessionPort { id, session: Some(session) }
    }
}

impl Port for SessionPort {
    fn covers(&self, address: &Address) -> bool {
        *address == Address::Session(self.id)
    }

    fn send(
        &mut self,
        _now: Instant,
        _transmit: &Transmit,
        buf: &mut TransmitBuf,
    ) -> Result<(), SendError> {
        if let Some(session) = &self.session {
            for message in buf.messages() {
                // The host learns the end of the session from its news.
                let _ = session.send(message);
            }
        }
        Ok(())
    }
}

impl Drop for SessionPort {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.close(LAST_WORDS);
        }
    }
}
