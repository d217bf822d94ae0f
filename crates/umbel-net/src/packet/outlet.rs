//! Sends segments: in frames of this program's making, or as IP packets that the kernel routes.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, sendmsg};
use socket2::Socket;
use umbel_wire::tcp::ip_len;

use super::frame::{Envelope, Mac, multicast_mac};
use super::next_hops::NextHops;
use super::run::{MAX_SEGMENTS, Run, Split};
use super::{Counters, PacketOptions, sys};
use crate::buffers;
use crate::interface::{Family, Interface};
use crate::port::waiting::Outlet;
use crate::udp::{Progress, Room, SendError, SendReport};

/// Default hop limit of segments to a single host, as that of UDP datagrams.
const UNICAST_HOP_LIMIT: u8 = 64;

/// The sending side of a port.
#[derive(Debug)]
pub(super) struct Sender {
    /// Sends frames.
    frames: OwnedFd,
    /// Sends IP packets whose next hop the kernel finds: to this host, and to hosts that were not
    /// heard lately, or from several cards.
    packets: Socket,
    interface: Interface,
    mac: Mac,
    address: IpAddr,
    hop_limit: u8,
    /// Whether frames of several segments are sent.
    offload: bool,
    next_hops: NextHops,
    /// Identification of the next IPv4 packet.
    identification: u16,
    counters: Arc<Counters>,
    /// Bytes before a payload, or a whole packet.
    scratch: Vec<u8>,
}

impl Sender {
    pub(super) fn open(
        interface: &Interface,
        mac: Mac,
        address: IpAddr,
        options: &PacketOptions,
        counters: &Arc<Counters>,
    ) -> io::Result<Sender> {
        let frames = sys::packet_socket()?;
        sys::set_packet(frames.as_fd(), libc::PACKET_VNET_HDR, &1_i32)?;
        let _ = buffers::set_send_buffer(&frames, options.buffer_bytes);
        // Without a protocol it receives nothing.
        sys::bind(frames.as_fd(), interface.index, 0)?;
        let packets = sys::ip_socket(address)?;
        Ok(Sender {
            frames,
            packets,
            interface: interface.clone(),
            mac,
            address,
            hop_limit: options.hop_limit,
            offload: options.offload,
            next_hops: NextHops::new(options.peers),
            identification: 0,
            counters: counters.clone(),
            scratch: Vec::new(),
        })
    }

    /// Notes the card from which a host was heard.
    pub(super) fn heard(&mut self, host: IpAddr, mac: Mac) {
        self.next_hops.heard(host, mac);
    }

    /// Returns the number of segments with headers and payloads of this length that leave at once.
    pub(super) fn max_batch(&self, segment_len: usize) -> usize {
        if !self.offload {
            return 1;
        }
        ((0xFFFF - ip_len(self.address)) / segment_len.max(1)).clamp(1, MAX_SEGMENTS)
    }

    /// Sends a run in one frame, or a single segment as a packet.
    fn send_run(&mut self, to: SocketAddr, hop_limit: u8, run: &Run<'_>) -> Result<(), Errno> {
        let envelope = Envelope {
            source: self.address,
            destination: to.ip(),
            hop_limit,
            identification: self.identification,
        };
        let (tcp, tcp_len) = run.tcp();
        let tcp = &tcp[..tcp_len];
        let mac = match to.ip() {
            group if group.is_multicast() => Some(multicast_mac(group)),
            host => self.next_hops.card(host),
        };
        let Some(mac) = mac else {
            // Such a run has one segment: nothing cuts packets of several.
            envelope.packet(&mut self.scratch, tcp, &run.parts);
            sys::send_packet(&self.packets, &self.scratch, self.interface.on_link(to))?;
            self.identification = self.identification.wrapping_add(1);
            return Ok(());
        };
        let segment = (run.count > 1).then(|| run.segment());
        envelope.frame_head(&mut self.scratch, [mac, self.mac], tcp, run.payload, segment);
        let mut parts = Vec::with_capacity(1 + run.parts.len());
        parts.push(IoSlice::new(&self.scratch));
        parts.extend(run.parts.iter().map(|part| IoSlice::new(part)));
        sendmsg::<()>(self.frames.as_raw_fd(), &parts, &[], MsgFlags::MSG_DONTWAIT, None)?;
        self.identification = self.identification.wrapping_add(run.count as u16);
        Ok(())
    }

    fn count(&self, run: &Run<'_>) {
        self.counters.frames_sent.fetch_add(1, Ordering::Relaxed);
        self.counters.segments_sent.fetch_add(run.count as u64, Ordering::Relaxed);
    }

    fn error(&self, errno: Errno, to: SocketAddr, segment: usize) -> SendError {
        let family = Family::of(self.address);
        if errno == Errno::EMSGSIZE {
            return self.too_long(segment);
        }
        SendError::new(errno, to, segment, family, &self.interface)
    }

    fn too_long(&self, segment: usize) -> SendError {
        SendError::TooLong {
            bytes: segment,
            mtu: self.interface.mtu,
            headers: ip_len(self.address),
            interface: self.interface.name.clone(),
        }
    }

    /// Returns whether runs of several segments may be made for this destination.
    fn merges(&self, to: IpAddr) -> bool {
        self.offload && (to.is_multicast() || self.next_hops.has_card(to))
    }
}

impl Outlet for Sender {
    fn try_send<'a>(
        &mut self,
        to: SocketAddr,
        hop_limit: Option<u8>,
        datagrams: impl ExactSizeIterator<Item = (&'a [u8], &'a Bytes)>,
    ) -> Result<Progress, SendError> {
        let default = if to.ip().is_multicast() { self.hop_limit } else { UNICAST_HOP_LIMIT };
        let hop_limit = hop_limit.unwrap_or(default);
        let ip_len = ip_len(self.address);
        let mut report = SendReport::default();
        let mut segments = datagrams.peekable();
        while let Some((head, body)) = segments.next() {
            // The engine emits whole segments, and one that is none can only be left out.
            let Some(first) = Split::new(head, body) else {
                report.datagrams += 1;
                self.counters.unsent.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let longest = first.tcp.len() + first.payload_len();
            if ip_len + longest > self.interface.mtu && !self.interface.loopback {
                self.counters.unsent.fetch_add(1, Ordering::Relaxed);
                return Err(self.too_long(longest));
            }
            let mut run = Run::new(first, ip_len);
            while self.merges(to.ip())
                && let Some((head, body)) = segments.peek()
                && let Some(next) = Split::new(head, body)
                && run.extend(next)
            {
                segments.next();
            }
            let room = match self.send_run(to, hop_limit, &run) {
                Ok(()) => Room::Enough,
                Err(Errno::EAGAIN)
                    if self.next_hops.has_card(to.ip()) || to.ip().is_multicast() =>
                {
                    Room::SocketFull
                }
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => Room::NoMemory,
                Err(Errno::EINVAL | Errno::EIO | Errno::EPROTONOSUPPORT) if run.count > 1 => {
                    // The interface does not cut. From now on nothing is merged; the caller comes
                    // back with what has not left.
                    tracing::info!("{} does not cut TCP segments", self.interface.name);
                    self.offload = false;
                    Room::NoMemory
                }
                Err(errno) => {
                    self.counters.unsent.fetch_add(run.count as u64, Ordering::Relaxed);
                    return Err(self.error(errno, to, longest));
                }
            };
            if room != Room::Enough {
                return Ok(Progress { report, room });
            }
            self.count(&run);
            report.datagrams += run.count;
            report.bytes += run.bytes() as u64;
        }
        Ok(Progress { report, room: Room::Enough })
    }

    fn interface(&self) -> &Interface {
        &self.interface
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.frames.as_fd()
    }
}
