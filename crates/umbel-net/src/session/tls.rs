//! TLS 1.3 for sessions: the algorithms, the application protocol, and the check of the server.

use std::sync::{Arc, OnceLock};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ring::{digest, hmac};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as ring_provider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme,
};

use super::authority::{self, Authorities};
use super::identity::Identity;
use super::pin::Pin;

/// The application protocol that both ends must name (ALPN, [RFC 7301]). It says nothing of the
/// version, since an end whose handshake fails does not learn what the other offers. The version is
/// in the header of each message instead ([`umbel_wire::control::VERSION`]).
pub const PROTOCOL: &[u8] = b"umbel";

/// Returns the algorithms. AES-128 comes before ChaCha20, which machines without AES instructions
/// would prefer. Every machine that matters here has them, and QUIC needs AES-128 in any case.
/// X25519 is the first key exchange.
pub(super) fn provider() -> CryptoProvider {
    use ring_provider::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let mut provider = ring_provider::default_provider();
    provider.cipher_suites =
        vec![TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256, TLS13_AES_256_GCM_SHA384];
    provider
}

/// Returns the server's configuration. It has no tickets, hence no resumption and no early data.
/// With `clients`, a client needs a certificate of one of these authorities.
pub(super) fn server(
    identity: &Identity,
    clients: Option<&Authorities>,
) -> Result<QuicServerConfig, String> {
    let builder = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| e.to_string())?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients.clients()?),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .map_err(|e| e.to_string())?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.max_early_data_size = 0;
    QuicServerConfig::try_from(config).map_err(|e| e.to_string())
}

/// Keys that a restarted server derives again. With them it can tell its clients at once that their
/// sessions are gone (stateless reset [RFC 9000 §10.3]). Otherwise they would wait for their idle
/// timeout.
pub(super) struct ResetKeys {
    /// Key for the tokens of the resets.
    pub(super) token: hmac::Key,
    /// Key for this server's connection identifiers.
    pub(super) cid: u64,
}

impl ResetKeys {
    /// Derives them from the private key. They are as secret as it is.
    pub(super) fn derive(identity: &Identity) -> ResetKeys {
        let secret = digest::digest(&digest::SHA256, identity.key.secret_der());
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref());
        let token = hmac::sign(&root, b"umbel stateless reset token");
        let cid = hmac::sign(&root, b"umbel connection identifiers");
        let cid = cid.as_ref().first_chunk().copied().map_or(0, u64::from_be_bytes);
        ResetKeys { token: hmac::Key::new(hmac::HMAC_SHA256, token.as_ref()), cid }
    }
}

/// The servers that a client believes. Nobody is believed if both are missing.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    /// The key that the server must have.
    pub(super) pin: Option<Pin>,
    /// The check of the certificate that it must have.
    pub(super) authorities: Option<Arc<WebPkiServerVerifier>>,
}

/// The reason why a client did not believe a server.
#[derive(Clone, Debug)]
pub(super) enum Objection {
    /// It has another key than the pin says: the one with this pin.
    Key(Pin),
    /// Its certificate does not do.
    Certificate(String),
}

/// Returns the client's configuration, which accepts the servers of `trust` and no other. If
/// another showed itself, `objection` holds what was wrong with it. Shows `identity` to servers
/// that ask for a certificate.
pub(super) fn client(
    trust: Trust,
    identity: Option<&Identity>,
    objection: Arc<OnceLock<Objection>>,
) -> Result<QuicClientConfig, String> {
    let provider = Arc::new(provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Verifier { trust, objection, algorithms };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(|e| e.to_string())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.enable_early_data = false;
    QuicClientConfig::try_from(config).map_err(|e| e.to_string())
}

/// Accepts a server if its certificate is trusted **and** the handshake is signed with the
/// certificate's key. The certificate itself is public. Without the second check anyone could show
/// it.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    objection: Arc<OnceLock<Objection>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn object(&self, objection: Objection) -> rustls::Error {
        self.objection.get_or_init(|| objection);
        CertificateError::ApplicationVerificationFailure.into()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Trust { pin, authorities } = &self.trust;
        if pin.is_none() && authorities.is_none() {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        if let Some(pin) = pin {
            let seen = Pin::of_certificate(end_entity).ok_or_else(|| {
                self.object(Objection::Certificate("it cannot be parsed".to_owned()))
            })?;
            if seen != *pin {
                return Err(self.object(Objection::Key(seen)));
            }
        }
        if let Some(authorities) = authorities {
            authorities
                .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
                .map_err(|error| match &error {
                    rustls::Error::InvalidCertificate(why) => {
                        self.object(Objection::Certificate(authority::problem(why)))
                    }
                    _ => error,
                })?;
        }
        Ok(ServerCertVerified::assertion())
    }

    /// Is never called, since only TLS 1.3 is offered.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
