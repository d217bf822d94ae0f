//! What a node of a control tree sends and receives by: one socket for what goes to a single host,
//! by which its multicasts to the tree's group leave as well, and one for what comes from the
//! group.
//!
//! Both know of each datagram what is left of its hop limit. Addresses have no scope here: a node has
//! one interface, and of a multicast's source no scope is told, so that one node would be two. A
//! link-local one gets its interface when something is sent there.
//!
//! A thread receives and puts datagrams
//! into the line of an engine's [driver](crate::driver), which sends by itself.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use nix::poll::PollFlags;
use umbel_engine::{Address, TransmitBuf};
use umbel_wire::Channel;

use crate::driver::{Input, Mailbox};
use crate::group::GroupError;
use crate::interface::Interface;
use crate::pacer::Pacer;
use crate::udp::{
    Received, Receiver, ReceiverOptions, SendError, SendReport, Sender, SenderOptions,
};
use crate::wake::{self, Waker};

/// Datagrams that may wait for the engine; those beyond are lost, as in a full socket.
const BACKLOG: usize = 8192;

/// The sockets of a node, which has joined its group. Dropping them leaves it.
#[derive(Debug)]
pub struct Domain {
    channel: Channel,
    pub(crate) sender: Sender,
    /// Paces data packets where no data channel's pacer does.
    pub(crate) pacer: Option<Pacer>,
    idle: Option<[Receiver; 2]>,
    waker: Waker,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Domain {
    /// Opens the sockets and joins the group. Nothing is received before
    /// [`start`](Domain::start).
    ///
    /// # Errors
    ///
    /// Why the group cannot be used.
    pub fn open(
        channel: Channel,
        interface: &Interface,
        options: &SenderOptions,
        pacer: Option<Pacer>,
    ) -> Result<Domain, GroupError> {
        let system = |source| GroupError::System { channel, source };
        let sender = Sender::open(interface, options)?;
        let receiver_options =
            ReceiverOptions { batch: 8, hop_limits: true, ..ReceiverOptions::default() };
        let unicast = Receiver::of_sender(&sender, &receiver_options)?;
        let mut group = Receiver::open(channel.port, options.family, interface, &receiver_options)?;
        group.join(&channel)?;
        Ok(Domain {
            channel,
            sender,
            pacer,
            idle: Some([unicast, group]),
            waker: Waker::new().map_err(system)?,
            stopped: Arc::default(),
            thread: None,
        })
    }

    /// Lets what comes go to the engine of `mailbox` from now on. A second call does nothing.
    ///
    /// # Errors
    ///
    /// When the system refuses a thread.
    pub fn start<C: Send + 'static>(&mut self, mailbox: Mailbox<C>) -> Result<(), GroupError> {
        let channel = self.channel;
        let Some(receivers) = self.idle.take() else { return Ok(()) };
        let (waker, stopped) = (self.waker.clone(), self.stopped.clone());
        let run = move || {
            if let Err(error) = receive(receivers, &waker, &stopped, &mailbox) {
                tracing::warn!("nothing more is received from {channel}: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("umbel-domain".to_owned()).spawn(run);
        self.thread = Some(thread.map_err(|source| GroupError::System { channel, source })?);
        Ok(())
    }

    /// The group.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// Where this node takes what is sent to it alone.
    pub fn address(&self) -> SocketAddr {
        without_scope(self.sender.source())
    }

    /// Sends to the group or to a single host.
    pub(crate) fn send(
        &mut self,
        to: SocketAddr,
        hop_limit: Option<u8>,
        buf: &TransmitBuf,
    ) -> Result<SendReport, SendError> {
        let to = self.sender.interface().on_link(to);
        self.sender.send_within(to, hop_limit, buf)
    }
}

fn without_scope(mut address: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_scope_id(0);
    }
    address
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            let _ = thread.join();
        }
    }
}

fn receive<C>(
    mut receivers: [Receiver; 2],
    waker: &Waker,
    stopped: &AtomicBool,
    mailbox: &Mailbox<C>,
) -> std::io::Result<()> {
    while !stopped.load(Ordering::Acquire) {
        let [unicast, group] = &receivers;
        wake::wait_for([unicast.as_fd(), group.as_fd(), waker.as_fd()], PollFlags::POLLIN, None)?;
        waker.take();
        for receiver in &mut receivers {
            receiver.receive(Some(Duration::ZERO), None, |received: Received<'_>| {
                let datagram = received.datagram();
                if mailbox.waiting() < BACKLOG {
                    let by = match datagram.by {
                        Address::Host(from) => Address::Host(without_scope(from)),
                        by => by,
                    };
                    let payload = Bytes::copy_from_slice(datagram.payload);
                    mailbox.put(Input::Datagram(by, datagram.hop_limit, payload));
                }
            })?;
        }
    }
    Ok(())
}
