//! Certificates of an authority: which server a client believes, and which clients a server admits.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, RootCertStore};
use umbel_engine::units::counted;

use super::bounded::read_bounded;
use super::identity::Identity;
use super::renewed::Renewed;
use super::tls;

/// Maximum length of a file of certificates, more than all public authorities together.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// Authorities of a public key infrastructure [RFC 5280], with what they have revoked.
#[derive(Clone)]
pub struct Authorities {
    roots: Arc<RootCertStore>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    /// File of the lists.
    lists: Option<PathBuf>,
}

/// Certificates that a client shows, and servers that it trusts besides the one with the pin of its
/// URL.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Authorities of servers. The server must have a certificate of one of them, for the host in
    /// the URL; the URL then needs no pin. Default: none, the pin alone counts.
    pub authorities: Option<Arc<Authorities>>,
    /// The client's own certificate, for servers that admit by it. Default: none.
    pub identity: Option<Arc<Identity>>,
}

/// The reason why there are no authorities.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not hold what it should.
    #[error("{} cannot be used: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
}

impl Authorities {
    /// Reads the authorities' certificates from a PEM file, and lists of revoked certificates from
    /// another. A list counts for the certificates that its issuer has signed. A server reads the
    /// lists again when the file has changed.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, has no certificate or list in it, or one that cannot be parsed.
    pub fn load(
        certificates: &Path,
        revoked: Option<&Path>,
    ) -> Result<Authorities, AuthorityError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_pem::<CertificateDer<'static>>(certificates, "certificate")? {
            roots.add(certificate).map_err(|error| AuthorityError::Unusable {
                path: certificates.to_owned(),
                problem: format!("bad certificate: {error}"),
            })?;
        }
        let lists = revoked.map_or(Ok(Vec::new()), read_lists)?;
        let path = revoked.map(Path::to_owned);
        let authorities = Authorities { roots: Arc::new(roots), revoked: lists, lists: path };
        // Lists are only parsed when a verifier is built.
        authorities.clients().map_err(|problem| AuthorityError::Unusable {
            path: revoked.unwrap_or(certificates).to_owned(),
            problem,
        })?;
        Ok(authorities)
    }

    /// Returns the check of clients' certificates.
    pub(super) fn clients(&self) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let by = verifier(&self.roots, self.revoked.clone())?;
        Ok(match &self.lists {
            Some(path) => Arc::new(Renewed::new(self.roots.clone(), path.clone(), by)),
            None => by,
        })
    }

    /// Returns the check of servers' certificates.
    pub(super) fn servers(&self) -> Result<Arc<WebPkiServerVerifier>, String> {
        let provider = Arc::new(tls::provider());
        WebPkiServerVerifier::builder_with_provider(self.roots.clone(), provider)
            .with_crls(self.revoked.clone())
            .only_check_end_entity_revocation()
            .build()
            .map_err(|error| error.to_string())
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities")
            .field("certificates", &self.roots.len())
            .field("lists", &self.revoked.len())
            .finish()
    }
}

/// Returns the check of clients' certificates by these lists.
pub(super) fn verifier(
    roots: &Arc<RootCertStore>,
    lists: Vec<CertificateRevocationListDer<'static>>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let provider = Arc::new(tls::provider());
    WebPkiClientVerifier::builder_with_provider(roots.clone(), provider)
        .with_crls(lists)
        .only_check_end_entity_revocation()
        .build()
        .map_err(|error| error.to_string())
}

/// Reads lists of revoked certificates.
pub(super) fn read_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, AuthorityError> {
    read_pem(path, "list of revoked certificates")
}

/// Reads all sections of one kind from a PEM file; there must be one at least.
fn read_pem<T: PemObject>(path: &Path, kind: &str) -> Result<Vec<T>, AuthorityError> {
    let unusable = |problem| AuthorityError::Unusable { path: path.to_owned(), problem };
    let text = read_bounded(path, MAX_FILE_BYTES).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => unusable(source.to_string()),
        _ => AuthorityError::Io { path: path.to_owned(), source },
    })?;
    let sections = T::pem_slice_iter(&text.bytes)
        .collect::<Result<Vec<T>, _>>()
        .map_err(|error| unusable(format!("bad {kind}: {error}")))?;
    if sections.is_empty() {
        return Err(unusable(format!("it has no {kind} in it (PEM)")));
    }
    Ok(sections)
}

/// Returns what is wrong with a server's certificate, and what to do.
pub(super) fn problem(error: &CertificateError) -> String {
    match error {
        CertificateError::ExpiredContext { time, not_after } => format!(
            "it ended {} ago: renew it, or set this host's clock",
            counted(time.as_secs().saturating_sub(not_after.as_secs()) / DAY_S, "day")
        ),
        CertificateError::Expired => "it has ended: renew it, or set this host's clock".to_owned(),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "it begins in {}: set this host's clock, or wait",
            counted(not_before.as_secs().saturating_sub(time.as_secs()).div_ceil(DAY_S), "day")
        ),
        CertificateError::NotValidYet => {
            "it is not valid yet: set this host's clock, or wait".to_owned()
        }
        CertificateError::Revoked => "it is revoked".to_owned(),
        CertificateError::UnknownRevocationStatus => {
            "--crl has no list of the authority that signed it".to_owned()
        }
        // The latter is of an authority that has the name of one of these.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no authority of --ca has signed it".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another host: name the server in the URL as its certificate does".to_owned()
        }
        other => other.to_string(),
    }
}
