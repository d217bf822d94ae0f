//! The check of clients' certificates, by lists of revoked certificates that may change.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::authority::{read_lists, verifier};

/// Marks that tell one content of a file from another: device, inode, length, and time of change.
type Stamp = (u64, u64, u64, i64, i64);

/// Checks clients by the lists that a file has when they come.
#[derive(Debug)]
pub(super) struct Renewed {
    roots: Arc<RootCertStore>,
    path: PathBuf,
    hints: Vec<DistinguishedName>,
    last: Mutex<Last>,
}

/// The check by the lists that were read last.
#[derive(Debug)]
struct Last {
    by: Arc<dyn ClientCertVerifier>,
    /// The file that was looked at last, whether or not it could be used.
    stamp: Option<Stamp>,
}

impl Renewed {
    /// Creates the check, which begins with lists that were read from the file before.
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        path: PathBuf,
        by: Arc<dyn ClientCertVerifier>,
    ) -> Renewed {
        let hints = by.root_hint_subjects().to_vec();
        // The file may have changed since: it is read again for the first client.
        Renewed { roots, path, hints, last: Mutex::new(Last { by, stamp: None }) }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the check by the lists that there are now, or were before if these cannot be used.
    fn now(&self) -> Arc<dyn ClientCertVerifier> {
        let mut last = self.last();
        match stamp(&self.path) {
            Ok(stamp) if last.stamp == Some(stamp) => {}
            Ok(stamp) => {
                last.stamp = Some(stamp);
                let read = read_lists(&self.path).map_err(|error| error.to_string());
                match read.and_then(|lists| verifier(&self.roots, lists)) {
                    Ok(by) => last.by = by,
                    Err(problem) => tracing::warn!("revoked certificates as before: {problem}"),
                }
            }
            Err(error) => {
                // Told once, until there is a file again.
                if last.stamp.take().is_some() {
                    let shown = self.path.display();
                    tracing::warn!("revoked certificates as before: cannot read {shown}: {error}");
                }
            }
        }
        last.by.clone()
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
}

impl ClientCertVerifier for Renewed {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.now().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.last().by.clone().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.last().by.clone().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.last().by.supported_verify_schemes()
    }
}
