//! Signatures by the key of an [`Identity`], and their verification.

use std::fmt;
use std::sync::Arc;

use ring::digest;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use super::identity::{Identity, IdentityError};
use super::pin::Pin;

/// Prefix of an Ed25519 key in its SubjectPublicKeyInfo [RFC 8410 §4].
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Signs with the key of an identity. Clones have the same key.
///
/// TLS signs with it as well, and its messages begin with 64 spaces [RFC 8446 §4.4.3]. Anything
/// else that is signed begins with its own context, so that no signature serves for two purposes.
#[derive(Clone)]
pub struct Signer {
    keys: Arc<Ed25519KeyPair>,
    public: [u8; 32],
}

impl Signer {
    /// Returns the public key.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }

    /// Returns the fingerprint by which others know the key: the [identity's](Identity).
    pub fn pin(&self) -> Pin {
        pin_of(&self.public)
    }

    /// Signs a message [RFC 8032].
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.keys.sign(message).as_ref());
        signature
    }
}

impl fmt::Debug for Signer {
    /// Shows the pin only, since the key is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("pin", &self.pin()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Returns what signs with this identity's key.
    ///
    /// # Errors
    ///
    /// If the key is not an Ed25519 key, as those are that [`Identity::load_or_create`] makes.
    pub fn signer(&self) -> Result<Signer, IdentityError> {
        let keys = Ed25519KeyPair::from_pkcs8_maybe_unchecked(self.key.secret_der());
        let keys = keys.map_err(|error| {
            let why = format!("only an Ed25519 key can sign what is sent ({error})");
            IdentityError::Unusable(why)
        })?;
        let mut public = [0; 32];
        public.copy_from_slice(keys.public_key().as_ref());
        Ok(Signer { keys: Arc::new(keys), public })
    }
}

/// Returns whether a message was signed with the secret half of this key.
pub fn verify(public: &[u8; 32], message: &[u8], signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
}

/// Returns the fingerprint of an Ed25519 key: that of a certificate for it.
pub fn pin_of(public: &[u8; 32]) -> Pin {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&SPKI);
    context.update(public);
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    Pin::from_digest(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_server_signs_and_has_the_same_pin() {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::load_or_create(dir.path()).unwrap();
        let signer = identity.signer().unwrap();
        assert_eq!(signer.pin(), identity.fingerprint());
        let signature = signer.sign(b"text");
        assert!(verify(&signer.public(), b"text", &signature));
        assert!(!verify(&signer.public(), b"texts", &signature));
        assert!(!verify(&signer.public(), b"text", &signer.sign(b"texts")));
        let other = Identity::load_or_create(&dir.path().join("other")).unwrap().signer().unwrap();
        assert!(!verify(&other.public(), b"text", &signature));
        assert_ne!(other.pin(), signer.pin());
    }

    #[test]
    fn an_identity_with_another_kind_of_key_cannot_sign() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let params = rcgen::CertificateParams::new(vec!["umbel".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let identity = Identity::from_pem(&certificate.pem(), &key.serialize_pem()).unwrap();
        let error = identity.signer().unwrap_err().to_string();
        assert!(error.contains("Ed25519"), "{error}");
    }
}
