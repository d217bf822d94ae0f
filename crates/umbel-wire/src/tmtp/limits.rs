//! How much a message may hold. What exceeds a limit is refused when it is parsed.

use std::time::Duration;

/// Most nodes of a path from the source to a manager, and greatest depth of a node.
pub const PATH: usize = 64;
/// Most bytes of a node's name.
pub const NAME_LEN: usize = 64;
/// Most bytes of a reason for the user.
pub const REASON_LEN: usize = 256;
/// Most runs of an ACK.
pub const ACK_RUNS: usize = 64;
/// Most runs of a NACK.
pub const NACK_RUNS: usize = 64;
/// Most blocks of a NACK.
pub const NACK_BLOCKS: u32 = 4096;
/// Most runs of a FETCH.
pub const FETCH_RUNS: usize = 32;
/// Most receivers of a report.
pub const REPORTS: usize = 64;
/// Most nodes of a report or a page of the tree.
pub const TREE_ENTRIES: usize = 32;
/// Longest time that a message may speak of.
pub const DURATION: Duration = Duration::from_hours(24);
