//! The threads that receive RTP, one for each layer.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use socket2::{Domain, SockRef, Socket, Type};
use umbel_engine::host::Mailbox;
use umbel_net::interface::Interface;
use umbel_net::udp::hear;

use super::host::Input;
use crate::endpoint::interface;

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

/// Where the packets of a layer come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entrance {
    /// An address of this host, or a group.
    pub(super) address: SocketAddr,
    /// Sources of a group whose packets are wanted; empty for those of all.
    pub(super) sources: Vec<IpAddr>,
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
    /// Opens the sockets, one for each layer. Groups are joined on all interfaces, since they may
    /// come by another one than `own`, by which the stream leaves.
    ///
    /// # Errors
    ///
    /// If an address is not this host's, its port is taken, or a group cannot be joined.
    pub(super) fn open(entrances: &[Entrance], own: &Interface) -> anyhow::Result<Sockets> {
        let open = |entrance: &Entrance| -> anyhow::Result<UdpSocket> {
            let address = entrance.address;
            let socket = if address.ip().is_multicast() {
                open_group(entrance, own)?
            } else {
                UdpSocket::bind(address).with_context(|| {
                    format!(
                        "cannot receive RTP at {address}: the session description must have an \
                         address of this host or a group, and ports that are free"
                    )
                })?
            };
            socket.set_read_timeout(Some(LOOK))?;
            // Room that the system does not grant causes losses where packets burst, which are seen
            // there.
            let _ = SockRef::from(&socket).set_recv_buffer_size(KERNEL_BYTES);
            Ok(socket)
        };
        Ok(Sockets(entrances.iter().map(open).collect::<Result<_, _>>()?))
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

/// Opens a socket that hears a group, beside other programs that do.
fn open_group(entrance: &Entrance, own: &Interface) -> anyhow::Result<UdpSocket> {
    let Entrance { address, sources } = entrance;
    let (address, group) = (*address, address.ip());
    let failed = || format!("cannot receive RTP at the group {address}");
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None);
    let socket = socket.with_context(failed)?;
    socket.set_reuse_address(true).with_context(failed)?;
    // So that what comes to the port by another group, or to this host, is not heard.
    socket.bind(&address.into()).with_context(failed)?;
    let mut interfaces = interface::heard()?;
    if interfaces.iter().all(|one| one.index != own.index) {
        interfaces.push(own.clone());
    }
    let mut refused = None;
    let mut joined = false;
    for one in &interfaces {
        match hear(socket.as_fd(), one, group, sources) {
            Ok(()) => joined = true,
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) if !joined => Err(error).with_context(failed),
        None if !joined => bail!("no interface does multicast"),
        _ => Ok(socket.into()),
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
