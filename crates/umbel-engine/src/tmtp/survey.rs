//! The picture of the control tree that `umbel tree` draws.
//!
//! While someone asks the source for it (TREE_QUERY), the source's beacon says so, and every
//! manager's after it. Each manager then reports itself and its members to its parent from time
//! to time, and passes on its children's reports. Nodes do not confirm these REPORTs: the next
//! round makes up for a lost one. When the queries end, all of this stops and is forgotten.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Bound;
use std::time::Duration;

use umbel_wire::tmtp::{NodeId, Report, Role, TreeEntry, limits};

use super::NodeConfig;
use super::tree::Tree;
use crate::Instant;

/// Time for which the tree is watched after the last query.
const LOOK: Duration = Duration::from_secs(15);
/// Least time between two rounds of a node.
const ROUND: Duration = Duration::from_secs(1);
/// Time for which children's reports are gathered before they are passed on.
const GATHERING: Duration = Duration::from_millis(200);
/// Number of rounds without a report after which a node is forgotten.
const ROUNDS_KEPT: u32 = 4;
/// Most entries a second that a node passes on. Rounds become longer to keep to it.
const ENTRIES_PER_S: u64 = 500;
/// Most bytes of entries in a message, so that it fits a packet.
const MESSAGE_LEN: usize = 1100;
/// Most bytes of an entry without its name.
const ENTRY_LEN: usize = 70;
/// Most members of a domain that its manager reports. The entry of the manager counts them all.
const MEMBERS_SHOWN: usize = 32;

#[derive(Clone, Debug)]
struct Known {
    entry: TreeEntry,
    heard: Instant,
    /// The entry was not passed on yet.
    fresh: bool,
}

/// The tree below a node, as far as it is known, while someone looks.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    nodes: BTreeMap<NodeId, Known>,
    most: usize,
    watched_until: Option<Instant>,
    /// Time at which the next round begins.
    round_at: Instant,
    /// Length of the last round.
    round: Duration,
    /// Time at which entries are to be passed on.
    pass_at: Option<Instant>,
    /// Load at a time, to find the load since.
    load: Option<(u64, Instant)>,
    /// Packets that children received and lost lately. Older ones count less.
    losses: BTreeMap<NodeId, (u64, u64)>,
}

impl Survey {
    /// Creates a survey that is not watched, of at most `most` nodes.
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

    /// Notes that someone looks at the tree. The tree was asked for, or the parent's beacon says
    /// so.
    pub(super) fn watch(&mut self, now: Instant) {
        self.watched_until = Some(now + LOOK);
    }

    pub(super) fn is_watched(&self, now: Instant) -> bool {
        self.watched_until.is_some_and(|until| until > now)
    }

    /// Takes a node's entry. Returns whether it was kept.
    pub(super) fn note(&mut self, now: Instant, entry: TreeEntry) -> bool {
        let full = self.nodes.len() >= self.most && !self.nodes.contains_key(&entry.node);
        if full || !self.is_watched(now) {
            return false;
        }
        self.nodes.insert(entry.node, Known { entry, heard: now, fresh: true });
        self.pass_at = self.pass_at.or(Some(now + GATHERING));
        true
    }

    /// Takes the entries of a child's report. Returns those that were kept.
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

    /// Takes a child's losses, if someone looks.
    pub(super) fn note_losses(&mut self, now: Instant, child: NodeId, received: u32, lost: u32) {
        if self.is_watched(now) {
            let losses = self.losses.entry(child).or_default();
            losses.0 += u64::from(received);
            losses.1 += u64::from(lost);
        }
    }

    /// Returns whether [`begin_round`](Survey::begin_round) is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_watched(now) && self.round_at <= now
    }

    /// Returns when this node has something to do, if someone looks.
    pub(super) fn next(&self) -> Option<Instant> {
        let until = self.watched_until?;
        Some(self.pass_at.map_or(self.round_at, |at| at.min(self.round_at)).min(until))
    }

    /// Enters this node itself, and forgets nodes that were silent for long. `total` is the
    /// node's load so far, `loss_ppm` its own loss.
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

    /// Returns the next message to the parent, to which the node proves itself with `token`.
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

    /// Passes nothing on, as the root.
    pub(super) fn keep(&mut self) {
        self.pass_at = None;
    }

    /// Returns a page of the survey: the nodes after one, as many as fit a message, and whether
    /// there are more.
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

    /// Returns the events in a thousand seconds since the last call, of a count that has come to
    /// `total`.
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

/// Returns the share of losses among all packets sent, in millionths.
pub(super) fn ppm(received: u64, lost: u64) -> u32 {
    let all = u128::from(received) + u128::from(lost);
    (u128::from(lost) * 1_000_000).checked_div(all).map_or(0, |ppm| ppm as u32)
}

/// Returns the entries of a manager or the source and its members, without loss and load.
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

/// Returns an address that a message can carry. A node that is bound to a wildcard does not know
/// its own; its parent, which does, corrects it.
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
    use crate::tmtp::config::{Authentication, Draws};

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

    /// Begins a round of a source without children.
    fn begin(survey: &mut Survey, now: Instant) {
        let channel = Channel { source: None, group: [239, 255, 0, 1].into(), port: 7703 };
        let address = ([0, 0, 0, 0], 7703).into();
        let node = NodeConfig::new(
            NodeId(1000),
            Tsi(1),
            (channel, channel),
            address,
            Authentication::Paper,
        );
        let timing = Timing { t_ack: ROUND, intervals: 3, rtt: ROUND };
        let random = Draws::from_seed(1).tree;
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
