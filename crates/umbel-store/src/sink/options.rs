//! Options of a sink.

use std::time::Duration;

use super::changes::Purpose;
use super::links::Links;

/// Options of a [`DiskSink`](super::DiskSink).
#[derive(Clone, Copy, Debug)]
pub struct SinkOptions {
    /// Maximum bytes of memory for open blocks and those on their way to the disk. A block that is
    /// larger is received alone. Default 32 MiB.
    pub memory: usize,
    /// Whether names that differ only in case are the same file; `None` (the default) tests the
    /// file system.
    pub folds_case: Option<bool>,
    /// Whether items and journals are synced to the disk. If not, a crash of the machine (not of
    /// the process) may lose items that were reported as done. Default true.
    pub durable: bool,
    /// Interval between two checkpoints of an incomplete item. A checkpoint writes its state to the
    /// journal and makes it durable. Checkpoints are more frequent when data arrives fast. Default
    /// 1 s.
    pub checkpoint_interval: Duration,
    /// Whether a file gets the item's modification time, also if it was there. Default true.
    pub preserve_times: bool,
    /// Whether an item is refused at once if the file system has no room for it. Default true.
    pub check_space: bool,
    /// Whether a file that differs from an item of its name is replaced. Default false: the item is
    /// refused.
    pub overwrite: bool,
    /// Whether items may be hidden files of the output directory, or below hidden directories of
    /// it. Names that begin with `.` further below are always allowed. Default false.
    pub hidden: bool,
    /// Symbolic links that are made. Default: those that stay in the output directory.
    pub links: Links,
    /// What is done with differences. Default: items are brought.
    pub purpose: Purpose,
}

impl Default for SinkOptions {
    fn default() -> SinkOptions {
        SinkOptions {
            memory: 32 << 20,
            folds_case: None,
            durable: true,
            checkpoint_interval: Duration::from_secs(1),
            preserve_times: true,
            check_space: true,
            overwrite: false,
            hidden: false,
            links: Links::Inside,
            purpose: Purpose::Bring,
        }
    }
}
