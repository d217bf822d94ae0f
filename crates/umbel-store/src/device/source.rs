//! A block device as a repository of one item.
//!
//! A device tells no version, so it is one item as long as it has its number and size. What is
//! written to it meanwhile is found by the receivers, since it does not have its digest. A device
//! tells no holes either: blocks of zeros are found by their digests, and are holes for receivers.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use umbel_wire::repository::ItemKind;

use super::usage::Number;
use super::{BlockDevice, size_of};
use crate::origin::{Body, Found, Origin, Place, Scan};
use crate::{Fault, OpenError};

/// A device, under the last part of its path.
#[derive(Debug)]
pub(crate) struct DeviceOrigin {
    path: PathBuf,
    name: String,
}

/// The version of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceVersion {
    number: Number,
    size: u64,
}

impl DeviceOrigin {
    pub(crate) fn new(path: &Path) -> Result<DeviceOrigin, OpenError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name else { return Err(OpenError::Kind(path.to_owned())) };
        Ok(DeviceOrigin { path: path.to_owned(), name: name.to_owned() })
    }

    fn version(&self) -> Result<DeviceVersion, OpenError> {
        let BlockDevice { number, size, .. } = BlockDevice::find(&self.path)?;
        Ok(DeviceVersion { number, size })
    }
}

impl Origin for DeviceOrigin {
    fn scan(&self) -> Result<Option<Scan>, OpenError> {
        let version = self.version()?;
        let item = Found {
            name: self.name.clone(),
            kind: ItemKind::File,
            size: version.size,
            modified_ns: None,
            holes: None,
            mode: None,
            media_type: Cow::Borrowed(""),
            place: Place::Device(version),
        };
        Ok(Some(Scan { items: vec![item], ..Scan::default() }))
    }

    fn open(&self, item: &Found) -> Result<Arc<dyn Body>, Fault> {
        let Place::Device(version) = item.place else { return Err(Fault::Vanished) };
        let file = File::open(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Fault::Vanished,
            _ => Fault::Io(error),
        })?;
        let metadata = file.metadata()?;
        let is_device = metadata.file_type().is_block_device();
        if !is_device || Number::of(metadata.rdev()) != version.number {
            return Err(Fault::Changed);
        }
        if size_of(&file)? != version.size {
            return Err(Fault::Changed);
        }
        // Without this advice it is only slower.
        let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_SEQUENTIAL);
        Ok(Arc::new(Device(file)))
    }
}

/// Returns whether a path leads to a block device.
pub(crate) fn is_one(metadata: &fs::Metadata) -> bool {
    metadata.file_type().is_block_device()
}

/// An open device.
struct Device(File);

impl Body for Device {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.0.read_exact_at(buf, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Changed,
            _ => Fault::Io(error),
        })
    }
}
