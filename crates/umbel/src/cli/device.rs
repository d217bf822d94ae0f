//! Block devices as sources and targets.

use std::path::PathBuf;

use serde_json::json;
use umbel_store::sink::DeviceTarget;

use super::output::{Output, plain};

/// Options of a block device to which an item is written.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DeviceArgs {
    /// Write the item, which has to be the only one, to this disk or partition, over all that is
    /// there. What it has already of the item is not received again. Everything is read back and
    /// verified in the end
    #[arg(long, value_name = "PATH", conflicts_with_all = [
        "output", "overwrite", "delete", "hidden", "links", "itemize", "dry_run", "verify", "no_sync",
        "follow", "atomic",
    ])]
    device: Option<PathBuf>,
    /// Write to the device although it, or a partition of it, is mounted or otherwise in use, which
    /// destroys what uses it
    #[arg(long, requires = "device")]
    force: bool,
}

impl DeviceArgs {
    /// Returns the path of the device, if there is one.
    pub(super) fn path(&self) -> Option<&PathBuf> {
        self.device.as_ref()
    }

    /// Returns the device, if there is one.
    ///
    /// # Errors
    ///
    /// If it cannot be written to; before anything waits for the network.
    pub(super) fn target(&self) -> anyhow::Result<Option<DeviceTarget>> {
        let Some(path) = self.device.clone() else { return Ok(None) };
        let target = DeviceTarget { path, force: self.force };
        target.check()?;
        Ok(Some(target))
    }
}

/// Says which of these paths are devices that may change while they are read.
pub(super) fn warn_of_mounted(paths: &[PathBuf], output: &Output) {
    for path in paths {
        let Some(at) = umbel_store::mounted_for_writing(path) else { continue };
        let (path, at) = (path.display().to_string(), at.display().to_string());
        let line = format!(
            "{path} is mounted at {at} and may change while it is read: unmount it, or `mount -o \
             remount,ro {at}` first"
        );
        output.json(&json!({ "event": "note", "message": line }));
        output.note(plain(&line));
    }
}
