//! What a source and a receiver are asked for and what they tell.
//!
//! Both are [engines](crate::Engine). A host gives them the datagrams of three ways: the data
//! channel, the domain group (each as [`Address::Channel`](crate::Address) with the sender's
//! IP address as `source`), and what is sent to the node alone
//! ([`Address::Host`](crate::Address)). Of the latter two it says the
//! [hop limit left](crate::Datagram::hop_limit), and gives them whole, control messages and data
//! packets alike.
//!
//! All data packets (first sendings, repairs, answers to FETCH) wait for the host's pacer
//! ([`wants`](crate::Engine::wants)), at the source and at managers; control messages do
//! not.
//!
//! A feed is blocks 0, 1, 2 …, of 1 to [`Shape::block_symbols`](super::Shape) symbols each. Which
//! file or which part of a pipe they are is the hosts' affair. The engine names block b
//! `BlockId { toi: FEED, sbn: b }` to a [`SymbolSource`](crate::symbols::SymbolSource) and a
//! [`SymbolSink`](crate::symbols::SymbolSink).

use std::net::SocketAddr;

use umbel_wire::Toi;
use umbel_wire::tmtp::{
    BlockRun, End, FeedInfo, NodeId, ReceiverReport, Refusal, Role, Totals, TreeEntry,
};

use crate::load::ProcessingLoad;
use crate::units::Rate;

/// The object that all data packets of a feed belong to.
pub const FEED: Toi = Toi(1);

/// [`SmallBlockHeader::transmission`](umbel_wire::SmallBlockHeader::transmission): why a data
/// packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// The source's first sending, on the data channel. The header's index counts these packets,
    /// so that receivers find out what is lost.
    First,
    /// A repair within a domain, or a retransmission after T_retrans.
    Repair,
    /// An answer to FETCH.
    Fetched,
}

impl Purpose {
    /// As the header says it.
    pub const fn transmission(self) -> u32 {
        match self {
            Purpose::First => 0,
            Purpose::Repair => 1,
            Purpose::Fetched => 2,
        }
    }

    /// What the header says; `None` for what no version of ours sends.
    pub const fn of(transmission: u32) -> Option<Purpose> {
        match transmission {
            0 => Some(Purpose::First),
            1 => Some(Purpose::Repair),
            2 => Some(Purpose::Fetched),
            _ => None,
        }
    }
}

/// Neighbouring blocks of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCount {
    /// How many blocks.
    pub count: u32,
    /// Source symbols of each; 1 to [`Shape::block_symbols`](super::Shape::block_symbols).
    pub symbols: u8,
}

/// What the application asks of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceCommand {
    /// CreateGroup: take children from now on, and say so by heartbeats. Blocks are sent as soon
    /// as there are any.
    Start,
    /// The feed goes on with these blocks, which the symbol source can give. The manifest's
    /// blocks come first.
    Extend(Vec<BlockCount>),
    /// The feed ends with the last block extended.
    Finish {
        /// Why it is incomplete, for receivers' users; cut to
        /// [`limits::REASON_LEN`](umbel_wire::tmtp::limits::REASON_LEN) bytes. `None` if all went
        /// well.
        failed: Option<String>,
    },
    /// Symbols that were pending are ready.
    SymbolsReady,
    /// Begins no more blocks, or goes on: nobody needs more for now. Repairs, answers to FETCH and
    /// heartbeats go on meanwhile.
    Pause(bool),
    /// DeleteGroup: tell everyone that the feed is over, serve nobody any more, then
    /// [`Closed`](SourceEvent::Closed).
    Close,
}

/// Why a source does not carry out a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceCommandError {
    /// Blocks after the end.
    #[error("the feed has ended: no more blocks can follow")]
    Finished,
    /// A block of no symbols or of too many.
    #[error("a block of {symbols} symbols; 1 to {max} are allowed")]
    BlockSymbols {
        /// What was asked for.
        symbols: u8,
        /// What the shape allows.
        max: u8,
    },
    /// More blocks than 32 bits number.
    #[error("the feed would have more than 4,294,967,295 blocks")]
    TooManyBlocks,
    /// The source is closing.
    #[error("the feed is closing")]
    Closing,
}

/// What a source tells its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// Every child that is waited for holds all blocks before this one: a pipe may forget them,
    /// unless its history keeps them for FETCHes.
    Acknowledged {
        /// The first block that is not acknowledged.
        below: u32,
    },
    /// The rate at which data packets are to leave changed.
    Rate(Rate),
    /// What the tree amounts to changed.
    Totals(Totals),
    /// News of a receiver came up the tree: each state of each receiver once, the last one
    /// counts.
    Report(ReceiverReport),
    /// A node of the control tree, while someone looks at it.
    Tree(TreeEntry),
    /// A child that held up the feed is no longer waited for.
    Evicted(NodeId),
    /// The feed has ended, and every receiver that is known has it all, gave up or left.
    Complete,
    /// The symbol source cannot give a block any more. The feed ends before it.
    Gone(String),
    /// Another source uses this feed's number and groups.
    Rival(SocketAddr),
    /// The group is deleted; nothing more is sent.
    Closed,
}

/// What a source has done and seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Events that the paper counts as processing load.
    pub load: ProcessingLoad,
    /// Packets sent for the first time.
    pub data_sent: u64,
    /// Repairs and retransmissions sent to the source's own domain.
    pub repairs_sent: u64,
    /// Packets that answered FETCHes.
    pub fetched_sent: u64,
    /// Control messages sent.
    pub control_sent: u64,
    /// Blocks sent for the first time.
    pub blocks_sent: u32,
    /// One beyond the last block that every child waited for holds.
    pub acknowledged: u32,
    /// How often the window was shut: the slowest child held up the feed.
    pub stalls: u64,
    /// Children that were evicted.
    pub evicted: u64,
    /// Local members that are children.
    pub members: u32,
    /// Managers that are children; at most K.
    pub children: u16,
    /// What the tree amounts to.
    pub totals: Totals,
}

/// What the application asks of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// JoinGroup: listen, and find a parent.
    Join,
    /// What of the feed is wanted, once: when the manifest has been read, or at once in a pipe.
    /// Until then the manifest's blocks alone are asked for; others that come are stored if the
    /// sink takes them.
    Want {
        /// Blocks after the manifest and before this one are not wanted. With
        /// [`Start::Now`](super::Start::Now) nothing before [`Started`](ReceiverEvent::Started) is
        /// either, whatever stands here.
        from: u32,
        /// Blocks that are held already, or not wanted: ascending, not overlapping.
        skip: Vec<BlockRun>,
    },
    /// These blocks are not wanted any more: what they are part of cannot be kept.
    Skip(BlockRun),
    /// What was restored of a block is wrong, or lost: all of it is wanted again.
    RestoreFailed {
        /// The block.
        block: u32,
    },
    /// The sink has room again, after it said that it had none.
    Room,
    /// So many packets reached this machine and were lost in it, since they came too fast.
    Overrun {
        /// Packets.
        packets: u32,
    },
    /// GOT_IT, or the opposite: the application has verified and written all that it wanted, or
    /// gives up.
    Done {
        /// Why it gives up; `None` if it has all.
        failed: Option<String>,
    },
    /// LeaveGroup: what children still need of this node is given first, for a bounded time, then
    /// [`Left`](ReceiverEvent::Left).
    Leave,
}

/// Why a receiver does not carry out a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverCommandError {
    /// It has not joined, or is leaving.
    #[error("not in the group")]
    Outside,
    /// A second `Want`.
    #[error("what is wanted was said before")]
    WantedAlready,
    /// Runs that descend or overlap.
    #[error("the blocks to skip must ascend and not overlap")]
    Skip,
    /// A block that was never restored.
    #[error("block {0} was not restored")]
    UnknownBlock(u32),
}

/// What a receiver tells its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// What the feed is: once, when it is first known.
    Feed(FeedInfo),
    /// The first block after the manifest that is wanted, once it is known where "now" is; 0 or
    /// the manifest's length if everything is wanted.
    Started {
        /// The block.
        from: u32,
    },
    /// It has a parent, for the first time or again.
    Joined {
        /// The parent.
        parent: NodeId,
        /// Where the parent takes what is sent to it alone.
        address: SocketAddr,
        /// Hops from it.
        hops: u8,
    },
    /// Its parent failed, left, or was cut off; another one is being sought.
    Orphaned,
    /// It is the manager of its subnet now.
    BecameManager,
    /// It is no manager any more.
    StoppedManaging,
    /// No parent takes it; it goes on trying if the refusal may pass.
    Refused(Refusal),
    /// It held up the feed for too long: its parent has given it up. It goes on with what comes
    /// and fetches the rest.
    Evicted,
    /// The feed ends here; a second time if the source fails after it has said so.
    End(End),
    /// Every block that is wanted, up to the feed's end, is restored.
    Complete,
    /// Blocks that are not to be had any more.
    Gone(BlockRun),
    /// The source has deleted the group, or was not heard for so long that it must be gone.
    SourceGone,
    /// It has left the group.
    Left,
}

/// What a receiver has done and seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Events that the paper counts as processing load; a member's are all 0.
    pub load: ProcessingLoad,
    /// Packets of the data channel received.
    pub data_received: u64,
    /// Packets of the data channel found missing.
    pub data_lost: u64,
    /// Repairs received that were of use.
    pub repairs_received: u64,
    /// Repairs received that were of none.
    pub repairs_unneeded: u64,
    /// Answers to FETCH received.
    pub fetched_received: u64,
    /// ACKs sent.
    pub acks_sent: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// NACKs not sent because a sibling's was heard.
    pub nacks_suppressed: u64,
    /// FETCHes sent.
    pub fetches_sent: u64,
    /// Repairs and retransmissions sent as a manager.
    pub repairs_sent: u64,
    /// Control messages sent.
    pub control_sent: u64,
    /// Symbols for which the sink or the manager's buffer had no room.
    pub overrun: u64,
    /// Blocks restored.
    pub blocks: u32,
    /// Bytes in the manager's buffer.
    pub buffered: u64,
    /// What its subtree amounts to.
    pub totals: Totals,
}

/// Where a node stands in the control tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeView {
    /// What it is.
    pub role: Role,
    /// Its parent, where that takes what is sent to it alone, and the hops from it.
    pub parent: Option<(NodeId, SocketAddr, u8)>,
    /// The way from the source to the node, both included; empty without a parent.
    pub path: Vec<NodeId>,
    /// The multicast radius of its domain: the hops to the farthest child; at least 1.
    pub radius: u8,
    /// Local members that are its children.
    pub members: u32,
    /// Managers that are its children; at most K.
    pub children: u16,
}
