//! Multicast UDP: a [`Sender`] that sends batches, a [`Receiver`] that receives them.

mod receiver;
mod sender;

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use crate::interface::Interface;
use crate::sys::{Change, change_membership};

pub use receiver::{
    Discard, DropCounts, JoinError, OpenReceiverError, Received, Receiver, ReceiverOptions,
    Reception,
};
pub(crate) use sender::{MAX_WAIT, NO_MEMORY_WAIT};
pub use sender::{
    OpenSenderError, Progress, Room, SendCounts, SendError, SendReport, Sender, SenderOptions,
};

/// Maximum UDP payload in bytes over IPv4 without options: 65,535 less the headers.
pub const MAX_PAYLOAD: usize = 65_507;

/// Lets a socket of the application's own hear a group on an interface: what these sources send to
/// it, or all if there are none.
///
/// # Errors
///
/// If the system refuses.
pub fn hear(
    socket: BorrowedFd<'_>,
    interface: &Interface,
    group: IpAddr,
    sources: &[IpAddr],
) -> io::Result<()> {
    let join = |source| change_membership(socket, Change::Join, interface.index, group, source);
    if sources.is_empty() {
        return Ok(join(None)?);
    }
    sources.iter().try_for_each(|source| Ok(join(Some(*source))?))
}
