//! What a repository serves, and where a client keeps what it received.
//!
//! On the server, a [`Repository`] ties together where items come from (a directory, or a WARC
//! file), the [`Catalog`] of the versions now on offer, and the [`BlockReader`] that reads source
//! blocks and makes repair symbols on other threads, ahead of the paced sender.
//!
//! On a client, a [`DiskSink`](sink::DiskSink) keeps what is received: resumable, verified, and never
//! outside its directory.
//!
//! [`feed`] makes one sequence of blocks out of items, or of a pipe, and back.

mod catalog;
mod directory;
mod errors;
pub mod feed;
mod origin;
mod own;
mod reader;
mod repository;
mod several;
pub mod sink;
mod warc;

pub use catalog::{Catalog, Changes, Item, Selection, name_of};
pub use errors::{Fault, OpenError, PatternError, ReadError};
pub use origin::{SkipReason, Skipped, SkippedItem};
pub use reader::{BlockReader, ReaderOptions};
pub use repository::{Content, Repository, RepositoryOptions};
pub use warc::{WarcContents, read_warc};
