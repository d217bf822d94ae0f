//! How a source signs its packets.

use std::fmt;

use bytes::Bytes;
use umbel_wire::EmitError;
use umbel_wire::rlm::SignedHeader;
use umbel_wire::rlm::signed::message_of;

use crate::Sign;

/// Signs the packets of a stream as they leave, below the erasure code. So repair packets are
/// signed as well, and a receiver restores nothing from what others sent.
pub struct Signing {
    sign: Sign,
    version: u64,
    /// The message that was signed last.
    message: Vec<u8>,
}

impl Signing {
    /// Creates what signs the packets of the stream whose announcement has this version.
    pub fn new(sign: Sign, version: u64) -> Signing {
        Signing { sign, version, message: Vec::new() }
    }

    /// Returns the bytes of a packet's header with its signature.
    pub(super) fn head(
        &mut self,
        layer: u8,
        header: &SignedHeader,
        symbol: &Bytes,
    ) -> Result<[u8; SignedHeader::LEN], EmitError> {
        let mut head = header.emit()?;
        message_of(&head, symbol, (self.version, layer), &mut self.message);
        SignedHeader::sign(&mut head, &(self.sign)(&self.message));
        Ok(head)
    }
}

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signing").field("version", &self.version).finish_non_exhaustive()
    }
}
