//! The interface of a source and a receiver to their hosts.
//!
//! Both are [engines](crate::Engine). A host hands them the datagrams of three ways: the data
//! channel, the domain group, and the node's own address. The first two come as
//! [`Address::Channel`](crate::Address) with the sender's IP address as `source`, the last as
//! [`Address::Host`](crate::Address). For the last two the host passes the [hop limit
//! left](crate::Datagram::hop_limit). It passes control messages and data packets alike.
//!
//! All data packets (first sendings, repairs, answers to FETCH) wait for the host's pacer
//! ([`wants`](crate::Engine::wants)), at the source and at managers. Control messages do not.
//!
//! A feed is blocks 0, 1, 2 …, of 1 to [`Shape::block_symbols`](super::Shape) symbols each. Which
//! file or which part of a pipe they are is up to the host. The engine names block b `BlockId {
//! toi: FEED, sbn: b }` to a [`SymbolSource`](crate::symbols::SymbolSource) and a
//! [`SymbolSink`](crate::symbols::SymbolSink).

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Toi;
use umbel_wire::tmtp::{
    BlockRun, End, FeedInfo, NodeId, ReceiverReport, Refusal, Role, Totals, TreeEntry,
};

use crate::load::ProcessingLoad;
use crate::units::Rate;

/// The object that all data packets of a feed belong to.
pub const FEED: Toi = Toi(1);

/// Reason for which a data packet was sent, in
/// [`SmallBlockHeader::transmission`](umbel_wire::SmallBlockHeader::transmission).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// First sending by the source, on the data channel. The header's index counts these packets,
    /// so that receivers detect losses.
    First,
    /// Repair within a domain, or retransmission after T_retrans.
    Repair,
    /// Answer to FETCH.
    Fetched,
    /// Answer to FETCH by unicast: a piece of a symbol that does not fit the path as a whole.
    Piece,
}

impl Purpose {
    /// Returns the header's number for this purpose.
    pub const fn transmission(self) -> u32 {
        match self {
            Purpose::First => 0,
            Purpose::Repair => 1,
            Purpose::Fetched => 2,
            Purpose::Piece => 3,
        }
    }

    /// Returns the purpose for the header's number; `None` for an unknown one.
    pub const fn of(transmission: u32) -> Option<Purpose> {
        match transmission {
            0 => Some(Purpose::First),
            1 => Some(Purpose::Repair),
            2 => Some(Purpose::Fetched),
            3 => Some(Purpose::Piece),
            _ => None,
        }
    }
}

/// Neighbouring blocks of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCount {
    /// Number of blocks.
    pub count: u32,
    /// Source symbols of each; 1 to [`Shape::block_symbols`](super::Shape::block_symbols).
    pub symbols: u8,
}

/// Commands of an application to a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceCommand {
    /// CreateGroup: accepts children from now on and says so by heartbeats. Blocks are sent as
    /// soon as there are any.
    Start,
    /// Extends the feed with these blocks, which the symbol source can provide. The manifest's
    /// blocks come first.
    Extend(Vec<BlockCount>),
    /// Ends the feed with the last block extended.
    Finish {
        /// Reason why the feed is incomplete, for receivers' users. Cut to
        /// [`limits::REASON_LEN`](umbel_wire::tmtp::limits::REASON_LEN) bytes. `None` if all went
        /// well.
        failed: Option<String>,
    },
    /// Reports that symbols that were pending are ready.
    SymbolsReady,
    /// Begins no more blocks, or goes on, because no more are needed for now. Repairs, answers to
    /// FETCH and heartbeats go on meanwhile.
    Pause(bool),
    /// DeleteGroup: tells all nodes that the feed is over, serves none any more, then reports
    /// [`Closed`](SourceEvent::Closed).
    Close,
}

/// Reason why a source refuses a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceCommandError {
    /// Blocks follow the end.
    #[error("the feed has ended: no more blocks can follow")]
    Finished,
    /// A block has no symbols or too many.
    #[error("a block of {symbols} symbols; 1 to {max} are allowed")]
    BlockSymbols {
        /// Symbols of the block.
        symbols: u8,
        /// Most symbols that the shape allows.
        max: u8,
    },
    /// More blocks than 32 bits can number.
    #[error("the feed would have more than 4,294,967,295 blocks")]
    TooManyBlocks,
    /// The source is closing.
    #[error("the feed is closing")]
    Closing,
}

/// Events that a source reports to its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// Every child that is waited for holds all blocks before this one. A pipe may forget them,
    /// unless its history keeps them for FETCHes.
    Acknowledged {
        /// First block that is not acknowledged.
        below: u32,
    },
    /// New rate at which data packets are to leave.
    Rate(Rate),
    /// New totals of the tree.
    Totals(Totals),
    /// News of a receiver that came up the tree. Each state of each receiver is reported once;
    /// the last one counts.
    Report(ReceiverReport),
    /// Node of the control tree, while someone looks at it.
    Tree(TreeEntry),
    /// Child that held up the feed and is no longer waited for.
    Evicted(NodeId),
    /// The path of a receiver carries less than the channel's rate. It does not count any more.
    Aside {
        /// The receiver, by its own words.
        node: NodeId,
        /// Its unicast address.
        address: SocketAddr,
        /// Rate that its path carries.
        carries: Rate,
        /// Whether it was a child, which now fetches what it lacks.
        was_child: bool,
    },
    /// Multicast does not reach a receiver. It fetches everything, and is not waited for until the
    /// end.
    ByUnicast {
        /// The receiver.
        node: NodeId,
        /// Its unicast address.
        address: SocketAddr,
    },
    /// A receiver hears the channel again, and is a child as before.
    ByMulticast {
        /// The receiver.
        node: NodeId,
    },
    /// The feed has ended, and every known receiver has all of it, gave up or left.
    Complete,
    /// The symbol source cannot provide a block any more. The feed ends before it.
    Gone(String),
    /// Another source uses this feed's number and groups.
    Rival(SocketAddr),
    /// The group is deleted; nothing more is sent.
    Closed,
}

/// Counters of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Events that the paper counts as processing load.
    pub load: ProcessingLoad,
    /// Packets sent for the first time.
    pub data_sent: u64,
    /// Repairs and retransmissions sent to the source's own domain.
    pub repairs_sent: u64,
    /// Repairs sent to the subtrees that routers named.
    pub dmcasts_sent: u64,
    /// Packets that answered FETCHes.
    pub fetched_sent: u64,
    /// Control messages sent.
    pub control_sent: u64,
    /// Blocks sent for the first time.
    pub blocks_sent: u32,
    /// One beyond the last block that every child waited for holds.
    pub acknowledged: u32,
    /// Times that the window was shut because the slowest child held up the feed.
    pub stalls: u64,
    /// Children that were evicted.
    pub evicted: u64,
    /// Local members among the children.
    pub members: u32,
    /// Managers among the children; at most K.
    pub children: u16,
    /// Totals of the tree.
    pub totals: Totals,
}

/// Commands of an application to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// JoinGroup: listens, and looks for a parent.
    Join,
    /// States once which part of the feed is wanted: when the manifest has been read, or at once
    /// in a pipe. Until then only the manifest's blocks are asked for. Others that come are
    /// stored if the sink takes them.
    Want {
        /// First block after the manifest that is wanted. With [`Start::Now`](super::Start::Now)
        /// nothing before [`Started`](ReceiverEvent::Started) is wanted either, whatever stands
        /// here.
        from: u32,
        /// Blocks that are held already, or not wanted: ascending, not overlapping.
        skip: Vec<BlockRun>,
    },
    /// Drops these blocks from what is wanted, because the item that they are part of cannot be
    /// kept.
    Skip(BlockRun),
    /// Wants all of a block again, because what was restored of it is wrong, or lost.
    RestoreFailed {
        /// Block that is wanted again.
        block: u32,
    },
    /// Reports that the sink has room again.
    Room,
    /// Reports packets that the machine dropped because they came too fast.
    Overrun {
        /// Number of packets.
        packets: u32,
    },
    /// GOT_IT, or the opposite: the application has verified and written all that it wanted, or
    /// gives up.
    Done {
        /// Reason for giving up; `None` if the application has all.
        failed: Option<String>,
    },
    /// LeaveGroup: gives children what they still need of this node, for a bounded time, then
    /// reports [`Left`](ReceiverEvent::Left).
    Leave,
}

/// Reason why a receiver refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiverCommandError {
    /// The receiver has not joined, or is leaving.
    #[error("not in the group")]
    Outside,
    /// `Want` came before.
    #[error("what is wanted was said before")]
    WantedAlready,
    /// Runs descend or overlap.
    #[error("the blocks to skip must ascend and not overlap")]
    Skip,
    /// The block was never restored.
    #[error("block {0} was not restored")]
    UnknownBlock(u32),
}

/// Events that a receiver reports to its application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// Description of the feed, once, when it is first known.
    Feed(FeedInfo),
    /// First block after the manifest that is wanted, once "now" is known. It is 0 or the
    /// manifest's length if everything is wanted.
    Started {
        /// First block.
        from: u32,
    },
    /// The receiver has a parent, for the first time or again.
    Joined {
        /// Node that is the parent.
        parent: NodeId,
        /// Unicast address of the parent.
        address: SocketAddr,
        /// Hops from the parent.
        hops: u8,
    },
    /// The parent failed, left, or was cut off. The receiver looks for another one.
    Orphaned,
    /// The parent brought nothing but wrong symbols of blocks that were wrong. The receiver leaves
    /// it, and bars its host for a while. [`Orphaned`](ReceiverEvent::Orphaned) follows.
    WrongRepairs {
        /// Unicast address of the parent.
        by: SocketAddr,
    },
    /// The receiver manages its subnet now.
    BecameManager,
    /// The receiver no longer manages its subnet.
    StoppedManaging,
    /// No parent takes the receiver. It retries if the refusal may pass.
    Refused(Refusal),
    /// The source, which is heard, gives this receiver no key of the tree: it is not on the list.
    NotListed,
    /// The receiver held up the feed for too long and was given up by its parent. It goes on with
    /// the data that come and fetches the rest.
    Evicted,
    /// End of the feed. Comes a second time if the source fails after it has announced the end.
    End(End),
    /// Every wanted block up to the feed's end is restored.
    Complete,
    /// Blocks that are not available any more.
    Gone(BlockRun),
    /// Multicast brings nothing, or nearly nothing, and the source sends by unicast instead. Multicast
    /// is listened to all the same.
    ByUnicast {
        /// What was wrong.
        why: TooLittle,
        /// What it brought before it was given up.
        brought: Brought,
    },
    /// Multicast works again.
    ByMulticast,
    /// The source sends at this rate now, by the stamps of its packets. Repairs need not go faster.
    SourceRate(Rate),
    /// The source has been silent for this long. The receiver joined its groups again, and goes on.
    SourceSilent(Duration),
    /// The source has deleted the group, or has been silent for
    /// [`ReceiverConfig::patience`](super::ReceiverConfig::patience).
    SourceGone,
    /// The receiver has left the group.
    Left,
}

/// What multicast brought in the time before a receiver gave it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brought {
    /// The time.
    pub within: Duration,
    /// Packets of data that came.
    pub packets: u64,
    /// Packets of data that did not, as far as is known.
    pub lost: u64,
}

/// Reason why a receiver gives multicast up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLittle {
    /// It brought nothing at all.
    Nothing,
    /// Heartbeats, which are short, and no data.
    NoData,
    /// Fewer packets than were worth it.
    FewPackets,
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// Events that the paper counts as processing load. A member's are all 0.
    pub load: ProcessingLoad,
    /// Heartbeats of the source received.
    pub heartbeats: u64,
    /// Packets with a symbol of full length received, by any way.
    pub full_received: u64,
    /// Packets of the data channel received.
    pub data_received: u64,
    /// Packets of the data channel found missing.
    pub data_lost: u64,
    /// Repairs received that were useful.
    pub repairs_received: u64,
    /// Repairs received that were not needed.
    pub repairs_unneeded: u64,
    /// Answers to FETCH received.
    pub fetched_received: u64,
    /// ACKs sent.
    pub acks_sent: u64,
    /// Repairs received that were useful, and that routers had brought from helpers.
    pub helped: u64,
    /// Requests sent that routers steer to helpers.
    pub requests_sent: u64,
    /// NACKs sent.
    pub nacks_sent: u64,
    /// NACKs suppressed by a sibling's.
    pub nacks_suppressed: u64,
    /// FETCHes sent with a cookie. Those without one draw no symbols, but a cookie.
    pub fetches_sent: u64,
    /// Repairs and retransmissions sent as a manager, or as a helper.
    pub repairs_sent: u64,
    /// Control messages sent.
    pub control_sent: u64,
    /// Symbols for which the sink or the manager's buffer had no room.
    pub overrun: u64,
    /// Blocks restored.
    pub blocks: u32,
    /// Bytes in the manager's buffer.
    pub buffered: u64,
    /// Totals of the receiver's subtree.
    pub totals: Totals,
}

/// Place of a node in the control tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeView {
    /// Role of the node.
    pub role: Role,
    /// Parent, its unicast address, and the hops from it.
    pub parent: Option<(NodeId, SocketAddr, u8)>,
    /// Path from the source to the node, both included. Empty without a parent.
    pub path: Vec<NodeId>,
    /// Multicast radius of the node's domain: the hops to the farthest child, at least 1.
    pub radius: u8,
    /// Local members among the node's children.
    pub members: u32,
    /// Managers among the node's children; at most K.
    pub children: u16,
}
