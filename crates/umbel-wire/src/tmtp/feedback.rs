//! Messages of nodes to those above them: acknowledgements, NACKs and reports. Also the page of the
//! tree, which the reports make.

use std::net::SocketAddr;
use std::time::Duration;

#[cfg(doc)]
use super::Beacon;
use super::fields::{
    ACK, BEYOND, COOKIE, ECHO, ENTRIES, FIRST, MISSING, MORE, NONCE, PARENT, RECEIVERS, TOKEN,
    TOTALS, reader,
};
#[cfg(doc)]
use super::limits;
use super::tree::{put_entries, put_receivers, read_entries, read_receivers};
use super::values::{
    put_ack_runs, put_echo, put_nack_runs, put_node, put_totals, read_ack_runs, read_echo,
    read_hops, read_nack_runs, read_node, read_totals,
};
use super::{BlockRun, EsiSet, NodeId, Role};
use crate::codec::{Reader, put_varint};
use crate::control::{Fields, Frame};
use crate::{Digest, ParseError};

/// Number of blocks for which a child has room, in its ACK. A child without room says 0.
const HAS_ROOM: u32 = u32::MAX;

/// The parent's time stamp, returned so that the parent learns the round trip to the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// [`Beacon::stamp_ns`] of the parent's last beacon.
    pub stamp_ns: u64,
    /// Time from the arrival of that beacon to the sending of this message.
    pub held: Duration,
}

/// Totals of a subtree: the node itself and all below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Totals {
    /// Number of receivers.
    pub members: u32,
    /// Number of receivers with all content: GOT_IT.
    pub done: u32,
    /// Number of receivers that have given up.
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
    /// Count of the child's acknowledgements, from 0; it wraps.
    pub round: u32,
    /// The child holds every block before this one that the parent guarantees.
    pub below: u32,
    /// One beyond the highest block known to the child; at least `below`.
    pub known: u32,
    /// Held blocks from `below` to `known`; a block that is not listed is missing completely.
    /// Ascending, not overlapping, at most [`limits::ACK_RUNS`].
    pub beyond: Vec<AckRun>,
    /// Number of data packets that arrived on the data channel since the last ACK.
    pub received: u32,
    /// Number of data packets of the data channel found missing since the last ACK.
    pub lost: u32,
    /// The child has no room for further blocks.
    pub full: bool,
    /// Totals of the child's subtree.
    pub totals: Totals,
    /// The parent's last beacon, if one arrived since the last ACK.
    pub echo: Option<Echo>,
}

/// A run of blocks with the same number of missing symbols each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckRun {
    /// The blocks.
    pub run: BlockRun,
    /// Missing symbols of each block; 0 if it is complete.
    pub lacks: u8,
}

/// NACK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The parent that is to answer.
    pub parent: NodeId,
    /// The hop limit of the message; at least 1.
    pub hop_limit: u8,
    /// Missing blocks: ascending, not overlapping, at least 1 and at most [`limits::NACK_RUNS`]
    /// runs and [`limits::NACK_BLOCKS`] blocks.
    pub runs: Vec<NackRun>,
}

/// A run of blocks with the same missing symbols each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackRun {
    /// The blocks.
    pub run: BlockRun,
    /// The missing symbols of each block.
    pub need: Need,
}

/// The missing symbols of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// All symbols: none arrived, and their number is unknown.
    Whole,
    /// Any symbols of this number; at least 1.
    Count(u8),
    /// Exactly these symbols; at least 1.
    Exact(EsiSet),
}

/// REPORT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The child's, from JOIN_CONFIRM.
    pub token: u64,
    /// Number of the first receiver in it. The child numbers its reports to this parent from 0, and
    /// the parent confirms them. Nodes of the tree are neither numbered nor confirmed.
    pub first: u32,
    /// Receivers; at most [`limits::REPORTS`].
    pub receivers: Vec<ReceiverReport>,
    /// Nodes of the control tree; at most [`limits::TREE_ENTRIES`].
    pub tree: Vec<TreeEntry>,
}

/// Report on a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverReport {
    /// The receiver.
    pub node: NodeId,
    /// The user's name for it; at most [`limits::NAME_LEN`] bytes.
    pub name: String,
    /// Number of blocks that it holds.
    pub held: u32,
    /// State of the receiver.
    pub state: ReceiverState,
    /// Proof that the receiver itself says that it is done, if the feed has keys for that.
    pub receipt: Option<Digest>,
}

/// State of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// It is still receiving.
    Receiving,
    /// It has all the content that it wants.
    Done,
    /// It has given up, with a reason of at most [`limits::REASON_LEN`] bytes.
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
    /// Address at which it receives unicast.
    pub address: SocketAddr,
    /// The user's name for it; at most [`limits::NAME_LEN`] bytes.
    pub name: String,
    /// Role of the node.
    pub role: Role,
    /// Edges of the tree from the source; at most [`limits::PATH`].
    pub depth: u16,
    /// Hops from its parent; 0 for the source.
    pub hops: u8,
    /// Its multicast radius; 0 for a member.
    pub radius: u8,
    /// Number of local members in its domain, not counting itself.
    pub members: u32,
    /// Number of managers that are its children.
    pub children: u16,
    /// Data packets that it found missing, per million; at most 1,000,000.
    pub loss_ppm: u32,
    /// Recent number of acknowledgements, NACKs, timers and retransmissions that it handled, per
    /// thousand seconds.
    pub load_per_ks: u32,
}

/// TREE_PAGE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreePage {
    /// The query's.
    pub nonce: u64,
    /// Cookie for the next query from the same address. A query without a valid cookie gets a page
    /// without nodes, so that a sender cannot direct pages to another address.
    pub cookie: u64,
    /// Totals of the whole tree.
    pub totals: Totals,
    /// Nodes; at most [`limits::TREE_ENTRIES`].
    pub entries: Vec<TreeEntry>,
    /// Whether there are nodes after the last one.
    pub more: bool,
}

impl Totals {
    /// Returns whether every receiver has everything or has given up.
    pub fn is_settled(self) -> bool {
        u64::from(self.done) + u64::from(self.failed) >= u64::from(self.members)
    }
}

impl Ack {
    pub(super) fn put(&self, frame: &mut Frame<'_>) {
        frame.number(TOKEN, self.token);
        frame.field(ACK, |out| {
            for number in [
                self.round,
                self.below,
                self.known.wrapping_sub(self.below),
                self.received,
                self.lost,
                if self.full { 0 } else { HAS_ROOM },
            ] {
                put_varint(out, number.into());
            }
        });
        if !self.beyond.is_empty() {
            frame.field(BEYOND, |out| put_ack_runs(out, self.below, &self.beyond));
        }
        frame.field(TOTALS, |out| put_totals(out, self.totals));
        if let Some(echo) = self.echo {
            frame.field(ECHO, |out| put_echo(out, echo));
        }
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Ack, ParseError> {
        let mut numbers = reader(fields, ACK)?;
        let (round, below) = (numbers.number()?, numbers.number::<u32>()?);
        let known = below.checked_add(numbers.number()?);
        let known = known.ok_or_else(|| numbers.bad("a block number above 32 bits"))?;
        let (received, lost) = (numbers.number()?, numbers.number()?);
        let room = numbers.number::<u32>()?;
        numbers.finish()?;
        let beyond = fields.optional(BEYOND)?.map(|value| {
            let reader = Reader::new(BEYOND.name, value);
            read_ack_runs(reader, below, known)
        });
        let echo = fields.optional(ECHO)?.map(|value| read_echo(Reader::new(ECHO.name, value)));
        Ok(Ack {
            token: fields.number(TOKEN)?,
            round,
            below,
            known,
            beyond: beyond.transpose()?.unwrap_or_default(),
            received,
            lost,
            full: room == 0,
            totals: read_totals(reader(fields, TOTALS)?)?,
            echo: echo.transpose()?,
        })
    }
}

impl Nack {
    pub(super) fn put(&self, frame: &mut Frame<'_>) {
        frame.field(PARENT, |out| {
            put_node(out, self.parent);
            out.push(self.hop_limit);
        });
        frame.field(MISSING, |out| put_nack_runs(out, &self.runs));
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Nack, ParseError> {
        let mut to = reader(fields, PARENT)?;
        let (parent, hop_limit) = (read_node(&mut to)?, read_hops(&mut to)?);
        to.finish()?;
        Ok(Nack { parent, hop_limit, runs: read_nack_runs(reader(fields, MISSING)?)? })
    }
}

impl Report {
    pub(super) fn put(&self, frame: &mut Frame<'_>) {
        frame.number(TOKEN, self.token);
        frame.number(FIRST, self.first);
        if !self.receivers.is_empty() {
            frame.field(RECEIVERS, |out| put_receivers(out, &self.receivers));
        }
        if !self.tree.is_empty() {
            frame.field(ENTRIES, |out| put_entries(out, &self.tree));
        }
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<Report, ParseError> {
        let receivers = fields.optional(RECEIVERS)?;
        let receivers = receivers.map(|value| read_receivers(Reader::new(RECEIVERS.name, value)));
        let entries = fields.optional(ENTRIES)?;
        let entries = entries.map(|value| read_entries(Reader::new(ENTRIES.name, value)));
        Ok(Report {
            token: fields.number(TOKEN)?,
            first: fields.number(FIRST)?,
            receivers: receivers.transpose()?.unwrap_or_default(),
            tree: entries.transpose()?.unwrap_or_default(),
        })
    }
}

impl TreePage {
    pub(super) fn put(&self, frame: &mut Frame<'_>) {
        frame.number(NONCE, self.nonce);
        frame.number(COOKIE, self.cookie);
        frame.field(TOTALS, |out| put_totals(out, self.totals));
        if !self.entries.is_empty() {
            frame.field(ENTRIES, |out| put_entries(out, &self.entries));
        }
        if self.more {
            frame.number(MORE, 1_u8);
        }
    }

    pub(super) fn read(fields: &mut Fields<'_>) -> Result<TreePage, ParseError> {
        let entries = fields.optional(ENTRIES)?;
        let entries = entries.map(|value| read_entries(Reader::new(ENTRIES.name, value)));
        Ok(TreePage {
            nonce: fields.number(NONCE)?,
            cookie: fields.number(COOKIE)?,
            totals: read_totals(reader(fields, TOTALS)?)?,
            entries: entries.transpose()?.unwrap_or_default(),
            more: fields.optional(MORE)?.is_some(),
        })
    }
}
