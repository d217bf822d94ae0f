//! Sends datagrams to multicast groups, many with one system call.

mod errors;
mod run;

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use bytes::Bytes;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use socket2::{Domain, Protocol, Socket, Type};
use umbel_engine::TransmitBuf;
use umbel_engine::units::Rate;
use umbel_wire::datagram::{ALERT_V4, ALERT_VALUE_V6, alert_header_v6};

use crate::buffers::{self, BufferSize};
use crate::interface::{Family, Interface};
use crate::udp::MAX_PAYLOAD;
use crate::{sys, wake};
pub use errors::{OpenSenderError, SendError};
use run::{MAX_SEGMENTS, Run};

/// Maximum time that a send waits for room.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(1);

/// Time to wait when the system has no memory for a packet, since it does not report when it has.
pub(crate) const NO_MEMORY_WAIT: Duration = Duration::from_millis(1);

/// A hop-by-hop header with Router Alert. The system writes the number of the next header.
const ALERT_HEADER_V6: [u8; 8] = alert_header_v6(0, ALERT_VALUE_V6);

/// Default hop limit of datagrams to a single host [RFC 1700, "IP time to live parameter"].
const UNICAST_HOP_LIMIT: u8 = 64;

/// The options of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderOptions {
    /// Address family of the groups.
    pub family: Family,
    /// Address of the interface from which to send; `None` takes its first. Receivers of a
    /// source-specific channel specify this address.
    pub source: Option<IpAddr>,
    /// UDP source port; with 0 the system chooses.
    pub port: u16,
    /// Maximum number of hops. 1 stays on the link; each router takes one more.
    pub hop_limit: u8,
    /// Whether receivers on this host also get the datagrams. On the loopback interface they always
    /// do.
    pub loopback: bool,
    /// Rate for which the send buffer is sized.
    pub rate: Option<Rate>,
    /// Whether receivers of groups on this host may use the same port.
    pub shared: bool,
    /// Whether to let the kernel or the network card cut batches into packets, where possible.
    pub offload: bool,
}

impl SenderOptions {
    /// Creates options that send from any port, over up to 31 routers, also to receivers on this
    /// host, and without a limit of the rate.
    pub fn new(family: Family) -> SenderOptions {
        SenderOptions {
            family,
            source: None,
            port: 0,
            hop_limit: 32,
            loopback: true,
            rate: None,
            shared: false,
            offload: true,
        }
    }
}

/// The outcome of one [`Sender::send`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Datagrams sent.
    pub datagrams: usize,
    /// Bytes sent, without headers.
    pub bytes: u64,
}

/// The reason why a sender stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Everything was sent.
    Enough,
    /// The socket's buffer is full. The socket becomes writable when there is room.
    SocketFull,
    /// The system has no memory for packets, and does not report when it has.
    NoMemory,
}

/// The outcome of one [`Sender::try_send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The datagrams sent.
    pub report: SendReport,
    /// The reason why no more were sent.
    pub room: Room,
}

/// Counters since the sender was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Datagrams sent.
    pub datagrams: u64,
    /// Bytes sent, without headers.
    pub bytes: u64,
    /// System calls that sent something.
    pub calls: u64,
    /// Number of times that there was no room at first.
    pub waits: u64,
    /// Datagrams that were not sent because of an error.
    pub unsent: u64,
    /// Errors that [are transient](SendError::is_transient).
    pub transient_errors: u64,
}

/// A sender to multicast groups of one family, on one interface.
#[derive(Debug)]
pub struct Sender {
    socket: UdpSocket,
    source: SocketAddr,
    interface: Interface,
    family: Family,
    buffer: BufferSize,
    offload: bool,
    /// Default hop limit of multicasts, and the one that is set on the socket now.
    hop_limit: (u8, u8),
    /// Hop limit for single hosts that is set on the socket now.
    unicast_hop_limit: u8,
    counts: SendCounts,
}

impl Sender {
    /// Opens a socket that sends from the interface's address, so that receivers of a
    /// source-specific channel see the source that they specified. Its datagrams are never
    /// fragmented.
    ///
    /// # Errors
    ///
    /// If the interface or its address cannot be used, or the port is taken.
    pub fn open(interface: &Interface, options: &SenderOptions) -> Result<Sender, OpenSenderError> {
        let source = source_address(interface, options)?;
        let system = |source: std::io::Error| OpenSenderError::System {
            interface: interface.name.clone(),
            source,
        };
        let domain = Domain::for_address(source);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(system)?;
        prepare(&socket, interface, options).map_err(system)?;
        let wanted = buffers::bytes_for(options.rate);
        let buffer = buffers::set_send_buffer(&socket, wanted).map_err(system)?;
        socket.bind(&source.into()).map_err(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => OpenSenderError::PortTaken(options.port),
            std::io::ErrorKind::AddrNotAvailable => OpenSenderError::NotReady(source.ip()),
            _ => system(error),
        })?;
        if options.shared {
            // Not before: another source must not take the same port.
            socket.set_reuse_address(true).map_err(system)?;
        }
        let socket = UdpSocket::from(socket);
        Ok(Sender {
            source: socket.local_addr().map_err(system)?,
            socket,
            interface: interface.clone(),
            family: options.family,
            buffer,
            offload: options.offload,
            hop_limit: (options.hop_limit, options.hop_limit),
            unicast_hop_limit: UNICAST_HOP_LIMIT,
            counts: SendCounts::default(),
        })
    }

    /// Returns the address and port that receivers see as the source.
    pub fn source(&self) -> SocketAddr {
        self.source
    }

    /// Returns the interface on which it sends.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the send buffer that the system granted.
    pub fn buffer(&self) -> BufferSize {
        self.buffer
    }

    /// Returns whether batches leave as one message, to be cut by the kernel or the network card.
    /// It becomes false permanently when the system refuses one.
    pub fn offloads(&self) -> bool {
        self.offload
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> SendCounts {
        self.counts
    }

    /// Returns the length of the longest datagram that fits the interface's MTU, in bytes.
    pub fn max_datagram(&self) -> usize {
        self.interface.mtu.saturating_sub(self.family.header_bytes()).min(MAX_PAYLOAD)
    }

    /// Returns the number of datagrams of `bytes` that one system call sends, at least 1.
    pub fn max_batch(&self, bytes: usize) -> usize {
        if self.offload {
            (MAX_PAYLOAD / bytes.max(1)).clamp(1, MAX_SEGMENTS)
        } else {
            MAX_SEGMENTS
        }
    }

    /// Sets the hop limit of the next datagrams to this address, if it differs from the last.
    fn limit_hops(&mut self, to: IpAddr, hop_limit: Option<u8>) -> Result<(), Errno> {
        let multicast = to.is_multicast();
        let (now, default) = if multicast {
            (&mut self.hop_limit.1, self.hop_limit.0)
        } else {
            (&mut self.unicast_hop_limit, UNICAST_HOP_LIMIT)
        };
        let wanted = hop_limit.unwrap_or(default).max(1);
        if *now == wanted {
            return Ok(());
        }
        let (level, option) = match (self.family, multicast) {
            (Family::V4, true) => (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
            (Family::V4, false) => (libc::IPPROTO_IP, libc::IP_TTL),
            (Family::V6, true) => (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
            (Family::V6, false) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        };
        sys::set_int(self.socket.as_fd(), level, option, wanted.into())?;
        *now = wanted;
        Ok(())
    }

    /// Sends datagrams as far as there is room, without blocking. `hop_limit` is the maximum number
    /// of hops. `None` takes the one of the options, or 64 to a single host.
    ///
    /// # Errors
    ///
    /// The first error that keeps datagrams from being sent. Those and all that follow are dropped
    /// and counted as unsent.
    pub fn try_send<'a>(
        &mut self,
        to: SocketAddr,
        hop_limit: Option<u8>,
        datagrams: impl ExactSizeIterator<Item = (&'a [u8], &'a Bytes)>,
    ) -> Result<Progress, SendError> {
        let all = datagrams.len();
        let mut report = SendReport::default();
        let result = self
            .limit_hops(to.ip(), hop_limit)
            .map_err(|errno| (errno, 0))
            .and_then(|()| self.send_runs(&to.into(), datagrams, &mut report));
        self.counts.datagrams += report.datagrams as u64;
        self.counts.bytes += report.bytes;
        let room = match result {
            Ok(()) => Room::Enough,
            Err((Errno::EAGAIN, _)) => Room::SocketFull,
            Err((Errno::ENOBUFS | Errno::ENOMEM, _)) => Room::NoMemory,
            Err((errno, bytes)) => {
                self.counts.unsent += (all - report.datagrams) as u64;
                let error = SendError::new(errno, to, bytes, self.family, &self.interface);
                self.counts.transient_errors += u64::from(error.is_transient());
                return Err(error);
            }
        };
        self.counts.waits += u64::from(room != Room::Enough);
        Ok(Progress { report, room })
    }

    /// Sends datagrams as [`try_send`](Sender::try_send) does, with the option by which routers on
    /// the way look at them [RFC 2113] [RFC 2711]. They leave without it if the system does not
    /// allow it, as with IPv6 and no privilege.
    ///
    /// # Errors
    ///
    /// Those of [`try_send`](Sender::try_send).
    pub fn try_send_alert<'a>(
        &mut self,
        to: SocketAddr,
        hop_limit: Option<u8>,
        datagrams: impl ExactSizeIterator<Item = (&'a [u8], &'a Bytes)>,
    ) -> Result<Progress, SendError> {
        let (level, option, value): (_, _, &[u8]) = match self.family {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_OPTIONS, &ALERT_V4),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS, &ALERT_HEADER_V6),
        };
        let set = sys::set_option(self.socket.as_fd(), level, option, value);
        let sent = self.try_send(to, hop_limit, datagrams);
        if set.is_ok() {
            sys::set_option(self.socket.as_fd(), level, option, b"")
                .map_err(|errno| SendError::new(errno, to, 0, self.family, &self.interface))?;
        }
        sent
    }

    /// Sends all datagrams of `buf`. Blocks while there is no room, up to a second.
    ///
    /// # Errors
    ///
    /// Those of [`try_send`](Sender::try_send), and [`SendError::Stuck`] after the second.
    pub fn send(&mut self, to: SocketAddr, buf: &TransmitBuf) -> Result<SendReport, SendError> {
        let mut total = SendReport::default();
        let mut waited = Duration::ZERO;
        loop {
            let rest = buf.iter().skip(total.datagrams);
            let Progress { report, room } = self.try_send(to, None, rest)?;
            total.datagrams += report.datagrams;
            total.bytes += report.bytes;
            if room == Room::Enough {
                return Ok(total);
            }
            if waited >= MAX_WAIT {
                self.counts.unsent += (buf.len() - total.datagrams) as u64;
                self.counts.transient_errors += 1;
                return Err(SendError::Stuck(self.interface.name.clone()));
            }
            let start = std::time::Instant::now();
            if room == Room::SocketFull {
                let left = MAX_WAIT.saturating_sub(waited);
                let _ = wake::wait_for([self.socket.as_fd()], PollFlags::POLLOUT, Some(left));
            } else {
                std::thread::sleep(NO_MEMORY_WAIT);
            }
            waited += start.elapsed();
        }
    }

    /// Sends datagrams run by run, and adds them to the report. An error includes the length of the
    /// datagrams.
    fn send_runs<'a>(
        &mut self,
        to: &SockaddrStorage,
        datagrams: impl Iterator<Item = (&'a [u8], &'a Bytes)>,
        report: &mut SendReport,
    ) -> Result<(), (Errno, usize)> {
        let mut run = Run::default();
        for (head, body) in datagrams {
            if run.is_closed_to(head.len() + body.len()) {
                self.send_run(to, &run, report)?;
                run = Run::default();
            }
            run.push(head, body);
        }
        if run.count > 0 { self.send_run(to, &run, report) } else { Ok(()) }
    }

    /// Sends the datagrams of a run, and adds them to the report. An error includes the length of
    /// the datagrams.
    fn send_run(
        &mut self,
        to: &SockaddrStorage,
        run: &Run<'_>,
        report: &mut SendReport,
    ) -> Result<(), (Errno, usize)> {
        if run.count > 1 && self.offload {
            match self.send_offloaded(to, run) {
                // The device or an older kernel does not cut batches, so they are cut here from now
                // on. EINVAL may also mean that a segment is too long, which shows below.
                Err(Errno::EIO | Errno::EINVAL | Errno::EOPNOTSUPP) => {}
                Err(errno) => return Err((errno, run.segment)),
                Ok(()) => {
                    report.datagrams += run.count;
                    report.bytes += run.bytes as u64;
                    return Ok(());
                }
            }
        }
        let refused = run.count > 1 && self.offload;
        let mut start = 0;
        while start < run.count {
            let datagrams = &run.slices[start..run.count];
            let sent = self.send_each(to, datagrams).map_err(|errno| (errno, run.segment))?;
            for [head, body] in &datagrams[..sent] {
                report.bytes += (head.len() + body.len()) as u64;
            }
            report.datagrams += sent;
            start += sent;
        }
        if refused {
            self.offload = false;
        }
        Ok(())
    }

    /// Sends the run as one message that the kernel or the network card cuts into segments.
    fn send_offloaded(&mut self, to: &SockaddrStorage, run: &Run<'_>) -> Result<(), Errno> {
        // A run of several datagrams is at most `MAX_PAYLOAD` long.
        let segment = run.segment as u16;
        let control = [ControlMessage::UdpGsoSegments(&segment)];
        let slices = run.slices[..run.count].as_flattened();
        self.uninterrupted(|socket| {
            sendmsg(socket.as_raw_fd(), slices, &control, MsgFlags::MSG_DONTWAIT, Some(to))
        })?;
        Ok(())
    }

    /// Sends datagrams as separate messages. Returns the number sent.
    fn send_each(
        &mut self,
        to: &SockaddrStorage,
        datagrams: &[[IoSlice<'_>; 2]],
    ) -> Result<usize, Errno> {
        self.uninterrupted(|socket| sys::send(socket, to, datagrams))
    }

    /// Repeats a system call that a signal interrupts.
    fn uninterrupted<T>(
        &mut self,
        mut call: impl FnMut(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        loop {
            self.counts.calls += 1;
            match call(self.socket.as_fd()) {
                Err(Errno::EINTR) => {}
                done => return done,
            }
        }
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the address to bind to.
fn source_address(
    interface: &Interface,
    options: &SenderOptions,
) -> Result<SocketAddr, OpenSenderError> {
    let address = match options.source {
        None => interface.address(options.family)?,
        Some(address) if Family::of(address) == options.family && interface.has(address) => address,
        Some(address) => {
            return Err(OpenSenderError::Source {
                address,
                family: options.family,
                interface: interface.to_string(),
            });
        }
    };
    Ok(match address {
        IpAddr::V4(v4) => SocketAddr::from((v4, options.port)),
        IpAddr::V6(v6) => {
            let scope = if v6.is_unicast_link_local() { interface.index } else { 0 };
            SocketAddrV6::new(v6, options.port, 0, scope).into()
        }
    })
}

/// Sets the options of the socket.
fn prepare(socket: &Socket, interface: &Interface, options: &SenderOptions) -> std::io::Result<()> {
    socket.set_nonblocking(true)?;
    let fd = socket.as_fd();
    match options.family {
        Family::V4 => {
            sys::set_multicast_interface_v4(fd, interface.index)?;
            socket.set_multicast_loop_v4(options.loopback)?;
            socket.set_multicast_ttl_v4(options.hop_limit.into())?;
            socket.set_ttl_v4(UNICAST_HOP_LIMIT.into())?;
            // Sets "don't fragment" and ignores the path MTU that routers report.
            let probe = libc::IP_PMTUDISC_PROBE;
            sys::set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe)?;
        }
        Family::V6 => {
            socket.set_only_v6(true)?;
            socket.set_multicast_if_v6(interface.index)?;
            socket.set_multicast_loop_v6(options.loopback)?;
            socket.set_multicast_hops_v6(options.hop_limit.into())?;
            socket.set_unicast_hops_v6(UNICAST_HOP_LIMIT.into())?;
            let probe = libc::IPV6_PMTUDISC_PROBE;
            sys::set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
            sys::set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Returns the header length and what follows its first 20 bytes of the next datagram to a
    /// port.
    fn next_to(raw: &mut std::fs::File, port: u16) -> (usize, [u8; 4]) {
        use std::io::Read;
        let mut bytes = [0; 2_000];
        loop {
            let len = raw.read(&mut bytes).unwrap();
            let header = usize::from(bytes[0] & 15) * 4;
            let to = u16::from_be_bytes([bytes[header + 2], bytes[header + 3]]);
            if len > header + 4 && to == port {
                return (header, bytes[20..24].try_into().unwrap());
            }
        }
    }

    #[test]
    fn only_what_routers_are_to_look_at_has_the_option() {
        use std::os::fd::OwnedFd;
        let Ok(raw) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)) else {
            eprintln!("no right to open raw sockets");
            return;
        };
        raw.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
        let mut raw = std::fs::File::from(OwnedFd::from(raw));
        let hearer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = hearer.local_addr().unwrap();
        let interface = Interface::resolve("lo").unwrap();
        let mut sender = Sender::open(&interface, &SenderOptions::new(Family::V4)).unwrap();
        let mut buf = TransmitBuf::default();
        buf.push_message(b"look".to_vec());
        sender.try_send_alert(to, None, buf.iter()).unwrap();
        sender.try_send(to, None, buf.iter()).unwrap();
        assert_eq!(next_to(&mut raw, to.port()), (24, ALERT_V4));
        assert_eq!(next_to(&mut raw, to.port()).0, 20);
    }

    #[test]
    fn a_refused_batch_is_sent_one_by_one_from_then_on() {
        let interface = Interface::resolve("lo").unwrap();
        let mut sender = Sender::open(&interface, &SenderOptions::new(Family::V4)).unwrap();
        // The kernel does not cut batches of a socket that sends without checksums.
        sys::set_int(sender.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
        let mut buf = TransmitBuf::default();
        for n in 0..100 {
            buf.push(&[n], Bytes::from_static(&[0; 1_000]));
        }
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let to = SocketAddr::from(([239, 98, high, low], 7_702));
        for round in 1..=2 {
            let report = sender.send(to, &buf).unwrap();
            assert_eq!(report, SendReport { datagrams: 100, bytes: 100_100 });
            assert!(!sender.offloads());
            // One batch was refused, once.
            assert_eq!(sender.counts().calls, 1 + 2 * round);
        }
        assert_eq!(sender.max_batch(60_000), 64);
    }
}
