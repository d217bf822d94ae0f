//! Files of keys and certificates, which are opened once and read within a bound.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Contents of a file when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether users other than its owner can read or write it.
    pub is_exposed: bool,
}

/// Reads a file of at most `most` bytes. Permissions are those of the file that is read, whatever
/// has its name meanwhile.
///
/// # Errors
///
/// The system's error, or [`io::ErrorKind::FileTooLarge`].
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Contents> {
    let file = File::open(path)?;
    let is_exposed = file.metadata()?.permissions().mode() & 0o077 != 0;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is far too long"));
    }
    Ok(Contents { bytes, is_exposed })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn a_file_is_read_within_its_bound_and_says_who_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert_eq!(read_bounded(&path, 3).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "abc").unwrap();
        for (mode, is_exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o602, true)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let contents = Contents { bytes: b"abc".to_vec(), is_exposed };
            assert_eq!(read_bounded(&path, 3).unwrap(), contents);
            assert_eq!(read_bounded(&path, 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        }
        let endless = read_bounded(Path::new("/dev/zero"), 1 << 10).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::FileTooLarge);
    }
}
