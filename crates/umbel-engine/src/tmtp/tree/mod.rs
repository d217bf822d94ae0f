//! The control tree: how a node finds its parent, serves as one, and leaves [TMTP, control tree
//! management].
//!
//! A component without I/O that the [source](crate::tmtp) and the receiver embed. The embedder
//! tells it the state of the feed when a message is built ([`Outlook`]).
//!
//! A receiver goes this way:
//!
//! ```text
//!            join                       WILLING, or beacon of the subnet's manager
//!  Outside ───────▶ searches the subnet ─────────────────────────▶ joins it ──────┐
//!                    │      ▲     ▲                                 │ no answer,  │ JOIN_CONFIRM
//!        nobody      │      │     └─────────────────────────────────┘ or refused  │
//!        answered    │      │ another manager is in the subnet                    ▼
//!                    ▼      │ (demoted), or a member's parent failed          attached
//!   becomes manager: searches ring after ring ──WILLING──▶ joins the closest      │ ▲
//!                    ▲   ▲                                   │    JOIN_CONFIRM   │ │
//!                    │   └── no answer, or refused ──────────┘───────────────────┘ │
//!                    └── a manager's parent failed, was cut off, or leaves ────────┘
//!
//!  attached ──leave──▶ FIND_NEW_PARENT to its children ──▶ LEAVE_TREE ──▶ Left
//! ```
//!
//! A child that is about to leave itself, and has no children, stays with a parent that leaves. The
//! parent listens until its children have gone, and passes on how they ended.
//!
//! Of the nodes that answer a search the closest is asked. Of equally close ones the nearest to the
//! source is taken, then the one with the fewest children. In the subnet the first that answers is
//! asked, so that no time is lost. Whoever may be nobody's parent can be first as well:
//!
//! ```text
//!  asks the first ──2 requests──▶ asks another that answered the same search ──▶ … the first again
//!        │                          ▲ as soon as one answers
//!        └─ nobody else answered ─▶ third request, and the search once more
//! ```
//!
//! Each is asked [`TreeConfig::tries`] times in all. Who confirms while another is asked is taken.
//!
//! # Without a tree
//!
//! With another [`Recovery`] every receiver is a local member of the source's own domain, however
//! far it is. It asks the source at its announced address, and nobody else. The source's beacons
//! come with its heartbeats, by the data channel.
//!
//! # Domains and their managers
//!
//! A domain is a subnet: what hop limit 1 reaches. A node that finds no manager there becomes it,
//! and says so by a beacon. Of two managers in a subnet the source stays. Else the one that has a
//! path to the source stays, else the one with the lower number. The other is demoted, and its
//! children search anew.
//!
//! # No loops
//!
//! Each node has a [`Standing`]: an epoch and a depth. The source's clock is the epoch, and comes
//! down the tree in beacons. A node takes only a parent that stands above where the node itself
//! stood last, and its own standing never gets worse. So edges never form a loop, not even for a
//! moment ([`Standing::may_be_above`]). A node that is cut off from the source together with
//! those below it joins none of them, since their epochs stand still. Elsewhere epochs go on, so
//! after one beacon's time other nodes stand above it.
//!
//! # Trust
//!
//! A JOIN_CONFIRM counts only from the address asked and with the nonce of the request. A child's
//! message counts only from its address and with its token. The receiver of a message measures
//! its hops. A node that lies about the hop limit of its messages is found out by its beacons:
//! they reach as far as its radius. A child that does not hear them gives the parent up and bars
//! its address, longer each time. No statement of others makes a radius exceed the scope.
//!
//! A parent whose repairs turn out wrong is left as well, and its host is barred for longer. The
//! embedder finds that out.
//!
//! The source was announced with its address. Only from there does a node claim to be the source.
//! Only from there is a refusal final that would end a receiver (not admitted, leaving). If another
//! node says so, the source itself is asked. A manager with children gives way only to one that it
//! heard for a while, longer each time.

mod answers;
mod api;
mod bars;
mod beacons;
mod children;
mod election;
mod family;
mod improve;
mod leave;
mod others;
mod parent;
mod pauses;
mod search;
mod source;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
#[cfg(doc)]
use umbel_wire::feed::Recovery;
use umbel_wire::tmtp::{Beacon, Body, Heartbeat, Message, NodeId, Role, Standing, Timing, limits};

use super::text::cut;
use super::{Authentication, DropReason, NodeConfig, TreeConfig, TreeView};
use crate::Instant;
use crate::timers::timers;
pub(super) use answers::Answers;
pub(super) use api::{Arrival, Outlook, Parting, TreeEvent, Way};
use bars::Bars;
use beacons::Beacons;
use election::Election;
pub(super) use family::Child;
use family::Family;
use improve::Improvement;
use leave::{Departed, Departure};
pub(super) use parent::Parent;
use pauses::Pauses;
use search::Stage;
use source::KnownSource;

/// First bar of a host whose repairs were wrong, as a multiple of that of others.
const LIAR: u32 = 16;
/// Hop limit of unicast messages.
pub(super) const UNICAST_HOPS: u8 = 64;

timers! {
    /// Timers of the tree.
    enum Timer, Timers {
        /// When to go on with the stage.
        Stage,
        /// When to dismiss the child that was silent for the longest time.
        Child,
        /// When to send a beacon.
        Beacon,
        /// When to go on with the search for a better parent, or to leave the former one.
        Improve,
    }
}

/// A message that waits to be sent.
#[derive(Clone, Debug)]
enum Due {
    /// A complete message.
    Ready(Way, Body),
    /// A JOIN_CONFIRM for this child.
    Confirm(NodeId),
}

/// One node's part of the control tree.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    config: TreeConfig,
    id: NodeId,
    name: String,
    port: u16,
    source: KnownSource,
    scope: u8,
    /// There is no tree: all receivers are children of the source.
    flat: bool,
    /// Multicast does not reach this node, which is a child of the source by unicast.
    by_unicast: bool,
    /// Number of the source as it was announced, once it is needed.
    announced: Option<NodeId>,
    /// Requests name the node that is asked, since its number is a digest of its keys.
    names_parent: bool,
    /// Who asks for a place has shown its number and address, so it is the same node at another one.
    keyed: bool,
    random: Xoshiro256PlusPlus,
    role: Role,
    stage: Stage,
    /// Time at which the stage goes on.
    stage_timer: Option<Instant>,
    /// Present or last standing of this node. It never gets worse while another node may have
    /// this one as its parent.
    standing: Standing,
    /// Path from the source to this node; empty while there is no parent.
    path: Vec<NodeId>,
    family: Family,
    departure: Departure,
    /// Nodes that did not answer, failed as parents or sent nonsense.
    bars: Bars<SocketAddr>,
    /// Hosts whose repairs were wrong. The group shows no more of an address.
    liars: Bars<IpAddr>,
    /// Hosts whose receivers held up the feed as children.
    slow: Bars<IpAddr>,
    timing: Timing,
    beacons: Beacons,
    /// The parent that left and asked this node to find another one.
    departed: Option<Departed>,
    pauses: Pauses,
    answers: Answers,
    improvement: Improvement,
    election: Election,
    due: VecDeque<Due>,
    events: VecDeque<TreeEvent>,
}

impl Tree {
    /// Creates a node outside the tree, or the source as its root. The source was announced at
    /// `source_address`. `timing` counts until a parent or the embedder knows better.
    pub(super) fn new(
        node: &NodeConfig,
        source_address: SocketAddr,
        config: TreeConfig,
        role: Role,
        timing: Timing,
        random: Xoshiro256PlusPlus,
    ) -> Tree {
        let is_source = role == Role::Source;
        let mut beacons = Beacons::default();
        if is_source {
            beacons.start(Instant::EPOCH);
        }
        Tree {
            id: node.id,
            name: cut(node.name.clone(), limits::NAME_LEN),
            port: node.address.port(),
            source: KnownSource::new(source_address),
            scope: node.scope.max(1),
            flat: !node.recovery.has_tree(),
            by_unicast: false,
            announced: None,
            names_parent: node.has_keys(),
            keyed: node.authentication != Authentication::Paper,
            random,
            role,
            stage: Stage::Outside,
            stage_timer: None,
            standing: Standing::default(),
            path: if is_source { vec![node.id] } else { Vec::new() },
            family: Family::default(),
            departure: Departure::default(),
            bars: Bars::new(config.bar),
            liars: Bars::new(config.bar * LIAR),
            slow: Bars::new(config.bar),
            timing,
            beacons,
            departed: None,
            pauses: Pauses::new(&config),
            answers: Answers::new(config.answers_per_s, config.answers_per_host),
            improvement: Improvement::default(),
            election: Election::new(is_source),
            due: VecDeque::new(),
            events: VecDeque::new(),
            config,
        }
    }

    /// Becomes a child of the source by unicast, which was announced under this number, or looks
    /// for a place among the others again.
    pub(super) fn set_by_unicast(&mut self, now: Instant, source: Option<NodeId>) {
        self.by_unicast = source.is_some();
        self.announced = source;
        if matches!(self.stage, Stage::Dissolving { .. } | Stage::Leaving { .. } | Stage::Left) {
            return;
        }
        self.stop_managing();
        if self.parent().is_some() {
            self.lose_parent(now, false);
        } else {
            self.search(now);
        }
    }

    /// Returns whether there is a path to the source.
    pub(super) fn is_attached(&self) -> bool {
        !self.path.is_empty()
    }

    /// Returns the name that the user chose, as others hear it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn parent(&self) -> Option<&Parent> {
        match &self.stage {
            Stage::Attached(parent) | Stage::Dissolving { parent: Some(parent), .. } => {
                Some(parent)
            }
            _ => None,
        }
    }

    pub(super) fn children(&self) -> impl Iterator<Item = (NodeId, &Child)> {
        self.family.iter()
    }

    pub(super) fn child(&self, id: NodeId) -> Option<&Child> {
        self.family.get(id)
    }

    /// Returns the multicast radius of this node's domain: hops to the farthest child, at least
    /// 1. Without a tree it is the scope.
    pub(super) fn radius(&self) -> u8 {
        if self.flat { self.scope } else { self.family.radius() }
    }

    /// Returns whether all receivers are this node's own children.
    pub(super) fn is_all(&self) -> bool {
        self.flat || self.family.managers() == 0
    }

    /// Returns the hops to the farthest child, if there is one.
    pub(super) fn farthest(&self) -> Option<u8> {
        (!self.family.is_empty()).then(|| self.family.radius())
    }

    /// Returns the path from the source to this node; empty without a parent.
    #[cfg(test)]
    pub(super) fn path(&self) -> &[NodeId] {
        &self.path
    }

    /// Returns this node's place in the tree.
    pub(super) fn view(&self) -> TreeView {
        TreeView {
            role: self.role,
            parent: self.parent().map(|parent| (parent.id, parent.address, parent.hops)),
            path: self.path.clone(),
            radius: self.radius(),
            members: self.family.members() as u32,
            children: self.family.managers(),
        }
    }

    /// Handles a message of the tree.
    ///
    /// # Errors
    ///
    /// If it is discarded.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        arrival: Arrival,
        message: &Message,
    ) -> Result<(), DropReason> {
        let sender = message.sender;
        if sender == self.id {
            return Err(DropReason::Own);
        }
        let multicast = matches!(message.body, Body::Search(_) | Body::Beacon(_));
        if multicast != arrival.multicast {
            return Err(DropReason::Unexpected);
        }
        if self.role != Role::Source && matches!(self.stage, Stage::Outside | Stage::Left) {
            return Err(DropReason::Unexpected);
        }
        match &message.body {
            Body::Search(search) => self.on_search(now, arrival, sender, *search),
            Body::Willing(willing) => self.on_willing(now, arrival, sender, *willing),
            Body::JoinRequest(request) => self.on_request(now, arrival, sender, request),
            Body::JoinConfirm(confirm) => self.on_confirm(now, arrival, sender, confirm),
            Body::JoinRefused { nonce, reason } => {
                self.on_refused(now, arrival, sender, *nonce, *reason)
            }
            Body::Beacon(beacon) => self.on_beacon(now, arrival, sender, beacon),
            Body::LeaveTree { token, nonce } => {
                self.on_leave_tree(now, arrival, sender, *token, *nonce)
            }
            Body::LeaveConfirm { nonce } => self.on_leave_confirm(arrival, *nonce),
            Body::FindNewParent { token, nonce } => {
                self.on_find_new_parent(now, arrival, *token, *nonce)
            }
            Body::FindNewParentReply { token, .. } => {
                self.on_find_new_parent_reply(now, arrival, sender, *token)
            }
            Body::Dismiss { token, reason } => self.on_dismiss(now, arrival, *token, *reason),
            _ => Err(DropReason::Unexpected),
        }
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let mut timers = self.timers();
        while let Some(timer) = timers.pop_due(now) {
            match timer {
                Timer::Stage => {
                    self.stage_timer = None;
                    self.on_stage_timer(now);
                }
                Timer::Child => self.dismiss_silent_children(now),
                Timer::Improve => self.on_improve_timer(now),
                // It is built when it is polled.
                Timer::Beacon => {}
            }
        }
    }

    fn timers(&self) -> Timers {
        let mut timers = Timers::default();
        timers.put(Timer::Stage, self.stage_timer);
        let heard = self.family.all_heard_since();
        timers.put(Timer::Child, heard.map(|heard| heard + self.child_patience()));
        timers.put(Timer::Beacon, self.beacons.next());
        timers.put(Timer::Improve, self.improvement.next());
        timers
    }

    /// Returns when [`handle_timeout`](Tree::handle_timeout) or
    /// [`poll_message`](Tree::poll_message) has something to do next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers().next()
    }

    pub(super) fn poll_event(&mut self) -> Option<TreeEvent> {
        self.events.pop_front()
    }

    /// Returns the next message that is to be sent now.
    pub(super) fn poll_message(&mut self, now: Instant, outlook: &Outlook) -> Option<(Way, Body)> {
        self.timing = outlook.timing;
        while let Some(due) = self.due.pop_front() {
            match due {
                Due::Ready(way, body) => return Some((way, body)),
                Due::Confirm(id) => {
                    if let Some(confirm) = self.confirm(now, id, outlook) {
                        return Some(confirm);
                    }
                }
            }
        }
        if !self.beacons.take_due(now, self.beacon_period()) {
            return None;
        }
        let hop_limit = self.radius();
        Some((Way::Domain { hop_limit }, Body::Beacon(self.beacon(now, outlook, hop_limit))))
    }

    /// Returns a beacon: what this node says of itself and the feed.
    pub(super) fn beacon(&self, now: Instant, outlook: &Outlook, hop_limit: u8) -> Beacon {
        let Standing { epoch, depth } = self.standing_at(now);
        Beacon {
            hop_limit,
            port: self.port,
            role: self.role.max(Role::Manager),
            radius: self.radius(),
            stamp_ns: now.as_nanos(),
            standing: Standing { epoch, depth: if self.is_attached() { depth } else { 0 } },
            path: self.path.clone(),
            children: self.family.managers(),
            timing: outlook.timing,
            progress: outlook.progress.clone(),
            closing: outlook.closing,
            watched: outlook.watched,
        }
    }

    /// Notes a heartbeat of the source.
    ///
    /// # Errors
    ///
    /// If it is another source than before.
    pub(super) fn note_source(
        &mut self,
        now: Instant,
        heartbeat: &Heartbeat,
    ) -> Result<(), DropReason> {
        let (id, epoch) = (heartbeat.feed.source, heartbeat.beacon.standing.epoch);
        self.source.note(now, id, epoch)
    }

    /// Returns the present standing of this node. The source's epoch is its clock.
    fn standing_at(&self, now: Instant) -> Standing {
        if self.role == Role::Source {
            Standing { epoch: 1 + now.as_nanos() / 1_000_000, depth: 0 }
        } else {
            self.standing
        }
    }

    /// Returns the hops from the sender of a message that was sent with `hop_limit`; `None` if
    /// the host does not know.
    fn hops(arrival: Arrival, hop_limit: u8) -> Result<Option<u8>, DropReason> {
        match arrival.hops_left {
            Some(left) if left > hop_limit => Err(DropReason::AbsurdHops),
            Some(left) => Ok(Some((hop_limit - left).saturating_add(1))),
            None => Ok(None),
        }
    }

    fn beacon_period(&self) -> Duration {
        let TreeConfig { beacon_min, beacon_max, .. } = self.config;
        self.timing.t_ack.clamp(beacon_min, beacon_max.max(beacon_min))
    }

    /// Schedules a beacon as soon as the least time between two allows.
    pub(super) fn beacon_soon(&mut self, now: Instant) {
        self.beacons.hurry(now, self.config.beacon_min);
    }
}
