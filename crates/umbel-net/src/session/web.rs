//! TLS 1.3 for ordinary web clients, on connections over any TCP: the server's side, without I/O.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ServerConfig, ServerConnection};

use super::identity::{Identity, IdentityError};
use super::tls;

/// Name of HTTP/1.1 among web clients [RFC 7301 §6].
const HTTP: &[u8] = b"http/1.1";

/// The certificate and the key with which a server speaks TLS to web clients.
#[derive(Clone)]
pub struct WebKeys(Arc<ServerConfig>);

impl fmt::Debug for WebKeys {
    /// Shows nothing of it, since the key is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebKeys").finish_non_exhaustive()
    }
}

impl WebKeys {
    /// Creates those of an identity. Clients get no tickets, so that each connection proves the
    /// key.
    ///
    /// # Errors
    ///
    /// If the certificate and the key cannot be used.
    pub fn new(identity: &Identity) -> Result<WebKeys, IdentityError> {
        let unusable = |error: rustls::Error| IdentityError::Unusable(error.to_string());
        let mut config = ServerConfig::builder_with_provider(Arc::new(tls::provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(unusable)?;
        config.alpn_protocols = vec![HTTP.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_early_data_size = 0;
        Ok(WebKeys(Arc::new(config)))
    }
}

/// Error of a client that does not speak TLS 1.3, or not as its handshake agreed on. The connection
/// is of no use any more; what is left of it is an alert.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WebError(String);

/// The server's end of one connection. Its memory for a client that misbehaves is bounded by the
/// length of a handshake message, 64 KiB.
pub struct WebStream(ServerConnection);

impl fmt::Debug for WebStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebStream").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

impl WebStream {
    /// Creates the end of a connection of which nothing was read.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn new(keys: &WebKeys) -> Result<WebStream, WebError> {
        let connection = ServerConnection::new(keys.0.clone());
        let mut connection = connection.map_err(|error| WebError(error.to_string()))?;
        // Bounded by what is given to `send`.
        connection.set_buffer_limit(None);
        Ok(WebStream(connection))
    }

    /// Returns whether the handshake is complete.
    pub fn is_open(&self) -> bool {
        !self.0.is_handshaking()
    }

    /// Takes bytes of the connection. Appends what they mean to `heard`. Returns whether the client
    /// has said that it sends no more. There may be something to [take](WebStream::take)
    /// afterwards, also after an error.
    ///
    /// # Errors
    ///
    /// If the bytes are invalid.
    pub fn receive(&mut self, mut bytes: &[u8], heard: &mut Vec<u8>) -> Result<bool, WebError> {
        let failed = |error: &dyn fmt::Display| WebError(error.to_string());
        let mut has_ended = false;
        while !bytes.is_empty() && !has_ended {
            self.0.read_tls(&mut bytes).map_err(|error| failed(&error))?;
            let state = self.0.process_new_packets().map_err(|error| failed(&error))?;
            let from = heard.len();
            heard.resize(from + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut heard[from..]).map_err(|error| failed(&error))?;
            has_ended = state.peer_has_closed();
        }
        Ok(has_ended)
    }

    /// Encrypts bytes for the client. Nothing is sent before the handshake is complete.
    pub fn send(&mut self, bytes: &[u8]) {
        // It has no limit, and nothing else can fail.
        let _ = self.0.writer().write_all(bytes);
    }

    /// Announces that no more is sent.
    pub fn finish(&mut self) {
        self.0.send_close_notify();
    }

    /// Returns the bytes that are to be sent on the connection.
    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A vector takes everything.
        while self.0.wants_write() && self.0.write_tls(&mut bytes).is_ok() {}
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// Returns an identity for the name `s`, and a client that trusts it.
    fn pair() -> (WebStream, ClientConnection) {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let params = rcgen::CertificateParams::new(vec!["s".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let identity = Identity::from_pem(&certificate.pem(), &key.serialize_pem()).unwrap();
        let server = WebStream::new(&WebKeys::new(&identity).unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(tls::provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("s").unwrap();
        (server, ClientConnection::new(Arc::new(config), name).unwrap())
    }

    fn said(client: &mut ClientConnection) -> Vec<u8> {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Returns what bytes mean to a client.
    fn hear(client: &mut ClientConnection, mut bytes: &[u8]) -> Vec<u8> {
        let mut heard = Vec::new();
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            let state = client.process_new_packets().unwrap();
            let from = heard.len();
            heard.resize(from + state.plaintext_bytes_to_read(), 0);
            client.reader().read_exact(&mut heard[from..]).unwrap();
        }
        heard
    }

    #[test]
    fn bytes_go_both_ways_however_they_are_cut() {
        for piece in [1, 7, 1000, 1 << 20] {
            let (mut server, mut client) = pair();
            let mut heard = Vec::new();
            client.writer().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            while !server.is_open() || heard.is_empty() {
                let bytes = said(&mut client);
                for piece in bytes.chunks(piece) {
                    assert!(!server.receive(piece, &mut heard).unwrap());
                }
                hear(&mut client, &server.take());
            }
            assert_eq!(heard, b"GET / HTTP/1.1\r\n\r\n");
            let answer: Vec<u8> = (0..100_000).map(|n| (n % 251) as u8).collect();
            server.send(&answer);
            server.finish();
            let bytes = server.take();
            let got: Vec<u8> =
                bytes.chunks(piece.max(100)).flat_map(|piece| hear(&mut client, piece)).collect();
            assert!(got == answer, "{piece}");
            client.send_close_notify();
            assert!(server.receive(&said(&mut client), &mut heard).unwrap());
        }
    }

    #[test]
    fn plain_http_is_answered_by_an_alert() {
        let (mut server, _) = pair();
        let mut heard = Vec::new();
        assert!(server.receive(b"GET / HTTP/1.1\r\nHost: s\r\n\r\n", &mut heard).is_err());
        // An alert: fatal, of TLS.
        let alert = server.take();
        assert_eq!((alert.len(), alert[0], alert[1], alert[5]), (7, 21, 3, 2));
        assert!(heard.is_empty() && !server.is_open());
    }

    proptest! {
        #[test]
        fn what_makes_no_sense_is_refused_at_any_place(
            at in 0..600_usize, garbage in proptest::collection::vec(any::<u8>(), 1..80),
        ) {
            let (mut server, mut client) = pair();
            let mut bytes = said(&mut client);
            let at = at.min(bytes.len());
            bytes.splice(at.., garbage);
            let mut heard = Vec::new();
            let _ = server.receive(&bytes, &mut heard);
            prop_assert!(heard.is_empty() && !server.is_open());
            prop_assert!(server.take().len() < 4096);
        }
    }
}
