//! The cipher: AES in Galois/counter mode [SP 800-38D], from `ring`, which TLS uses here already.

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = ring::aead::NONCE_LEN;
/// Number of bytes by which sealing lengthens a message.
pub const TAG_LEN: usize = 16;

/// A key that seals and opens messages. `Debug` does not print it.
pub struct Cipher(LessSafeKey);

impl Cipher {
    /// Creates the cipher AES-128-GCM.
    pub fn aes_128(key: &[u8; 16]) -> Cipher {
        let key = UnboundKey::new(&AES_128_GCM, key);
        Cipher(LessSafeKey::new(key.expect("AES-128 keys have 16 bytes")))
    }

    /// Creates the cipher AES-256-GCM.
    pub fn aes_256(key: &[u8; 32]) -> Cipher {
        let key = UnboundKey::new(&AES_256_GCM, key);
        Cipher(LessSafeKey::new(key.expect("AES-256 keys have 32 bytes")))
    }

    /// Appends the sealed message and its tag, [`TAG_LEN`] bytes more than the message has. A nonce
    /// must not serve for two messages.
    pub fn append_sealed(
        &self,
        nonce: [u8; NONCE_LEN],
        associated: &[u8],
        message: &[u8],
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.reserve(message.len() + TAG_LEN);
        out.extend_from_slice(message);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let place = &mut out[start..];
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(associated), place);
        let tag = tag.expect("messages are far shorter than 64 GiB");
        out.extend_from_slice(tag.as_ref());
    }

    /// Opens a sealed message with its tag in place. Returns `None` if it was not sealed with this
    /// key, nonce and associated data. The bytes are then of no use.
    pub fn open_in_place<'s>(
        &self,
        nonce: [u8; NONCE_LEN],
        associated: &[u8],
        sealed: &'s mut [u8],
    ) -> Option<&'s [u8]> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(associated), sealed).ok().map(|message| &*message)
    }
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher(..)")
    }
}
