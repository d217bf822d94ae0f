//! Errors in writing a trace.

use std::io;
use std::path::PathBuf;

/// Error in writing a trace. The traced run is not affected.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The extension of the file's name is not that of a trace.
    #[error(
        "{}: no trace has this extension: use .pcapng, .pcap, .csv or .html",
        .0.display()
    )]
    Extension(PathBuf),
    /// The file cannot be created.
    #[error("cannot create {}: {source}", .path.display())]
    Create {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A write to the file failed.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The network is too large to be drawn.
    #[error(
        "{}: an animation shows at most {limit} nodes, the network has {nodes}: \
         trace to .csv or .pcapng instead",
        .path.display()
    )]
    TooManyNodes {
        /// Path of the file.
        path: PathBuf,
        /// Number of nodes in the network.
        nodes: usize,
        /// Largest number of nodes in an animation.
        limit: usize,
    },
}
