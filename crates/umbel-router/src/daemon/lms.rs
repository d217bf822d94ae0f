//! Hosts the router engine of LMS for one family.
//!
//! ```text
//!  in transit with Router Alert ──▶ AlertSocket ─┐            ┌─▶ Injector: to a host, with Router Alert
//!                                                ├─▶ engine ──┤   or without; down one branch under
//!  to this router: port 7706 ─────▶ UDP socket ──┘            └─▶ the source's address
//! ```
//!
//! Datagrams that the engine does not take go on as if there were no daemon. Plain requests and
//! DMCASTs do not come here where the fast path takes them ([`fast`](super::fast)).
//!
//! # Guards
//!
//! The engine accepts a DMCAST only with a turning point that it stamped less than a minute ago,
//! for a branch of a live channel. Here a [`Credit`] is kept beside it: a stamped request permits a
//! limited number of DMCASTs to its interface. So a replier that keeps a turning point cannot use
//! it to spray a subtree.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::errno::Errno;
use umbel_engine::lms::{Router, RouterConfig};
use umbel_engine::router::{
    InterfaceId, PassingDatagram, RouterDestination, RouterEngine, RouterTransmit, Routes,
    Upstream, Verdict,
};
use umbel_engine::shares::{Origin, Places};
use umbel_engine::{Address, Instant};
use umbel_net::classifier::ClassifierError;
use umbel_wire::datagram::{self, IpDatagram};
use umbel_wire::lms::Message;
use umbel_wire::{Channel, Parsed};

use super::config::LmsConfig;
use super::fast::FastPath;
use super::senders::{Sender, Senders};
use crate::bounds::LMS_BRANCHES;
use crate::control::CostHeard;
use crate::kernel::alert::AlertSocket;
use crate::kernel::inject::Injector;
use crate::kernel::{Family, InterfaceSocket};

/// Hops that the router's own datagrams travel.
pub(super) const HOPS: u8 = 64;
/// Interval at which offers that came by membership reports are told to the engine again. Less than
/// a third of their lifetime there.
const RENEW: Duration = Duration::from_secs(2);
/// Greatest number of DMCASTs permitted at a time on one branch.
pub(super) const CREDITS: u32 = 4096;
/// Greatest number of branches with credit, and of offers by reports.
const BRANCHES: usize = LMS_BRANCHES.all;
/// Datagrams taken from one socket before others have their turn.
const BATCH: usize = 64;

/// Where repairs of a channel go.
type Branch = (Channel, InterfaceId);
/// An offer by a report, and the host whose it is.
type Offer = (Channel, InterfaceId, IpAddr);

/// LMS of one family.
#[derive(Debug)]
pub(super) struct Lms {
    config: LmsConfig,
    family: Family,
    alerts: AlertSocket,
    mine: InterfaceSocket,
    pub(super) outlet: Box<dyn Outlet>,
    pub(super) fast: FastPath,
    /// The engine, while the router has an address.
    engine: Option<(Router, SocketAddr)>,
    /// Random bits for the secrets of engines.
    secret: [u8; 32],
    /// Number of engines so far.
    engines: u64,
    senders: Senders,
    credit: BTreeMap<Branch, Credit>,
    /// Places of credit: of the hosts that ask.
    creditors: Places<InterfaceId, Branch>,
    offers: BTreeMap<Offer, CostHeard>,
    /// Places of offers: of the hosts that make them.
    offering: Places<InterfaceId, Offer>,
    renew_at: Option<Instant>,
    counts: Counts,
    lost: [u32; 2],
    packet: Vec<u8>,
}

/// A way out for whole IP packets: to a host by its route, or down one interface.
pub(super) trait Outlet: std::fmt::Debug {
    fn send(&self, interface: Option<u32>, to: IpAddr, packet: &[u8]) -> io::Result<()>;
}

impl Outlet for Injector {
    fn send(&self, interface: Option<u32>, to: IpAddr, packet: &[u8]) -> io::Result<()> {
        Injector::send(self, interface, to, packet)
    }
}

/// Permission for DMCASTs to one branch.
#[derive(Clone, Copy, Debug)]
struct Credit {
    left: u32,
    expires: Instant,
}

/// Counts of LMS datagrams that the engine did not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Datagrams in transit that were put aside for the engine.
    pub alerts: u64,
    /// Datagrams to this router.
    pub addressed: u64,
    /// Datagrams in transit that were not for the engine, and went on.
    pub passed_on: u64,
    /// Datagrams that ended here, their time to live being over.
    pub hops: u64,
    /// Datagrams that a host, or all unknown hosts of an interface, had beyond their limit.
    pub flood: u64,
    /// DMCASTs beyond what requests asked for.
    pub unasked: u64,
    /// Datagrams that the sockets had no room for.
    pub overflow: u64,
    /// Datagrams that were no UDP or addressed to nobody here.
    pub malformed: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that were longer than the MTU.
    pub too_long: u64,
    /// Datagrams for which there was no route, no room or no permission.
    pub unsent: u64,
}

/// Parts of the daemon that are lent for one turn.
pub(super) struct Turn<'a, R> {
    pub(super) now: Instant,
    pub(super) routes: &'a mut R,
    /// The router's own addresses.
    pub(super) own: &'a dyn Fn(IpAddr) -> bool,
    pub(super) buffer: &'a mut [u8],
}

impl Lms {
    pub(super) fn open(family: Family, config: LmsConfig, secret: [u8; 32]) -> io::Result<Lms> {
        Ok(Lms {
            family,
            alerts: AlertSocket::open(family)?,
            mine: InterfaceSocket::udp(family, config.port)?,
            outlet: Box::new(Injector::open(family)?),
            fast: FastPath::none(),
            senders: Senders::new(config.datagrams_of_host, config.datagrams),
            config,
            engine: None,
            secret,
            engines: 0,
            credit: BTreeMap::new(),
            creditors: Places::new(BRANCHES, BRANCHES),
            offers: BTreeMap::new(),
            offering: Places::new(BRANCHES, BRANCHES),
            renew_at: None,
            counts: Counts::default(),
            lost: [0; 2],
            packet: Vec::new(),
        })
    }

    /// Has a program in the kernel take what it can, if that is wanted and possible.
    ///
    /// # Errors
    ///
    /// If it is required and not possible.
    pub(super) fn start_fast_path(&mut self, now: Instant) -> Result<(), ClassifierError> {
        self.fast.start(self.family, self.config.fast_path, now)
    }

    /// Updates the fast path with what has changed, if it is time to. `mtu` is that of an
    /// interface.
    pub(super) fn tell_fast_path<R: Routes>(
        &mut self,
        turn: &mut Turn<'_, R>,
        mtu: &dyn Fn(InterfaceId) -> u32,
    ) {
        if let Some((engine, _)) = &self.engine {
            self.fast.tell(engine, turn, mtu);
        }
    }

    pub(super) fn sockets(&self) -> (&AlertSocket, &InterfaceSocket) {
        (&self.alerts, &self.mine)
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    pub(super) fn engine(&self) -> Option<&Router> {
        self.engine.as_ref().map(|(engine, _)| engine)
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.engine.as_ref().map(|(_, address)| *address)
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes one of these addresses. The engine starts from scratch if the one it has is gone.
    pub(super) fn choose_address(&mut self, available: &[IpAddr]) {
        if self.address().is_some_and(|address| available.contains(&address.ip())) {
            return;
        }
        let wanted = self.config.addresses.iter().find(|a| Family::of(**a) == self.family).copied();
        let chosen = wanted.or_else(|| available.first().copied());
        let address = chosen.map(|address| SocketAddr::new(address, self.config.port));
        if address == self.address() {
            return;
        }
        self.engines += 1;
        let secret = blake3::keyed_hash(&self.secret, &self.engines.to_be_bytes());
        self.begin(address.map(|address| RouterConfig {
            source_as_replier: self.config.source_as_replier,
            ..RouterConfig::new(address, *secret.as_bytes())
        }));
    }

    /// Begins with a new engine, or none.
    pub(super) fn begin(&mut self, config: Option<RouterConfig>) {
        self.fast.configure(config.as_ref(), &self.config);
        self.engine = config.map(|config| (Router::new(config.clone()), config.address));
        self.credit.clear();
        self.creditors = Places::new(BRANCHES, BRANCHES);
        self.renew_at = Some(Instant::EPOCH);
    }

    /// Notes what a report says about a host as a replier.
    pub(super) fn hear(&mut self, now: Instant, heard: CostHeard) {
        let key = (heard.channel, heard.interface, heard.host.ip());
        if heard.cost.is_none() {
            self.forget_offer(&key);
            return;
        }
        let Ok(lost) = self.offering.enter(heard.interface, Origin::alone(key.2), key) else {
            return;
        };
        if let Some(lost) = lost {
            self.offers.remove(&lost);
        }
        self.offering.renew(key);
        self.offers.insert(key, heard);
        self.renew_at.get_or_insert(now + RENEW);
    }

    fn forget_offer(&mut self, offer: &Offer) {
        self.offers.remove(offer);
        self.offering.leave(*offer);
    }

    /// Informs the engine of an offer as if the host had advertised it.
    pub(super) fn advertise<R: Routes>(&mut self, turn: &mut Turn<'_, R>, heard: &CostHeard) {
        let Some((engine, _)) = &mut self.engine else { return };
        let CostHeard { channel, interface, host, cost } = *heard;
        let Some(source) = channel.source else { return };
        let mut payload = Vec::new();
        Message::Advertisement { channel, cost }.emit(&mut payload);
        let datagram = PassingDatagram {
            arrived_on: interface,
            from: host,
            to: Address::Host(SocketAddr::new(source, channel.port)),
            payload: &payload,
        };
        engine.handle_datagram(turn.now, turn.routes, datagram);
        self.drain(turn.now, Some((interface, host.ip())));
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let engine = self.engine().and_then(Router::poll_timeout);
        [engine, self.renew_at, self.fast.poll_timeout()].into_iter().flatten().min()
    }

    pub(super) fn handle_timeout<R: Routes>(&mut self, turn: &mut Turn<'_, R>) {
        let now = turn.now;
        if self.renew_at.is_some_and(|at| at <= now) {
            self.renew_at = (!self.offers.is_empty()).then_some(now + RENEW);
            let offers: Vec<CostHeard> = self.offers.values().copied().collect();
            for offer in &offers {
                self.advertise(turn, offer);
            }
            self.forget_credit(now);
        }
        let Some((engine, _)) = &mut self.engine else { return };
        let failed = engine.stats().repliers_failed;
        let before: Vec<_> = self.offers.keys().map(|key| (*key, engine.replier(&key.0))).collect();
        engine.handle_timeout(now, turn.routes);
        if engine.stats().repliers_failed > failed {
            // A host that has failed is no replier again before it says so.
            let was = |(interface, host): (_, SocketAddr)| (interface, host.ip());
            let failed = before.into_iter().filter(|(key, replier)| {
                let before = replier.map(was);
                before == Some((key.1, key.2)) && engine.replier(&key.0).map(was) != before
            });
            let failed: Vec<Offer> = failed.map(|(key, _)| key).collect();
            for offer in &failed {
                self.forget_offer(offer);
            }
        }
        self.drain(now, None);
    }

    /// Takes datagrams in transit. Returns whether there may be more.
    pub(super) fn take_alerts<R: Routes>(&mut self, turn: &mut Turn<'_, R>) -> bool {
        for _ in 0..BATCH {
            let Ok(envelope) = self.alerts.receive(turn.buffer) else { return false };
            self.count_lost(0, envelope.lost);
            let interface = InterfaceId(envelope.interface);
            let packet = &mut turn.buffer[..envelope.len];
            self.take_packet(turn.now, turn.routes, turn.own, interface, packet);
        }
        true
    }

    /// Takes a packet in transit.
    pub(super) fn take_packet<R: Routes>(
        &mut self,
        now: Instant,
        routes: &mut R,
        own: &dyn Fn(IpAddr) -> bool,
        interface: InterfaceId,
        packet: &mut [u8],
    ) {
        self.counts.alerts += 1;
        let Some([source, _]) = addresses(packet) else { return };
        let sender = (interface, source);
        if !self.admit(now, sender) {
            return;
        }
        let verdict = match IpDatagram::parse(packet) {
            // It came to the other socket, too.
            Ok(datagram) if own(datagram.destination.ip()) => return,
            Ok(datagram) if datagram.destination.ip().is_multicast() => {
                self.pass_on_multicast(routes, interface, packet);
                return;
            }
            Ok(datagram) => {
                let (from, to) = (datagram.source, Address::Host(datagram.destination));
                self.hand_over(now, routes, (interface, from, to), datagram.payload)
            }
            Err(_) => Verdict::Forward,
        };
        if verdict == Verdict::Forward {
            self.pass_on(packet);
        }
        self.drain(now, Some(sender));
    }

    /// Takes datagrams to this router. Returns whether there may be more.
    pub(super) fn take_mine<R: Routes>(&mut self, turn: &mut Turn<'_, R>) -> bool {
        for _ in 0..BATCH {
            let Ok(envelope) = self.mine.receive(turn.buffer) else { return false };
            self.count_lost(1, envelope.lost);
            let interface = InterfaceId(envelope.interface);
            let Some(from) = envelope.from else { continue };
            let payload = &turn.buffer[..envelope.len];
            self.take_message(turn.now, turn.routes, (interface, from), payload);
        }
        true
    }

    /// Takes a datagram to this router.
    pub(super) fn take_message<R: Routes>(
        &mut self,
        now: Instant,
        routes: &mut R,
        (interface, from): (InterfaceId, SocketAddr),
        payload: &[u8],
    ) {
        let Some(address) = self.address() else { return };
        self.counts.addressed += 1;
        let sender = (interface, from.ip());
        if !self.admit(now, sender) {
            return;
        }
        let to = Address::Host(address);
        let verdict = self.hand_over(now, routes, (interface, from, to), payload);
        if verdict == Verdict::Forward {
            self.counts.malformed += 1;
        }
        self.drain(now, Some(sender));
    }

    fn hand_over<R: Routes>(
        &mut self,
        now: Instant,
        routes: &mut R,
        (arrived_on, from, to): (InterfaceId, SocketAddr, Address),
        payload: &[u8],
    ) -> Verdict {
        let Some((engine, _)) = &mut self.engine else { return Verdict::Forward };
        let drops = engine.drops().total();
        let datagram = PassingDatagram { arrived_on, from, to, payload };
        let verdict = engine.handle_datagram(now, routes, datagram);
        let sender = (arrived_on, from.ip());
        let is_of_use = verdict == Verdict::Take && engine.drops().total() == drops;
        if is_of_use && !self.senders.is_known(&sender) {
            let fast = &mut self.fast;
            let lost = self.senders.know(now, sender, |other| fast.last_used(other));
            for other in &lost {
                fast.forget_host(other);
            }
            if self.senders.is_known(&sender) {
                fast.know_host(&sender);
            }
        }
        verdict
    }

    /// Returns whether a host may send one more datagram.
    fn admit(&mut self, now: Instant, sender: Sender) -> bool {
        let may = self.senders.admit(now, sender);
        self.counts.flood += u64::from(!may);
        may
    }

    pub(super) fn forget_interface(&mut self, interface: InterfaceId) {
        let gone = self.senders.forget_interface(interface);
        for sender in &gone {
            self.fast.forget_host(sender);
        }
        self.fast.detach(interface);
        let gone: Vec<Offer> = self.offers.keys().filter(|of| of.1 == interface).copied().collect();
        for offer in &gone {
            self.forget_offer(offer);
        }
    }

    /// Returns whether a DMCAST to a branch answers a request that was steered here.
    fn take_credit(&mut self, now: Instant, branch: Branch) -> bool {
        let credit = self.credit.get_mut(&branch);
        let credit = credit.filter(|credit| credit.left > 0 && credit.expires > now);
        let has =
            credit.map(|credit| credit.left -= 1).is_some() || self.fast.take_credit(now, branch);
        self.counts.unasked += u64::from(!has);
        has
    }

    /// Permits the DMCASTs that a request asks for which was stamped here, and came `by` a host.
    fn give_credit(&mut self, now: Instant, by: Sender, payload: &[u8]) {
        let Ok(Parsed::Message { message: Message::Request(request), .. }) =
            Message::parse(payload)
        else {
            return;
        };
        let Some(point) = request.turning_point else { return };
        if Some(point.router) != self.address() {
            return;
        }
        let branch = (request.channel, InterfaceId(point.interface));
        if self.creditors.is_full() && !self.credit.contains_key(&branch) {
            self.forget_credit(now);
        }
        let Ok(lost) = self.creditors.enter(by.0, Origin::alone(by.1), branch) else { return };
        if let Some(lost) = lost {
            self.credit.remove(&lost);
        }
        self.creditors.renew(branch);
        let units = 1 + request.units.following.count_ones();
        let expires = now + self.config.credit_lifetime;
        let credit = self.credit.entry(branch).or_insert(Credit { left: 0, expires });
        let left = if credit.expires > now { credit.left } else { 0 };
        credit.left = (left + units * self.config.dmcasts_per_unit).min(CREDITS);
        credit.expires = expires;
        self.renew_at.get_or_insert(now + RENEW);
    }

    /// Forgets credit that is over.
    fn forget_credit(&mut self, now: Instant) {
        let creditors = &mut self.creditors;
        self.credit.retain(|branch, credit| {
            if credit.expires <= now {
                creditors.leave(*branch);
            }
            credit.expires > now
        });
    }

    fn count_lost(&mut self, socket: usize, lost: u32) {
        let since = lost.wrapping_sub(self.lost[socket]);
        self.lost[socket] = lost;
        self.counts.overflow += u64::from(since);
    }

    fn pass_on(&mut self, packet: &mut [u8]) {
        if !datagram::forward(packet) {
            self.counts.hops += 1;
            return;
        }
        self.counts.passed_on += 1;
        if let Some([_, to]) = addresses(packet) {
            let sent = self.outlet.send(None, to, packet);
            self.count_sent(&sent);
        }
    }

    /// Does what the kernel's multicast forwarding would have done.
    fn pass_on_multicast<R: Routes>(
        &mut self,
        routes: &mut R,
        arrived_on: InterfaceId,
        packet: &mut [u8],
    ) {
        let Ok(IpDatagram { source, destination, .. }) = IpDatagram::parse(packet) else { return };
        let (group, port) = (destination.ip(), destination.port());
        let channel = Channel { source: Some(source.ip()), group, port };
        if routes.upstream(&channel) != Some(Upstream::Interface(arrived_on)) {
            return;
        }
        let mut outputs = Vec::new();
        routes.downstream(&channel, &mut outputs);
        if !datagram::forward(packet) {
            self.counts.hops += 1;
            return;
        }
        self.counts.passed_on += 1;
        for InterfaceId(output) in outputs {
            let sent = self.outlet.send(Some(output), group, packet);
            self.count_sent(&sent);
        }
    }

    /// Sends what the engine has made of a datagram that came `by` a host, or of the time.
    fn drain(&mut self, now: Instant, by: Option<Sender>) {
        while let Some(transmit) = self.engine.as_mut().and_then(|(e, _)| e.poll_transmit(now)) {
            match transmit.to {
                RouterDestination::Branch { channel, interface }
                    if !self.take_credit(now, (channel, interface)) =>
                {
                    continue;
                }
                RouterDestination::Host(_) => {
                    if let Some(by) = by {
                        self.give_credit(now, by, &transmit.payload);
                    }
                }
                _ => {}
            }
            let sent = self.send(&transmit);
            self.count_sent(&sent);
        }
    }

    fn send(&mut self, transmit: &RouterTransmit) -> io::Result<()> {
        let Some((_, address)) = self.engine else { return Ok(()) };
        let alert = transmit.alert.then_some(match self.family {
            Family::V4 => 0,
            Family::V6 => datagram::ALERT_VALUE_V6,
        });
        let (interface, source, destination, hop_limit) = match transmit.to {
            RouterDestination::Host(host) => (None, address, host, HOPS),
            RouterDestination::Branch { channel, interface } => {
                let source = channel.source.ok_or(io::ErrorKind::InvalidInput)?;
                let source = SocketAddr::new(source, channel.port);
                let group = SocketAddr::new(channel.group, channel.port);
                (Some(interface.0), source, group, self.config.repair_hops)
            }
            // Routers take LMS at one port, whatever that of the service is.
            RouterDestination::Neighbours { interface, .. } => {
                let routers: IpAddr = match self.family {
                    Family::V4 => [224, 0, 0, 2].into(),
                    Family::V6 => [0xFF02, 0, 0, 0, 0, 0, 0, 2].into(),
                };
                (Some(interface.0), address, SocketAddr::new(routers, self.config.port), 1)
            }
        };
        self.packet.clear();
        let datagram =
            IpDatagram { source, destination, hop_limit, alert, payload: &transmit.payload };
        datagram
            .emit(&mut self.packet)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.outlet.send(interface, destination.ip(), &self.packet)
    }

    fn count_sent(&mut self, sent: &io::Result<()>) {
        match sent {
            Ok(()) => self.counts.sent += 1,
            Err(error) if error.raw_os_error() == Some(Errno::EMSGSIZE as i32) => {
                self.counts.too_long += 1;
            }
            Err(error) => {
                self.counts.unsent += 1;
                tracing::debug!("a datagram of LMS is not sent: {error}");
            }
        }
    }
}

/// Returns the source and the destination of an IP packet.
fn addresses(packet: &[u8]) -> Option<[IpAddr; 2]> {
    let v4 = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let v6 = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
    match packet.first()? >> 4 {
        4 => Some([v4(12)?, v4(16)?]),
        6 => Some([v6(8)?, v6(24)?]),
        _ => None,
    }
}
