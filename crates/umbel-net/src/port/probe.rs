//! A test of whether a group works on this host.

use std::time::{Duration, Instant};

use bytes::Bytes;
use umbel_engine::{Allowance, TransmitBuf};
use umbel_wire::Channel;

use super::OpenError;
use super::udp::group_sockets;
use crate::interface::Interface;
use crate::udp::{Received, SenderOptions};

/// Time to wait for a datagram.
const PATIENCE: Duration = Duration::from_millis(100);

/// Maximum number of datagrams sent.
const ATTEMPTS: u32 = 3;

/// Checks whether datagrams sent to a group come back to this host, the minimum for any-source
/// multicast. Sends `token`, which no other program should know. Takes up to 0.3 s.
///
/// # Errors
///
/// If the group cannot be used.
pub fn probe(
    channel: Channel,
    interface: &Interface,
    options: &SenderOptions,
    token: [u8; 16],
) -> Result<(), OpenError> {
    let (mut sender, mut receiver) = group_sockets(channel, interface, options)?;
    receiver.join(&channel)?;
    let silent = || OpenError::Silent { channel, interface: interface.name.clone() };
    let system = |source| OpenError::System { channel, source };
    let mut buf = TransmitBuf::default();
    for _ in 0..ATTEMPTS {
        buf.reset(Allowance::default());
        buf.push(&token, Bytes::new());
        if sender.send(channel.destination(), &buf).is_err() {
            return Err(silent());
        }
        let until = Instant::now() + PATIENCE;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let mut came = false;
            let look = |received: Received<'_>| came |= received.payload == token;
            receiver.receive(Some(left), None, look).map_err(system)?;
            if came {
                return Ok(());
            }
        }
    }
    Err(silent())
}
