//! The fingerprint by which a client knows its server.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use ring::digest;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

/// Bytes of a SHA-256 digest.
const LEN: usize = 32;

/// SHA-256 of a public key, in the form of the SubjectPublicKeyInfo of its certificate
/// [RFC 7469 §2.4].
///
/// The key is pinned, not the certificate, so a certificate renewed with the same key keeps its
/// pin. It is written as 43 characters of base64url without padding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin([u8; LEN]);

/// An error of parsing a pin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// Cut off, or too long.
    #[error(
        "a pin has 43 characters, this one has {0}: copy the whole line that `umbel serve` printed"
    )]
    Length(usize),
    /// Not base64url.
    #[error(
        "a pin has only letters, digits, `-` and `_`: copy the line that `umbel serve` printed"
    )]
    Characters,
}

impl Pin {
    /// Creates the pin with this digest.
    pub const fn from_digest(digest: [u8; LEN]) -> Pin {
        Pin(digest)
    }

    /// Computes the pin of a certificate's key. Returns `None` if the certificate cannot be parsed.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Pin> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let hash = digest::digest(&digest::SHA256, &parsed.subject_public_key_info());
        hash.as_ref().try_into().ok().map(Pin)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({self})")
    }
}

impl FromStr for Pin {
    type Err = PinError;

    fn from_str(text: &str) -> Result<Pin, PinError> {
        let characters = text.chars().count();
        if characters != 43 {
            return Err(PinError::Length(characters));
        }
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| PinError::Characters)?;
        bytes.try_into().map(Pin).map_err(|_| PinError::Characters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_read_as_it_is_written() {
        let pin = Pin::from_digest(std::array::from_fn(|i| (i * 37) as u8));
        let text = pin.to_string();
        assert_eq!(text.len(), 43);
        assert_eq!(text.parse(), Ok(pin));
    }

    #[test]
    fn a_damaged_pin_says_what_is_wrong_with_it() {
        let text = Pin::from_digest([0xff; 32]).to_string();
        assert_eq!(text[..40].parse::<Pin>(), Err(PinError::Length(40)));
        assert_eq!("".parse::<Pin>(), Err(PinError::Length(0)));
        assert_eq!(text.replacen('_', "/", 1).parse::<Pin>(), Err(PinError::Characters));
        assert_eq!("ä".repeat(43).parse::<Pin>(), Err(PinError::Characters));
        // Bits beyond the 256 must be zero, so that a pin has only one text.
        let stray = format!("{}9", &Pin::from_digest([0; 32]).to_string()[..42]);
        assert_eq!(stray.parse::<Pin>(), Err(PinError::Characters));
    }
}
