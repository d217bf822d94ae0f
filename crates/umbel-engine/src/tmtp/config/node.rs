//! A node: who it is, where its feed is, whom it admits, and what it draws.

use std::fmt;
use std::net::SocketAddr;

use umbel_wire::feed::Recovery;
use umbel_wire::repository::SymbolKey;
use umbel_wire::tmtp::NodeId;
#[cfg(doc)]
use umbel_wire::tmtp::limits;
use umbel_wire::{Channel, Tsi};

use crate::chance::{Generator, generator};

/// Identity of a node and the addresses of its feed.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Number of the node, drawn at random at each start.
    pub id: NodeId,
    /// Name that the user chose, for reports. Cut to [`limits::NAME_LEN`] bytes. Default empty.
    pub name: String,
    /// Session of the source, which is the feed.
    pub feed: Tsi,
    /// Data channel, from the source to all nodes.
    pub data: Channel,
    /// Domain group: any-source multicast of searches, beacons, NACKs and repairs.
    pub domain: Channel,
    /// Unicast address of the node. Others learn the IP address from what they receive, so a
    /// receiver may have a wildcard address with the right port.
    pub address: SocketAddr,
    /// Most hops of a search and of a radius. At least 1. Default 32.
    pub scope: u8,
    /// Recovery of losses. Without a tree every receiver is a child of the source. Default by the
    /// tree.
    pub recovery: Recovery,
    /// Proof of who sends a message. With any but the paper's the node must know its `address`.
    pub authentication: Authentication,
}

/// What stands behind the messages of a feed's nodes. Each message has a stamp, and only what has a
/// good one is heard. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Authentication {
    /// Nothing, as in the paper, which has no stamps: for experiments with it. No feed that is
    /// announced is like that.
    Paper,
    /// In an open feed, the node's own keys. They follow from this random seed, and the node's
    /// number is their digest ([`node_id`](crate::tmtp::node_id)).
    Keys([u8; 32]),
    /// A key that all holders of the feed's token share.
    Token([u8; 32]),
    /// The source's list of receivers; if the feed has a token as well, a node needs both.
    List {
        /// The list as this node knows it.
        list: List,
        /// The key that all holders of the token share.
        token: Option<[u8; 32]>,
    },
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Authentication::Paper => f.write_str("Paper"),
            Authentication::Keys(_) => f.write_str("Keys"),
            Authentication::Token(_) => f.write_str("Token"),
            Authentication::List { list, token } => {
                write!(f, "List({list:?}, token: {})", token.is_some())
            }
        }
    }
}

/// A list of the receivers of a feed, as one node knows it. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum List {
    /// The source has it.
    Has {
        /// Secret of the tree, drawn for this feed.
        tree: [u8; 32],
        /// For each receiver the secret that it shares with the source.
        receivers: Vec<[u8; 32]>,
    },
    /// The receiver shares this secret with the source, if it is on the list.
    On([u8; 32]),
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            List::Has { receivers, .. } => write!(f, "Has({})", receivers.len()),
            List::On(_) => f.write_str("On"),
        }
    }
}

impl NodeConfig {
    /// Creates a node with the defaults.
    pub fn new(
        id: NodeId,
        feed: Tsi,
        (data, domain): (Channel, Channel),
        address: SocketAddr,
        authentication: Authentication,
    ) -> NodeConfig {
        NodeConfig {
            id,
            name: String::new(),
            feed,
            data,
            domain,
            address,
            scope: 32,
            recovery: Recovery::Tree,
            authentication,
        }
    }

    /// Returns whether the node has keys of its own, as all nodes of an open feed have.
    pub(in crate::tmtp) fn has_keys(&self) -> bool {
        matches!(self.authentication, Authentication::Keys(_))
    }

    /// Returns the group to which nodes send, if they do.
    pub(in crate::tmtp) fn group(&self) -> Option<Channel> {
        self.recovery.has_group().then_some(self.domain)
    }
}

/// The generators of one node. A draw from one shifts none of the others.
#[derive(Clone, Debug)]
pub struct Draws {
    /// Nonces, tokens and backoffs of the control tree.
    pub tree: Generator,
    /// Delays of NACKs, and nonces of FETCHes.
    pub recovery: Generator,
    /// Delays of help for others, and nonces of pings.
    pub help: Generator,
    /// Receivers that report often, delays of reports, and their nonce.
    pub paths: Generator,
    /// Secret of the source's FETCH cookies.
    pub cookies: [u8; 32],
}

impl Draws {
    /// Returns the key of the digests that this node asks for, or tells everybody.
    pub(in crate::tmtp) fn digest_key(&self) -> SymbolKey {
        SymbolKey(blake3::derive_key("umbel tmtp symbol digests", &self.cookies))
    }

    /// Creates generators that follow from the seed.
    pub fn from_seed(seed: u64) -> Draws {
        Draws {
            tree: generator(seed ^ 0x7472_6565),
            recovery: generator(seed ^ 0x6465_6c69_7665_7279),
            help: generator(seed ^ 0x6865_6c70),
            paths: generator(seed ^ 0x0070_6174_6873),
            cookies: blake3::derive_key("umbel tmtp fetch cookies", &seed.to_be_bytes()),
        }
    }
}
