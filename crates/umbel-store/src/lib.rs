//! The content that a repository serves, and the storage of a client's received items.
//!
//! On the server, a [`Repository`] connects the origin of items (a directory, a WARC file, or a
//! block device) with the [`Catalog`] of the versions now on offer. The [`BlockReader`] reads source blocks and makes
//! repair symbols on other threads, ahead of the paced sender.
//!
//! On a client, a [`DiskSink`](sink::DiskSink) stores received items. It resumes after
//! interruptions, verifies every item, and never writes outside its directory or block device.
//!
//! [`feed`] converts items, or a pipe, to one sequence of blocks and back. [`hls`] is a ladder of
//! renditions that is being written.

mod catalog;
mod device;
mod directory;
mod errors;
pub mod feed;
pub mod hls;
mod holes;
mod origin;
mod own;
mod reader;
mod repository;
mod rules;
mod several;
pub mod sink;
mod version;
mod warc;

pub use catalog::{Catalog, Changes, Item, Selection, name_of};
pub use device::{DeviceError, is_block_device, mounted_for_writing};
pub use errors::{Fault, OpenError, PatternError, ReadError};
pub use origin::{SkipReason, Skipped, SkippedItem};
pub use reader::{BlockReader, ReaderOptions};
pub use repository::{Content, Repository, RepositoryOptions};
pub use rules::Patterns;
pub use warc::{WarcContents, read_warc};
