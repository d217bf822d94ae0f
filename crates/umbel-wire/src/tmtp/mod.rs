//! Messages of TMTP: the control tree, acknowledgements, NACKs and reports.
//!
//! Data packets are ALC ([`small_block`](crate::small_block)); everything else is one control
//! message ([`control`](crate::control)) in one datagram. The messages travel like this:
//!
//! | message | from | to |
//! |---|---|---|
//! | [`Heartbeat`](Body::Heartbeat) | source | data channel |
//! | [`Search`](Body::Search) | node without a parent | domain group, hop limit of the ring |
//! | [`Beacon`](Body::Beacon) | source, manager | domain group, multicast radius |
//! | [`Nack`](Body::Nack) | child | domain group, multicast radius |
//! | everything else | | one node |
//!
//! A child by unicast gets heartbeats by unicast as well.
//!
//! A *hop count* is the least hop limit with which a datagram reaches a node: 1 in the subnet. The
//! receiver of a datagram computes it: the hop limit that the message declares, less the hop limit
//! left on arrival, plus 1.
//!
//! Where a feed has a token or a list of keys, a [`Stamp`] follows each message in its datagram.
//! TREE_QUERY, TREE_PAGE and KEY_ANSWER have none. Its key, and who checks it, are up to the
//! engines. In an open feed, messages between child and parent have a [`Stamp`], and all others a
//! [`SignedStamp`]; but RECEPTION and REPORTS have none there: they come too often to sign them,
//! and cookie and nonce tell who may speak.
//!
//! Parsing accepts only values within the documented ranges, so an engine need not check again.
//! Emitting does not check; the peer refuses a message that exceeds [`limits`].

mod esi_set;
mod feedback;
mod fields;
pub mod limits;
mod message;
mod stamp;
mod tree;
mod values;

use std::net::SocketAddr;
use std::time::Duration;

use crate::reception::{ReceptionReport, ReportSchedule};
use crate::repository::{SymbolDigest, SymbolKey};
use crate::{Digest, Tsi};

pub use esi_set::EsiSet;
pub use feedback::{
    Ack, AckRun, Echo, Nack, NackRun, Need, ReceiverReport, ReceiverState, Report, Totals,
    TreeEntry, TreePage,
};
pub use message::MessageType;
pub use stamp::{CODE_LEN, NodeKeys, SIGNATURE_LEN, SignedStamp, Stamp, StampKey, without_stamp};

/// Length in bytes of the value by which a source finds a receiver on its list.
pub const KEY_HINT_LEN: usize = 16;
/// Length in bytes of a key in KEY_ANSWER: 32, and a tag.
pub const SEALED_KEY_LEN: usize = 32 + 16;

/// A process that takes part in feeds: source, domain manager or member. The number is random, or
/// in an open feed a digest of the node's [keys](NodeKeys); a restarted process is another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// Role of a node in the control tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A group member that is not a manager.
    Member,
    /// The domain manager of its subnet.
    Manager,
    /// The root of the tree.
    Source,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The feed of the message: the source's session.
    pub feed: Tsi,
    /// The sender of the message.
    pub sender: NodeId,
    /// Content of the message.
    pub body: Body,
}

/// Content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// SEARCH_FOR_PARENT: looks for a node that takes the sender as its child.
    Search(Search),
    /// WILLING_TO_BE_PARENT: answers a search.
    Willing(Willing),
    /// JOIN_REQUEST: asks a node to take the sender as its child.
    JoinRequest(JoinRequest),
    /// JOIN_CONFIRM: the sender is the parent now.
    JoinConfirm(Box<JoinConfirm>),
    /// Refuses to become the parent.
    JoinRefused {
        /// The request's.
        nonce: u64,
        /// The reason of the refusal.
        reason: Refusal,
    },
    /// JOIN_CHALLENGE: answers a JOIN_REQUEST in a feed whose tree is authentic. The child asks
    /// again, under a key that follows from both numbers.
    JoinChallenge {
        /// The request's.
        nonce: u64,
        /// Number that the parent drew for this request.
        challenge: u64,
    },
    /// KEY_REQUEST: asks the source for the key of the tree, in a feed for those on a list.
    KeyRequest {
        /// Identifies the request. KEY_ANSWER returns it.
        nonce: u64,
        /// Value by which the source finds the receiver on its list.
        hint: [u8; KEY_HINT_LEN],
    },
    /// KEY_ANSWER: the key of the tree, for the receiver that asked.
    KeyAnswer {
        /// The request's.
        nonce: u64,
        /// The key, encrypted, and a tag.
        sealed: [u8; SEALED_KEY_LEN],
    },
    /// Announces a manager's state to its domain, periodically.
    Beacon(Beacon),
    /// Announces the source's state to all nodes, periodically.
    Heartbeat(Box<Heartbeat>),
    /// ACK: the blocks that a child holds, and the totals of its subtree.
    Ack(Ack),
    /// NACK: asks the parent for the missing symbols, and tells siblings that they need not.
    Nack(Nack),
    /// LEAVE_TREE: a child leaves its parent.
    LeaveTree {
        /// The child's, from JOIN_CONFIRM.
        token: u64,
        /// Identifies the request.
        nonce: u64,
    },
    /// LEAVE_CONFIRM: the sender has forgotten its child.
    LeaveConfirm {
        /// The LEAVE_TREE's.
        nonce: u64,
    },
    /// FIND_NEW_PARENT: the parent wants to leave the tree.
    FindNewParent {
        /// The child's, from JOIN_CONFIRM.
        token: u64,
        /// Identifies the request.
        nonce: u64,
    },
    /// The reply to FIND_NEW_PARENT: the child has another parent.
    FindNewParentReply {
        /// The child's, from JOIN_CONFIRM.
        token: u64,
        /// The FIND_NEW_PARENT's.
        nonce: u64,
    },
    /// Ends the sender's role as the child's parent.
    Dismiss {
        /// The child's, from JOIN_CONFIRM.
        token: u64,
        /// The reason.
        reason: Dismissal,
    },
    /// FETCH: asks for whole blocks that are not in the buffer of any parent of the sender.
    Fetch {
        /// Identifies the request, so that no other node can answer it.
        nonce: u64,
        /// Proves that the sender receives at its address: from [`FetchCookie`](Body::FetchCookie),
        /// or 0 if it has none yet.
        cookie: u64,
        /// The blocks: ascending, not overlapping, at least 1 and at most [`limits::FETCH_RUNS`]
        /// runs.
        runs: Vec<BlockRun>,
        /// Those among them that are to come by unicast, even if others want them: symbols that
        /// came to all were forged.
        alone: Vec<BlockRun>,
        /// What else a child by unicast says: others leave it empty.
        portion: Portion,
    },
    /// Answers a FETCH without a valid cookie, to ask again with this one.
    FetchCookie {
        /// The FETCH's.
        nonce: u64,
        /// The cookie for this address.
        cookie: u64,
    },
    /// Answers a FETCH for blocks that are no longer available.
    FetchGone {
        /// The nonce of the last FETCH that asked for them.
        nonce: u64,
        /// The blocks, as in [`Fetch`](Body::Fetch).
        runs: Vec<BlockRun>,
    },
    /// FETCH_DIGESTS: asks for the digests of a block's symbols, of which some were wrong, or may
    /// be.
    FetchDigests {
        /// Identifies the request, so that no other node can answer it.
        nonce: u64,
        /// Cookie of the sender's address, as in [`Fetch`](Body::Fetch).
        cookie: u64,
        /// Key of the digests, drawn by the sender.
        key: SymbolKey,
        /// The block.
        block: u32,
    },
    /// SYMBOL_DIGESTS: answers FETCH_DIGESTS.
    SymbolDigests {
        /// The FETCH_DIGESTS's.
        nonce: u64,
        /// Number of the block's source symbols; at least 1.
        symbols: u8,
        /// ID of the first symbol.
        first: u8,
        /// Digests of this symbol and those that follow: 1 to [`limits::SYMBOL_DIGESTS`]. The last
        /// one is of a symbol below 255.
        digests: Vec<SymbolDigest>,
    },
    /// BLOCK_DIGESTS: the source tells everybody the digests of a block's symbols, since several
    /// asked for them. Only in open feeds, where it is signed.
    BlockDigests {
        /// Key of the digests, drawn by the source.
        key: SymbolKey,
        /// The block.
        block: u32,
        /// Number of the block's source symbols, as in [`SymbolDigests`](Body::SymbolDigests).
        symbols: u8,
        /// ID of the first symbol.
        first: u8,
        /// Digests of this symbol and those that follow, as in
        /// [`SymbolDigests`](Body::SymbolDigests).
        digests: Vec<SymbolDigest>,
    },
    /// RECEPTION: how the source's packets on the data channel arrive. It goes straight to the
    /// source, which finds its rate by it.
    Reception {
        /// Number that the sender drew once. The source's words to this receiver return it, which
        /// nodes that do not see the traffic cannot know.
        nonce: u64,
        /// Cookie of the sender's address, as in [`Fetch`](Body::Fetch). Without a valid one the
        /// report counts for nothing.
        cookie: u64,
        /// The report.
        report: ReceptionReport,
    },
    /// REPORTS: when the receiver is to report its reception. Also answers a RECEPTION without a
    /// valid cookie, with [`ReportSchedule::START`], and is then shorter than that.
    Reports {
        /// The RECEPTION's.
        nonce: u64,
        /// The cookie for this address.
        cookie: u64,
        /// When to report.
        schedule: ReportSchedule,
    },
    /// REPORT: state of the child's subtree, on its way to the source.
    Report(Report),
    /// Acknowledges reports.
    ReportAck {
        /// The child's, from JOIN_CONFIRM.
        token: u64,
        /// All reports before this number are acknowledged.
        before: u32,
    },
    /// TREE_QUERY: asks the source for a page of the control tree. The sender need not be a node.
    TreeQuery {
        /// Identifies the query.
        nonce: u64,
        /// Proves that the sender receives at its address: from a page, or 0.
        cookie: u64,
        /// The page begins after this node, or at the beginning if `None`.
        after: Option<NodeId>,
    },
    /// TREE_PAGE: a page of the control tree, in the order of the nodes' numbers.
    TreePage(TreePage),
}

/// What a child [by unicast](JoinRequest::by_unicast) takes of the blocks that it fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Portion {
    /// Number of symbols that it lacks at most of any of the blocks; at least 1. `None` for all of
    /// each.
    pub symbols: Option<u8>,
    /// Longest UDP payload that seems to pass; at least [`limits::SHORTEST_PAYLOAD`]. Symbols come
    /// in pieces where they do not fit. `None` where nothing is known against full packets.
    pub payload: Option<u16>,
}

/// SEARCH_FOR_PARENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// Identifies the search.
    pub nonce: u64,
    /// The hop limit of the message; at least 1.
    pub hop_limit: u8,
    /// The UDP port on which the sender receives answers; not 0.
    pub port: u16,
    /// The role that the sender wants: member or manager.
    pub role: Role,
    /// Asks only nodes of less depth than this, since the sender has a parent. `None` asks all.
    pub less_deep_than: Option<u16>,
}

/// WILLING_TO_BE_PARENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Willing {
    /// The search's.
    pub nonce: u64,
    /// The hop limit of the message; at least 1.
    pub hop_limit: u8,
    /// Role of the sender: manager or source.
    pub role: Role,
    /// Number of managers that are children of the sender.
    pub children: u16,
    /// Standing of the sender.
    pub standing: Standing,
}

/// Standing of a node: its distance from the source, and when it learned it. A node accepts only a
/// parent whose standing is [better](Standing::may_be_above) than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Standing {
    /// The source's clock in milliseconds when it announced this; it travels down the tree in
    /// beacons.
    pub epoch: u64,
    /// Edges of the tree from the source; at most [`limits::PATH`].
    pub depth: u16,
}

/// JOIN_REQUEST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// Identifies the request. JOIN_CONFIRM returns it, which only the addressed node can do.
    pub nonce: u64,
    /// The hop limit of the message; at least 1.
    pub hop_limit: u8,
    /// Hops from the parent to the sender, as the sender measured them; at least 1.
    pub hops: u8,
    /// The role that the sender wants: member or manager.
    pub role: Role,
    /// The sender's last standing.
    pub standing: Standing,
    /// The user's name for the sender; at most [`limits::NAME_LEN`] bytes, may be empty.
    pub name: String,
    /// Node that is asked, in an open feed. `None` if the sender knows its address only.
    pub parent: Option<NodeId>,
    /// Asks the source for everything by unicast, heartbeats as well, since multicast does not
    /// reach the sender.
    pub by_unicast: bool,
}

/// JOIN_CONFIRM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinConfirm {
    /// The request's.
    pub nonce: u64,
    /// Token with which the child authenticates its messages from now on.
    pub token: u64,
    /// The first block that the parent guarantees. It sends this and later blocks again until the
    /// child has acknowledged them; the child fetches earlier ones.
    pub from: u32,
    /// Parameters of the feed.
    pub feed: FeedInfo,
    /// The parent's current beacon. Its path is not empty.
    pub beacon: Beacon,
}

/// Reason for which a node refuses to become a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The node has as many children as it accepts.
    Full,
    /// The node has no path to the source now.
    Detached,
    /// The child might be one of the node's ancestors.
    Loop,
    /// The child is not on the list of admitted receivers, or cannot prove that it is.
    NotAdmitted,
    /// The child is too far away.
    TooFar,
    /// The node is leaving the tree, or the feed is over.
    Leaving,
}

/// Reason for which a parent dismisses a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dismissal {
    /// The child made no progress for so long that it held up the feed.
    Slow,
    /// The parent does not know the child: it was silent too long, or never was a child.
    Unknown,
    /// The parent is no longer a manager.
    Demoted,
}

/// Timing parameters of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// T_ack: the time between a child's acknowledgements; above zero.
    pub t_ack: Duration,
    /// n: T_retrans is `intervals` × T_ack; at least 2 [TMTP, flow control].
    pub intervals: u8,
    /// Round trip to the farthest child, over which NACKs are spread.
    pub rtt: Duration,
}

/// Progress of a feed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// One beyond the last block that was sent completely, as far as the sender knows.
    pub sent: u32,
    /// The lowest block that the sender's buffer still holds; at most `sent`.
    pub lowest: u32,
    /// End of the feed, once the source has announced it.
    pub end: Option<End>,
}

/// End of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Number of blocks of the feed.
    pub blocks: u32,
    /// Reason for which the content is incomplete; at most [`limits::REASON_LEN`] bytes. `None` if
    /// the content is complete.
    pub failed: Option<String>,
}

/// Parameters of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedInfo {
    /// The source.
    pub source: NodeId,
    /// Address at which the source receives unicast.
    pub address: SocketAddr,
    /// Length of a symbol in bytes; at least 1.
    pub symbol_len: u16,
    /// Maximum number of source symbols of a block; at least 1. With 1 a block is a packet, as in
    /// the paper.
    pub block_symbols: u8,
    /// Whether repairs are Reed–Solomon symbols not yet sent in the domain, rather than the lost
    /// packets themselves.
    pub fec: bool,
    /// The first blocks, which describe the content of the others; `None` in a pipe.
    pub manifest: Option<Manifest>,
}

/// Parameters of a feed's first blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Number of blocks; at least 1.
    pub blocks: u32,
    /// Length in bytes.
    pub len: u64,
    /// BLAKE3 digest.
    pub digest: Digest,
}

/// State that a manager announces to its domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// The hop limit of the message; at least 1.
    pub hop_limit: u8,
    /// The UDP port on which the sender receives unicast; not 0.
    pub port: u16,
    /// Manager or source.
    pub role: Role,
    /// The multicast radius: the number of hops to the farthest child; at least 1.
    pub radius: u8,
    /// Time of sending, by the sender's own clock; children echo it.
    pub stamp_ns: u64,
    /// Standing of the sender; its depth is that of the path, or 0.
    pub standing: Standing,
    /// The path from the source to the sender, both included: at most [`limits::PATH`] nodes, none
    /// twice, the last one being the sender. Empty while the sender has no path to the source.
    pub path: Vec<NodeId>,
    /// Number of managers that are children of the sender.
    pub children: u16,
    /// Timing parameters of the domain.
    pub timing: Timing,
    /// Progress of the feed.
    pub progress: Progress,
    /// Whether the feed is over and its group deleted, so that nothing is served any more.
    pub closing: bool,
    /// Whether the tree is being watched, so that managers report on themselves.
    pub watched: bool,
}

/// State that the source announces to all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Parameters of the feed.
    pub feed: FeedInfo,
    /// The source's beacon. Its path is the source alone.
    pub beacon: Beacon,
    /// Secret that only the source has known so far, once it says that the feed is over or has
    /// failed. The announcement has its digest.
    pub last_word: Option<[u8; 32]>,
}

/// A run of neighbouring blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The first block.
    pub first: u32,
    /// Number of blocks; at least 1. `first + count` fits 32 bits.
    pub count: u32,
}

impl Standing {
    /// Returns whether a node with this standing may be the parent of a node whose last standing
    /// was `child`. Standings only improve: later epochs, or less depth in the same epoch. A
    /// child's standing follows from one that its parent once had, so a parent always stands above
    /// its child. Edges therefore never form a loop, even with lost or outdated messages. The same
    /// order keeps routes loop-free in AODV [RFC 3561 §6.2].
    pub fn may_be_above(self, child: Standing) -> bool {
        self.epoch > child.epoch || self.epoch == child.epoch && self.depth < child.depth
    }

    /// Returns the standing of a child of this node.
    #[must_use]
    pub fn below(self) -> Standing {
        Standing { epoch: self.epoch, depth: self.depth.saturating_add(1) }
    }
}

impl BlockRun {
    /// Returns the block after the last one.
    pub fn end(self) -> u32 {
        self.first.saturating_add(self.count)
    }

    /// Returns the range of the blocks.
    pub fn blocks(self) -> std::ops::Range<u32> {
        self.first..self.end()
    }
}
