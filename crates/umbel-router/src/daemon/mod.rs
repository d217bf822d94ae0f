//! The router daemon: it hosts the control plane and the engine of LMS on the kernel of Linux.
//!
//! One thread waits in one place for all sockets, the next deadline and other threads, and nothing
//! it calls waits. Other threads put questions into its mailbox.
//!
//! ```text
//!    IGMP, MLD, upcalls ─▶┐                ┌─▶ entries of the kernel's forwarding
//!                  PIM ─▶ │ ControlPlane ──┼─▶ IGMP, MLD, PIM
//!    netlink: links, ─▶   │       │        │
//!      routes            ─┘       │ costs  └─ trees (Routes)
//!                                 ▼             │
//!    Router Alert, UDP 7706 ─▶ Lms (one a family) ◀┘
//! ```
//!
//! # Scope and limitations
//!
//! - The kernel's forwarding ends with the process. A daemon that restarts learns the members by
//!   its first queries, and its neighbours send their joins again.
//! - A table of the kernel has 32 interfaces. Those beyond are named as a trouble.
//! - LMS has one address in each family. If it goes, the engine starts from scratch with another.

mod config;
mod fast;
mod lms;
mod senders;
mod side;
mod status;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::mpsc::Sender;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use umbel_engine::Instant;
use umbel_engine::chance::Generator;
use umbel_engine::host::Mailbox;
use umbel_engine::lms::DropReason;
use umbel_engine::router::InterfaceId;
use umbel_net::classifier::ClassifierError;
use umbel_net::clock::Clock;
use umbel_net::mailbox::{Line, line};
use umbel_net::wake::wait_for_any;

pub use self::config::{Config, FastPathMode, LMS_PORT, LmsConfig};
pub use self::fast::FastCounts;
pub use self::lms::Counts;
use self::lms::Turn;
use self::side::{Loan, Side, Way};
pub use self::status::{FastPathStatus, Forwarded, LmsStatus, Replier, Status};
use crate::control::{
    ControlPlane, ForwardingChange, InterfaceAddress, InterfaceInfo, SourceGroup,
};
use crate::kernel::interfaces::{Interface, Interfaces};
use crate::kernel::mroute::Counters;
use crate::kernel::routes::{Changes, Routing};
use crate::kernel::{Family, capabilities};

/// Interval at which the control plane is told which channels carry packets.
const CARRIED_EVERY: Duration = Duration::from_secs(10);
/// Longest packet that is taken.
const PACKET: usize = 65_536;

/// Reason for which a daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process may not do what a router must.
    #[error(
        "a router needs the capabilities {}: run it as root, or `setcap {}+ep $(command -v umbel)`",
        .missing.join(" and "), .missing.join(",").to_lowercase()
    )]
    Capabilities {
        /// The missing capabilities.
        missing: Vec<&'static str>,
    },
    /// Another program has the forwarding.
    #[error(
        "another multicast router runs on this host{}: stop it (`umbel router`, pimd, FRR, \
         smcroute), or take a table of your own with --table 100 and `ip mrule`",
        .table.map(|table| format!(" with table {table}")).unwrap_or_default()
    )]
    TableTaken {
        /// The table; none for the main one.
        table: Option<u32>,
    },
    /// Another program has the port of LMS.
    #[error("UDP port {port} is taken: use another one on all routers with --lms-port")]
    PortTaken {
        /// The port.
        port: u16,
    },
    /// The fast path is required, and is not possible.
    #[error("no fast path for LMS: {0}. Without --fast-path required, the daemon does its work")]
    FastPath(#[source] ClassifierError),
    /// The system refuses something.
    #[error("cannot {what}: {source}")]
    System {
        /// The refused part.
        what: &'static str,
        /// Its reason.
        source: io::Error,
    },
}

/// Requests of other threads to a daemon.
#[derive(Debug)]
pub enum Input {
    /// Its state.
    Status(Sender<Status>),
    /// A request to end.
    Stop,
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    config: Config,
    clock: Clock,
    control: ControlPlane,
    routing: Routing,
    changes: Changes,
    interfaces: Interfaces,
    sides: Vec<Side>,
    /// Interfaces that take part.
    links: BTreeMap<InterfaceId, Interface>,
    /// Routes that the kernel forwards by.
    entries: BTreeMap<SourceGroup, (InterfaceId, Vec<InterfaceId>)>,
    /// Packets of each entry when they were last counted, and when they are again.
    packets: BTreeMap<SourceGroup, u64>,
    count_at: Instant,
    troubles: BTreeMap<String, String>,
    /// Time to look at news of interfaces and routes, if there are, and the earliest one.
    news_at: Option<Instant>,
    look_from: Instant,
    inputs: Line<Input>,
}

impl Daemon {
    /// Takes over the multicast forwarding of this network namespace. Returns the daemon, which
    /// forwards from when it runs, and its mailbox.
    ///
    /// # Errors
    ///
    /// One line that says what to do.
    pub fn open(
        config: Config,
        random: Generator,
        secret: [u8; 32],
    ) -> Result<(Daemon, Mailbox<Input>), StartError> {
        let system = |what| move |source| StartError::System { what, source };
        let missing = capabilities::missing().map_err(system("read /proc/self/status"))?;
        if !missing.is_empty() {
            return Err(StartError::Capabilities { missing });
        }
        let mut sides = vec![Side::open(Family::V4, &config, secret)?];
        match Side::open(Family::V6, &config, secret) {
            Ok(side) => sides.push(side),
            // A kernel without IPv6, or without its multicast forwarding.
            Err(StartError::System { source, .. })
                if matches!(
                    source.raw_os_error(),
                    Some(libc::EAFNOSUPPORT | libc::ENOPROTOOPT | libc::EPROTONOSUPPORT)
                ) =>
            {
                tracing::info!("IPv6 is not routed: {source}");
            }
            Err(error) => return Err(error),
        }
        let clock = Clock::new();
        for lms in sides.iter_mut().filter_map(|side| side.lms.as_mut()) {
            lms.start_fast_path(clock.now()).map_err(StartError::FastPath)?;
        }
        let changes = Changes::open().map_err(system("ask for changes of routes"))?;
        let (mailbox, inputs) = line().map_err(system("make a mailbox"))?;
        let mut daemon = Daemon {
            control: ControlPlane::new(config.control.clone(), random),
            config,
            clock,
            routing: Routing::open().map_err(system("ask for routes"))?,
            changes,
            interfaces: Interfaces::open().map_err(system("ask for interfaces"))?,
            sides,
            links: BTreeMap::new(),
            entries: BTreeMap::new(),
            packets: BTreeMap::new(),
            count_at: clock.now() + CARRIED_EVERY,
            troubles: BTreeMap::new(),
            news_at: None,
            look_from: Instant::EPOCH,
            inputs,
        };
        daemon.look_at_interfaces(daemon.clock.now());
        daemon.drain();
        daemon.tell_fast_path(daemon.clock.now());
        Ok((daemon, mailbox))
    }

    /// Returns the names of the interfaces that take part now.
    pub fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.links.values().map(|link| link.name.as_str())
    }

    /// Returns what keeps it from its work, in words.
    pub fn troubles(&self) -> impl Iterator<Item = &str> {
        self.troubles.values().map(String::as_str)
    }

    /// Routes until it is told to stop.
    ///
    /// # Errors
    ///
    /// If the system refuses to wait.
    pub fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; PACKET];
        loop {
            let (has_news, ready) = self.wait()?;
            let now = self.clock.now();
            self.inputs.waker().take();
            while let Some(input) = self.inputs.take() {
                match input {
                    // The asking thread may be gone.
                    Input::Status(answer) => drop(answer.send(self.status())),
                    Input::Stop => {
                        self.control.leave(now);
                        self.drain();
                        return Ok(());
                    }
                }
            }
            if has_news && self.changes.take() {
                self.news_at.get_or_insert(now.max(self.look_from));
            }
            if self.news_at.is_some_and(|at| at <= now) {
                self.look_at_news(now);
            }
            for (side, way) in ready {
                let links = &self.links;
                let own = |address| is_own(links, address);
                let loan = Loan {
                    now,
                    control: &mut self.control,
                    unicast: &self.routing,
                    own: &own,
                    buffer: &mut buffer,
                };
                self.sides[side].take(way, loan);
                self.drain();
            }
            self.handle_timeout(now, &mut buffer);
            self.tell_fast_path(now);
        }
    }

    /// Takes over what has changed of interfaces and routes. It reads all of them, for at most a
    /// tenth of the time, however often they change.
    fn look_at_news(&mut self, now: Instant) {
        self.news_at = None;
        self.routing.forget();
        self.look_at_interfaces(now);
        self.control.routes_changed(now, &self.routing);
        self.drain();
        let end = self.clock.now();
        self.look_from = end + end.since(now) * 9;
    }

    /// Waits for something to do. Returns whether there is news of interfaces or routes, and the
    /// sockets that have something, by side.
    fn wait(&self) -> io::Result<(bool, Vec<(usize, Way)>)> {
        let mut ways = Vec::new();
        let mut fds = vec![
            PollFd::new(self.inputs.waker().as_fd(), PollFlags::POLLIN),
            PollFd::new(self.changes.as_fd(), PollFlags::POLLIN),
        ];
        for (number, side) in self.sides.iter().enumerate() {
            for (way, fd) in side.sockets() {
                ways.push((number, way));
                fds.push(PollFd::new(fd, PollFlags::POLLIN));
            }
        }
        let timeout = self.poll_timeout().map(|at| self.clock.until(at));
        wait_for_any(&mut fds, timeout)?;
        let ready = fds[2..].iter().zip(ways).filter(|(fd, _)| fd.any().unwrap_or(true));
        Ok((fds[1].any().unwrap_or(true), ready.map(|(_, way)| way).collect()))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let lms = self.sides.iter().filter_map(|side| side.lms.as_ref()?.poll_timeout());
        let count = (!self.entries.is_empty()).then_some(self.count_at);
        lms.chain(self.control.poll_timeout()).chain(count).chain(self.news_at).min()
    }

    fn handle_timeout(&mut self, now: Instant, buffer: &mut [u8]) {
        if self.control.poll_timeout().is_some_and(|at| at <= now) {
            self.control.handle_timeout(now, &self.routing);
            self.drain();
        }
        if self.count_at <= now {
            self.count_packets(now);
        }
        for side in &mut self.sides {
            let Some(lms) = &mut side.lms else { continue };
            if lms.poll_timeout().is_some_and(|at| at <= now) {
                let own = |_| false;
                let mut turn = Turn { now, routes: &mut self.control, own: &own, buffer };
                lms.handle_timeout(&mut turn);
            }
        }
    }

    /// Tells the control plane which channels carry packets.
    fn count_packets(&mut self, now: Instant) {
        let packets = |channel| self.counters(channel).packets;
        let packets: BTreeMap<SourceGroup, u64> =
            self.entries.keys().map(|channel| (*channel, packets(channel))).collect();
        let before = |channel| self.packets.get(channel).copied().unwrap_or(0);
        let carried = packets.iter().filter(|(channel, packets)| **packets > before(*channel));
        self.control.carried(carried.map(|(channel, _)| *channel));
        self.packets = packets;
        self.count_at = now + CARRIED_EVERY;
    }

    /// Returns what the kernel has forwarded of a channel.
    fn counters(&self, channel: &SourceGroup) -> Counters {
        let family = Family::of(channel.group);
        let side = self.sides.iter().find(|side| side.family() == family);
        side.map(|side| side.counters(channel)).unwrap_or_default()
    }

    /// Updates the programs of the fast path with the present routes of requests.
    fn tell_fast_path(&mut self, now: Instant) {
        let links = &self.links;
        let own = |address| is_own(links, address);
        let mtu = |id| links.get(&id).map_or(0, |link| link.mtu);
        for lms in self.sides.iter_mut().filter_map(|side| side.lms.as_mut()) {
            let mut turn = Turn { now, routes: &mut self.control, own: &own, buffer: &mut [] };
            lms.tell_fast_path(&mut turn, &mtu);
        }
    }

    /// Notes that trees or interfaces have changed.
    fn touch(&mut self) {
        let now = self.clock.now();
        for lms in self.sides.iter_mut().filter_map(|side| side.lms.as_mut()) {
            lms.fast.touch(now);
        }
    }

    /// Carries out what the control plane wants.
    fn drain(&mut self) {
        while let Some(transmit) = self.control.poll_transmit() {
            let family = Family::of(transmit.to);
            let Some(side) = self.sides.iter().find(|side| side.family() == family) else {
                continue;
            };
            if let Err(error) = side.send(&transmit) {
                // It is said again in time. An interface that has just vanished is the usual case.
                tracing::debug!("{:?} to {} is not sent: {error}", transmit.protocol, transmit.to);
            }
        }
        while let Some(change) = self.control.poll_forwarding() {
            self.apply(&change);
            self.touch();
        }
        let now = self.clock.now();
        while let Some(heard) = self.control.poll_cost() {
            let family = Family::of(heard.channel.group);
            let side = self.sides.iter_mut().find(|side| side.family() == family);
            let Some(lms) = side.and_then(|side| side.lms.as_mut()) else { continue };
            lms.hear(now, heard);
            let own = |_| false;
            let mut turn = Turn { now, routes: &mut self.control, own: &own, buffer: &mut [] };
            lms.advertise(&mut turn, &heard);
        }
    }

    fn apply(&mut self, change: &ForwardingChange) {
        let (ForwardingChange::Set { channel, .. } | ForwardingChange::Remove { channel }) = change;
        let channel = *channel;
        let family = Family::of(channel.group);
        let Some(side) = self.sides.iter().find(|side| side.family() == family) else { return };
        match (change, side.apply(change)) {
            (ForwardingChange::Set { input, outputs, .. }, Ok(())) => {
                self.entries.insert(channel, (*input, outputs.clone()));
            }
            (_, Ok(())) => drop(self.entries.remove(&channel)),
            (_, Err(error)) => {
                self.entries.remove(&channel);
                // An interface that has just vanished; the control plane hears of it next.
                tracing::debug!("{channel} is not forwarded: {error}");
            }
        }
    }

    /// Brings the interfaces that take part in step with those that there are.
    fn look_at_interfaces(&mut self, now: Instant) {
        let listed = match self.interfaces.list() {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!("cannot list the interfaces: {error}");
                return;
            }
        };
        let wanted: BTreeMap<InterfaceId, Interface> = listed
            .into_iter()
            .filter(|interface| self.is_wanted(interface))
            .map(|interface| (InterfaceId(interface.index), interface))
            .collect();
        let gone = self.links.keys().filter(|id| !wanted.contains_key(id));
        for id in gone.copied().collect::<Vec<_>>() {
            self.remove_interface(now, id);
        }
        for (id, interface) in wanted {
            if self.links.get(&id) != Some(&interface) {
                self.take_interface(now, id, interface);
            }
        }
        let addresses = |family| -> Vec<IpAddr> {
            self.links.values().filter_map(|link| link.address(family)).collect()
        };
        for side in &mut self.sides {
            let available = addresses(side.family());
            if let Some(lms) = &mut side.lms {
                lms.choose_address(&available);
            }
        }
        self.look_at_settings();
        self.touch();
    }

    fn is_wanted(&self, interface: &Interface) -> bool {
        let names = &self.config.interfaces;
        let is_named = names.is_empty() || names.contains(&interface.name);
        interface.is_up && interface.is_multicast && is_named
    }

    fn remove_interface(&mut self, now: Instant, id: InterfaceId) {
        self.control.interface_down(now, &self.routing, id);
        let Some(link) = self.links.remove(&id) else { return };
        tracing::info!("{} takes part no longer", link.name);
        self.troubles.remove(&link.name);
        self.drain();
        for side in &mut self.sides {
            side.remove(id);
        }
    }

    /// Takes part on an interface, or takes over what has changed of it.
    fn take_interface(&mut self, now: Instant, id: InterfaceId, interface: Interface) {
        let mut addresses = Vec::new();
        self.troubles.remove(&interface.name);
        for side in &mut self.sides {
            let family = side.family();
            let own = interface.addresses.iter().filter(|(a, _)| Family::of(*a) == family);
            let own: Vec<InterfaceAddress> = own
                .map(|&(address, prefix_len)| InterfaceAddress { address, prefix_len })
                .collect();
            if own.is_empty() {
                continue;
            }
            match side.add(id) {
                Ok(()) => {
                    addresses.extend(own);
                    if let Some(lms) = &mut side.lms {
                        lms.fast.attach(id, &interface.name);
                    }
                }
                Err(error) => {
                    let trouble = if error.raw_os_error() == Some(libc::ENFILE) {
                        format!(
                            "{} takes no part in {family}: the kernel's table has 32 interfaces; \
                             name the ones that matter with --interface",
                            interface.name
                        )
                    } else {
                        format!("{} takes no part in {family}: {error}", interface.name)
                    };
                    tracing::warn!("{trouble}");
                    self.troubles.insert(interface.name.clone(), trouble);
                }
            }
        }
        let info = InterfaceInfo { name: interface.name.clone(), addresses, mtu: interface.mtu };
        tracing::info!("{} takes part", interface.name);
        self.links.insert(id, interface);
        self.control.interface_up(now, &self.routing, id, info);
    }

    /// Notes what in the system's settings keeps packets from being forwarded.
    fn look_at_settings(&mut self) {
        let read = |path: String| std::fs::read_to_string(path).ok()?.trim().parse::<u8>().ok();
        let mut found = BTreeMap::new();
        if read("/proc/sys/net/ipv4/ip_forward".to_owned()) == Some(0) {
            let trouble = "requests of LMS are not heard, since this host does not forward: \
                           `sysctl net.ipv4.ip_forward=1`";
            found.insert("ip_forward".to_owned(), trouble.to_owned());
        }
        let filter = |name: &str| read(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
        let all = filter("all").unwrap_or(0);
        for link in self.links.values() {
            if filter(&link.name).unwrap_or(0).max(all) == 1 {
                let trouble = format!(
                    "{0} drops packets of sources that are not routed by it: `sysctl \
                     net.ipv4.conf.{0}.rp_filter=2`",
                    link.name
                );
                found.insert(format!("rp_filter {}", link.name), trouble);
            }
        }
        self.troubles.retain(|key, _| key != "ip_forward" && !key.starts_with("rp_filter "));
        self.troubles.extend(found);
    }

    fn name_of(&self, id: InterfaceId) -> String {
        self.links.get(&id).map_or_else(|| format!("#{}", id.0), |link| link.name.clone())
    }

    /// Returns the daemon's state.
    pub fn status(&self) -> Status {
        let forwarded = self.entries.iter().map(|(channel, (input, outputs))| {
            let counters = self.counters(channel);
            Forwarded {
                source: channel.source,
                group: channel.group,
                input: self.name_of(*input),
                outputs: outputs.iter().map(|output| self.name_of(*output)).collect(),
                packets: counters.packets,
                bytes: counters.bytes,
                wrong_interface: counters.wrong_interface,
            }
        });
        let lms = self.sides.iter().filter_map(|side| side.lms.as_ref());
        let now = self.clock.now();
        Status {
            seconds: (now - Instant::EPOCH).as_secs_f64(),
            table: self.config.table,
            troubles: self.troubles.values().cloned().collect(),
            control: self.control.status(now),
            forwarded: forwarded.collect(),
            lms: lms.map(|lms| self.status_of_lms(lms)).collect(),
        }
    }

    fn status_of_lms(&self, lms: &lms::Lms) -> LmsStatus {
        let fast_path = lms.fast.status();
        let fast = fast_path.counts;
        let stats = lms.engine().map(umbel_engine::lms::Router::stats).unwrap_or_default();
        let stats = fast.add_to(stats);
        let repliers = lms.engine().into_iter().flat_map(umbel_engine::lms::Router::repliers);
        let drops = DropReason::ALL.map(|reason| {
            let of_engine = lms.engine().map_or(0, |engine| engine.drops().of(reason));
            (format!("{reason:?}"), of_engine + fast.drops(reason))
        });
        LmsStatus {
            family: lms.family().to_string(),
            address: lms.address(),
            repliers: repliers
                .filter_map(|(channel, interface, neighbour, cost)| {
                    let interface = self.name_of(interface);
                    let (source, group, port) = (channel.source?, channel.group, channel.port);
                    Some(Replier { source, group, port, interface, neighbour, cost })
                })
                .collect(),
            turned: stats.turned,
            sent_up: stats.sent_up,
            sent_down: stats.sent_down,
            dmcasts: stats.dmcasts,
            repliers_failed: stats.repliers_failed,
            drops: drops.into_iter().filter(|(_, count)| *count > 0).collect(),
            datagrams: fast.add_to_datagrams(lms.counts()),
            fast_path,
        }
    }
}

/// Returns whether an address is one of the router's own.
fn is_own(links: &BTreeMap<InterfaceId, Interface>, address: IpAddr) -> bool {
    links.values().flat_map(|link| &link.addresses).any(|(own, _)| *own == address)
}
