//! Limits of messages. Parsing refuses a message that exceeds one.

use std::time::Duration;

/// Maximum number of nodes in a path from the source to a manager, and maximum depth of a node.
pub const PATH: usize = 64;
/// Maximum length of a node's name in bytes.
pub const NAME_LEN: usize = 64;
/// Maximum length of a reason for the user in bytes.
pub const REASON_LEN: usize = 256;
/// Maximum number of runs in an ACK.
pub const ACK_RUNS: usize = 64;
/// Maximum number of runs in a NACK.
pub const NACK_RUNS: usize = 64;
/// Maximum number of blocks in a NACK.
pub const NACK_BLOCKS: u32 = 4096;
/// Maximum number of runs in a FETCH.
pub const FETCH_RUNS: usize = 32;
/// Maximum number of receivers in a report.
pub const REPORTS: usize = 64;
/// Maximum number of nodes in a report or a page of the tree.
pub const TREE_ENTRIES: usize = 32;
/// Maximum number of digests of symbols in a message.
pub const SYMBOL_DIGESTS: usize = 128;
/// Maximum of any duration in a message.
pub const DURATION: Duration = Duration::from_hours(24);
/// Least of the longest payload that a receiver names: with headers, the least MTU that IPv4 hosts
/// must take [RFC 1122 §3.3.3].
pub const SHORTEST_PAYLOAD: u16 = 548;
