//! The picture of the control tree that `umbel tree` draws.
//!
//! While someone asks the source for it (TREE_QUERY), the source's beacon says so, and every
//! manager's after it. Each manager then tells its parent of itself and its members once in a
//! while, and passes on what its children told it, in REPORTs that nobody confirms: the next round
//! makes up for a lost one. When nobody asks any more, all of this stops and is forgotten.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Bound;
use std::time::Duration;

use umbel_wire::tmtp::{NodeId, Report, Role, TreeEntry, limits};

use super::NodeConfig;
use super::tree::Tree;
use crate::Instant;

/// A look at the tree lasts so long after the last query.
const LOOK: Duration = Duration::from_secs(15);
/// The least time between two rounds of a node.
const ROUND: Duration = Duration::from_secs(1);
/// What children say is passed on together, so long after the first of it came.
const GATHERING: Duration = Duration::from_millis(200);
/// A node of which so many rounds were not heard is forgotten.
const ROUNDS_KEPT: u32 = 4;
/// Rounds become longer so that a node passes on at most so many entries a second.
const ENTRIES_PER_S: u64 = 500;
/// Most bytes of entries in a message, so that it fits a packet.
const MESSAGE_LEN: usize = 1100;
/// Bytes of an entry without its name, at most.
const ENTRY_LEN: usize = 70;
/// Most members of a domain that its manager tells of; the entry of the manager counts them all.
const MEMBERS_SHOWN: usize = 32;

#[derive(Clone, Debug)]
struct Known {
    entry: TreeEntry,
    heard: Instant,
    /// It was not passed on yet.
    fresh: bool,
}

/// What a node knows of the tree below it, as long as someone looks.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    nodes: BTreeMap<NodeId, Known>,
    most: usize,
    watched_until: Option<Instant>,
    /// When the next round begins.
    round_at: Instant,
    /// How long the last one is to last.
    round: Duration,
    /// When entries are to be passed on.
    pass_at: Option<Instant>,
    /// Load at a time, for the load since.
    load: Option<(u64, Instant)>,
    /// Packets that children received and lost lately; what is longer ago counts less.
    losses: BTreeMap<NodeId, (u64, u64)>,
}

impl Survey {
    /// Nobody looks. At most so many nodes are kept.
    pub(super) fn new(most: usize) -> Survey {
        Survey {
            nodes: BTreeMap::new(),
            most,
            watched_until: None,
            round_at: Instant::EPOCH,
            round: ROUND,
            pass_at: None,
            load: None,
            losses: BTreeMap::new(),
        }
    }

    /// Someone looks at the tree: it was asked for, or the parent's beacon says so.
    pub(super) fn watch(&mut self, now: Instant) {
        self.watched_until = Some(now + LOOK);
    }

    pub(super) fn is_watched(&self, now: Instant) -> bool {
        self.watched_until.is_some_and(|until| until > now)
    }

    /// Takes what a node said of itself. Gives whether it was kept.
    pub(super) fn note(&mut self, now: Instant, entry: TreeEntry) -> bool {
        let full = self.nodes.len() >= self.most && !self.nodes.contains_key(&entry.node);
        if full || !self.is_watched(now) {
            return false;
        }
        self.nodes.insert(entry.node, Known { entry, heard: now, fresh: true });
        self.pass_at = self.pass_at.or(Some(now + GATHERING));
        true
    }

    /// Takes what a child told. Gives what was kept.
    pub(super) fn note_all(
        &mut self,
        now: Instant,
        child: NodeId,
        from: SocketAddr,
        entries: Vec<TreeEntry>,
    ) -> Vec<TreeEntry> {
        let mut kept = Vec::new();
        for mut entry in entries {
            if entry.node == child {
                entry.address = from;
            }
            if self.note(now, entry.clone()) {
                kept.push(entry);
            }
        }
        kept
    }

    /// Takes what a child says of its losses, if anyone looks.
    pub(super) fn note_losses(&mut self, now: Instant, child: NodeId, received: u32, lost: u32) {
        if self.is_watched(now) {
            let losses = self.losses.entry(child).or_default();
            losses.0 += u64::from(received);
            losses.1 += u64::from(lost);
        }
    }

    /// Whether [`begin_round`](Survey::begin_round) is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_watched(now) && self.round_at <= now
    }

    /// When this node has something to do, if anyone looks.
    pub(super) fn next(&self) -> Option<Instant> {
        let until = self.watched_until?;
        Some(self.pass_at.map_or(self.round_at, |at| at.min(self.round_at)).min(until))
    }

    /// Tells of this node itself, and forgets who was silent for long. `total` is the load that
    /// it has had so far, `loss_ppm` what it loses itself.
    pub(super) fn begin_round(
        &mut self,
        now: Instant,
        node: &NodeConfig,
        tree: &Tree,
        total: u64,
        loss_ppm: u32,
    ) {
        let kept = self.round * ROUNDS_KEPT;
        self.nodes.retain(|_, known| now.since(known.heard) < kept);
        let load_per_ks = self.load_per_ks(now, total);
        for mut entry in own_entries(node, tree) {
            if entry.node == node.id {
                (entry.loss_ppm, entry.load_per_ks) = (loss_ppm, load_per_ks);
            } else if let Some(&(received, lost)) = self.losses.get(&entry.node) {
                entry.loss_ppm = ppm(received, lost);
            }
            self.note(now, entry);
        }
        self.losses.retain(|&id, _| tree.child(id).is_some());
        for (received, lost) in self.losses.values_mut() {
            (*received, *lost) = (*received / 2, *lost / 2);
        }
        let entries = self.nodes.len() as u64;
        self.round = ROUND.max(Duration::from_millis(1000 * entries / ENTRIES_PER_S));
        self.round_at = now + self.round;
        self.pass_at = Some(now);
    }

    /// Stops and forgets everything if nobody looks any more.
    pub(super) fn rest(&mut self, now: Instant) {
        if self.watched_until.is_some_and(|until| until <= now) {
            *self = Survey::new(self.most);
        }
    }

    /// The next message to the parent, to which the node proves itself with `token`.
    pub(super) fn poll(&mut self, now: Instant, token: u64) -> Option<Report> {
        if self.pass_at.is_none_or(|at| at > now) {
            return None;
        }
        let mut len = 0;
        let mut tree = Vec::new();
        for known in self.nodes.values_mut().filter(|known| known.fresh) {
            len += entry_len(&known.entry);
            if len > MESSAGE_LEN && !tree.is_empty() || tree.len() == limits::TREE_ENTRIES {
                break;
            }
            known.fresh = false;
            tree.push(known.entry.clone());
        }
        if tree.is_empty() {
            self.pass_at = None;
            return None;
        }
        Some(Report { token, first: 0, receivers: Vec::new(), tree })
    }

    /// The root passes nothing on.
    pub(super) fn keep(&mut self) {
        self.pass_at = None;
    }

    /// A page of what is known: the nodes after one, as many as fit a message, and whether there
    /// are more.
    pub(super) fn page(&self, after: Option<NodeId>) -> (Vec<TreeEntry>, bool) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut len = 0;
        let mut entries = Vec::new();
        for (_, known) in self.nodes.range((from, Bound::Unbounded)) {
            len += entry_len(&known.entry);
            if len > MESSAGE_LEN && !entries.is_empty() || entries.len() == limits::TREE_ENTRIES {
                return (entries, true);
            }
            entries.push(known.entry.clone());
        }
        (entries, false)
    }

    /// Events in a thousand seconds since this was asked last, of a count that has come to `total`.
    fn load_per_ks(&mut self, now: Instant, total: u64) -> u32 {
        let before = self.load.replace((total, now));
        let Some((count, at)) = before else { return 0 };
        let ms = u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX).max(1);
        let load = total.saturating_sub(count).saturating_mul(1_000_000) / ms;
        u32::try_from(load).unwrap_or(u32::MAX)
    }
}

fn entry_len(entry: &TreeEntry) -> usize {
    ENTRY_LEN + entry.name.len()
}

/// What is lost of all that was sent, in a million.
pub(super) fn ppm(received: u64, lost: u64) -> u32 {
    let all = u128::from(received) + u128::from(lost);
    (u128::from(lost) * 1_000_000).checked_div(all).map_or(0, |ppm| ppm as u32)
}

/// What a manager or the source says of itself and its members, without loss and load.
fn own_entries(node: &NodeConfig, tree: &Tree) -> Vec<TreeEntry> {
    let view = tree.view();
    let depth = view.path.len().saturating_sub(1) as u16;
    let own = TreeEntry {
        node: node.id,
        parent: view.parent.map(|(parent, ..)| parent),
        address: somewhere(node.address),
        name: tree.name().to_owned(),
        role: view.role,
        depth,
        hops: view.parent.map_or(0, |(_, _, hops)| hops),
        radius: view.radius,
        members: view.members,
        children: view.children,
        loss_ppm: 0,
        load_per_ks: 0,
    };
    let members = tree.children().filter(|(_, child)| child.role == Role::Member);
    let members = members.take(MEMBERS_SHOWN).map(|(id, child)| TreeEntry {
        node: id,
        parent: Some(node.id),
        address: child.address,
        name: child.name.clone(),
        role: Role::Member,
        depth: depth + 1,
        hops: child.hops,
        radius: 0,
        members: 0,
        children: 0,
        loss_ppm: 0,
        load_per_ks: 0,
    });
    let members: Vec<TreeEntry> = members.collect();
    std::iter::once(own).chain(members).collect()
}

/// A node that is bound to a wildcard does not know its address; its parent, which does, puts it
/// right.
fn somewhere(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port())
    } else {
        address
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::tmtp::Timing;
    use umbel_wire::{Channel, Tsi};

    use super::*;
    use crate::tmtp::TreeConfig;
    use crate::tmtp::config::Draws;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn entry(node: u64) -> TreeEntry {
        TreeEntry {
            node: NodeId(node),
            parent: None,
            address: ([10, 0, 0, 1], 7703).into(),
            name: "x".repeat(64),
            role: Role::Manager,
            depth: 1,
            hops: 1,
            radius: 1,
            members: 0,
            children: 0,
            loss_ppm: 0,
            load_per_ks: 0,
        }
    }

    fn entries(nodes: std::ops::Range<u64>) -> Vec<TreeEntry> {
        nodes.map(entry).collect()
    }

    /// A source without children, which begins a round.
    fn begin(survey: &mut Survey, now: Instant) {
        let channel = Channel { source: None, group: [239, 255, 0, 1].into(), port: 7703 };
        let address = ([0, 0, 0, 0], 7703).into();
        let node = NodeConfig::new(NodeId(1000), Tsi(1), (channel, channel), address, 1);
        let timing = Timing { t_ack: ROUND, intervals: 3, rtt: ROUND };
        let random = node.random(Draws::Tree);
        let tree = Tree::new(&node, address, TreeConfig::default(), Role::Source, timing, random);
        survey.begin_round(now, &node, &tree, 0, 0);
    }

    #[test]
    fn nothing_is_kept_or_told_while_nobody_looks() {
        let mut survey = Survey::new(10);
        assert!(!survey.note(at(0), entry(1)) && !survey.is_due(at(0)));
        assert_eq!(survey.next(), None);
        survey.watch(at(0));
        assert!(survey.is_due(at(0)));
        begin(&mut survey, at(0));
        assert_eq!(survey.page(None).0.len(), 1);
        survey.rest(at(20_000));
        assert_eq!((survey.page(None).0.len(), survey.next()), (0, None));
    }

    #[test]
    fn a_round_passes_on_every_entry_once_in_messages_that_fit_a_packet() {
        let mut survey = Survey::new(1000);
        survey.watch(at(0));
        for node in 0..100 {
            assert!(survey.note(at(0), entry(node)));
        }
        begin(&mut survey, at(0));
        let mut told = Vec::new();
        while let Some(report) = survey.poll(at(0), 7) {
            let mut bytes = Vec::new();
            let body = umbel_wire::tmtp::Body::Report(report.clone());
            let (feed, sender) = (Tsi(u32::MAX), NodeId(1));
            umbel_wire::tmtp::Message { feed, sender, body }.emit(&mut bytes);
            assert!(bytes.len() <= 1300, "{} bytes", bytes.len());
            told.extend(report.tree.iter().map(|entry| entry.node.0));
        }
        assert_eq!(told, (0..100).chain([1000]).collect::<Vec<_>>());
        assert_eq!(survey.next(), Some(at(1000)));
        survey.note(at(500), entry(7));
        assert_eq!((survey.next(), survey.poll(at(600), 7)), (Some(at(700)), None));
        assert_eq!(survey.poll(at(700), 7).unwrap().tree, entries(7..8));
    }

    #[test]
    fn a_node_that_is_not_heard_of_again_is_forgotten_and_the_table_is_bounded() {
        let mut survey = Survey::new(3);
        survey.watch(at(0));
        for node in 0..5 {
            survey.note(at(0), entry(node));
        }
        assert_eq!(survey.page(None).0.len(), 3);
        survey.note(at(3_000), entry(2));
        begin(&mut survey, at(4_000));
        let known: Vec<u64> = survey.page(None).0.iter().map(|entry| entry.node.0).collect();
        assert_eq!(known, [2, 1000]);
    }

    #[test]
    fn pages_follow_each_other_without_a_gap() {
        let mut survey = Survey::new(1000);
        survey.watch(at(0));
        for node in 0..100 {
            survey.note(at(0), entry(node));
        }
        let (mut after, mut told) = (None, Vec::new());
        loop {
            let (page, more) = survey.page(after);
            told.extend(page.iter().map(|entry| entry.node.0));
            after = page.last().map(|entry| entry.node);
            if !more {
                break;
            }
        }
        assert_eq!(told, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn load_and_loss_are_shares() {
        let mut survey = Survey::new(1);
        assert_eq!(survey.load_per_ks(at(0), 100), 0);
        assert_eq!(survey.load_per_ks(at(2000), 110), 5_000);
        assert_eq!((ppm(0, 0), ppm(99, 1), ppm(0, 5)), (0, 10_000, 1_000_000));
    }
}
