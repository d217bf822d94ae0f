//! Sources and receivers of LMS in a lab: the engines, each on a thread with sockets of its host.
//! And a tap, which counts the messages of LMS on every link.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{self, Duration};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;
use umbel_engine::chance::generator;
use umbel_engine::lms::config::LanConfig;
use umbel_engine::lms::{
    Receiver, ReceiverCommand, ReceiverConfig, Source, SourceCommand, SourceConfig,
};
use umbel_engine::{
    Address, Allowance, Datagram, Engine, Instant, Membership, RateClass, TransmitBuf,
};
use umbel_lab::{Lab, Node};
use umbel_wire::datagram::{ALERT_V4, ALERT_VALUE_V6, alert_header_v6};
use umbel_wire::lms::{Message, TurningPoint};
use umbel_wire::{Channel, Parsed, Tsi};

use super::process::BUSY;
use super::ssm::{change_v6, set_option};
use super::tap::{self, Sight};

/// The channel's group and port.
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(232, 7, 7, 7);
pub(crate) const PORT: u16 = 7800;

const GROUP6: Ipv6Addr = Ipv6Addr::new(0xFF3E, 0, 0, 0, 0, 0, 0x8000, 7);
/// A group that no router forwards, and its port.
const LAN: (Ipv4Addr, u16) = (Ipv4Addr::new(224, 0, 0, 199), 7801);

/// Returns the channel of a source.
pub(crate) fn channel(source: Node<'_>) -> Channel {
    channel_in(false, source)
}

/// Returns the channel of a source in one of the families.
pub(crate) fn channel_in(v6: bool, source: Node<'_>) -> Channel {
    let group: IpAddr = if v6 { GROUP6.into() } else { GROUP.into() };
    Channel { source: Some(address(v6, source)), group, port: PORT }
}

/// Returns the address of a node in one of the families.
pub(crate) fn address(v6: bool, node: Node<'_>) -> IpAddr {
    if v6 { node.addr6().into() } else { node.addr4().into() }
}

type Work<E> = Box<dyn FnOnce(&mut E, Instant) + Send>;

/// An engine that runs until this is dropped.
pub(crate) struct Endpoint<E> {
    work: mpsc::Sender<Work<E>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The sockets of an end-point: one for its own address, one for the channel, one for its LAN.
struct Sockets {
    own: UdpSocket,
    channel: UdpSocket,
    lan: UdpSocket,
    me: Ipv4Addr,
    interface: u32,
    group: IpAddr,
}

impl Sockets {
    fn open(v6: bool, host: Node<'_>) -> Sockets {
        let own = host.udp_socket((address(v6, host), PORT).into()).unwrap();
        let (me, interface) = (host.addr4(), host.interfaces()[0].index);
        let group = channel_in(v6, host).group;
        if v6 {
            SockRef::from(&own).set_multicast_hops_v6(32).unwrap();
            SockRef::from(&own).set_multicast_if_v6(interface).unwrap();
        } else {
            SockRef::from(&own).set_multicast_ttl_v4(32).unwrap();
            SockRef::from(&own).set_multicast_if_v4(&me).unwrap();
            SockRef::from(&own).set_multicast_loop_v4(false).unwrap();
        }
        let channel = host.udp_socket((group, PORT).into()).unwrap();
        let lan = host.udp_socket(LAN.into()).unwrap();
        for socket in [&own, &channel, &lan] {
            socket.set_nonblocking(true).unwrap();
            SockRef::from(socket).set_recv_buffer_size(4 << 20).unwrap();
        }
        Sockets { own, channel, lan, me, interface, group }
    }

    fn change(&self, change: &Membership) {
        let (Membership::Join(channel) | Membership::Leave(channel)) = change;
        let joins = matches!(change, Membership::Join(_));
        let socket = SockRef::from(&self.channel);
        match (channel.source, channel.group, joins) {
            (Some(IpAddr::V4(source)), IpAddr::V4(group), true) => {
                socket.join_ssm_v4(&source, &group, &self.me).unwrap();
            }
            (Some(IpAddr::V4(source)), IpAddr::V4(group), false) => {
                socket.leave_ssm_v4(&source, &group, &self.me).unwrap();
            }
            (Some(IpAddr::V6(source)), IpAddr::V6(group), _) => {
                let option = if joins {
                    nix::libc::MCAST_JOIN_SOURCE_GROUP
                } else {
                    nix::libc::MCAST_LEAVE_SOURCE_GROUP
                };
                change_v6(&self.channel, option, self.interface, (source, group));
            }
            (None, IpAddr::V4(group), true) if group == LAN.0 => {
                self.lan.join_multicast_v4(&group, &self.me).unwrap();
            }
            (None, IpAddr::V4(group), false) if group == LAN.0 => {
                self.lan.leave_multicast_v4(&group, &self.me).unwrap();
            }
            _ => panic!("{channel:?}"),
        }
    }

    fn send(&self, to: Address, alert: bool, message: &[u8]) {
        let to = match to {
            Address::Host(host) => host,
            Address::Channel(channel) => SocketAddr::new(channel.group, channel.port),
            Address::Session(_) => panic!("LMS has no sessions"),
        };
        // A DMCAST is addressed to the router that is to look at it: feeds send it as here.
        let is_dmcast = matches!(
            Message::parse(message),
            Ok(Parsed::Message { message: Message::Dmcast { .. }, .. })
        );
        set_alert(&self.own, alert && !is_dmcast);
        // Where there is no route any more, nothing is sent.
        let _ = self.own.send_to(message, to);
    }

    /// Receives what waits, as messages of the channel, of the LAN, or of a host.
    fn receive(&self, buffer: &mut [u8]) -> Option<(Address, usize)> {
        let host = |from: SocketAddr| Address::Host(from);
        let channel = |from: SocketAddr| {
            let source = Some(from.ip());
            Address::Channel(Channel { source, group: self.group, port: PORT })
        };
        let lan = |from: SocketAddr| {
            let source = Some(from.ip());
            Address::Channel(Channel { source, group: LAN.0.into(), port: LAN.1 })
        };
        let found = |socket: &UdpSocket, by: &dyn Fn(SocketAddr) -> Address, buffer: &mut [u8]| {
            let (len, from) = socket.recv_from(buffer).ok()?;
            Some((by(from), len))
        };
        found(&self.own, &host, buffer)
            .or_else(|| found(&self.channel, &channel, buffer))
            .or_else(|| found(&self.lan, &lan, buffer))
    }
}

/// Sets the Router Alert option on what a socket sends, or clears it.
pub(crate) fn set_alert(socket: &UdpSocket, alert: bool) {
    let is_v6 = socket.local_addr().unwrap().is_ipv6();
    let header = alert_header_v6(0, ALERT_VALUE_V6);
    let (option, value) = if is_v6 {
        ((nix::libc::IPPROTO_IPV6, nix::libc::IPV6_HOPOPTS), &header[..])
    } else {
        ((nix::libc::IPPROTO_IP, nix::libc::IP_OPTIONS), &ALERT_V4[..])
    };
    set_option(socket, option, if alert { value } else { &[] });
}

impl<E: Engine + Send + 'static> Endpoint<E> {
    fn start(v6: bool, host: Node<'_>, engine: E) -> Endpoint<E> {
        let sockets = Sockets::open(v6, host);
        let (work, inbox) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || run(engine, &sockets, &inbox, &stopped));
        Endpoint { work, stop, thread: Some(thread) }
    }

    /// Does something with the engine. Returns what comes of it.
    pub(crate) fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut E, Instant) -> T + Send + 'static,
    ) -> T {
        let (give, take) = mpsc::channel();
        let work = move |engine: &mut E, now| drop(give.send(act(engine, now)));
        self.work.send(Box::new(work)).unwrap();
        take.recv_timeout(Duration::from_secs(10) * BUSY).unwrap()
    }
}

impl<E> Drop for Endpoint<E> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run<E: Engine>(
    mut engine: E,
    sockets: &Sockets,
    inbox: &mpsc::Receiver<Work<E>>,
    stopped: &AtomicBool,
) {
    let begin = time::Instant::now();
    let clock = || Instant::EPOCH + begin.elapsed();
    let mut allowance = Allowance::default();
    allowance.set(RateClass::Data, 16);
    let mut buf = TransmitBuf::new(allowance);
    let mut buffer = vec![0; 65_536];
    while !stopped.load(Ordering::Acquire) {
        let mut fds = [&sockets.own, &sockets.channel, &sockets.lan]
            .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        // Short enough to look at the inbox.
        let wait = engine.poll_timeout().map_or(Duration::MAX, |at| at.since(clock()));
        let wait = wait.min(Duration::from_millis(2)).as_micros().div_ceil(1000) as u16;
        let _ = poll(&mut fds, PollTimeout::from(wait));
        while let Some((by, len)) = sockets.receive(&mut buffer) {
            let payload = &buffer[..len];
            engine.handle_datagram(clock(), Datagram { by, hop_limit: None, payload });
            drain(&mut engine, sockets, &mut buf, allowance, clock());
        }
        while let Ok(work) = inbox.try_recv() {
            work(&mut engine, clock());
            drain(&mut engine, sockets, &mut buf, allowance, clock());
        }
        if engine.poll_timeout().is_some_and(|at| at <= clock()) {
            engine.handle_timeout(clock());
        }
        drain(&mut engine, sockets, &mut buf, allowance, clock());
    }
}

fn drain<E: Engine>(
    engine: &mut E,
    sockets: &Sockets,
    buf: &mut TransmitBuf,
    allowance: Allowance,
    now: Instant,
) {
    while let Some(change) = engine.poll_membership() {
        sockets.change(&change);
    }
    loop {
        buf.reset(allowance);
        let Some(transmit) = engine.poll_transmit(now, buf) else { break };
        for message in buf.messages() {
            sockets.send(transmit.to, transmit.alert, &message);
        }
    }
    while engine.poll_event().is_some() {}
}

/// Starts a source. It sends heartbeats every 400 ms at first, so that a link that is cut for a
/// moment loses units alone.
pub(crate) fn source(host: Node<'_>) -> Endpoint<Source> {
    source_in(false, host)
}

/// Starts one in one of the families.
pub(crate) fn source_in(v6: bool, host: Node<'_>) -> Endpoint<Source> {
    let config = SourceConfig {
        heartbeat_min: Duration::from_millis(400),
        ..SourceConfig::new(channel_in(v6, host), Tsi(1))
    };
    Endpoint::start(v6, host, Source::new(config))
}

/// Starts a receiver with a fixed cost, which has joined.
pub(crate) fn receiver(host: Node<'_>, source: Node<'_>, cost: u32) -> Endpoint<Receiver> {
    receiver_in(false, host, source, cost, false)
}

/// Starts one in one of the families, which takes part in the election of its LAN or not.
pub(crate) fn receiver_in(
    v6: bool,
    host: Node<'_>,
    source: Node<'_>,
    cost: u32,
    elects: bool,
) -> Endpoint<Receiver> {
    let lan = Channel { source: None, group: LAN.0.into(), port: LAN.1 };
    let config = ReceiverConfig {
        cost: umbel_engine::lms::config::Cost::Fixed(Some(cost)),
        // A request is repeated late, so that those of one loss can be counted.
        request_timeout: (Duration::from_secs(1), Duration::from_secs(2)),
        lan: elects.then(|| LanConfig::new(lan, host.addr4().into())),
        ..ReceiverConfig::new(channel_in(v6, source))
    };
    let seed = u32::from(host.addr4()).into();
    let endpoint = Endpoint::start(v6, host, Receiver::new(config, generator(seed)));
    endpoint.with(|engine, now| engine.handle_command(now, ReceiverCommand::Join).unwrap());
    endpoint
}

/// Sends a unit.
pub(crate) fn send_unit(source: &Endpoint<Source>, unit: &'static [u8]) {
    source.with(move |engine, now| {
        engine.handle_command(now, SourceCommand::Send(unit.into())).unwrap();
    });
}

/// Returns the number of units that a receiver has, whether they came at first or later.
pub(crate) fn units(receiver: &Endpoint<Receiver>) -> u64 {
    let stats = receiver.with(|engine, _| engine.stats());
    stats.originals + stats.recovered
}

/// A kind of message, as the paper's figures draw them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Data,
    Request,
    Dmcast,
    Repair,
}

/// Counts for each direction of a link, by the names of its nodes: from, to, what.
pub(crate) type Seen = BTreeMap<(String, String, Kind), u64>;

/// Messages that a tap has seen.
#[derive(Debug, Default)]
struct Told {
    seen: Seen,
    turning_points: Vec<TurningPoint>,
}

/// Counts the messages of LMS that leave the nodes of a lab, until it is dropped.
pub(crate) struct Tap(tap::Tap<Told>);

impl Tap {
    /// Listens at every node.
    pub(crate) fn new(lab: &Lab) -> Tap {
        Tap(tap::Tap::new(lab, Told::default(), Told::see))
    }

    /// Returns the counts so far.
    pub(crate) fn seen(&self) -> Seen {
        self.0.with(|told| told.seen.clone())
    }

    /// Returns the turning points of all DMCASTs.
    pub(crate) fn turning_points(&self) -> Vec<TurningPoint> {
        self.0.with(|told| told.turning_points.clone())
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.0.with(|told| *told = Told::default());
    }
}

impl Told {
    /// Counts what leaves a node.
    fn see(&mut self, sight: &Sight<'_>) {
        if !sight.is_sent {
            return;
        }
        let Ok(Parsed::Message { message, .. }) = Message::parse(sight.datagram.payload) else {
            return;
        };
        let kind = match message {
            Message::Data { .. } => Kind::Data,
            Message::Request(_) => Kind::Request,
            Message::Dmcast { .. } => Kind::Dmcast,
            Message::Repair { .. } => Kind::Repair,
            _ => return,
        };
        if let Message::Dmcast { turning_point, .. } = message {
            self.turning_points.push(turning_point);
        }
        let link = (sight.node.to_owned(), sight.peer.to_owned(), kind);
        *self.seen.entry(link).or_default() += 1;
    }
}

/// Waits until something holds. Fails with a description if that takes too long.
#[track_caller]
pub(crate) fn wait_until(what: &str, timeout: Duration, mut holds: impl FnMut() -> bool) {
    let until = time::Instant::now() + BUSY * timeout;
    while !holds() {
        assert!(time::Instant::now() < until, "not within {timeout:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Receives a datagram, or nothing within the time.
pub(crate) fn receive(socket: &UdpSocket, timeout: Duration) -> Option<(Vec<u8>, SocketAddr)> {
    let until = time::Instant::now() + timeout;
    let mut buffer = vec![0; 2048];
    loop {
        let left = until.saturating_duration_since(time::Instant::now());
        if left.is_zero() {
            return None;
        }
        socket.set_read_timeout(Some(left)).unwrap();
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => return Some((buffer[..len].to_vec(), from)),
            Err(error)
                if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
