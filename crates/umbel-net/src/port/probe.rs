//! Whether a group works on this host.

use std::time::{Duration, Instant};

use bytes::Bytes;
use umbel_engine::{Allowance, TransmitBuf};
use umbel_wire::Channel;

use super::OpenError;
use super::udp::group_sockets;
use crate::interface::Interface;
use crate::udp::{Received, SenderOptions};

/// How long a datagram is waited for.
const PATIENCE: Duration = Duration::from_millis(100);

/// How many datagrams are sent at most.
const ATTEMPTS: u32 = 3;

/// Finds out whether what is sent to a group comes back to this host: the least that any-source
/// multicast must do. Sends `token`, which nobody else should know. Takes up to 0.3 s.
///
/// # Errors
///
/// Why the group cannot be used.
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
