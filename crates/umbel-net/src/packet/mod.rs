//! A port for TCP segments of our own making: packet sockets below the kernel's TCP.
//!
//! A [`PacketPort`] receives the segments for one address and TCP port of this host. It sends
//! segments to its peers and to channels of a group. It exchanges TCP headers and payloads with an
//! engine. It adds and removes what is around them, and computes and checks checksums.
//!
//! ```text
//!  peers ──▶ card ─┬─▶ kernel's TCP: a rule of nftables drops them there
//!                  └─▶ ring in shared memory ──▶ Datagram { by: Host(peer), segment }
//!
//!  Transmit { to: Channel | Host(peer) } ──▶ frame, cut into segments by kernel or card ──▶ card
//!                                       └──▶ IP packet, routed by the kernel: this host, or a
//!                                            host that was not heard lately,
//!                                            or from several cards
//! ```
//!
//! There are two ways to own the address:
//!
//! - The kernel owns it. It answers ARP and uses the address for everything else, and a rule keeps
//!   it from answering segments for the port with RST. The rule vanishes with this process.
//! - Nobody owns it. The port then answers ARP and neighbour discovery itself.
//!
//! The next hop of a peer is the card that sends its frames, so that no routes are looked up. If
//! they come from several cards, one may be a stranger's, and the kernel finds the way.
//!
//! # Scope and limitations
//!
//! - Linux, Ethernet or the loopback interface. One interface, and clients of the same host.
//! - Multicasts do not reach receivers of the same host, which get unicast, unless the server is on
//!   the loopback interface.
//! - The kernel hands received segments over within a millisecond, older ones than 6.18 within two
//!   ticks of their clock. Round trips grow by that.
//! - Fragments are not reassembled. IPv6 extension headers are not looked into.

pub mod ack_filter;
pub(crate) mod filter;
pub(crate) mod frame;
mod guard;
mod next_hops;
mod outlet;
mod own_address;
pub(crate) mod ring;
mod run;
pub(crate) mod sys;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::poll::PollFlags;
use socket2::{Domain, Socket, Type};
use umbel_engine::host::Trouble;
use umbel_engine::{Address, Datagram, Instant, Transmit, TransmitBuf};

use self::filter::Program;
use self::frame::{Inbound, Mac, Unfit};
use self::guard::Guard;
use self::outlet::Sender;
use self::own_address::OwnAddress;
use self::ring::{Frame, Ring};
use crate::interface::{Family, Interface, InterfaceError, Traffic};
use crate::port::waiting::{Outlet as _, Waiting};
use crate::port::{Port, Turn, Watch};
use crate::udp::SendError;

pub use self::guard::TABLE_PREFIX;

/// Interval at which the port checks whether its interface and its rule are still the same.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Frames of a ring that one turn takes before the engine answers.
const FRAMES_AT_ONCE: usize = 4096;

/// The options of a packet port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// Maximum number of hops of multicasts. 1 stays on the link; each router takes one more.
    pub hop_limit: u8,
    /// Bytes of the ring for received frames, and of the buffer for those to be sent.
    pub buffer_bytes: usize,
    /// Number of hosts whose next hop is remembered. Segments for others are routed by the kernel.
    pub peers: usize,
    /// Whether to let the kernel or the network card cut frames into segments, where possible.
    pub offload: bool,
}

impl Default for PacketOptions {
    /// Returns up to 31 routers, 8 MiB each way, 65,536 hosts.
    fn default() -> PacketOptions {
        PacketOptions { hop_limit: 32, buffer_bytes: 8 << 20, peers: 1 << 16, offload: true }
    }
}

/// The reason why a packet port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenPacketError {
    /// The process may not do this.
    #[error(
        "TCP segments of one's own need the capabilities CAP_NET_RAW and CAP_NET_ADMIN: run it as \
         root, or by systemd with AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN"
    )]
    NotPermitted,
    /// Another program uses the port.
    #[error("TCP port {0} is taken: use another, or see who has it with `ss -tlpn`")]
    PortTaken(SocketAddr),
    /// The address belongs to no single host.
    #[error("{0} is no address to listen at: use one of the interface")]
    Address(IpAddr),
    /// The group does not suit the address.
    #[error("{group} is no group to which {address} can send: use one of the same family")]
    Group {
        /// The group.
        group: IpAddr,
        /// The server's address.
        address: IpAddr,
    },
    /// The interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Frames of the interface are not those of Ethernet.
    #[error("{0} is neither Ethernet nor the loopback interface: use one that is")]
    NotEthernet(String),
    /// The program is missing that sets the rule.
    #[error("`nft` is missing, which keeps the kernel from refusing connections: install nftables")]
    NoNft,
    /// The rule cannot be set.
    #[error("cannot keep the kernel from refusing connections by `nft`: {reason}")]
    Guard {
        /// The reason in the words of `nft` or the system.
        reason: String,
    },
    /// Another error of the system.
    #[error("cannot open a packet socket on {interface}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
}

impl OpenPacketError {
    fn guard(error: &io::Error) -> OpenPacketError {
        OpenPacketError::Guard { reason: error.to_string() }
    }

    fn system(error: io::Error, interface: &Interface) -> OpenPacketError {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EPERM | Errno::EACCES) => OpenPacketError::NotPermitted,
            _ => OpenPacketError::System { interface: interface.name.clone(), source: error },
        }
    }
}

/// Counters of a port since it was opened, readable by any thread.
#[derive(Debug, Default)]
pub struct Counters {
    received: AtomicU64,
    wrong_checksums: AtomicU64,
    malformed: AtomicU64,
    overruns: AtomicU64,
    frames_sent: AtomicU64,
    segments_sent: AtomicU64,
    unsent: AtomicU64,
}

/// The [counters](Counters) at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Segments received.
    pub received: u64,
    /// Segments dropped for a wrong checksum.
    pub wrong_checksums: u64,
    /// Frames dropped that held no segment for this server.
    pub malformed: u64,
    /// Frames that the kernel dropped because this program did not keep up.
    pub overruns: u64,
    /// Frames and packets sent.
    pub frames_sent: u64,
    /// Segments in those frames.
    pub segments_sent: u64,
    /// Segments that could not be sent.
    pub unsent: u64,
}

impl Counters {
    /// Returns the counters now.
    pub fn counts(&self) -> PacketCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PacketCounts {
            received: of(&self.received),
            wrong_checksums: of(&self.wrong_checksums),
            malformed: of(&self.malformed),
            overruns: of(&self.overruns),
            frames_sent: of(&self.frames_sent),
            segments_sent: of(&self.segments_sent),
            unsent: of(&self.unsent),
        }
    }
}

/// Purpose of a port.
#[derive(Clone, Debug)]
struct Recipe {
    server: SocketAddr,
    group: IpAddr,
    options: PacketOptions,
}

/// The sockets on one interface.
#[derive(Debug)]
struct Sockets {
    /// Of the interface, and of the loopback interface if this host has the address.
    rings: Vec<Ring>,
    sender: Sender,
    own_address: Option<OwnAddress>,
    guard: Option<Guard>,
}

/// A port for one address and TCP port, its peers, and its channels in one group.
#[derive(Debug)]
pub struct PacketPort {
    recipe: Recipe,
    interface: Interface,
    /// `None` while they could not be reopened.
    sockets: Option<Sockets>,
    /// Keeps others from the port.
    _reservation: Socket,
    waiting: Waiting,
    counters: Arc<Counters>,
    next_check: Instant,
    /// Frames that the kernel dropped, as told to the host so far, of the present rings.
    overruns: u64,
}

impl PacketPort {
    /// Opens a port that receives segments for `server`, and sends from there to hosts and to
    /// channels of `group`. If no interface of this host has the address, the port answers for it
    /// on `interface`.
    ///
    /// # Errors
    ///
    /// If the port is taken, the process may not do it, or the interface cannot be used.
    pub fn open(
        server: SocketAddr,
        group: IpAddr,
        interface: &Interface,
        options: &PacketOptions,
    ) -> Result<PacketPort, OpenPacketError> {
        let address = server.ip();
        if address.is_unspecified() || address.is_multicast() || server.port() == 0 {
            return Err(OpenPacketError::Address(address));
        }
        if !group.is_multicast() || group.is_ipv4() != address.is_ipv4() {
            return Err(OpenPacketError::Group { group, address });
        }
        let reservation = reserve(server, interface)?;
        let counters = Arc::new(Counters::default());
        let recipe = Recipe { server, group, options: options.clone() };
        let sockets = recipe.sockets(interface, &counters)?;
        Ok(PacketPort {
            recipe,
            interface: interface.clone(),
            sockets: Some(sockets),
            _reservation: reservation,
            waiting: Waiting::default(),
            counters,
            next_check: Instant::EPOCH,
            overruns: 0,
        })
    }

    /// Returns the port's counters, which go on counting.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Returns the length of the longest segment that the interface carries, in bytes: TCP header
    /// and payload.
    pub fn max_segment(&self) -> usize {
        self.interface.mtu - umbel_wire::tcp::ip_len(self.recipe.server.ip())
    }

    /// Takes the frames of the rings, and hands over the segments.
    fn receive(&mut self, give: &mut dyn FnMut(Datagram<'_>), turn: &mut Turn) {
        let Some(Sockets { rings, sender, .. }) = &mut self.sockets else { return };
        let (server, counters) = (self.recipe.server, &self.counters);
        let loopback = self.interface.loopback;
        for (n, ring) in rings.iter_mut().enumerate() {
            let mut hear = |frame: Frame<'_>| {
                let inbound = match Inbound::find(frame, server) {
                    Ok(inbound) => inbound,
                    Err(unfit) => {
                        let counter = match unfit {
                            Unfit::Checksum => &counters.wrong_checksums,
                            Unfit::Malformed => &counters.malformed,
                        };
                        counter.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                };
                // To clients of this host only the kernel finds the way.
                if n == 0 && !loopback {
                    sender.heard(inbound.from.ip(), inbound.mac);
                }
                turn.datagrams += 1;
                give(Datagram {
                    by: Address::Host(inbound.from),
                    hop_limit: Some(inbound.hop_limit),
                    payload: inbound.segment,
                });
            };
            ring.take(FRAMES_AT_ONCE, &mut hear);
        }
        counters.received.fetch_add(turn.datagrams as u64, Ordering::Relaxed);
    }

    /// Reports overruns, and reopens the sockets if the interface or the rule has gone.
    fn check_if_due(&mut self, now: Instant, turn: &mut Turn) {
        if now < self.next_check {
            return;
        }
        let first = self.next_check == Instant::EPOCH;
        self.next_check = now + CHECK_EVERY;
        if first {
            return;
        }
        if let Some(Sockets { rings, guard, .. }) = &mut self.sockets {
            let drops = rings.iter_mut().map(Ring::drops).sum();
            if drops > self.overruns {
                turn.troubles.push(Trouble::Overrun { datagrams: drops - self.overruns });
                self.counters.overruns.fetch_add(drops - self.overruns, Ordering::Relaxed);
                self.overruns = drops;
            }
            if guard.as_mut().is_some_and(|guard| !guard.is_alive()) {
                tracing::warn!("the rule that keeps the kernel silent is gone, and is set anew");
                self.sockets = None;
            }
        }
        let all = Interface::list().unwrap_or_default();
        let Some(found) = all.into_iter().find(|found| found.name == self.interface.name) else {
            return;
        };
        if found.index == self.interface.index && self.sockets.is_some() {
            return;
        }
        self.sockets = None;
        self.overruns = 0;
        self.waiting = Waiting::default();
        match self.recipe.sockets(&found, &self.counters) {
            Ok(sockets) => {
                tracing::info!("packet sockets on {} are opened anew", found.name);
                self.sockets = Some(sockets);
                self.interface = found;
            }
            Err(error) => turn.troubles.push(Trouble::NotSent { reason: error.to_string() }),
        }
    }
}

/// Keeps other programs from the port. A socket that does not listen accepts nothing.
fn reserve(server: SocketAddr, interface: &Interface) -> Result<Socket, OpenPacketError> {
    let failed = |error| OpenPacketError::system(error, interface);
    let domain = if server.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, None).map_err(failed)?;
    // The address need not be one of this host, or not yet.
    let freed = if server.is_ipv4() {
        socket.set_freebind_v4(true)
    } else {
        socket.set_only_v6(true).and_then(|()| socket.set_freebind_v6(true))
    };
    freed.map_err(failed)?;
    socket.bind(&interface.on_link(server).into()).map_err(|error| {
        if error.kind() == io::ErrorKind::AddrInUse {
            OpenPacketError::PortTaken(server)
        } else {
            failed(error)
        }
    })?;
    Ok(socket)
}

impl Recipe {
    fn sockets(
        &self,
        interface: &Interface,
        counters: &Arc<Counters>,
    ) -> Result<Sockets, OpenPacketError> {
        let failed = |error| OpenPacketError::system(error, interface);
        let address = self.server.ip();
        let all = Interface::list()?;
        let loopback = all.iter().find(|found| found.loopback && !interface.loopback);
        let owner = all.iter().find(|found| found.has(address));
        if let Some(owner) = owner.filter(|owner| owner.index != interface.index) {
            return Err(InterfaceError::NoSuchAddress {
                address,
                existing: vec![owner.to_string()],
            }
            .into());
        }
        let mac = ethernet_address(interface)?;
        let protocol = if address.is_ipv4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
        let filter = Program::to(self.server);
        let bytes = self.options.buffer_bytes;
        let ring = |index| Ring::open(index, protocol, &filter, false, bytes).map_err(failed);
        // Before the rule, since they fail in the first place without the capabilities.
        let mut rings = vec![ring(interface.index)?];
        if let (Some(loopback), true) = (loopback, owner.is_some()) {
            rings.push(ring(loopback.index)?);
        }
        let sender =
            Sender::open(interface, mac, address, &self.options, counters).map_err(failed)?;
        let own_address = if owner.is_none() {
            Some(OwnAddress::open(interface.index, address, mac).map_err(failed)?)
        } else {
            None
        };
        // Segments for an address that is not the kernel's concern it where it routes.
        let guarded = owner.is_some() || interface.forwards(Family::of(address), Traffic::Unicast);
        let guard = if guarded { Some(Guard::set(self.server)?) } else { None };
        Ok(Sockets { rings, sender, own_address, guard })
    }
}

/// Returns whether frames of the interface are those of Ethernet.
pub(crate) fn is_ethernet(interface: &Interface) -> bool {
    ethernet_address(interface).is_ok()
}

/// Returns the address of the interface's card, all zeros for the loopback interface.
pub(crate) fn ethernet_address(interface: &Interface) -> Result<Mac, OpenPacketError> {
    let all = getifaddrs().map_err(|errno| OpenPacketError::system(errno.into(), interface))?;
    for entry in all.filter(|entry| entry.interface_name == interface.name) {
        let link = entry.address.as_ref().and_then(|address| address.as_link_addr().copied());
        if let Some(link) = link
            && matches!(link.hatype(), libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK)
            && let Some(mac) = link.addr()
        {
            return Ok(mac);
        }
    }
    Err(OpenPacketError::NotEthernet(interface.name.clone()))
}

impl Port for PacketPort {
    fn covers(&self, address: &Address) -> bool {
        match address {
            Address::Host(host) => host.is_ipv4() == self.recipe.server.is_ipv4(),
            Address::Channel(channel) => channel.group == self.recipe.group,
            Address::Session(_) => false,
        }
    }

    fn send(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        buf: &mut TransmitBuf,
    ) -> Result<(), SendError> {
        let to = match transmit.to {
            Address::Channel(channel) => channel.destination(),
            Address::Host(address) => address,
            Address::Session(_) => return Ok(()),
        };
        let Some(Sockets { sender, .. }) = &mut self.sockets else {
            return Err(SendError::Down(self.interface.name.clone()));
        };
        self.waiting.send(now, sender, to, transmit.hop_limit, buf)
    }

    fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn max_batch(&self, packet_len: usize) -> Option<usize> {
        self.sockets.as_ref().map(|sockets| sockets.sender.max_batch(packet_len))
    }

    fn watch<'a>(&'a self, watch: &mut Watch<'a>) {
        watch.until(self.next_check);
        let Some(sockets) = &self.sockets else { return };
        for ring in &sockets.rings {
            watch.descriptor(ring.as_fd(), PollFlags::POLLIN);
        }
        if let Some(own) = &sockets.own_address {
            watch.descriptor(own.as_fd(), PollFlags::POLLIN);
        }
        if let Some(retry) = self.waiting.retry() {
            watch.until(retry.at);
            if retry.on_room {
                watch.descriptor(sockets.sender.as_fd(), PollFlags::POLLOUT);
            }
        }
    }

    fn turn(&mut self, now: Instant, ready: bool, give: &mut dyn FnMut(Datagram<'_>)) -> Turn {
        let mut turn = Turn::default();
        if let Some(sockets) = &mut self.sockets {
            if (ready || self.waiting.is_due(now))
                && let Err(error) = self.waiting.flush(now, &mut sockets.sender)
            {
                turn.troubles.push(Trouble::NotSent { reason: error.to_string() });
            }
            if let (true, Some(own)) = (ready, &mut sockets.own_address) {
                own.answer();
            }
        }
        self.receive(give, &mut turn);
        if let (true, 0, Some(sockets)) = (ready, turn.datagrams, &self.sockets) {
            for error in sockets.rings.iter().filter_map(Ring::take_error) {
                tracing::info!("{}: {error}", sockets.sender.interface().name);
            }
        }
        self.check_if_due(now, &mut turn);
        turn
    }
}
