//! Ports: the ways for datagrams into and out of this host.
//!
//! A [`Driver`](crate::driver::Driver) has some ports, of which at most one covers an address. It
//! waits for all of them at once, and none of them blocks its thread.
//!
//! | port | covers | made of |
//! |---|---|---|
//! | [`UdpPort::source`] | one data channel | a sending socket |
//! | [`UdpPort::layers`] | the data channels of layers | the same |
//! | [`UdpPort::receiver`] | data channels of one UDP port | a receiving socket |
//! | [`UdpPort::group`] | a group whose members all send | a socket for each direction |
//! | [`UdpPort::node`] | a group, and single hosts | the same; unicast comes by the sending one |
//! | [`PacketPort`](crate::packet::PacketPort) | TCP peers, and their channel | packet sockets |
//! | [`SessionsPort`], [`SessionPort`] | sessions | a QUIC endpoint on its own thread |

mod probe;
mod session;
mod udp;
pub(crate) mod waiting;

use std::os::fd::BorrowedFd;

use nix::poll::{PollFd, PollFlags};
use umbel_engine::host::Trouble;
use umbel_engine::{Address, Datagram, Instant, Transmit, TransmitBuf};
use umbel_wire::Channel;

pub use probe::probe;
pub use session::{SessionPort, SessionsPort};
pub use udp::{OpenError, UdpPort};

use crate::udp::{JoinError, SendError};

/// A way for datagrams in, out, or both.
pub trait Port: Send {
    /// Returns whether the port sends datagrams to this address and receives it once it is joined.
    fn covers(&self, address: &Address) -> bool;

    /// Starts to receive a channel.
    ///
    /// # Errors
    ///
    /// If the channel does not suit the port, or the system refuses.
    fn join(&mut self, _channel: &Channel) -> Result<(), JoinError> {
        Ok(())
    }

    /// Stops receiving a channel.
    ///
    /// # Errors
    ///
    /// If the system refuses. The channel counts as left even then.
    fn leave(&mut self, _channel: &Channel) -> Result<(), JoinError> {
        Ok(())
    }

    /// Sends the datagrams in `buf` without blocking. If there is no room for all of them now, the
    /// port keeps the rest, and leaves another buffer in place of `buf`.
    ///
    /// # Errors
    ///
    /// If datagrams cannot leave. They count as lost on the way.
    fn send(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        buf: &mut TransmitBuf,
    ) -> Result<(), SendError>;

    /// Returns whether datagrams wait for room, so that no more data should come.
    fn is_full(&self) -> bool {
        false
    }

    /// Returns the number of data packets of this length that leave with one call.
    fn max_batch(&self, _packet_len: usize) -> Option<usize> {
        None
    }

    /// Adds the port's descriptors and deadline to what the thread waits for.
    fn watch<'a>(&'a self, _watch: &mut Watch<'a>) {}

    /// Receives the waiting datagrams, and sends those that waited for room. `ready` states whether
    /// one of the watched descriptors is ready.
    fn turn(&mut self, _now: Instant, _ready: bool, _give: &mut dyn FnMut(Datagram<'_>)) -> Turn {
        Turn::default()
    }
}

/// The outcome of a port's [turn](Port::turn).
#[derive(Debug, Default)]
pub struct Turn {
    /// Number of datagrams that were handed over.
    pub datagrams: usize,
    /// Failures.
    pub troubles: Vec<Trouble>,
}

/// The descriptors and the deadline for which a thread waits.
#[derive(Debug, Default)]
pub struct Watch<'a> {
    fds: Vec<PollFd<'a>>,
    until: Option<Instant>,
}

impl<'a> Watch<'a> {
    /// Adds a descriptor.
    pub fn descriptor(&mut self, fd: BorrowedFd<'a>, events: PollFlags) {
        self.fds.push(PollFd::new(fd, events));
    }

    /// Sets the end of the wait to `at`, unless it is earlier already.
    pub fn until(&mut self, at: Instant) {
        self.until = Some(self.until.map_or(at, |until| until.min(at)));
    }

    /// Returns the number of descriptors.
    pub(crate) fn len(&self) -> usize {
        self.fds.len()
    }

    pub(crate) fn into_parts(self) -> (Vec<PollFd<'a>>, Option<Instant>) {
        (self.fds, self.until)
    }
}
