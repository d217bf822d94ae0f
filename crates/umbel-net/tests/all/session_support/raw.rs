//! A client of bare QUIC, for behaviour that our client never shows.

use std::net::SocketAddr;
use std::sync::Arc;

use super::message;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, SignatureScheme};
use umbel_net::session::PROTOCOL;

/// Creates a client that accepts any server, and speaks any protocol.
pub(crate) fn raw_client(protocol: &[u8]) -> quinn::Endpoint {
    #[derive(Debug)]
    struct Anyone;
    impl ServerCertVerifier for Anyone {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            default_provider().signature_verification_algorithms.supported_schemes()
        }
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let mut transport = quinn::TransportConfig::default();
    // The server alone decides how long a silent session lasts.
    transport.max_idle_timeout(None);
    config.transport_config(Arc::new(transport));
    let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(config);
    endpoint
}

/// Opens at least `sessions` sessions from one socket, 50 at a time, and sends a message on each.
pub(crate) async fn many(server: SocketAddr, sessions: usize) -> Vec<Session> {
    let endpoint = raw_client(PROTOCOL);
    let mut open = Vec::new();
    while open.len() < sessions {
        let batch: Vec<_> = (0..50).map(|_| endpoint.connect(server, "umbel").unwrap()).collect();
        for connecting in batch {
            let connection = connecting.await.unwrap();
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&message(1, 100)).await.unwrap();
            open.push((connection, send, receive));
        }
    }
    open
}

pub(crate) type Session = (quinn::Connection, quinn::SendStream, quinn::RecvStream);
