//! A group whose members all send: a socket for each direction beside those of the data channel.
//!
//! A thread receives and puts datagrams into the line of an engine's [driver](crate::driver), which
//! sends to the group by itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use umbel_engine::{Allowance, TransmitBuf};
use umbel_wire::Channel;

use crate::driver::{Input, Mailbox};
use crate::interface::Interface;
use crate::udp::{
    JoinError, OpenReceiverError, OpenSenderError, Receiver, ReceiverOptions, Sender, SenderOptions,
};
use crate::wake::Waker;

/// Datagrams that may wait for the engine; those beyond are lost, as in a full socket.
const BACKLOG: usize = 4096;

/// How long a probe of this host's own is waited for, and how often it is sent.
const PROBE: (Duration, u32) = (Duration::from_millis(100), 3);

/// Why a group cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// Nothing can be sent.
    #[error(transparent)]
    Sender(#[from] OpenSenderError),
    /// Nothing can be received.
    #[error(transparent)]
    Receiver(#[from] OpenReceiverError),
    /// The group cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The system refuses a thread or a file descriptor.
    #[error("cannot receive from {channel}: {source}")]
    System {
        /// The group.
        channel: Channel,
        /// What the system said.
        source: io::Error,
    },
    /// What is sent to the group does not come back to this host.
    #[error(
        "nothing that is sent to {channel} on {interface} comes back: a firewall drops it, or the \
         interface does no multicast (`umbel doctor`)"
    )]
    Silent {
        /// The group.
        channel: Channel,
        /// The interface.
        interface: String,
    },
}

/// A group that this host has joined and sends to. Dropping it leaves the group.
#[derive(Debug)]
pub struct Group {
    channel: Channel,
    pub(crate) sender: Sender,
    waker: Waker,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Group {
    /// Joins a group of any source on an interface; what comes goes to the engine of `mailbox`.
    ///
    /// # Errors
    ///
    /// Why the group cannot be used.
    pub fn open<C: Send + 'static>(
        channel: Channel,
        interface: &Interface,
        options: &SenderOptions,
        mailbox: Mailbox<C>,
    ) -> Result<Group, GroupError> {
        let (sender, mut receiver) = sockets(channel, interface, options)?;
        let system = |source| GroupError::System { channel, source };
        let waker = Waker::new().map_err(system)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let (called, stop) = (waker.clone(), stopped.clone());
        let run = move || {
            while !stop.load(Ordering::Acquire) {
                let received = receiver.receive(None, Some(&called), |received| {
                    let datagram = received.datagram();
                    if mailbox.waiting() < BACKLOG {
                        let payload = Bytes::copy_from_slice(datagram.payload);
                        mailbox.put(Input::Datagram(datagram.by, None, payload));
                    }
                });
                if let Err(error) = received {
                    tracing::warn!("nothing more is received from {channel}: {error}");
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("umbel-group".to_owned()).spawn(run);
        let thread = Some(thread.map_err(system)?);
        Ok(Group { channel, sender, waker, stopped, thread })
    }

    /// The group.
    pub fn channel(&self) -> Channel {
        self.channel
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}

fn sockets(
    channel: Channel,
    interface: &Interface,
    options: &SenderOptions,
) -> Result<(Sender, Receiver), GroupError> {
    let sender = Sender::open(interface, options)?;
    let receiver_options = ReceiverOptions { batch: 4, ..ReceiverOptions::default() };
    let mut receiver = Receiver::open(channel.port, options.family, interface, &receiver_options)?;
    receiver.join(&channel)?;
    Ok((sender, receiver))
}

/// Finds out whether what is sent to a group comes back to this host: the least that any-source
/// multicast must do. `token` is sent, which nobody else should know. Takes up to 0.3 s.
///
/// # Errors
///
/// Why the group cannot be used.
pub fn probe(
    channel: Channel,
    interface: &Interface,
    options: &SenderOptions,
    token: [u8; 16],
) -> Result<(), GroupError> {
    let (mut sender, mut receiver) = sockets(channel, interface, options)?;
    let silent = || GroupError::Silent { channel, interface: interface.name.clone() };
    let system = |source| GroupError::System { channel, source };
    let mut buf = TransmitBuf::default();
    for _ in 0..PROBE.1 {
        buf.reset(Allowance::data(0));
        buf.push(&token, Bytes::new());
        if sender.send(channel.destination(), &buf).is_err() {
            return Err(silent());
        }
        let until = Instant::now() + PROBE.0;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let mut came = false;
            let look = |received: crate::udp::Received<'_>| {
                came |= received.datagram().payload == token;
            };
            receiver.receive(Some(left), None, look).map_err(system)?;
            if came {
                return Ok(());
            }
        }
    }
    Err(silent())
}
