//! The key with which a server proves its identity, and the file that holds it.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ED25519};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::bounded::read_bounded;
use super::pin::Pin;
use super::tls;

/// Name of the file in the state directory that holds the key and its certificate.
pub const FILE_NAME: &str = "identity.pem";

/// Maximum length of the file, more than any sensible certificate chain and key together.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// A private key with the certificate of its public key. The key is wiped when it is dropped; what
/// TLS and signers made of it is theirs.
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pin: Pin,
}

impl Drop for Identity {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl ZeroizeOnDrop for Identity {}

/// The reason why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The state directory or the file in it cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file exists but holds no usable key. It is never overwritten, since every printed URL
    /// would stop working.
    #[error(
        "{} holds no usable key ({problem}): restore it, or remove it to get a new key and new URLs",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
    /// Users other than its owner can read the file.
    #[error(
        "{} can be read by others: run `chmod 600` on it if nobody has, or remove it to get a new \
         key and new URLs",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// Users other than its owner can read the key of `--key`.
    #[error("{} can be read by others: run `chmod 600` on it", path.display())]
    KeyExposed {
        /// The file.
        path: PathBuf,
    },
    /// The certificate or the key passed in cannot be used.
    #[error("the certificate and key cannot be used: {0}")]
    Unusable(String),
}

impl Identity {
    /// Loads the identity from `state_dir`, or creates a new one there on the first start.
    ///
    /// The directory is created if need be, readable by its owner only, and so is the file. The
    /// file appears whole or not at all. Of several processes that start at once, one makes the key
    /// and all use it. The key is Ed25519, which is short and quick to sign with.
    ///
    /// # Errors
    ///
    /// If the file can be neither read nor made, does not hold a key and its certificate, or can be
    /// read by other users.
    pub fn load_or_create(state_dir: &Path) -> Result<Identity, IdentityError> {
        let path = state_dir.join(FILE_NAME);
        if let Some(identity) = load(&path)? {
            return Ok(identity);
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state_dir)
            .map_err(io_error("create the directory", state_dir))?;
        place(state_dir, &path, &generate()?)?;
        // The file there now may be another process's; it is the one that counts.
        load(&path)?.ok_or_else(|| {
            io_error("read", &path)(io::Error::new(io::ErrorKind::NotFound, "it vanished"))
        })
    }

    /// Loads an identity that an authority has signed: a certificate chain, its own certificate
    /// first, and the key. Both are PEM files, which may be the same.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, other users can read the key, or the two do not match.
    pub fn load(certificate: &Path, key: &Path) -> Result<Identity, IdentityError> {
        let read = |path: &Path| {
            read_bounded(path, MAX_FILE_BYTES).map_err(|error| match error.kind() {
                io::ErrorKind::FileTooLarge => {
                    IdentityError::Unusable(format!("{} is far too long", path.display()))
                }
                _ => io_error("read", path)(error),
            })
        };
        let (certificate, secret) = (read(certificate)?, read(key)?);
        if secret.is_exposed {
            return Err(IdentityError::KeyExposed { path: key.to_owned() });
        }
        parse(&certificate.bytes, &secret.bytes).map_err(IdentityError::Unusable)
    }

    /// Parses the identity in PEM text: a certificate chain, its own certificate first, and the
    /// key.
    ///
    /// # Errors
    ///
    /// If either cannot be parsed, or the key does not match the certificate.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Identity, IdentityError> {
        parse(certificate.as_bytes(), key.as_bytes()).map_err(IdentityError::Unusable)
    }

    /// Returns the fingerprint by which clients know this identity.
    pub fn fingerprint(&self) -> Pin {
        self.pin
    }
}

impl fmt::Debug for Identity {
    /// Shows the pin only, since the key is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("pin", &self.pin).finish_non_exhaustive()
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::Io { action, path, source }
}

/// Reads the identity at `path`. Returns `None` if there is no such file.
fn load(path: &Path) -> Result<Option<Identity>, IdentityError> {
    let corrupt = |problem| IdentityError::Corrupt { path: path.to_owned(), problem };
    let pem = match read_bounded(path, MAX_FILE_BYTES) {
        Ok(pem) => pem,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => return Err(corrupt(e.to_string())),
        Err(e) => return Err(io_error("read", path)(e)),
    };
    let identity = parse(&pem.bytes, &pem.bytes).map_err(corrupt)?;
    if pem.is_exposed {
        return Err(IdentityError::Exposed { path: path.to_owned() });
    }
    Ok(Some(identity))
}

/// Parses the chain and the key in two PEM texts, which may be the same.
fn parse(certificate: &[u8], key: &[u8]) -> Result<Identity, String> {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("bad certificate: {e}"))?;
    let leaf = chain.first().ok_or("no certificate in it")?;
    let pin = Pin::of_certificate(leaf).ok_or("its certificate cannot be parsed")?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("bad private key: {e}"))?;
    CertifiedKey::from_der(chain.clone(), key.clone_key(), &tls::provider())
        .map_err(|e| e.to_string())?;
    Ok(Identity { chain, key, pin })
}

/// Creates a new key with its self-signed certificate, as PEM.
fn generate() -> Result<String, IdentityError> {
    let unusable = |e: rcgen::Error| IdentityError::Unusable(e.to_string());
    let key = KeyPair::generate_for(&PKCS_ED25519).map_err(unusable)?;
    let mut params = CertificateParams::new(vec!["umbel".to_owned()]).map_err(unusable)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "umbel");
    let certificate = params.self_signed(&key).map_err(unusable)?;
    Ok(key.serialize_pem() + &certificate.pem())
}

/// Writes the PEM text to `path` unless a file is there already.
fn place(dir: &Path, path: &Path, pem: &str) -> Result<(), IdentityError> {
    let failed = || io_error("write", path);
    // Created with mode 0600.
    let mut file =
        tempfile::Builder::new().prefix(".identity-").tempfile_in(dir).map_err(failed())?;
    file.write_all(pem.as_bytes()).map_err(failed())?;
    file.as_file().sync_all().map_err(failed())?;
    match file.persist_noclobber(path) {
        Ok(_) => {}
        Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(e) => return Err(failed()(e.error)),
    }
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_identity_is_made_once_and_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("deep/state");
        let first = Identity::load_or_create(&state).unwrap();
        let again = Identity::load_or_create(&state).unwrap();
        assert_eq!(first.fingerprint(), again.fingerprint());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&state.join(FILE_NAME)), 0o600);
        assert_eq!(mode(&state), 0o700);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn the_key_is_wiped_when_it_is_dropped_and_not_printed() {
        fn is_wiped<T: ZeroizeOnDrop>() {}
        is_wiped::<Identity>();
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity::load_or_create(dir.path()).unwrap();
        let shown = format!("{identity:?} {:?}", identity.signer().unwrap());
        assert!(!shown.contains("key"), "{shown}");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let pin = Identity::load_or_create(dir.path()).unwrap().fingerprint();
        let path = dir.path().join(FILE_NAME);
        for mode in [0o640, 0o604, 0o620, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Identity::load_or_create(dir.path()).unwrap_err();
            assert!(matches!(error, IdentityError::Exposed { .. }), "{error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(Identity::load_or_create(dir.path()).unwrap().fingerprint(), pin);
    }

    #[test]
    fn processes_that_start_at_once_agree_on_one_identity() {
        let dir = tempfile::tempdir().unwrap();
        let pins: Vec<Pin> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| Identity::load_or_create(dir.path()).unwrap().fingerprint())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(pins.iter().all(|pin| *pin == pins[0]), "{pins:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn a_corrupt_file_is_reported_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        Identity::load_or_create(dir.path()).unwrap();
        let path = dir.path().join(FILE_NAME);
        let good = fs::read(&path).unwrap();
        for bad in [&b""[..], b"garbage", &good[..good.len() / 2], &vec![0xff; 300_000]] {
            fs::write(&path, bad).unwrap();
            let error = Identity::load_or_create(dir.path()).unwrap_err();
            assert!(matches!(error, IdentityError::Corrupt { .. }), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
            assert_eq!(fs::read(&path).unwrap(), bad);
        }
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let (one, two) = (generate().unwrap(), generate().unwrap());
        assert!(Identity::from_pem(&one, &one).is_ok());
        let error = Identity::from_pem(&one, &two).unwrap_err();
        assert!(matches!(error, IdentityError::Unusable(_)), "{error}");
    }

    #[test]
    fn a_state_directory_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Identity::load_or_create(&file.join("state")).unwrap_err().to_string();
        assert!(error.contains("file/state"), "{error}");
    }
}
