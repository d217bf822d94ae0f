//! Options of clients whose server is known, or who are known, by certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_net::session::{Authorities, Credentials, Identity};

/// Heading of options about certificates. Each of them names it: a heading of the structure would
/// go on for what stands behind it.
pub(super) const CERTIFICATES: &str = "Certificates (PEM files)";

/// Certificates of a client.
#[derive(Debug, clap::Args)]
pub(super) struct CredentialArgs {
    /// Authorities of servers: the server must have a certificate of one of them for the host in
    /// the URL, which then needs no pin
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Certificates that the authorities have revoked
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "ca")]
    crl: Option<PathBuf>,
    /// This client's certificate and those between it and its authority, for a server with
    /// --client-ca
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the certificate, which only its owner may be able to read
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl CredentialArgs {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// If one cannot be read or used.
    pub(super) fn load(&self) -> anyhow::Result<Credentials> {
        Ok(Credentials {
            authorities: load_authorities(self.ca.as_ref(), self.crl.as_ref())?,
            identity: load_identity(self.cert.as_ref(), self.key.as_ref())?.map(Arc::new),
        })
    }
}

/// Reads the files of authorities, if they are given.
pub(super) fn load_authorities(
    certificates: Option<&PathBuf>,
    revoked: Option<&PathBuf>,
) -> anyhow::Result<Option<Arc<Authorities>>> {
    let Some(path) = certificates else { return Ok(None) };
    Ok(Some(Arc::new(Authorities::load(path, revoked.map(PathBuf::as_path))?)))
}

/// Reads the files of a certificate and its key, if they are given.
pub(super) fn load_identity(
    certificate: Option<&PathBuf>,
    key: Option<&PathBuf>,
) -> anyhow::Result<Option<Identity>> {
    let (Some(certificate), Some(key)) = (certificate, key) else { return Ok(None) };
    Ok(Some(Identity::load(certificate, key)?))
}

/// Refuses a key that everybody could download.
pub(super) fn refuse_served(key: Option<&Path>, served: &Path) -> anyhow::Result<()> {
    let (Some(key), Ok(served)) = (key, served.canonicalize()) else { return Ok(()) };
    if key.canonicalize().is_ok_and(|found| found.starts_with(&served)) {
        anyhow::bail!(
            "the key {} lies in the directory that is served: keep it elsewhere",
            key.display()
        );
    }
    Ok(())
}
