//! Messages of TMTP: the control tree, acknowledgements, NACKs and reports.
//!
//! Data packets are ALC ([`small_block`](crate::small_block)); all else is one control message
//! ([`control`](crate::control)) in one datagram. A message goes
//!
//! | message | from | to |
//! |---|---|---|
//! | [`Heartbeat`](Body::Heartbeat) | source | data channel |
//! | [`Search`](Body::Search) | who wants a parent | domain group, hop limit of the ring |
//! | [`Beacon`](Body::Beacon) | source, manager | domain group, multicast radius |
//! | [`Nack`](Body::Nack) | child | domain group, multicast radius |
//! | everything else | | one node |
//!
//! A *hop count* is the least hop limit with which a datagram reaches a node: 1 in the subnet. A
//! receiver of a datagram learns it from the hop limit with which the message says it was sent,
//! less what is left of it on arrival, plus 1.
//!
//! Parsing accepts nothing that a type's comment rules out, so an engine need not check again.
//! Emitting does not check: the peer refuses a message that keeps to no [`limits`].

mod esi_set;
pub mod limits;
mod message;
mod tree;
mod values;

use std::net::SocketAddr;
use std::time::Duration;

use crate::{Digest, Tsi};

pub use esi_set::EsiSet;
pub use message::MessageType;

/// A process that takes part in feeds: source, domain manager or member. Drawn at random; a
/// process that starts again is another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// What a node is in the control tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A group member that is no manager.
    Member,
    /// The domain manager of its subnet.
    Manager,
    /// The root of the tree.
    Source,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The feed that it is about: the source's session.
    pub feed: Tsi,
    /// Who sends it.
    pub sender: NodeId,
    /// What it says.
    pub body: Body,
}

/// What a message says.
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
    /// The sender does not become the parent.
    JoinRefused {
        /// The request's.
        nonce: u64,
        /// Why not.
        reason: Refusal,
    },
    /// What a manager tells its domain from time to time.
    Beacon(Beacon),
    /// What the source tells everyone from time to time.
    Heartbeat(Box<Heartbeat>),
    /// ACK: what a child holds and how its subtree fares.
    Ack(Ack),
    /// NACK: asks the parent for what is missing, and tells siblings that they need not.
    Nack(Nack),
    /// LEAVE_TREE: a child leaves its parent.
    LeaveTree {
        /// The child's, from JOIN_CONFIRM.
        token: u64,
        /// Names the request.
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
        /// Names the request.
        nonce: u64,
    },
    /// The reply to FIND_NEW_PARENT: the child has another parent.
    FindNewParentReply {
        /// The child's, from JOIN_CONFIRM.
        token: u64,
        /// The FIND_NEW_PARENT's.
        nonce: u64,
    },
    /// The sender is no longer the child's parent.
    Dismiss {
        /// The child's, from JOIN_CONFIRM.
        token: u64,
        /// Why.
        reason: Dismissal,
    },
    /// FETCH: asks for whole blocks that no parent's buffer owes the sender.
    Fetch {
        /// Names the request, so that nobody else can answer it.
        nonce: u64,
        /// Shows that the sender is where its address says: from [`FetchCookie`](Body::FetchCookie),
        /// or 0 where it has none yet.
        cookie: u64,
        /// The blocks: ascending, not overlapping, at least 1 and at most [`limits::FETCH_RUNS`]
        /// runs.
        runs: Vec<BlockRun>,
    },
    /// Answers a FETCH without a good cookie: ask again with this one.
    FetchCookie {
        /// The FETCH's.
        nonce: u64,
        /// For this address.
        cookie: u64,
    },
    /// Answers a FETCH: these blocks are not to be had any more.
    FetchGone {
        /// The nonce of the last FETCH that asked for them.
        nonce: u64,
        /// As in [`Fetch`](Body::Fetch).
        runs: Vec<BlockRun>,
    },
    /// REPORT: what a child knows of its subtree, on its way to the source.
    Report(Report),
    /// The parent has taken reports.
    ReportAck {
        /// The child's, from JOIN_CONFIRM.
        token: u64,
        /// All reports before this number.
        before: u32,
    },
    /// TREE_QUERY: asks the source for a page of the control tree. The sender need be no node.
    TreeQuery {
        /// Names the query.
        nonce: u64,
        /// Shows that the sender is where its address says: from a page, or 0.
        cookie: u64,
        /// The page begins after this node; at the beginning if `None`.
        after: Option<NodeId>,
    },
    /// TREE_PAGE: a page of the control tree, in the order of the nodes' numbers.
    TreePage(TreePage),
}

/// SEARCH_FOR_PARENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// Names the search.
    pub nonce: u64,
    /// The hop limit with which it was sent; at least 1.
    pub hop_limit: u8,
    /// The UDP port where the sender takes answers; not 0.
    pub port: u16,
    /// What the sender wants to become: member or manager.
    pub role: Role,
}

/// WILLING_TO_BE_PARENT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Willing {
    /// The search's.
    pub nonce: u64,
    /// The hop limit with which it was sent; at least 1.
    pub hop_limit: u8,
    /// Manager or source.
    pub role: Role,
    /// Managers that the sender has as children already.
    pub children: u16,
    /// Where the sender stands.
    pub standing: Standing,
}

/// Where a node stands below the source, and since when it has known so. A node takes only a
/// parent whose standing is [better](Standing::may_be_above) than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Standing {
    /// The source's clock when it said so, in milliseconds: it comes down the tree in beacons.
    pub epoch: u64,
    /// Edges of the tree from the source; at most [`limits::PATH`].
    pub depth: u16,
}

/// JOIN_REQUEST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// Names the request; JOIN_CONFIRM gives it back, which only the node asked can.
    pub nonce: u64,
    /// The hop limit with which it was sent; at least 1.
    pub hop_limit: u8,
    /// Hops from the parent to the sender, as the sender measured them; at least 1.
    pub hops: u8,
    /// What the sender wants to become: member or manager.
    pub role: Role,
    /// Where the sender stood last.
    pub standing: Standing,
    /// What the user calls the sender; at most [`limits::NAME_LEN`] bytes, may be empty.
    pub name: String,
    /// Shows that the sender is admitted, where admission is asked for.
    pub proof: Option<Digest>,
}

/// JOIN_CONFIRM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinConfirm {
    /// The request's.
    pub nonce: u64,
    /// What the child proves itself with from now on.
    pub token: u64,
    /// The first block that the parent guarantees: it sends this and later ones again until the
    /// child has acknowledged them. Earlier ones are fetched.
    pub from: u32,
    /// What the feed is.
    pub feed: FeedInfo,
    /// The parent's present beacon. Its path is not empty.
    pub beacon: Beacon,
}

/// Why a node does not become a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has as many children as it takes.
    Full,
    /// It has no path to the source now.
    Detached,
    /// The child might be one of its ancestors.
    Loop,
    /// The child is not on the list of those admitted, or cannot show that it is.
    NotAdmitted,
    /// The child is too far away.
    TooFar,
    /// It is leaving the tree, or the feed is over.
    Leaving,
}

/// Why a parent no longer is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dismissal {
    /// The child made no progress for so long that it held up the feed.
    Slow,
    /// The parent does not know the child: it was silent for too long, or never was one.
    Unknown,
    /// The parent is no manager any more.
    Demoted,
}

/// How a domain measures time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// T_ack: a child acknowledges so often; above zero.
    pub t_ack: Duration,
    /// n: T_retrans is so many T_ack; at least 2 [TMTP, flow control].
    pub intervals: u8,
    /// Round trip to the farthest child, over which NACKs are spread.
    pub rtt: Duration,
}

/// How far a feed has come.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// One beyond the last block that was sent whole, as far as the sender knows.
    pub sent: u32,
    /// The lowest block that the sender's buffer still holds; at most `sent`.
    pub lowest: u32,
    /// Where it ends, once the source has said so.
    pub end: Option<End>,
}

/// Where a feed ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// How many blocks it has.
    pub blocks: u32,
    /// Why what it carries is incomplete; at most [`limits::REASON_LEN`] bytes. `None` if all
    /// went well.
    pub failed: Option<String>,
}

/// What a feed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedInfo {
    /// The source.
    pub source: NodeId,
    /// Where the source takes what is sent to it alone.
    pub address: SocketAddr,
    /// Bytes of a symbol; at least 1.
    pub symbol_len: u16,
    /// Most source symbols of a block; at least 1. With 1 a block is a packet, as in the paper.
    pub block_symbols: u8,
    /// Repairs are Reed–Solomon symbols not sent before in the domain, instead of the very
    /// packets that were lost.
    pub fec: bool,
    /// The first blocks that say what the others contain; `None` in a pipe.
    pub manifest: Option<Manifest>,
}

/// What the first blocks of a feed contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// How many blocks it takes; at least 1.
    pub blocks: u32,
    /// Its bytes.
    pub len: u64,
    /// Its digest.
    pub digest: Digest,
}

/// What a manager tells its domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// The hop limit with which it was sent; at least 1.
    pub hop_limit: u8,
    /// The UDP port where the sender takes what is sent to it alone; not 0.
    pub port: u16,
    /// Manager or source.
    pub role: Role,
    /// The multicast radius: the hops to the farthest child; at least 1.
    pub radius: u8,
    /// When it was sent, by the sender's own clock; children echo it.
    pub stamp_ns: u64,
    /// Where the sender stands; its depth is that of the path, or 0.
    pub standing: Standing,
    /// The way from the source to the sender, both included: at most [`limits::PATH`] nodes, none
    /// twice, the last being the message's sender. Empty while the sender has no path to the
    /// source.
    pub path: Vec<NodeId>,
    /// Managers that the sender has as children.
    pub children: u16,
    /// T_ack and the like.
    pub timing: Timing,
    /// How far the feed has come.
    pub progress: Progress,
    /// The feed is over and its group deleted: nothing is served any more.
    pub closing: bool,
    /// Someone looks at the tree: managers report on themselves.
    pub watched: bool,
}

/// What the source tells everyone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// What the feed is.
    pub feed: FeedInfo,
    /// The source's beacon. Its path is the source alone.
    pub beacon: Beacon,
}

/// A run of neighbouring blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// The first block.
    pub first: u32,
    /// How many; at least 1. `first + count` fits 32 bits.
    pub count: u32,
}

/// Gives the parent its time stamp back, so that it learns the round trip to the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// [`Beacon::stamp_ns`] of the parent's last beacon.
    pub stamp_ns: u64,
    /// From the arrival of that beacon to the sending of this message.
    pub held: Duration,
}

/// What a subtree amounts to: the node itself and all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Totals {
    /// Receivers.
    pub members: u32,
    /// Receivers that have it all: GOT_IT.
    pub done: u32,
    /// Receivers that have given up.
    pub failed: u32,
    /// Every receiver of the subtree holds all blocks before this one.
    pub below: u32,
    /// Levels of managers in the subtree: 0 of a member alone; at most [`limits::PATH`].
    pub height: u8,
}

/// ACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The child's, from JOIN_CONFIRM.
    pub token: u64,
    /// Counts the child's acknowledgements, from 0; it wraps.
    pub round: u32,
    /// The child holds every block before this one that the parent guarantees.
    pub below: u32,
    /// One beyond the highest block that the child has heard of; at least `below`.
    pub known: u32,
    /// What it holds from `below` to `known`; what is not listed it lacks wholly. Ascending, not
    /// overlapping, at most [`limits::ACK_RUNS`].
    pub beyond: Vec<AckRun>,
    /// Data packets that came by the data channel since the ACK before.
    pub received: u32,
    /// Data packets of the data channel found missing since the ACK before.
    pub lost: u32,
    /// Data packets that reached the host since the ACK before and could not be kept.
    pub overrun: u32,
    /// One beyond the number of the last packet of the data channel that came, first sendings and
    /// repairs each having numbers of their own; 0 before the first. So the source knows when what
    /// the ACK counts was sent.
    pub next_index: u32,
    /// The same of repairs.
    pub next_repair: u32,
    /// Blocks from `known` on that the child has room for.
    pub room: u32,
    /// What its subtree amounts to.
    pub totals: Totals,
    /// The parent's last beacon, if one was heard since the ACK before.
    pub echo: Option<Echo>,
}

/// Neighbouring blocks of which a child lacks equally much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckRun {
    /// The blocks.
    pub run: BlockRun,
    /// Symbols lacking of each; 0 if it is complete.
    pub lacks: u8,
}

/// NACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Who is to answer.
    pub parent: NodeId,
    /// The hop limit with which it was sent; at least 1.
    pub hop_limit: u8,
    /// What is missing: ascending, not overlapping, at least 1 and at most [`limits::NACK_RUNS`]
    /// runs and [`limits::NACK_BLOCKS`] blocks.
    pub runs: Vec<NackRun>,
}

/// Neighbouring blocks of which equally much is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackRun {
    /// The blocks.
    pub run: BlockRun,
    /// What is missing of each.
    pub need: Need,
}

/// What is missing of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All of it: nothing came, not even how many symbols it has.
    Whole,
    /// So many symbols, whichever; at least 1.
    Count(u8),
    /// These very symbols; at least 1.
    Exact(EsiSet),
}

/// REPORT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The child's, from JOIN_CONFIRM.
    pub token: u64,
    /// Number of the first receiver in it; the child counts all that it reports to this parent,
    /// from 0, and the parent confirms them. Nodes of the tree are not counted, nor confirmed.
    pub first: u32,
    /// Receivers; at most [`limits::REPORTS`].
    pub receivers: Vec<ReceiverReport>,
    /// Nodes of the control tree; at most [`limits::TREE_ENTRIES`].
    pub tree: Vec<TreeEntry>,
}

/// How a receiver fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverReport {
    /// The receiver.
    pub node: NodeId,
    /// What its user calls it; at most [`limits::NAME_LEN`] bytes.
    pub name: String,
    /// Blocks that it holds.
    pub held: u32,
    /// How it stands.
    pub state: ReceiverState,
}

/// How a receiver stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// It still receives.
    Receiving,
    /// It has all that it wanted.
    Done,
    /// It has given up; at most [`limits::REASON_LEN`] bytes of reason.
    Failed(String),
    /// It left before the end.
    Left,
}

/// A node of the control tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// The node.
    pub node: NodeId,
    /// Its parent; `None` of the source.
    pub parent: Option<NodeId>,
    /// Where it takes what is sent to it alone.
    pub address: SocketAddr,
    /// What its user calls it; at most [`limits::NAME_LEN`] bytes.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Edges of the tree from the source; at most [`limits::PATH`].
    pub depth: u16,
    /// Hops from its parent; 0 of the source.
    pub hops: u8,
    /// Its multicast radius; 0 of a member.
    pub radius: u8,
    /// Local members in its domain, itself not among them.
    pub members: u32,
    /// Managers that it has as children.
    pub children: u16,
    /// Data packets that it found missing, in a million; at most 1,000,000.
    pub loss_ppm: u32,
    /// Acknowledgements, NACKs, timers and retransmissions that it handled lately, in a thousand
    /// seconds.
    pub load_per_ks: u32,
}

/// TREE_PAGE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreePage {
    /// The query's.
    pub nonce: u64,
    /// For the next query from the same address. A query without a good cookie gets a page
    /// without nodes, so that nobody has pages sent to another's address.
    pub cookie: u64,
    /// What the tree amounts to.
    pub totals: Totals,
    /// Nodes; at most [`limits::TREE_ENTRIES`].
    pub entries: Vec<TreeEntry>,
    /// There are nodes after the last of them.
    pub more: bool,
}

impl Standing {
    /// Whether a node that stands here may be the parent of one that stands at `child`, or stood
    /// there last. Standings only get better: later epochs, or less depth in the same one. What a
    /// child has from its parent was so once, so a parent always stands above its child, and
    /// edges form no loop at any moment, whatever was lost or is out of date. The same order keeps
    /// routes loop-free in AODV [RFC 3561 §6.2].
    pub fn may_be_above(self, child: Standing) -> bool {
        self.epoch > child.epoch || self.epoch == child.epoch && self.depth < child.depth
    }

    /// Of the child of a node that stands here.
    #[must_use]
    pub fn below(self) -> Standing {
        Standing { epoch: self.epoch, depth: self.depth.saturating_add(1) }
    }
}

impl Totals {
    /// Whether every receiver has it all or has given up.
    pub fn is_settled(self) -> bool {
        u64::from(self.done) + u64::from(self.failed) >= u64::from(self.members)
    }
}

impl BlockRun {
    /// One beyond the last block.
    pub fn end(self) -> u32 {
        self.first.saturating_add(self.count)
    }

    /// The blocks.
    pub fn blocks(self) -> std::ops::Range<u32> {
        self.first..self.end()
    }
}
