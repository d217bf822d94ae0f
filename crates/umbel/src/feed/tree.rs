//! Looks at a feed's control tree from outside, in pages that the source sends to anyone who asks.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use umbel_net::interface::Interface;
use umbel_wire::control::Parsed;
use umbel_wire::feed::Feed;
use umbel_wire::tmtp::{Body, Message, NodeId, Role, Totals, TreeEntry, TreePage};

use crate::endpoint::random;

/// Time after which a query that was not answered is repeated.
const ANSWER: Duration = Duration::from_millis(400);
/// Most times that a query is sent.
const TRIES: u32 = 8;
/// Most nodes that are shown.
const MOST: usize = 100_000;

/// A control tree at a moment.
#[derive(Clone, Debug, Default)]
pub struct TreeSnapshot {
    /// Totals over the tree.
    pub totals: Totals,
    /// Nodes of the tree: the source, managers, and the members that are reported.
    pub nodes: Vec<TreeEntry>,
}

/// Asks the source of a feed, which was found on this interface, for its control tree. Managers
/// report on themselves only while someone looks, so the first answers may be incomplete.
///
/// # Errors
///
/// If the source does not answer.
pub fn tree(feed: &Feed, interface: &Interface) -> anyhow::Result<TreeSnapshot> {
    let any: SocketAddr = match feed.source {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).context("cannot ask the source")?;
    let source = interface.on_link(feed.source);
    let asker = Asker { feed, source, socket, id: NodeId(u64::from_be_bytes(random()?)) };
    let mut snapshot = TreeSnapshot::default();
    let mut nodes = BTreeMap::new();
    let (mut cookie, mut after) = (0, None);
    // The first query obtains the cookie.
    let mut earned = false;
    loop {
        let page = asker.ask(cookie, after)?;
        snapshot.totals = page.totals;
        let fresh = cookie != page.cookie;
        cookie = page.cookie;
        if fresh && !earned {
            earned = true;
            continue;
        }
        let last = page.entries.iter().map(|entry| entry.node).max();
        nodes.extend(page.entries.into_iter().map(|entry| (entry.node, entry)));
        let further = last.is_some_and(|last| after.is_none_or(|after| last > after));
        if !page.more || !further || nodes.len() >= MOST {
            break;
        }
        after = last;
    }
    snapshot.nodes = nodes.into_values().collect();
    Ok(snapshot)
}

struct Asker<'a> {
    feed: &'a Feed,
    source: SocketAddr,
    socket: UdpSocket,
    id: NodeId,
}

impl Asker<'_> {
    fn ask(&self, cookie: u64, after: Option<NodeId>) -> anyhow::Result<TreePage> {
        let nonce = u64::from_be_bytes(random()?);
        let body = Body::TreeQuery { nonce, cookie, after };
        let mut query = Vec::new();
        Message { feed: self.feed.tsi, sender: self.id, body }.emit(&mut query);
        let why = || format!("cannot ask the source at {}", self.source);
        for _ in 0..TRIES {
            self.socket.send_to(&query, self.source).with_context(why)?;
            if let Some(page) = self.answer(nonce).with_context(why)? {
                return Ok(page);
            }
        }
        bail!(
            "the source of `{}` at {} does not answer: it is gone, or a firewall is between",
            self.feed.name,
            self.source
        )
    }

    fn answer(&self, nonce: u64) -> std::io::Result<Option<TreePage>> {
        let until = Instant::now() + ANSWER;
        let mut buffer = vec![0; 65_536];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) => match error.kind() {
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                        return Ok(None);
                    }
                    std::io::ErrorKind::Interrupted | std::io::ErrorKind::ConnectionRefused => {
                        continue;
                    }
                    _ => return Err(error),
                },
            };
            if from != self.source {
                continue;
            }
            if let Ok(Parsed::Message { message, .. }) = Message::parse(&buffer[..len])
                && message.feed == self.feed.tsi
                && let Body::TreePage(page) = message.body
                && page.nonce == nonce
            {
                return Ok(Some(page));
            }
        }
    }
}

impl TreeSnapshot {
    /// Returns the nodes in tree order, each with its depth: parents before their children, members
    /// before managers. Nodes with unknown parents come last.
    pub fn ordered(&self) -> Vec<(usize, &TreeEntry)> {
        let mut children: BTreeMap<Option<NodeId>, Vec<&TreeEntry>> = BTreeMap::new();
        for node in &self.nodes {
            children.entry(node.parent).or_default().push(node);
        }
        for siblings in children.values_mut() {
            siblings.sort_by_key(|node| (node.role != Role::Member, &node.name, node.node));
        }
        let mut ordered = Vec::new();
        // Each node is taken once, so that the walk ends even if a false report contains a loop.
        let mut open: Vec<(usize, &TreeEntry)> = Vec::new();
        let roots = children.remove(&None).unwrap_or_default();
        open.extend(roots.into_iter().rev().map(|node| (0, node)));
        while let Some((depth, node)) = open.pop() {
            ordered.push((depth, node));
            let below = children.remove(&Some(node.node)).unwrap_or_default();
            open.extend(below.into_iter().rev().map(|node| (depth + 1, node)));
        }
        ordered.extend(children.into_values().flatten().map(|node| (0, node)));
        ordered
    }

    /// Returns the number of members of each manager, or of the source, that are counted but not
    /// among the nodes. Managers list some tens of their members, and report the number of all.
    pub fn unnamed(&self) -> BTreeMap<NodeId, u32> {
        let mut unnamed: BTreeMap<NodeId, u32> =
            self.nodes.iter().map(|node| (node.node, node.members)).collect();
        for member in self.nodes.iter().filter(|node| node.role == Role::Member) {
            if let Some(members) = member.parent.and_then(|parent| unnamed.get_mut(&parent)) {
                *members = members.saturating_sub(1);
            }
        }
        unnamed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: u64, parent: Option<u64>) -> TreeEntry {
        TreeEntry {
            node: NodeId(node),
            parent: parent.map(NodeId),
            address: "10.0.0.1:1".parse().unwrap(),
            name: String::new(),
            role: Role::Manager,
            depth: 0,
            hops: 1,
            radius: 1,
            members: 0,
            children: 0,
            loss_ppm: 0,
            load_per_ks: 0,
        }
    }

    #[test]
    fn parents_stand_before_their_children_and_loops_end() {
        let nodes = vec![
            node(1, Some(3)),
            node(2, None),
            node(3, Some(2)),
            node(4, Some(2)),
            node(5, Some(9)),
            node(6, Some(7)),
            node(7, Some(6)),
        ];
        let snapshot = TreeSnapshot { totals: Totals::default(), nodes };
        let ordered: Vec<_> =
            snapshot.ordered().into_iter().map(|(depth, node)| (depth, node.node.0)).collect();
        assert_eq!(ordered, [(0, 2), (1, 3), (2, 1), (1, 4), (0, 7), (0, 6), (0, 5)]);
    }
}
