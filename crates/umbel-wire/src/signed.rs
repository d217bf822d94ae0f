//! The line by which the sender of a session description proves that it is its own.
//!
//! ```text
//! v=0
//! …                                  all of this is signed
//! a=x-umbel-signed:KEY SIGNATURE     an Ed25519 key, and the signature by it [RFC 8032]
//! ```
//!
//! Key and signature are in base64url without padding. The signature is over [`CONTEXT`] and the
//! text before the line, which is always the last. The deletion of a session is its origin line,
//! signed in the same way. Standard tools skip the line. Whether the signature is right is not
//! looked at here.

use data_encoding::BASE64URL_NOPAD;

use crate::ParseError;

/// Bytes that precede the text when it is signed. No other use of the key signs them.
pub const CONTEXT: &[u8] = b"umbel 2026 session description\n";
/// Length of the line in bytes, its end included.
pub const LINE_LEN: usize = PREFIX.len() + 43 + 1 + 86 + 2;

const PREFIX: &str = "a=x-umbel-signed:";

/// A signed text, borrowing the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed<'a> {
    /// The text that was signed, without the line.
    pub text: &'a [u8],
    /// Public key of the signer.
    pub key: [u8; 32],
    /// Its signature.
    pub signature: [u8; 64],
}

impl<'a> Signed<'a> {
    /// Splits the line off. Returns `None` if the payload has none.
    ///
    /// # Errors
    ///
    /// Returns an error if the last line claims to be a signature and is not of its form.
    pub fn split(payload: &'a [u8]) -> Result<Option<Signed<'a>>, ParseError> {
        let lines = payload.strip_suffix(b"\n").unwrap_or(payload);
        let lines = lines.strip_suffix(b"\r").unwrap_or(lines);
        let start = lines.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let Some(value) = lines[start..].strip_prefix(PREFIX.as_bytes()) else { return Ok(None) };
        let bad =
            || ParseError::Value { what: "x-umbel-signed", problem: "not a key and a signature" };
        let space = value.iter().position(|&byte| byte == b' ').ok_or_else(bad)?;
        let (key, signature) = (&value[..space], &value[space + 1..]);
        Ok(Some(Signed {
            text: &payload[..start],
            key: decode(key).ok_or_else(bad)?,
            signature: decode(signature).ok_or_else(bad)?,
        }))
    }

    /// Appends the text and the line to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text);
        out.extend_from_slice(PREFIX.as_bytes());
        out.extend_from_slice(BASE64URL_NOPAD.encode(&self.key).as_bytes());
        out.push(b' ');
        out.extend_from_slice(BASE64URL_NOPAD.encode(&self.signature).as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    /// Returns the bytes that are signed.
    pub fn message(text: &[u8]) -> Vec<u8> {
        [CONTEXT, text].concat()
    }
}

fn decode<const LEN: usize>(text: &[u8]) -> Option<[u8; LEN]> {
    // Nothing longer is decoded.
    let fits = text.len() == (LEN * 8).div_ceil(6);
    BASE64URL_NOPAD.decode(text).ok().filter(|_| fits)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed() -> Signed<'static> {
        Signed { text: b"v=0\r\ns=a\r\n", key: [7; 32], signature: [0xF5; 64] }
    }

    #[test]
    fn a_signed_text_comes_back() {
        let mut bytes = Vec::new();
        signed().emit(&mut bytes);
        assert_eq!(bytes.len(), signed().text.len() + LINE_LEN);
        assert_eq!(Signed::split(&bytes), Ok(Some(signed())));
        // Other tools may end lines otherwise.
        for end in [1, 2] {
            let bytes = &bytes[..bytes.len() - end];
            assert_eq!(Signed::split(bytes), Ok(Some(signed())));
        }
    }

    #[test]
    fn a_text_without_the_line_is_not_signed_and_a_damaged_line_is_refused() {
        for text in [&b""[..], b"\n", b"v=0\r\n", b"a=x-umbel-signed", b"o=- 1 1 IN IP4 ::\r\n"] {
            assert_eq!(Signed::split(text), Ok(None));
        }
        let mut bytes = Vec::new();
        signed().emit(&mut bytes);
        let after = [&bytes[..], b"a=x\r\n"].concat();
        assert_eq!(Signed::split(&after), Ok(None), "it is the last line or none");
        let line = signed().text.len() + PREFIX.len();
        for at in [line, line + 42, line + 43, line + 44, bytes.len() - 3] {
            let mut damaged = bytes.clone();
            damaged[at] = b'=';
            assert!(Signed::split(&damaged).is_err(), "{at}");
        }
        assert!(Signed::split(&bytes[..bytes.len() - 4]).is_err());
    }
}
