//! The key by which a receiver is admitted.

use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::{Context, bail};
use umbel_net::session::{Contents, read_bounded};
use umbel_store::feed::seal::SecretKey;

use crate::endpoint::random;

/// Bytes of the file: 64 digits and the end of the line.
const FILE_LEN: u64 = 65;

/// Loads the secret key from a file, or creates the file if it does not exist. If several programs
/// start at once, one of them creates the key and all use it. Only its owner can read the file.
///
/// # Errors
///
/// One line that says why there is no key. A file with other content is left alone, and a key that
/// other users can read is refused.
pub fn load_or_create(path: &Path) -> anyhow::Result<SecretKey> {
    if let Some(key) = load(path)? {
        return Ok(key);
    }
    let shown = path.display();
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    let write = || format!("cannot write this receiver's key to {shown}");
    DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(write)?;
    let secret = SecretKey::new(random()?);
    // Created with mode 0600.
    let mut file =
        tempfile::Builder::new().prefix(".key-").tempfile_in(directory).with_context(write)?;
    writeln!(file, "{}", secret.digits())
        .and_then(|()| file.as_file().sync_all())
        .with_context(write)?;
    match file.persist_noclobber(path) {
        Ok(_) => {}
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.error).with_context(write),
    }
    // Another program may have created the file in the meantime; its key counts.
    load(path)?.with_context(|| format!("{shown} vanished"))
}

/// Returns the key in a file, or `None` if there is no such file.
fn load(path: &Path) -> anyhow::Result<Option<SecretKey>> {
    let shown = path.display();
    let read = || format!("cannot read this receiver's key in {shown}");
    let (text, is_exposed) = match read_bounded(path, FILE_LEN) {
        Ok(Contents { bytes, is_exposed }) => (String::from_utf8(bytes).ok(), is_exposed),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // It is something else, like one that is no text.
        Err(error) if error.kind() == ErrorKind::FileTooLarge => (None, false),
        Err(error) => return Err(error).with_context(read),
    };
    match text.unwrap_or_default().trim_end().parse() {
        Ok(_) if is_exposed => bail!(
            "{shown} can be read by others: run `chmod 600` on it if nobody has, or remove it to get \
             a new key, which senders have to be told"
        ),
        Ok(secret) => Ok(Some(secret)),
        Err(_) => bail!(
            "{shown} holds no receiver's key: restore it, or remove it to get a new key, which \
             senders have to be told"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/receiver.key");
        let first = load_or_create(&path).unwrap().public();
        assert_eq!(load_or_create(&path).unwrap().public(), first);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("receiver.key");
        load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = load_or_create(&path).unwrap_err().to_string();
            assert!(error.contains("receiver.key") && error.contains("chmod 600"), "{error}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        load_or_create(&path).unwrap();
    }

    #[test]
    fn a_file_with_something_else_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        for bad in [&b""[..], b"secret", &[0xFF; 64], &[b'a'; 66], &vec![b'a'; 100_000]] {
            std::fs::write(&path, bad).unwrap();
            let error = load_or_create(&path).unwrap_err().to_string();
            assert!(error.contains("no receiver's key"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), bad);
        }
        let below = path.join("receiver.key");
        assert!(load_or_create(&below).unwrap_err().to_string().contains("receiver.key"));
    }
}
