//! Ways for datagrams into and out of this host.
//!
//! A [`Driver`](crate::driver::Driver) has some ports; at most one covers an address. It waits for
//! all of them at once, and none of them blocks its thread.
//!
//! | port | covers | made of |
//! |---|---|---|
//! | [`UdpPort::source`] | one data channel | a sending socket |
//! | [`UdpPort::receiver`] | data channels of one UDP port | a receiving socket |
//! | [`UdpPort::group`] | a group whose members all send | a socket for each direction |
//! | [`UdpPort::node`] | a group, and single hosts | the same; unicast comes by the sending one |
//! | [`SessionsPort`], [`SessionPort`] | sessions | a QUIC endpoint on a thread of its own |

mod probe;
mod session;
mod udp;

use std::os::fd::BorrowedFd;

use nix::poll::{PollFd, PollFlags};
use umbel_engine::host::Trouble;
use umbel_engine::{Address, Datagram, Instant, Transmit, TransmitBuf};
use umbel_wire::Channel;

pub use probe::probe;
pub use session::{SessionPort, SessionsPort};
pub use udp::{OpenError, UdpPort};

use crate::udp::{JoinError, SendError};

/// A way in, out, or both.
pub trait Port: Send {
    /// Whether what goes to this address leaves here, and what is joined is received here.
    fn covers(&self, address: &Address) -> bool;

    /// Receives a channel from now on.
    ///
    /// # Errors
    ///
    /// When the channel does not suit the port, or the system refuses.
    fn join(&mut self, _channel: &Channel) -> Result<(), JoinError> {
        Ok(())
    }

    /// No longer receives a channel.
    ///
    /// # Errors
    ///
    /// When the system refuses; the channel counts as left even then.
    fn leave(&mut self, _channel: &Channel) -> Result<(), JoinError> {
        Ok(())
    }

    /// Sends what is in `buf` without waiting. What there is no room for now stays in the port,
    /// which takes the buffer's place.
    ///
    /// # Errors
    ///
    /// What keeps datagrams from leaving: they count as lost on the way.
    fn send(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        buf: &mut TransmitBuf,
    ) -> Result<(), SendError>;

    /// Whether datagrams wait for room, so that no more data should come.
    fn is_full(&self) -> bool {
        false
    }

    /// How many data packets of this length leave with one call.
    fn max_batch(&self, _packet_len: usize) -> Option<usize> {
        None
    }

    /// Says what the thread has to wait for.
    fn watch<'a>(&'a self, _watch: &mut Watch<'a>) {}

    /// Takes what is there, and sends what waited. `ready` says whether one of the watched
    /// descriptors is.
    fn turn(&mut self, _now: Instant, _ready: bool, _give: &mut dyn FnMut(Datagram<'_>)) -> Turn {
        Turn::default()
    }
}

/// What came of a port's [turn](Port::turn).
#[derive(Debug, Default)]
pub struct Turn {
    /// Datagrams that were handed over.
    pub datagrams: usize,
    /// What went wrong.
    pub troubles: Vec<Trouble>,
}

/// What a thread waits for.
#[derive(Debug, Default)]
pub struct Watch<'a> {
    fds: Vec<PollFd<'a>>,
    until: Option<Instant>,
}

impl<'a> Watch<'a> {
    /// Waits for a descriptor.
    pub fn descriptor(&mut self, fd: BorrowedFd<'a>, events: PollFlags) {
        self.fds.push(PollFd::new(fd, events));
    }

    /// Waits no longer than until `at`.
    pub fn until(&mut self, at: Instant) {
        self.until = Some(self.until.map_or(at, |until| until.min(at)));
    }

    /// How many descriptors are waited for.
    pub(crate) fn len(&self) -> usize {
        self.fds.len()
    }

    pub(crate) fn into_parts(self) -> (Vec<PollFd<'a>>, Option<Instant>) {
        (self.fds, self.until)
    }
}
