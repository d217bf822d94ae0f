//! The token by which clients are admitted.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// A token. It is wiped when it is dropped, and `Debug` does not print it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Returns whether a text is this token, in a time that does not depend on how much of it is.
    pub fn is(&self, text: &str) -> bool {
        // Digests are compared in constant time.
        blake3::hash(self.0.as_bytes()) == blake3::hash(text.as_bytes())
    }

    /// Returns the text, for the server.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl From<String> for Token {
    fn from(text: String) -> Token {
        Token(text)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::repository::GroupSecret;

    use super::*;
    use crate::repository::{ReceiverConfig, SealConfig};

    #[test]
    fn secrets_of_a_configuration_are_wiped_and_not_printed() {
        fn is_wiped<T: ZeroizeOnDrop>() {}
        is_wiped::<Token>();
        is_wiped::<GroupSecret>();
        let token = Some(Token::from("sesame".to_owned()));
        let config = ReceiverConfig { token, ..ReceiverConfig::default() };
        let seal = SealConfig::new(GroupSecret([0xAB; 32]));
        let shown = format!("{config:?} {seal:?}");
        assert!(!shown.contains("sesame") && !shown.contains("171, 171"), "{shown}");
    }

    #[test]
    fn a_token_is_its_own_text_alone() {
        let token = Token::from("sesame".to_owned());
        assert!(token.is("sesame") && !token.is("sesam") && !token.is("sesames"));
    }
}
