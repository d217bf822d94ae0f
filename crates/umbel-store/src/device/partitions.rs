//! Has the kernel read the partition table of a disk again. The only `unsafe` of this crate, since
//! no crate wraps this request.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;

/// `BLKRRPART` of <linux/fs.h>, which is the same number on all architectures of Linux but those of
/// other request encodings, where it fails.
const BLKRRPART: u32 = 0x125f;

/// Has the kernel read the partition table of an open disk again. Fails if a partition is in use.
#[allow(unsafe_code)]
pub(crate) fn read_again(disk: &File) -> io::Result<()> {
    // SAFETY: this request takes no argument, and touches no memory of this process.
    let result = unsafe { libc::ioctl(disk.as_raw_fd(), BLKRRPART as _) };
    Errno::result(result).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_partition_table() {
        let file = tempfile::tempfile().unwrap();
        assert!(read_again(&file).is_err());
    }
}
