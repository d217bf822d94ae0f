//! Why a trace could not be written.

use std::io;
use std::path::PathBuf;

#[cfg(feature = "parquet")]
use parquet::errors::ParquetError;

/// Why a trace could not be written. The run that it tells of is not affected.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The name of the file does not say what to write.
    #[error(
        "{}: no trace has this extension: use .pcapng or .pcap, .csv, .parquet, or .html",
        .0.display()
    )]
    Extension(PathBuf),
    /// The file cannot be made.
    #[error("cannot create {}: {source}", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something could not be written to the file.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something could not be written to a Parquet file.
    #[cfg(feature = "parquet")]
    #[error("cannot write {}: {source}", .path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: ParquetError,
    },
    /// This build cannot write Parquet files.
    #[cfg(not(feature = "parquet"))]
    #[error(
        "{}: built without Parquet: trace to .csv, or build with `--features parquet`",
        .0.display()
    )]
    WithoutParquet(PathBuf),
    /// The network is too large to be drawn.
    #[error(
        "{}: an animation shows at most {limit} nodes, the network has {nodes}: \
         trace to .csv, .parquet or .pcapng instead",
        .path.display()
    )]
    TooManyNodes {
        /// The file.
        path: PathBuf,
        /// Nodes of the network.
        nodes: usize,
        /// Most nodes of an animation.
        limit: usize,
    },
}
