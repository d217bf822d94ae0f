//! A raw Ethernet socket that receives and sends in batches.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;

/// Number of frames that one call moves.
pub(super) const BATCH: usize = 64;

/// Buffer for frames between two visits of a worker. At 100,000 frames a second it holds those that
/// arrive while the machine runs other work for tens of milliseconds.
const BUFFER_BYTES: i32 = 32 << 20;

/// Buffer for one timestamp control message, aligned as `cmsghdr` needs.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct TimeControl([u8; 64]);

/// A raw socket bound to one interface, for sending and receiving.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

/// Frames received together.
pub(super) struct ReceivedBatch {
    frame_bytes: usize,
    bytes: Vec<u8>,
    frames: Vec<(usize, Duration)>,
}

impl ReceivedBatch {
    /// Creates a buffer for a batch of frames of up to `frame_bytes` each.
    pub(super) fn new(frame_bytes: usize) -> ReceivedBatch {
        ReceivedBatch { frame_bytes, bytes: vec![0; frame_bytes * BATCH], frames: Vec::new() }
    }

    /// Returns the number of frames received.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the length and arrival time (time of day) of a frame.
    pub(super) fn meta(&self, n: usize) -> (usize, Duration) {
        self.frames[n]
    }

    /// Returns the bytes of a frame.
    pub(super) fn frame(&self, n: usize) -> &[u8] {
        &self.bytes[n * self.frame_bytes..][..self.frames[n].0]
    }
}

impl PacketSocket {
    /// Binds `socket`, made for packets in the interface's namespace, to the interface with this
    /// number.
    #[allow(unsafe_code)]
    pub(super) fn bind(socket: OwnedFd, interface: u32) -> io::Result<PacketSocket> {
        let socket = PacketSocket(socket);
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        for (force, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            if socket.set(libc::SOL_SOCKET, force, BUFFER_BYTES).is_err() {
                socket.set(libc::SOL_SOCKET, plain, BUFFER_BYTES)?;
            }
        }
        // SAFETY: `address` is plain data of the length given and outlives the call.
        unsafe {
            let mut address: libc::sockaddr_ll = mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            address.sll_ifindex = interface as i32;
            let length = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            let pointer = (&raw const address).cast();
            Errno::result(libc::bind(socket.0.as_raw_fd(), pointer, length))?;
        }
        Ok(socket)
    }

    #[allow(unsafe_code)]
    fn set(&self, level: i32, name: i32, value: i32) -> io::Result<()> {
        let length = mem::size_of::<i32>() as libc::socklen_t;
        // SAFETY: the call reads one i32 that outlives it.
        let result = unsafe {
            let pointer = (&raw const value).cast();
            libc::setsockopt(self.0.as_raw_fd(), level, name, pointer, length)
        };
        Errno::result(result)?;
        Ok(())
    }

    /// Receives the waiting frames, up to a batch, without blocking.
    #[allow(unsafe_code)]
    pub(super) fn receive(&self, batch: &mut ReceivedBatch) -> io::Result<()> {
        batch.frames.clear();
        let size = batch.frame_bytes;
        let base = batch.bytes.as_mut_ptr();
        let mut controls = [TimeControl([0; 64]); BATCH];
        // SAFETY: slot n of `bytes` is `size` bytes at `n * size`, inside the vector. `parts`,
        // `controls` and `headers` outlive the call. Control messages are read only where the
        // kernel says that it wrote them.
        unsafe {
            let mut parts: [libc::iovec; BATCH] = mem::zeroed();
            let mut headers: [libc::mmsghdr; BATCH] = mem::zeroed();
            for n in 0..BATCH {
                parts[n] = libc::iovec { iov_base: base.add(n * size).cast(), iov_len: size };
                let header = &mut headers[n].msg_hdr;
                header.msg_iov = &raw mut parts[n];
                header.msg_iovlen = 1;
                header.msg_control = controls[n].0.as_mut_ptr().cast();
                header.msg_controllen = mem::size_of::<TimeControl>() as _;
            }
            let flags = libc::MSG_DONTWAIT as _;
            let none = std::ptr::null_mut();
            let fd = self.0.as_raw_fd();
            let count = match Errno::result(libc::recvmmsg(
                fd,
                headers.as_mut_ptr(),
                BATCH as u32,
                flags,
                none,
            )) {
                // A link that goes down reports it once.
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(()),
                result => result? as usize,
            };
            for header in &headers[..count] {
                let length = (header.msg_len as usize).min(size);
                batch.frames.push((length, timestamp(&header.msg_hdr)));
            }
        }
        Ok(())
    }

    /// Sends the frames in order. Returns the number that the kernel refused.
    #[allow(unsafe_code)]
    pub(super) fn send(&self, frames: &[&[u8]]) -> usize {
        let mut refused = 0;
        for chunk in frames.chunks(BATCH) {
            let mut rest = chunk;
            while !rest.is_empty() {
                // SAFETY: each part points into a frame that outlives the call; the kernel only
                // reads them.
                let sent = unsafe {
                    let mut parts: [libc::iovec; BATCH] = mem::zeroed();
                    let mut headers: [libc::mmsghdr; BATCH] = mem::zeroed();
                    for (n, frame) in rest.iter().enumerate() {
                        let iov_base = frame.as_ptr().cast_mut().cast();
                        parts[n] = libc::iovec { iov_base, iov_len: frame.len() };
                        headers[n].msg_hdr.msg_iov = &raw mut parts[n];
                        headers[n].msg_hdr.msg_iovlen = 1;
                    }
                    let fd = self.0.as_raw_fd();
                    let count = rest.len() as u32;
                    let flags = libc::MSG_DONTWAIT as _;
                    Errno::result(libc::sendmmsg(fd, headers.as_mut_ptr(), count, flags))
                };
                match sent {
                    Ok(count) => rest = &rest[count as usize..],
                    Err(Errno::EINTR) => {}
                    Err(_) => {
                        refused += 1;
                        rest = &rest[1..];
                    }
                }
            }
        }
        refused
    }

    /// Returns the number of frames that the kernel dropped for lack of space since the last call.
    #[allow(unsafe_code)]
    pub(super) fn take_overruns(&self) -> u64 {
        #[repr(C)]
        struct Statistics {
            packets: u32,
            drops: u32,
        }
        let mut statistics = Statistics { packets: 0, drops: 0 };
        let mut length = mem::size_of::<Statistics>() as libc::socklen_t;
        // SAFETY: the call writes at most `length` bytes to `statistics`.
        let result = unsafe {
            let pointer = (&raw mut statistics).cast();
            let fd = self.0.as_raw_fd();
            libc::getsockopt(
                fd,
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                pointer,
                &raw mut length,
            )
        };
        if result == 0 { u64::from(statistics.drops) } else { 0 }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the kernel's arrival time of a message, by the time of day; zero if it stated none.
///
/// # Safety
/// `message` was filled in by a successful `recvmsg` and its control buffer is still there.
#[allow(unsafe_code)]
unsafe fn timestamp(message: &libc::msghdr) -> Duration {
    // SAFETY: by the contract of this function the headers found lie in the control buffer.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        if header.is_null() || (*header).cmsg_type != libc::SCM_TIMESTAMPNS {
            return Duration::ZERO;
        }
        let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}
