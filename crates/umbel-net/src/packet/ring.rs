//! A packet socket whose frames arrive in memory that is shared with the kernel
//! [packet_mmap(7), TPACKET_V3].
//!
//! The kernel fills one block after the other. It hands a block over when that is full, or a
//! millisecond after its first frame. Nothing is copied and no system call is made per frame.
//!
//! All `unsafe` of packet sockets is in this file and in `sys.rs`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;

use super::filter::Program;
use super::sys;

/// Length of a block in bytes. A frame of 64 KiB, as segmentation offload makes them, must fit.
const BLOCK: usize = 1 << 18;

/// Time after which the kernel hands over a block that is not full, in milliseconds: the least
/// that it knows.
const RETIRE_MS: u32 = 1;

/// Offset of a frame's link-layer address in its header: that of `sockaddr_ll` after
/// `tpacket3_hdr`.
const ADDRESS: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

/// The kernel's word about a frame's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// Nobody has looked at it.
    Unknown,
    /// It was found to be right.
    Right,
    /// It is to be completed when the frame leaves the machine: until then it covers the pseudo
    /// header only.
    Partial,
}

/// A frame in the shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// The frame from its link-layer header on, without a checksum at its end.
    pub(crate) bytes: &'a [u8],
    /// The kernel's word about its transport checksum.
    pub(crate) checksum: Checksum,
    /// Whether this host sends it.
    pub(crate) outgoing: bool,
}

/// A packet socket with a ring of blocks.
#[derive(Debug)]
pub(crate) struct Ring {
    socket: OwnedFd,
    memory: NonNull<u8>,
    blocks: usize,
    /// Number of the block that the kernel hands over next.
    next: usize,
    /// Frames that the kernel dropped since the ring was opened.
    drops: u64,
}

// SAFETY: the memory belongs to the ring alone, and is reached through `&mut self` only.
#[allow(unsafe_code)]
unsafe impl Send for Ring {}

impl Ring {
    /// Opens a ring of at least `bytes` for the frames of an interface, of an `ETH_P_*` protocol,
    /// that pass the filter.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_NET_RAW`, or another error of the system.
    pub(crate) fn open(
        interface: u32,
        protocol: libc::c_int,
        filter: &Program,
        outgoing: bool,
        bytes: usize,
    ) -> io::Result<Ring> {
        let blocks = bytes.div_ceil(BLOCK).max(2);
        let socket = sys::packet_socket()?;
        sys::attach_filter(socket.as_fd(), filter)?;
        sys::set_packet(socket.as_fd(), libc::PACKET_VERSION, &2_i32)?;
        if !outgoing {
            // Unknown to Linux before 4.20, where the filter alone keeps them out.
            let _ = sys::set_packet(socket.as_fd(), libc::PACKET_IGNORE_OUTGOING, &1_i32);
        }
        // The fourth field says in how many frames of equal length older versions would divide it.
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: BLOCK as u32,
            tp_frame_nr: blocks as u32,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        sys::set_packet(socket.as_fd(), libc::PACKET_RX_RING, &request)?;
        let memory = map(socket.as_fd(), blocks * BLOCK)?;
        let ring = Ring { socket, memory, blocks, next: 0, drops: 0 };
        // Only now frames come, through the filter and into the ring.
        sys::bind(ring.socket.as_fd(), interface, protocol)?;
        Ok(ring)
    }

    /// Hands over the frames of the blocks that are ready, and stops after the block with which
    /// there are `most`. Blocks do not count: where frames come one by one, each has one of its
    /// own, and the kernel runs out of blocks within milliseconds.
    pub(crate) fn take(&mut self, most: usize, give: &mut dyn FnMut(Frame<'_>)) {
        let mut taken = 0;
        for _ in 0..self.blocks {
            let Some(block) = self.ready().filter(|_| taken < most) else { return };
            taken += frames(block, give);
            self.release();
        }
    }

    /// Returns the next block if the kernel has handed it over.
    #[allow(unsafe_code)]
    fn ready(&mut self) -> Option<&[u8]> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the block lies in the mapping. The kernel does not write to it while it is handed
        // over, which the caller ends by `release`, with exclusive access.
        Some(unsafe {
            std::slice::from_raw_parts(self.memory.as_ptr().add(self.next * BLOCK), BLOCK)
        })
    }

    /// Returns the next block to the kernel.
    fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
    }

    #[allow(unsafe_code)]
    fn status(&self) -> &AtomicU32 {
        let offset = std::mem::offset_of!(libc::tpacket_block_desc, hdr)
            + std::mem::offset_of!(libc::tpacket_hdr_v1, block_status);
        // SAFETY: `next` is below `blocks`, so that the field lies in the mapping. It is aligned,
        // as blocks are, and shared with the kernel as an atomic number.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(self.next * BLOCK + offset).cast()) }
    }

    /// Returns the number of frames that the kernel dropped for want of a free block.
    pub(crate) fn drops(&mut self) -> u64 {
        self.drops += u64::from(sys::take_drops(self.socket.as_fd()).unwrap_or(0));
        self.drops
    }

    /// Takes the socket's error, such as that of an interface that went down. While there is one,
    /// the socket counts as ready.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        nix::sys::socket::getsockopt(&self.socket, nix::sys::socket::sockopt::SocketError)
            .ok()
            .filter(|error| *error != 0)
            .map(io::Error::from_raw_os_error)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Ring {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.blocks * BLOCK) };
    }
}

/// Maps the ring of a socket.
#[allow(unsafe_code)]
fn map(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            socket.as_raw_fd(),
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(Errno::last().into());
    }
    NonNull::new(memory.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

/// Hands over the frames of a block. The places that the kernel reports are checked all the same.
/// Returns the number of frames.
fn frames(block: &[u8], give: &mut dyn FnMut(Frame<'_>)) -> usize {
    use libc::{tpacket_block_desc, tpacket_hdr_v1, tpacket3_hdr};
    use std::mem::offset_of;

    let header = offset_of!(tpacket_block_desc, hdr);
    let count = u32_at(block, header + offset_of!(tpacket_hdr_v1, num_pkts)).unwrap_or(0);
    let first = u32_at(block, header + offset_of!(tpacket_hdr_v1, offset_to_first_pkt));
    let mut at = first.unwrap_or(0) as usize;
    for n in 0..count as usize {
        let Some(frame) = block.get(at..) else { return n };
        let field = |offset| u32_at(frame, offset);
        let Some(next) = field(offset_of!(tpacket3_hdr, tp_next_offset)) else { return n };
        let Some(length) = field(offset_of!(tpacket3_hdr, tp_len)) else { return n };
        let Some(captured) = field(offset_of!(tpacket3_hdr, tp_snaplen)) else { return n };
        let Some(status) = field(offset_of!(tpacket3_hdr, tp_status)) else { return n };
        let start = frame.get(offset_of!(tpacket3_hdr, tp_mac)..).and_then(|at| at.first_chunk());
        let Some(start) = start.map(|bytes| usize::from(u16::from_ne_bytes(*bytes))) else {
            return n;
        };
        let kind = frame.get(ADDRESS + offset_of!(libc::sockaddr_ll, sll_pkttype)).copied();
        let bytes = frame.get(start..start + captured as usize);
        // A frame that does not fit a block is cut, and of no use.
        if let (Some(bytes), true) = (bytes, captured == length) {
            let checksum = if status & libc::TP_STATUS_CSUMNOTREADY != 0 {
                Checksum::Partial
            } else if status & libc::TP_STATUS_CSUM_VALID != 0 {
                Checksum::Right
            } else {
                Checksum::Unknown
            };
            give(Frame { bytes, checksum, outgoing: kind == Some(libc::PACKET_OUTGOING) });
        }
        at += next as usize;
    }
    count as usize
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_contents_of_a_block_lead_outside_of_it(
            words in proptest::collection::vec(prop_oneof![0..200_u32, any::<u32>()], 16..64),
        ) {
            let mut block: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            // At most so many frames are looked at.
            block[12..16].copy_from_slice(&1000_u32.to_ne_bytes());
            let give = &mut |frame: Frame<'_>| assert!(frame.bytes.len() <= block.len());
            assert!(frames(&block, give) <= 1000);
        }
    }
}
