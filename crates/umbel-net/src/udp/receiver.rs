//! Receives the datagrams of multicast channels, many with one system call.

mod discard;
mod memberships;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use umbel_engine::units::Rate;
use umbel_engine::{Address, Datagram};
use umbel_wire::Channel;

use crate::buffers::{self, BufferSize};
use crate::interface::{Family, Interface};
use crate::sys::{self, Envelope};
use crate::udp::Sender;
use crate::wake::{self, Waker};
pub use discard::Discard;
use discard::Sieve;
pub use memberships::JoinError;
use memberships::{Memberships, Verdict};

/// Length of a buffer in bytes, enough for the longest message, coalesced or not.
const BUFFER_BYTES: usize = 1 << 16;

/// Bytes that the kernel counts for a datagram of 1,400 bytes in a receive buffer.
const DATAGRAM_BYTES: usize = 2304;

/// The options of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverOptions {
    /// Rate for which the receive buffer is sized.
    pub rate: Option<Rate>,
    /// Whether the kernel may hand over several datagrams as one message, which is split here.
    pub offload: bool,
    /// Maximum number of messages that one system call takes, 1 to 32. Each costs a buffer of
    /// 64 KiB.
    pub batch: usize,
    /// Datagrams that are dropped on purpose, as a lossy link would. Default: none.
    pub discard: Option<Discard>,
    /// Whether to request the remainder of each datagram's hop limit. Default: no.
    pub hop_limits: bool,
}

impl Default for ReceiverOptions {
    /// Returns the options for any rate and 16 messages at once, coalesced where the kernel can.
    fn default() -> ReceiverOptions {
        ReceiverOptions { rate: None, offload: true, batch: 16, discard: None, hop_limits: false }
    }
}

/// The reason why a receiver cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenReceiverError {
    /// Another program uses the port and does not share it.
    #[error("UDP port {0} is taken by a program that does not share it: see `ss -ulpn`")]
    PortTaken(u16),
    /// Another error of the system.
    #[error("cannot open a UDP socket for port {port}: {source}")]
    System {
        /// The port.
        port: u16,
        /// The system's error.
        source: std::io::Error,
    },
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Its sender.
    pub from: SocketAddr,
    /// The group or address, and the port, to which it was sent.
    pub to: SocketAddr,
    /// Remainder of its hop limit, if requested.
    pub hop_limit: Option<u8>,
    /// UDP payload.
    pub payload: &'a [u8],
}

impl<'a> Received<'a> {
    /// Returns the datagram in the form for an engine. It came by the channel of its group and its
    /// sender, or by the host that sent it to this one alone.
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

/// The outcome of one [`Receiver::receive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// Datagrams handed over.
    pub datagrams: usize,
    /// Number of messages in which they came. The kernel makes one message of several datagrams.
    pub messages: usize,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// Whether the [`Waker`] was called.
    pub woken: bool,
    /// Whether a whole batch was there, so that there may be more.
    pub full: bool,
}

/// Counters of the datagrams and messages that did not reach the application, since the receiver
/// was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts {
    /// Messages that the kernel dropped because the receive buffer was full. Datagrams that it
    /// had coalesced count as one.
    pub kernel: u64,
    /// Messages to a group or an address that is not joined.
    pub not_joined: u64,
    /// Messages from a source other than the channel's.
    pub other_source: u64,
    /// Messages that were cut off or had no address.
    pub malformed: u64,
    /// Datagrams dropped on purpose: see [`Discard`].
    pub discarded: u64,
}

/// A receiver of channels of one family that share a port, on one interface.
///
/// Several receivers on one host, in the same or in different processes, all get the datagrams of
/// the channels that they have joined.
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    memberships: Memberships,
    buffer: BufferSize,
    messages: Messages,
    drops: DropCounts,
    sieve: Option<Sieve>,
    /// The kernel's counter when it was last read.
    kernel_drops: u32,
}

/// Buffers for received messages.
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
    /// Opens a socket that receives nothing before a channel is joined. With port 0 the system
    /// chooses one.
    ///
    /// # Errors
    ///
    /// If the port is taken by a program that does not share it, or the system refuses.
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
        // The wildcard address, since a socket bound to one group could not join others.
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
        let memberships = Memberships::new(family, port, interface.clone());
        Ok(Receiver::new(socket, memberships, buffer, options))
    }

    /// Opens a receiver for datagrams to the address and port of a sender, on the same socket.
    ///
    /// # Errors
    ///
    /// If the system refuses.
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
        let mut memberships = Memberships::new(family, port, sender.interface().clone());
        memberships.unicast = Some(source.ip());
        Ok(Receiver::new(UdpSocket::from(socket), memberships, buffer, options))
    }

    fn new(
        socket: UdpSocket,
        memberships: Memberships,
        buffer: BufferSize,
        options: &ReceiverOptions,
    ) -> Receiver {
        let batch = options.batch.clamp(1, sys::MAX_MESSAGES);
        Receiver {
            socket,
            memberships,
            buffer,
            messages: Messages {
                buffers: (0..batch).map(|_| vec![0; BUFFER_BYTES].into()).collect(),
                envelopes: vec![Envelope::new(); batch],
            },
            drops: DropCounts::default(),
            sieve: options.discard.map(Sieve::new),
            kernel_drops: 0,
        }
    }

    /// Returns the port on which it receives.
    pub fn port(&self) -> u16 {
        self.memberships.port
    }

    /// Returns the interface on which it joins channels.
    pub fn interface(&self) -> &Interface {
        &self.memberships.interface
    }

    /// Returns the receive buffer that the system granted.
    pub fn buffer(&self) -> BufferSize {
        self.buffer
    }

    /// Returns the number of datagrams of an Ethernet's usual size that the receive buffer holds.
    pub fn room(&self) -> u64 {
        (self.buffer.got * 2 / DATAGRAM_BYTES) as u64
    }

    /// Returns the joined channels, in the order in which they were joined.
    pub fn joined(&self) -> &[Channel] {
        &self.memberships.joined
    }

    /// Joins a channel, with its source if it has one, or else from any. Does nothing if it is
    /// joined.
    ///
    /// # Errors
    ///
    /// If the channel does not suit this receiver, or the system refuses.
    pub fn join(&mut self, channel: &Channel) -> Result<(), JoinError> {
        self.memberships.join(self.socket.as_fd(), channel)
    }

    /// Leaves a channel. Does nothing if it is not joined.
    ///
    /// Datagrams of the channel that the kernel already holds are discarded when they are read.
    ///
    /// # Errors
    ///
    /// If the system refuses. The channel counts as left even then. A vanished interface is no
    /// error.
    pub fn leave(&mut self, channel: &Channel) -> Result<(), JoinError> {
        self.memberships.leave(self.socket.as_fd(), channel)
    }

    /// Waits until datagrams come, `waker` is called, or `timeout` has passed (`None`: forever).
    /// Then calls `f` for each waiting datagram, up to one batch. May return early without any.
    ///
    /// # Errors
    ///
    /// If the system refuses to receive or to wait.
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

    /// Receives one batch without blocking. Returns whether there was any.
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
            match self.memberships.verdict(to, from.ip()) {
                Verdict::Accept => {}
                Verdict::NotJoined => {
                    self.drops.not_joined += 1;
                    continue;
                }
                Verdict::OtherSource => {
                    self.drops.other_source += 1;
                    continue;
                }
            }
            let to = SocketAddr::new(to, self.memberships.port);
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

    /// Returns the number of messages that the kernel had dropped for lack of room when the last
    /// message was received.
    pub fn kernel_drops(&self) -> u64 {
        self.drops.kernel
    }

    /// Returns the drop counters. Asks the kernel for its newest count.
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
    // With this alone, each socket on the port gets each multicast datagram. SO_REUSEPORT would
    // distribute them among the sockets.
    socket.set_reuse_address(true)?;
    match family {
        Family::V4 => socket.set_multicast_all_v4(false)?,
        Family::V6 => {
            socket.set_only_v6(true)?;
            // Since Linux 4.20. Without it, the check of each datagram suffices.
            let _ = socket.set_multicast_all_v6(false);
        }
    }
    ask_details(socket, family, options)
}

/// Makes the system report the values of [`sys::Details`].
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
        // Since Linux 5.0. Without it, each message is one datagram.
        let _ = setsockopt(socket, sockopt::UdpGroSegment, &true);
    }
    Ok(())
}

/// Returns the growth of the kernel's counter, which wraps, since it was last read. Messages that
/// waited report an older count than the socket itself. The growth is then zero.
fn advance(last: &mut u32, counter: u32) -> u64 {
    let grown = counter.wrapping_sub(*last);
    if grown > u32::MAX / 2 {
        return 0;
    }
    *last = counter;
    grown.into()
}

/// Splits a message into its datagrams. An empty message is one datagram.
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
}
