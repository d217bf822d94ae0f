//! The rate of the data channel: fixed, or what the paths to the receivers carry.
//!
//! All packets that everybody hears on the data channel have numbers. Receivers anywhere in the
//! tree report how they arrive, by unicast, and the [controller](crate::congestion) derives the
//! rate of these and of the [others](super::row). A report counts if it has the cookie of the address that it comes from. Receivers are told
//! apart by address, since in an open feed their numbers are not proved.
//!
//! What is known of the paths is forgotten when the last receiver is gone. Each child that comes
//! then gives the source the packets of a first round trip.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use umbel_wire::reception::{ReceptionReport, ReportSchedule};
use umbel_wire::tmtp::{Body, NodeId};

use super::Source;
use super::messages::MAX_OUTBOX;
use super::row::Row;
use crate::Instant;
use crate::bounds::{COOKIES, REPORTERS};
use crate::bucket::{HostLimiter, Limiters};
use crate::chance::Generator;
use crate::congestion::{self, CongestionConfig, Controller, Event};
use crate::recovery::ChannelNumbers;
use crate::shares::{Origin, Shares};
use crate::symbols::SymbolSource;
use crate::tmtp::api::SourceEvent;
use crate::tmtp::drops::DropReason;
use crate::tmtp::tree::Way;
use crate::units::Rate;

/// Most hosts whose answers are counted apart.
const MAX_ASKERS: usize = 4_096;
/// Time, while packets are sent, after which a silent receiver is forgotten, and between two looks
/// for such.
const SILENT: Duration = Duration::from_mins(1);
/// See above.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Time after which a receiver that goes on to report is told again: the last time may have been
/// lost.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// A receiver that reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reporter {
    /// Its address, where it has got its cookie.
    pub(super) address: SocketAddr,
    /// Its number, by its own words.
    pub(super) node: NodeId,
    /// Number that shows it whose words it hears.
    pub(super) nonce: u64,
}

/// What is known of a receiver that reports.
#[derive(Clone, Copy, Debug)]
struct Known {
    who: Reporter,
    heard: Instant,
    told: Instant,
    /// Whether its path carries too little for the channel.
    left: bool,
}

/// The rate of the data channel.
#[derive(Debug)]
pub(super) struct Pace {
    /// The rate without a controller.
    fixed: Rate,
    control: Option<Control>,
    /// Whether the fixed rate was told.
    told: bool,
}

/// Congestion control of the data channel.
#[derive(Debug)]
struct Control {
    config: CongestionConfig,
    random: Generator,
    controller: Controller<SocketAddr>,
    numbers: ChannelNumbers,
    row: Row,
    /// Number of the next packet, as the controller knows it.
    counted: u32,
    last_sent: Instant,
    known: BTreeMap<SocketAddr, Known>,
    nodes: BTreeSet<(NodeId, SocketAddr)>,
    places: Shares<SocketAddr>,
    /// Receivers that are to be told when to report.
    due: BTreeSet<SocketAddr>,
    /// Receivers whose paths carry much less than is sent now, and news of them. Where they are
    /// most, it is the rate that is wrong, and none of them is behind.
    narrow: BTreeSet<SocketAddr>,
    are_few: bool,
    moved: VecDeque<(NodeId, SocketAddr, bool)>,
    /// Whether a receiver was forgotten.
    fewer: bool,
    looked: Instant,
    cookies: Cookies,
}

/// Limits of the answers to reports without a cookie.
#[derive(Debug)]
struct Cookies {
    children: Limiters<Origin>,
    strangers: HostLimiter<Origin>,
}

impl Cookies {
    fn new() -> Cookies {
        let children = Limiters::new(COOKIES.of_host(), MAX_ASKERS);
        Cookies { children, strangers: COOKIES.limiter(MAX_ASKERS) }
    }

    /// Returns whether a host may be answered. Strangers take nothing from children.
    fn take(&mut self, now: Instant, address: SocketAddr, is_child: bool) -> bool {
        let host = Origin::of(address.ip());
        if is_child {
            return self.children.take(now, host);
        }
        self.strangers.take(now, host)
    }
}

impl Pace {
    pub(super) fn new(fixed: Rate, config: Option<CongestionConfig>, random: Generator) -> Pace {
        Pace { fixed, control: config.map(|config| Control::new(config, random)), told: false }
    }

    /// Notes that packets without numbers leave, which share the paths with the others.
    pub(super) fn on_unnumbered(&mut self, now: Instant, packets: usize) {
        if let Some(control) = &mut self.control {
            let next = control.numbers.next();
            control.row.on_unnumbered(next, packets);
            control.controller.on_unreported(now, control.row.place(next));
        }
    }

    /// Returns the present rate.
    pub(super) fn rate(&self) -> Rate {
        self.control.as_ref().map_or(self.fixed, |control| control.controller.rate())
    }

    /// Returns what limits the rate, and since when, if there is a controller.
    pub(super) fn limit(&self) -> Option<(congestion::Limit<NodeId>, Instant)> {
        let control = self.control.as_ref()?;
        let (limit, since) = control.controller.limit();
        let node = |address| control.known.get(&address).map_or(NodeId(0), |known| known.who.node);
        Some((limit.map(node), since))
    }

    /// Returns whether a packet that everybody hears may be sent.
    pub(super) fn may_send(&self) -> bool {
        self.control.as_ref().is_none_or(|control| control.controller.may_send())
    }

    /// Returns the most packets that may leave together.
    pub(super) fn most_together(&self) -> usize {
        let most = self.control.as_ref().and_then(|control| control.controller.most_together());
        most.map_or(usize::MAX, |most| most as usize)
    }

    /// Returns whether packets have numbers.
    pub(super) fn has_numbers(&self) -> bool {
        self.control.is_some()
    }

    /// Returns the numbers of the channel's packets, if they have any.
    pub(super) fn numbers(&mut self) -> Option<&mut ChannelNumbers> {
        self.control.as_mut().map(|control| &mut control.numbers)
    }

    /// Finds the rate of those that are left, if one is behind that perhaps need not be.
    fn reconsider(&mut self, now: Instant) {
        if let Some(control) = &mut self.control
            && std::mem::take(&mut control.fewer)
            && !control.narrow.is_empty()
        {
            control.controller.on_timeout(now);
            control.compare_all();
        }
    }

    /// Notes that packets have left.
    pub(super) fn on_sent(&mut self, now: Instant) {
        if let Some(control) = &mut self.control {
            control.on_sent(now);
        }
    }

    /// Notes a new child. Nothing is known of its path, or nothing that still holds.
    pub(super) fn on_child(&mut self, node: NodeId) {
        if let Some(control) = &mut self.control {
            control.forget_where(node, |known| known.left);
            if control.controller.is_empty() {
                control.begin();
            }
        }
    }

    /// Returns whether the path to a receiver carries much less than is sent now.
    pub(super) fn is_behind(&self, address: SocketAddr) -> bool {
        self.control.as_ref().is_some_and(|control| control.is_behind(address))
    }

    /// Returns whether there is no other receiver that reports.
    pub(super) fn is_last(&self, address: SocketAddr) -> bool {
        self.control
            .as_ref()
            .is_some_and(|control| control.known.len() == 1 && control.known.contains_key(&address))
    }

    /// Returns the next receiver whose path carries much less than is sent from now on, or does not
    /// any more.
    fn poll_moved(&mut self) -> Option<(NodeId, SocketAddr, bool)> {
        self.control.as_mut().and_then(|control| control.moved.pop_front())
    }

    /// Forgets a receiver that wants nothing more.
    pub(super) fn forget(&mut self, node: NodeId) {
        if let Some(control) = &mut self.control {
            control.forget_where(node, |_| true);
        }
    }

    /// Forgets a child that is gone, unless it was dismissed since its path carries too little: it
    /// would be a newcomer with its next report.
    pub(super) fn forget_child(&mut self, node: NodeId) {
        if let Some(control) = &mut self.control {
            control.forget_where(node, |known| !known.left);
        }
    }

    /// Returns the time at which [`on_timeout`](Pace::on_timeout) is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.control.as_ref().and_then(|control| control.controller.next())
    }

    /// Does what is due.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        if let Some(control) = &mut self.control {
            control.controller.on_timeout(now);
            control.forget_silent(now);
        }
    }

    /// Returns the next news of the rate.
    fn poll_event(&mut self) -> Option<SourceEvent> {
        let Some(control) = &mut self.control else {
            let told = std::mem::replace(&mut self.told, true);
            return (!told).then_some(SourceEvent::Rate(self.fixed));
        };
        control.poll_event()
    }

    /// Returns the next message to a receiver, which has this cookie.
    pub(super) fn poll_message(
        &mut self,
        now: Instant,
        cookie: impl FnOnce(SocketAddr) -> u64,
    ) -> Option<(Way, Body)> {
        let control = self.control.as_mut()?;
        while let Some(address) = control.due.pop_first() {
            let Some(known) = control.known.get_mut(&address) else { continue };
            known.told = now;
            let (nonce, cookie) = (known.who.nonce, cookie(address));
            let schedule = control.controller.schedule(&address);
            return Some((Way::Host(address), Body::Reports { nonce, cookie, schedule }));
        }
        None
    }
}

impl Control {
    fn new(config: CongestionConfig, mut random: Generator) -> Control {
        let controller = Controller::new(config, None, random.clone());
        random.jump();
        Control {
            config,
            random,
            controller,
            numbers: ChannelNumbers::default(),
            row: Row::default(),
            counted: 0,
            last_sent: Instant::EPOCH,
            known: BTreeMap::new(),
            nodes: BTreeSet::new(),
            places: REPORTERS.shares(),
            due: BTreeSet::new(),
            narrow: BTreeSet::new(),
            are_few: true,
            moved: VecDeque::new(),
            fewer: false,
            looked: Instant::EPOCH,
            cookies: Cookies::new(),
        }
    }

    /// Begins anew, with other receivers.
    fn begin(&mut self) {
        self.controller = Controller::new(self.config, None, self.random.clone());
        self.random.jump();
        self.controller.start_at(self.row.place(self.numbers.next()));
    }

    fn on_sent(&mut self, now: Instant) {
        let next = self.numbers.next();
        if std::mem::replace(&mut self.counted, next) != next {
            self.last_sent = now;
            self.controller.on_sent(now, self.row.place(next));
        }
    }

    /// Takes the report of a receiver at an address that is its own.
    fn hear(
        &mut self,
        now: Instant,
        who: Reporter,
        report: &ReceptionReport,
    ) -> Result<(), DropReason> {
        self.forget_silent(now);
        let report = &self.row.of_row(report);
        let (address, origin) = (who.address, Origin::of(who.address.ip()));
        if let Some(lost) = self.places.enter(origin, address).map_err(|_| DropReason::OverLimit)? {
            self.forget(lost);
        }
        let Some(known) = self.known.get_mut(&address) else {
            self.known.insert(address, Known { who, heard: now, told: now, left: false });
            self.nodes.insert((who.node, address));
            self.due.insert(address);
            self.controller.hear(now, &address, origin, report);
            self.compare(address);
            return Ok(());
        };
        if known.who.node != who.node {
            self.nodes.remove(&(known.who.node, address));
            self.nodes.insert((who.node, address));
        }
        (known.who, known.heard) = (who, now);
        if now.since(known.told) >= TELL_AGAIN {
            self.due.insert(address);
        }
        self.controller.hear(now, &address, origin, report);
        self.compare(address);
        Ok(())
    }

    /// Compares a path with the present rate.
    fn compare(&mut self, address: SocketAddr) {
        let narrow = self.controller.is_behind(&address);
        let is_news =
            if narrow { self.narrow.insert(address) } else { self.narrow.remove(&address) };
        if let Some(known) = self.known.get(&address).filter(|_| is_news && self.are_few) {
            self.moved.push_back((known.who.node, address, narrow));
        }
        self.count_narrow();
    }

    /// Finds out whether most receivers have narrow paths.
    fn count_narrow(&mut self) {
        let are_few = self.narrow.len() * 2 <= self.known.len();
        if std::mem::replace(&mut self.are_few, are_few) != are_few {
            let narrow = self.narrow.iter().filter_map(|address| self.known.get(address));
            let moved = narrow.map(|known| (known.who.node, known.who.address, are_few));
            self.moved.extend(moved);
        }
    }

    fn is_behind(&self, address: SocketAddr) -> bool {
        self.are_few && self.narrow.contains(&address)
    }

    /// Compares the paths that were too narrow with the present rate.
    fn compare_all(&mut self) {
        for address in self.narrow.clone() {
            self.compare(address);
        }
    }

    /// Forgets a node, where this is so.
    fn forget_where(&mut self, node: NodeId, so: impl Fn(&Known) -> bool) {
        let least = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let of_node = self.nodes.range((node, least)..).take_while(|(id, _)| *id == node);
        let addresses: Vec<SocketAddr> = of_node.map(|&(_, address)| address).collect();
        for address in addresses {
            if self.known.get(&address).is_some_and(&so) {
                self.forget(address);
            }
        }
    }

    fn forget(&mut self, address: SocketAddr) {
        let Some(known) = self.known.remove(&address) else { return };
        self.nodes.remove(&(known.who.node, address));
        self.due.remove(&address);
        if self.narrow.remove(&address) && self.are_few {
            self.moved.push_back((known.who.node, address, false));
        }
        self.count_narrow();
        self.places.leave(address);
        self.controller.forget(&address);
        self.fewer = true;
        // The rate of those that are gone is nobody's any more.
        if !self.known.is_empty() && self.known.values().all(|known| known.left) {
            self.known.values_mut().for_each(|known| known.left = false);
            self.begin();
            self.compare_all();
        }
    }

    /// Forgets receivers that were silent for long, though there was something to report.
    fn forget_silent(&mut self, now: Instant) {
        if now.since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        let is_silent = |known: &&Known| {
            let address = &known.who.address;
            let patience = (self.controller.schedule(address).latest * 4).max(SILENT);
            self.last_sent.since(known.heard) > patience
        };
        let silent = self.known.values().filter(is_silent);
        let silent: Vec<SocketAddr> = silent.map(|known| known.who.address).collect();
        for address in silent {
            self.forget(address);
        }
    }

    fn poll_event(&mut self) -> Option<SourceEvent> {
        while let Some(event) = self.controller.poll_event() {
            match event {
                Event::Rate(rate) => {
                    self.compare_all();
                    return Some(SourceEvent::Rate(rate));
                }
                Event::Left { who, carries } => {
                    let Some(known) = self.known.get_mut(&who) else { continue };
                    known.left = true;
                    let Reporter { node, address, .. } = known.who;
                    let was_child = false;
                    return Some(SourceEvent::Aside { node, address, carries, was_child });
                }
                Event::Schedule { who, .. } => {
                    self.due.insert(who);
                }
                Event::ScheduleOthers(schedule) => {
                    let controller = &self.controller;
                    let has_it = |who: &&SocketAddr| controller.schedule(who) == schedule;
                    self.due.extend(self.known.keys().filter(has_it));
                }
            }
        }
        None
    }
}

impl<S: SymbolSource> Source<S> {
    /// Handles a report of how packets arrive. A host that has not shown that it is where its
    /// address says gets a cookie.
    pub(super) fn on_reception(
        &mut self,
        now: Instant,
        who: Reporter,
        cookie: u64,
        report: &ReceptionReport,
    ) -> Result<(), DropReason> {
        let good = self.fetched.cookie(who.address);
        if cookie == good && self.unicast.has(who.address) {
            return self.unicast.hear(now, who, report);
        }
        let control = self.pace.control.as_mut().ok_or(DropReason::Unexpected)?;
        if cookie == good {
            return control.hear(now, who, report);
        }
        let is_child = self.tree.child(who.node).is_some_and(|it| it.address == who.address);
        if self.outbox.len() >= MAX_OUTBOX || !control.cookies.take(now, who.address, is_child) {
            return Err(DropReason::OverLimit);
        }
        let schedule = ReportSchedule::START;
        let answer = Body::Reports { nonce: who.nonce, cookie: good, schedule };
        self.outbox.push_back((Way::Host(who.address), answer));
        Err(DropReason::NoCookie)
    }

    /// Tells the application what became of the rate. Who carries too little for it is not waited
    /// for, and fetches what it lacks.
    pub(super) fn tell_pace(&mut self, now: Instant) {
        self.pace.reconsider(now);
        while let Some(mut event) = self.pace.poll_event() {
            if let SourceEvent::Aside { node, address, was_child, .. } = &mut event
                && self.tree.child(*node).is_some_and(|child| child.address == *address)
            {
                *was_child = true;
                self.tree.evict(now, *node);
                self.stats.evicted += 1;
            }
            self.events.push_back(event);
        }
        while let Some((node, address, behind)) = self.pace.poll_moved() {
            if self.tree.child(node).is_some_and(|child| child.address == address) {
                self.domain.set_behind(now, node, behind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::generator;

    fn control() -> Control {
        let most = Rate::from_bits_per_s(100_000_000).unwrap();
        Control::new(CongestionConfig::new(most, 1_400), generator(1))
    }

    fn reporter(address: SocketAddr, node: u64) -> Reporter {
        Reporter { address, node: NodeId(node), nonce: 7 }
    }

    fn at(s: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(s)
    }

    #[test]
    fn a_host_has_a_share_of_the_places() {
        let mut control = control();
        let report = ReceptionReport::default();
        let mut taken = |net: u8, n: u16| {
            let address = SocketAddr::from(([10, 0, 0, net], n));
            control.hear(at(1), reporter(address, n.into()), &report).is_ok()
        };
        assert_eq!((0..1_000).filter(|&n| taken(1, n)).count(), REPORTERS.most_of_host());
        assert!(taken(2, 1), "another host");
        control.forget_where(NodeId(0), |_| true);
        assert_eq!(control.known.len(), control.places.len());
    }

    #[test]
    fn one_host_that_asks_for_cookies_keeps_nobody_from_getting_one() {
        let mut cookies = Cookies::new();
        let address = |host: u8, port: u16| SocketAddr::from(([10, 0, 0, host], port));
        let asked = (0..60_000).filter(|&port| cookies.take(at(1), address(1, port), false));
        assert_eq!(asked.count(), COOKIES.of_host().burst as usize);
        assert!(cookies.take(at(1), address(2, 9), false));
        // Many hosts take what strangers may have, and nothing from a child.
        let hosts = (0..60_000_u32).map(|n| SocketAddr::from((n.to_be_bytes(), 9)));
        let taken = hosts.filter(|&host| cookies.take(at(1), host, false)).count();
        assert!(taken < COOKIES.all.burst as usize, "{taken}");
        assert!(cookies.take(at(1), address(3, 9), true));
    }

    #[test]
    fn the_silent_and_the_gone_are_forgotten() {
        let mut control = control();
        let report = ReceptionReport::default();
        let address = |n: u8| SocketAddr::from(([10, 0, 0, n], 9));
        for n in 1..4 {
            control.hear(at(1), reporter(address(n), n.into()), &report).unwrap();
        }
        control.forget_where(NodeId(2), |_| true);
        assert_eq!(control.known.len(), 2);
        // Nothing was sent that could be reported.
        control.hear(at(200), reporter(address(1), 1), &report).unwrap();
        assert_eq!(control.known.len(), 2);
        control.last_sent = at(250);
        control.hear(at(300), reporter(address(1), 1), &report).unwrap();
        assert_eq!((control.known.len(), control.nodes.len(), control.places.len()), (1, 1, 1));
    }
}
