//! The threads that receive RTP, one for each layer.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use socket2::SockRef;
use umbel_engine::host::Mailbox;

use super::host::Input;

/// Bytes that the kernel holds of a layer, if it may: a key frame comes all at once.
const KERNEL_BYTES: usize = 1 << 20;
/// Packets that may wait for the host.
const WAITING: usize = 4096;
/// Interval at which a receiver looks whether it is over.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of the longest datagram.
const DATAGRAM: usize = 1 << 16;

/// Packets on their way from the sockets to the host.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: AtomicUsize,
    refused: AtomicU64,
}

impl Backlog {
    /// Adds a packet, if there is room. Returns whether there was.
    fn enter(&self) -> bool {
        let more = |waiting| (waiting < WAITING).then_some(waiting + 1);
        let entered = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        self.refused.fetch_add(u64::from(!entered), Ordering::Relaxed);
        entered
    }

    /// Takes out a packet.
    pub(crate) fn leave(&self) {
        // In tests packets come without having entered.
        let fewer = |waiting: usize| waiting.checked_sub(1);
        let _ = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }

    /// Returns the number of packets for which there was no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// The sockets of all layers.
#[derive(Debug)]
pub(super) struct Sockets(Vec<UdpSocket>);

/// Receives until it is dropped.
pub(super) struct Receiving(Arc<AtomicBool>);

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Sockets {
    /// Opens the sockets of these addresses, one for each layer.
    ///
    /// # Errors
    ///
    /// If an address is not this host's, or its port is taken.
    pub(super) fn open(addresses: &[SocketAddr]) -> anyhow::Result<Sockets> {
        let open = |address: &SocketAddr| -> anyhow::Result<UdpSocket> {
            let socket = UdpSocket::bind(address).with_context(|| {
                format!(
                    "cannot receive RTP at {address}: the session description must have an address \
                     of this host, and ports that are free"
                )
            })?;
            socket.set_read_timeout(Some(LOOK))?;
            // Room that the system does not grant causes losses where packets burst, which are seen
            // there.
            let _ = SockRef::from(&socket).set_recv_buffer_size(KERNEL_BYTES);
            Ok(socket)
        };
        Ok(Sockets(addresses.iter().map(open).collect::<Result<_, _>>()?))
    }

    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// If the system cannot start one.
    pub(super) fn start(
        self,
        host: &Mailbox<Input>,
        backlog: &Arc<Backlog>,
    ) -> std::io::Result<Receiving> {
        let receiving = Receiving(Arc::default());
        for (layer, socket) in (0..).zip(self.0) {
            let (host, backlog, over) = (host.clone(), backlog.clone(), receiving.0.clone());
            std::thread::Builder::new()
                .name(format!("umbel-rtp-{layer}"))
                .spawn(move || receive(layer, &socket, &host, &backlog, &over))?;
        }
        Ok(receiving)
    }
}

fn receive(
    layer: u8,
    socket: &UdpSocket,
    host: &Mailbox<Input>,
    backlog: &Backlog,
    over: &AtomicBool,
) {
    let mut buffer = vec![0; DATAGRAM];
    while !over.load(Ordering::Acquire) {
        match socket.recv(&mut buffer) {
            Ok(len) if backlog.enter() => {
                host.put(Input::Packet { layer, bytes: Bytes::copy_from_slice(&buffer[..len]) });
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // The next datagram may come all the same.
            Err(_) => std::thread::sleep(LOOK),
        }
    }
}
