//! A sink that writes to a block device.

use std::path::Path;
use std::sync::Arc;

use umbel_wire::Digest;
use umbel_wire::repository::ItemInfo;

use super::super::attributes::Allowed;
use super::super::tree::Tree;
use super::super::{DiskSink, Prepared, Preparer, Purpose, SinkError, SinkEvent, SinkOptions};
use super::{Device, DeviceReport, DeviceTarget};

impl DiskSink {
    /// Opens a block device for one item, and starts the sink's threads. `on_event` is called for
    /// each event on one of them. Dropping the sink closes the device.
    ///
    /// # Errors
    ///
    /// Returns an error if the path leads to something else, if the device is in use, if this user
    /// may not write to it, or if a thread cannot be started.
    pub fn open_device(
        target: &DeviceTarget,
        options: SinkOptions,
        on_event: impl Fn(SinkEvent) + Send + Sync + 'static,
    ) -> Result<DiskSink, SinkError> {
        let device = Arc::new(Device::open(target)?);
        DiskSink::on(device, options, on_event)
    }

    pub(super) fn on(
        device: Arc<Device>,
        options: SinkOptions,
        on_event: impl Fn(SinkEvent) + Send + Sync + 'static,
    ) -> Result<DiskSink, SinkError> {
        // No file is made there, or anywhere.
        let tree = Tree::open_to_look(Path::new("/"))?;
        let around = (tree, false, Allowed::by_umask());
        let options = SinkOptions { check_space: false, purpose: Purpose::Bring, ..options };
        DiskSink::with(around, Some(device), options, on_event)
    }

    /// Returns what was done with the block device so far, if the item is written to one.
    pub fn device(&self) -> Option<DeviceReport> {
        self.shared.preparer.shelf.device.as_ref().map(|device| device.report())
    }
}

impl Preparer {
    /// Returns whether items are written to a block device, and looked up by
    /// [`prepare_on_device`](Self::prepare_on_device).
    pub fn is_device(&self) -> bool {
        self.shelf.device.is_some()
    }

    /// Looks an item up on the block device, which may have some of its blocks already: those that
    /// have these digests, one for each block in order. Reads a few blocks, and all if any of them
    /// is there.
    ///
    /// # Errors
    ///
    /// Returns an error if the item is no file or larger than the device, if the device has taken
    /// another item, or if it cannot be read.
    pub fn prepare_on_device(
        &self,
        info: &ItemInfo,
        digests: &[Digest],
    ) -> Result<Prepared, SinkError> {
        self.shelf.prepare_on_device(info, digests)
    }
}
