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
    /// Key that all holders of the feed's token share. With it each message is stamped, and only
    /// what has a stamp is heard, so that the node must know its `address`. Default `None`: there
    /// is no token.
    pub admission: Option<[u8; 32]>,
    /// Others that are admitted, by keys. Default: no matter.
    pub list: List,
    /// Random seed of the node's own keys in an open feed, of which `id` must be the digest
    /// ([`node_id`](crate::tmtp::node_id)). Then each message is stamped, and only what has a stamp
    /// is heard, so that the node must know its `address`. Nothing with a token or a list. Default
    /// `None`: messages have no stamps, as in feeds of earlier releases.
    pub seed: Option<[u8; 32]>,
}

/// A list of the receivers of a feed, as one node knows it. With one, messages are stamped as with
/// a token; with both, a node needs both. `Debug` shows no secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum List {
    /// There is none.
    #[default]
    None,
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
            List::None => f.write_str("None"),
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
            admission: None,
            list: List::None,
            seed: None,
        }
    }

    /// Returns whether only some may take part.
    pub(in crate::tmtp) fn is_closed(&self) -> bool {
        self.admission.is_some() || self.list != List::None
    }

    /// Returns whether messages are stamped.
    pub(in crate::tmtp) fn is_stamped(&self) -> bool {
        self.is_closed() || self.seed.is_some()
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
            cookies: blake3::derive_key("umbel tmtp fetch cookies", &seed.to_be_bytes()),
        }
    }
}
