//! Receives the datagrams of multicast channels, many with one system call.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use socket2::{Domain, Protocol, Socket, Type};
use umbel_engine::units::Rate;
use umbel_engine::{Address, Datagram};
use umbel_wire::Channel;

use crate::buffers::{self, BufferSize};
use crate::interface::{Family, Interface};
use crate::sys::{self, Change, Envelope};
use crate::udp::Sender;
use crate::wake::{self, Waker};

/// Bytes of a buffer: the longest message, coalesced or not.
const BUFFER_BYTES: usize = 1 << 16;

/// What the kernel reckons for a datagram of 1,400 bytes in a receive buffer.
const DATAGRAM_BYTES: usize = 2304;

/// How to receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverOptions {
    /// The rate that the receive buffer is sized for.
    pub rate: Option<Rate>,
    /// Whether the kernel may hand over several datagrams as one message, which is split here.
    pub offload: bool,
    /// How many messages one system call takes, 1 to 32. Each costs a buffer of 64 KiB.
    pub batch: usize,
    /// Datagrams that are thrown away on purpose, as a lossy link would. Default: none.
    pub discard: Option<Discard>,
    /// Whether to ask what is left of each datagram's hop limit. Default: no.
    pub hop_limits: bool,
}

impl Default for ReceiverOptions {
    /// Any rate, 16 messages at once, coalesced where the kernel can.
    fn default() -> ReceiverOptions {
        ReceiverOptions { rate: None, offload: true, batch: 16, discard: None, hop_limits: false }
    }
}

/// Loss where there is no lossy link: for demonstrations and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// Share of the datagrams that is thrown away, each by itself, in parts per million.
    pub per_million: u32,
    /// Seed of the draws.
    pub seed: u64,
}

/// Throws away what [`Discard`] says.
#[derive(Debug)]
struct Sieve {
    per_million: u32,
    generator: Xoshiro256PlusPlus,
}

impl Sieve {
    fn new(discard: Discard) -> Sieve {
        let generator = Xoshiro256PlusPlus::seed_from_u64(discard.seed);
        Sieve { per_million: discard.per_million, generator }
    }

    fn discards(&mut self) -> bool {
        self.generator.next_u64() % 1_000_000 < u64::from(self.per_million)
    }
}

/// Why a receiver cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenReceiverError {
    /// Somebody else uses the port and does not share it.
    #[error("UDP port {0} is taken by a program that does not share it: see `ss -ulpn`")]
    PortTaken(u16),
    /// The system refuses something else.
    #[error("cannot open a UDP socket for port {port}: {source}")]
    System {
        /// The port.
        port: u16,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a channel cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The group is no multicast address.
    #[error("{0} is not a multicast address: use 224.0.0.0/4 or ff00::/8")]
    NotMulticast(IpAddr),
    /// The group or the source is not of the receiver's family, or the port is another.
    #[error("channel {channel} does not belong to this receiver ({family}, port {port})")]
    Foreign {
        /// What was to be joined.
        channel: Channel,
        /// Of the receiver.
        family: Family,
        /// Of the receiver.
        port: u16,
    },
    /// The group is joined from any source, and now from one, or the other way round.
    #[error("{0} is joined both from one source and from any: leave the other channel first")]
    Mixed(IpAddr),
    /// The system limits the memberships of a socket.
    #[error("cannot join {channel}: too many memberships; {}", limits(.channel))]
    TooMany {
        /// What was to be joined.
        channel: Channel,
    },
    /// The interface is gone, down, or has no address of the family.
    #[error("cannot join {channel} on {interface}: the interface is gone or cannot do multicast")]
    Interface {
        /// What was to be joined.
        channel: Channel,
        /// The interface.
        interface: String,
    },
    /// The system refuses something else.
    #[error("cannot join {channel} on {interface}: {source}")]
    System {
        /// What was to be joined.
        channel: Channel,
        /// The interface.
        interface: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The limits that a socket may have run into.
fn limits(channel: &Channel) -> &'static str {
    match (channel.group, channel.source) {
        (IpAddr::V4(_), None) => "raise `sysctl net.ipv4.igmp_max_memberships`",
        (IpAddr::V4(_), Some(_)) => {
            "raise `sysctl net.ipv4.igmp_max_memberships` or, for many sources of one group, \
             `net.ipv4.igmp_max_msf`"
        }
        (IpAddr::V6(_), None) => "raise `sysctl net.core.optmem_max`",
        (IpAddr::V6(_), Some(_)) => {
            "raise `sysctl net.core.optmem_max` or, for many sources of one group, \
             `net.ipv6.mld_max_msf`"
        }
    }
}

/// A datagram.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Who sent it.
    pub from: SocketAddr,
    /// The group or address, and the port, that it was sent to.
    pub to: SocketAddr,
    /// What is left of its hop limit, if that was asked for.
    pub hop_limit: Option<u8>,
    /// UDP payload.
    pub payload: &'a [u8],
}

impl<'a> Received<'a> {
    /// The datagram as an engine takes it: by the channel of its group and its sender, or by the
    /// host that sent it to this one alone.
    pub fn datagram(&self) -> Datagram<'a> {
        let (source, group) = (self.from.ip(), self.to.ip());
        let by = if group.is_multicast() {
            Address::Channel(Channel { source: Some(source), group, port: self.to.port() })
        } else {
            Address::Host(self.from)
        };
        Datagram { by, hop_limit: self.hop_limit, payload: self.payload }
    }
}

/// What one [`Receiver::receive`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// Datagrams handed over.
    pub datagrams: usize,
    /// The messages that they came in: the kernel makes one of several datagrams.
    pub messages: usize,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// Whether the [`Waker`] was called.
    pub woken: bool,
    /// Whether a whole batch was there, so that there may be more.
    pub full: bool,
}

/// What did not reach the application, since the receiver was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Messages that the kernel dropped because the receive buffer was full. Datagrams that it
    /// had coalesced count as one.
    pub kernel: u64,
    /// Messages to a group or an address that is not joined.
    pub not_joined: u64,
    /// Messages from another than the source of the channel.
    pub other_source: u64,
    /// Messages that were cut off or lacked an address.
    pub malformed: u64,
    /// Datagrams thrown away on purpose: see [`Discard`].
    pub discarded: u64,
}

/// Receives the datagrams of channels of one family that share a port, by one interface.
///
/// Several receivers on one host, in the same or in different processes, all get the datagrams of
/// the channels that they have joined.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    family: Family,
    port: u16,
    interface: Interface,
    buffer: BufferSize,
    joined: Vec<Channel>,
    /// The only unicast address of which it takes what is sent to it.
    unicast: Option<IpAddr>,
    messages: Messages,
    drops: DropCounts,
    sieve: Option<Sieve>,
    /// The kernel's counter when it was last read.
    kernel_drops: u32,
}

/// Where messages are received.
struct Messages {
    buffers: Vec<Box<[u8]>>,
    envelopes: Vec<Envelope>,
}

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} buffers", self.buffers.len())
    }
}

impl Receiver {
    /// Opens a socket that receives nothing before a channel is joined. Port 0 lets the system
    /// choose.
    ///
    /// # Errors
    ///
    /// When the port is taken by somebody who does not share it, or the system refuses.
    pub fn open(
        port: u16,
        family: Family,
        interface: &Interface,
        options: &ReceiverOptions,
    ) -> Result<Receiver, OpenReceiverError> {
        let system = |source: std::io::Error| OpenReceiverError::System { port, source };
        let domain = match family {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(system)?;
        prepare(&socket, family, options).map_err(system)?;
        let wanted = buffers::bytes_for(options.rate);
        let buffer = buffers::set_receive_buffer(&socket, wanted).map_err(system)?;
        // The wildcard, as several groups may be joined: a bound group would be the only one.
        let any = match family {
            Family::V4 => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            Family::V6 => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        };
        socket.bind(&any.into()).map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => OpenReceiverError::PortTaken(port),
            _ => system(error),
        })?;
        let socket = UdpSocket::from(socket);
        let port = socket.local_addr().map_err(system)?.port();
        Ok(Receiver::new(socket, port, family, interface, buffer, options))
    }

    /// Receives what is sent to the address and port of a sender, by its socket.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn of_sender(
        sender: &Sender,
        options: &ReceiverOptions,
    ) -> Result<Receiver, OpenReceiverError> {
        let source = sender.source();
        let port = source.port();
        let system = |source: std::io::Error| OpenReceiverError::System { port, source };
        let socket = sender.as_fd().try_clone_to_owned().map_err(system)?;
        let (socket, family) = (Socket::from(socket), Family::of(source.ip()));
        ask_details(&socket, family, options).map_err(system)?;
        let wanted = buffers::bytes_for(options.rate);
        let buffer = buffers::set_receive_buffer(&socket, wanted).map_err(system)?;
        let (socket, interface) = (UdpSocket::from(socket), sender.interface());
        let mut receiver = Receiver::new(socket, port, family, interface, buffer, options);
        receiver.unicast = Some(source.ip());
        Ok(receiver)
    }

    fn new(
        socket: UdpSocket,
        port: u16,
        family: Family,
        interface: &Interface,
        buffer: BufferSize,
        options: &ReceiverOptions,
    ) -> Receiver {
        let batch = options.batch.clamp(1, sys::MAX_MESSAGES);
        Receiver {
            socket,
            family,
            port,
            interface: interface.clone(),
            buffer,
            joined: Vec::new(),
            unicast: None,
            messages: Messages {
                buffers: (0..batch).map(|_| vec![0; BUFFER_BYTES].into()).collect(),
                envelopes: vec![Envelope::new(); batch],
            },
            drops: DropCounts::default(),
            sieve: options.discard.map(Sieve::new),
            kernel_drops: 0,
        }
    }

    /// The port that it receives on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The interface that it joins channels on.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The receive buffer that the system gave.
    pub fn buffer(&self) -> BufferSize {
        self.buffer
    }

    /// Datagrams of an Ethernet's usual size that the receive buffer holds.
    pub fn room(&self) -> u64 {
        (self.buffer.got * 2 / DATAGRAM_BYTES) as u64
    }

    /// The channels that are joined, in the order in which they were.
    pub fn joined(&self) -> &[Channel] {
        &self.joined
    }

    /// Joins a channel: with its source, if it has one, or from any. Does nothing if it is joined.
    ///
    /// # Errors
    ///
    /// When the channel does not suit this receiver, or the system refuses.
    pub fn join(&mut self, channel: &Channel) -> Result<(), JoinError> {
        self.check(channel)?;
        if self.joined.contains(channel) {
            return Ok(());
        }
        let same_group = self.joined.iter().find(|joined| joined.group == channel.group);
        if same_group.is_some_and(|joined| joined.source.is_some() != channel.source.is_some()) {
            return Err(JoinError::Mixed(channel.group));
        }
        self.change(Change::Join, channel).map_err(|errno| self.join_error(errno, channel))?;
        self.joined.push(*channel);
        Ok(())
    }

    /// Leaves a channel. Does nothing if it is not joined.
    ///
    /// Datagrams of the channel that the kernel already holds are discarded when they are read.
    ///
    /// # Errors
    ///
    /// When the system refuses; the channel counts as left even then, as it does when the
    /// interface has vanished.
    pub fn leave(&mut self, channel: &Channel) -> Result<(), JoinError> {
        let Some(place) = self.joined.iter().position(|joined| joined == channel) else {
            return Ok(());
        };
        self.joined.remove(place);
        match self.change(Change::Leave, channel) {
            Err(Errno::EADDRNOTAVAIL | Errno::ENODEV) | Ok(()) => Ok(()),
            Err(errno) => Err(self.join_error(errno, channel)),
        }
    }

    fn check(&self, channel: &Channel) -> Result<(), JoinError> {
        if !channel.group.is_multicast() {
            return Err(JoinError::NotMulticast(channel.group));
        }
        let addresses = [Some(channel.group), channel.source];
        let mut families = addresses.into_iter().flatten().map(Family::of);
        if channel.port != self.port || families.any(|family| family != self.family) {
            let (family, port) = (self.family, self.port);
            return Err(JoinError::Foreign { channel: *channel, family, port });
        }
        Ok(())
    }

    fn change(&self, change: Change, channel: &Channel) -> Result<(), Errno> {
        let (fd, index) = (self.socket.as_fd(), self.interface.index);
        sys::change_membership(fd, change, index, channel.group, channel.source)
    }

    fn join_error(&self, errno: Errno, channel: &Channel) -> JoinError {
        let (channel, interface) = (*channel, self.interface.name.clone());
        match errno {
            Errno::ENOBUFS | Errno::ENOMEM => JoinError::TooMany { channel },
            Errno::ENODEV => JoinError::Interface { channel, interface },
            errno => JoinError::System { channel, interface, source: errno.into() },
        }
    }

    /// Waits until datagrams come, `waker` is called, or `timeout` has passed (`None`: for ever);
    /// then calls `f` for each datagram that is there, up to one batch. May return early with
    /// nothing.
    ///
    /// # Errors
    ///
    /// When the system refuses to receive or to wait.
    pub fn receive(
        &mut self,
        timeout: Option<Duration>,
        waker: Option<&Waker>,
        mut f: impl FnMut(Received<'_>),
    ) -> std::io::Result<Reception> {
        let mut reception = Reception::default();
        if waker.is_some_and(Waker::take) {
            reception.woken = true;
        }
        if self.receive_ready(&mut f, &mut reception)? || reception.woken {
            return Ok(reception);
        }
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Ok(reception);
        }
        let ours = self.socket.as_fd();
        let ready = match waker {
            None => wake::wait_for([ours], PollFlags::POLLIN, timeout)?[0],
            Some(waker) => {
                let fds = [ours, waker.as_fd()];
                let [ready, called] = wake::wait_for(fds, PollFlags::POLLIN, timeout)?;
                if called {
                    waker.take();
                    reception.woken = true;
                }
                ready
            }
        };
        if ready {
            self.receive_ready(&mut f, &mut reception)?;
        }
        Ok(reception)
    }

    /// Receives one batch without waiting. Says whether there was any.
    fn receive_ready(
        &mut self,
        f: &mut impl FnMut(Received<'_>),
        reception: &mut Reception,
    ) -> std::io::Result<bool> {
        let Messages { buffers, envelopes } = &mut self.messages;
        let batch = buffers.len();
        let count = match sys::receive(self.socket.as_fd(), buffers, envelopes) {
            Ok(count) => count,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        };
        for (envelope, buffer) in envelopes.iter().zip(buffers).take(count) {
            let details = envelope.details();
            if let Some(counter) = details.drops {
                self.drops.kernel += advance(&mut self.kernel_drops, counter);
            }
            let (Some(from), Some(to), false) =
                (envelope.from(), details.to, envelope.is_truncated())
            else {
                self.drops.malformed += 1;
                continue;
            };
            match accepts(&self.joined, to, from.ip()) {
                Verdict::Accept => {}
                Verdict::NotJoined if self.unicast == Some(to) => {}
                Verdict::NotJoined => {
                    self.drops.not_joined += 1;
                    continue;
                }
                Verdict::OtherSource => {
                    self.drops.other_source += 1;
                    continue;
                }
            }
            let to = SocketAddr::new(to, self.port);
            let message = &buffer[..envelope.len.min(buffer.len())];
            for payload in segments(message, details.segment) {
                if self.sieve.as_mut().is_some_and(Sieve::discards) {
                    self.drops.discarded += 1;
                    continue;
                }
                reception.datagrams += 1;
                reception.bytes += payload.len() as u64;
                f(Received { from, to, hop_limit: details.hop_limit, payload });
            }
        }
        reception.messages += count;
        reception.full = count == batch;
        Ok(count > 0)
    }

    /// Messages that the kernel had dropped for want of room when the last message was received.
    pub fn kernel_drops(&self) -> u64 {
        self.drops.kernel
    }

    /// What did not reach the application. Asks the kernel for its newest count.
    pub fn drops(&mut self) -> DropCounts {
        if let Ok(counter) = sys::drops(self.socket.as_fd()) {
            self.drops.kernel += advance(&mut self.kernel_drops, counter);
        }
        self.drops
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets the options of the socket.
fn prepare(socket: &Socket, family: Family, options: &ReceiverOptions) -> std::io::Result<()> {
    socket.set_nonblocking(true)?;
    // With this alone, each socket on the port gets each multicast datagram; SO_REUSEPORT would
    // share them out.
    socket.set_reuse_address(true)?;
    match family {
        Family::V4 => socket.set_multicast_all_v4(false)?,
        Family::V6 => {
            socket.set_only_v6(true)?;
            // Since Linux 4.20; without it, the check of each datagram does.
            let _ = socket.set_multicast_all_v6(false);
        }
    }
    ask_details(socket, family, options)
}

/// Makes the system tell what [`sys::Details`] has.
fn ask_details(socket: &Socket, family: Family, options: &ReceiverOptions) -> std::io::Result<()> {
    setsockopt(socket, sockopt::RxqOvfl, &1)?;
    let fd = socket.as_fd();
    let hop_limits = i32::from(options.hop_limits);
    match family {
        Family::V4 => {
            setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?;
            sys::set_int(fd, libc::IPPROTO_IP, libc::IP_RECVTTL, hop_limits)?;
        }
        Family::V6 => {
            setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            sys::set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, hop_limits)?;
        }
    }
    if options.offload {
        // Since Linux 5.0; without it, each message is one datagram.
        let _ = setsockopt(socket, sockopt::UdpGroSegment, &true);
    }
    Ok(())
}

/// By how much the kernel's counter, which wraps, has grown since it was last read. Messages that
/// waited tell an older count than the socket itself: then it has not.
fn advance(last: &mut u32, counter: u32) -> u64 {
    let grown = counter.wrapping_sub(*last);
    if grown > u32::MAX / 2 {
        return 0;
    }
    *last = counter;
    grown.into()
}

enum Verdict {
    Accept,
    NotJoined,
    OtherSource,
}

/// Whether a joined channel takes datagrams to this group from this source.
fn accepts(joined: &[Channel], to: IpAddr, from: IpAddr) -> Verdict {
    let mut verdict = Verdict::NotJoined;
    for channel in joined.iter().filter(|channel| channel.group == to) {
        if channel.source.is_none_or(|source| source == from) {
            return Verdict::Accept;
        }
        verdict = Verdict::OtherSource;
    }
    verdict
}

/// Splits a message into the datagrams that it was made of. An empty one is one datagram.
fn segments(message: &[u8], segment: Option<usize>) -> impl Iterator<Item = &[u8]> {
    let whole = message.len().max(1);
    let bytes = segment.filter(|bytes| *bytes > 0).unwrap_or(whole);
    let empty = message.is_empty().then_some(message);
    empty.into_iter().chain(message.chunks(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counter_wraps_and_an_older_count_does_not_count() {
        let mut last = 0;
        assert_eq!(advance(&mut last, 7), 7);
        assert_eq!(advance(&mut last, 5), 0);
        assert_eq!(advance(&mut last, 9), 2);
        last = u32::MAX - 1;
        assert_eq!(advance(&mut last, 3), 5);
        assert_eq!(advance(&mut last, u32::MAX), 0);
    }

    #[test]
    fn the_sieve_discards_the_share_that_was_asked_for() {
        for per_million in [0, 10_000, 200_000, 1_000_000] {
            let mut sieve = Sieve::new(Discard { per_million, seed: 1 });
            let discarded = (0..100_000).filter(|_| sieve.discards()).count();
            let expected = per_million as usize / 10;
            assert!(discarded.abs_diff(expected) <= 500, "{discarded} of 100,000 at {per_million}");
        }
    }
}
