//! Which packets of a stream are its source's.

use ring::signature::{ED25519, UnparsedPublicKey};
use umbel_wire::rlm::SignedPacket;

use crate::Instant;
use crate::bucket::{Limit, Limiter};
use crate::rlm::config::StreamKey;
use crate::rlm::drops::DropReason;
use crate::seal::Window;

/// Words of the windows of numbers seen: the last 4,096 packets of a layer.
const WORDS: usize = 65;

/// Checks each packet before anything else is believed of it. A packet that was seen costs no
/// verification. Those that are wrong are limited; right ones never count.
#[derive(Debug)]
pub(super) struct Authenticity {
    key: StreamKey,
    /// Numbers seen of each layer. They stay when the layer is left, so that nobody can repeat what
    /// was sent before.
    seen: Vec<Window>,
    /// Wrong signatures that may still be looked at.
    wrong: Limiter,
    /// The message that was verified last.
    message: Vec<u8>,
}

impl Authenticity {
    pub(super) fn new(key: StreamKey, layers: usize, limit: Limit) -> Authenticity {
        Authenticity {
            key,
            seen: vec![Window::new(WORDS); layers],
            wrong: Limiter::new(limit),
            message: Vec::new(),
        }
    }

    /// Checks a packet of a layer, and notes its number.
    ///
    /// # Errors
    ///
    /// Returns the reason for which it is not taken.
    pub(super) fn check(
        &mut self,
        now: Instant,
        layer: u8,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let signed = SignedPacket::split(packet).ok_or(DropReason::Unsigned)?;
        let Some(seen) = self.seen.get_mut(usize::from(layer)) else {
            return Err(DropReason::Unexpected);
        };
        if !seen.is_fresh(signed.number) {
            return Err(DropReason::Duplicate);
        }
        if !self.wrong.admits(now) {
            return Err(DropReason::Unchecked);
        }
        signed.message(self.key.version, layer, &mut self.message);
        let key = UnparsedPublicKey::new(&ED25519, &self.key.public);
        if key.verify(&self.message, signed.signature).is_err() {
            self.wrong.take(now);
            return Err(DropReason::Forged);
        }
        seen.note(signed.number);
        Ok(())
    }
}
