//! UDP sockets as a port.

mod inlet;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::PollFlags;
use umbel_engine::host::Trouble;
use umbel_engine::{Address, Datagram, Instant, Transmit, TransmitBuf};
use umbel_wire::Channel;

use self::inlet::Inlet;
use super::waiting::Waiting;
use super::{Port, Turn, Watch};
use crate::interface::{Family, Interface};
use crate::udp::{
    JoinError, OpenReceiverError, OpenSenderError, Receiver, ReceiverOptions, SendError, Sender,
    SenderOptions,
};

/// Interval at which the port checks whether its interface is still the same.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Messages that one system call takes, in a group that sends a few packets a second.
const GROUP_BATCH: usize = 4;

/// The same at a node of a control tree, which receives repairs.
const NODE_BATCH: usize = 8;

/// The reason why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The port cannot send.
    #[error(transparent)]
    Sender(#[from] OpenSenderError),
    /// The port cannot receive.
    #[error(transparent)]
    Receiver(#[from] OpenReceiverError),
    /// The group cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The system refuses to receive.
    #[error("cannot receive from {channel}: {source}")]
    System {
        /// The group.
        channel: Channel,
        /// The system's error.
        source: std::io::Error,
    },
    /// Datagrams sent to the group do not come back to this host.
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

/// The purpose of a port and the options of its sockets.
#[derive(Clone, Debug)]
enum Recipe {
    /// Sends to channels.
    Source(Vec<Channel>, SenderOptions),
    /// Receives channels of a port.
    Receiver(Family, u16, ReceiverOptions),
    /// Sends to a group and receives from it.
    Group(Channel, SenderOptions),
    /// Sends to a group and to single hosts, and receives from both.
    Node(Channel, SenderOptions),
}

/// Sockets on one interface. They are reopened when the interface has been recreated.
#[derive(Debug)]
pub struct UdpPort {
    recipe: Recipe,
    interface: Interface,
    sender: Option<Sender>,
    inlets: Vec<Inlet>,
    waiting: Waiting,
    /// Channels that the engine has joined.
    joined: Vec<Channel>,
    next_check: Instant,
    /// Whether the sockets must be reopened.
    broken: bool,
}

impl UdpPort {
    /// Opens a port that sends to a data channel.
    ///
    /// # Errors
    ///
    /// If the interface or its address cannot be used.
    pub fn source(
        channel: Channel,
        interface: &Interface,
        options: &SenderOptions,
    ) -> Result<UdpPort, OpenError> {
        UdpPort::layers(vec![channel], interface, options)
    }

    /// Opens a port that sends to the channels of a layered stream, from one address and port.
    ///
    /// # Errors
    ///
    /// As [`UdpPort::source`].
    pub fn layers(
        channels: Vec<Channel>,
        interface: &Interface,
        options: &SenderOptions,
    ) -> Result<UdpPort, OpenError> {
        UdpPort::open(Recipe::Source(channels, options.clone()), interface)
    }

    /// Opens a port that receives channels of one family and UDP port.
    ///
    /// # Errors
    ///
    /// If the port is taken by a program that does not share it, or the system refuses.
    pub fn receiver(
        family: Family,
        port: u16,
        interface: &Interface,
        options: &ReceiverOptions,
    ) -> Result<UdpPort, OpenError> {
        UdpPort::open(Recipe::Receiver(family, port, options.clone()), interface)
    }

    /// Opens a port that sends to a group of any source, and receives from it once it is joined.
    ///
    /// # Errors
    ///
    /// If the group cannot be used.
    pub fn group(
        channel: Channel,
        interface: &Interface,
        options: &SenderOptions,
    ) -> Result<UdpPort, OpenError> {
        UdpPort::open(Recipe::Group(channel, options.clone()), interface)
    }

    /// Opens a port that sends to a group and to single hosts, and receives from both. It sends
    /// from the address at which it receives unicast. It reports the remainder of each datagram's
    /// hop limit.
    ///
    /// Addresses have no scope here. A node has one interface, and the source of a multicast comes
    /// without a scope, so that one node would otherwise be two. A link-local address gets its
    /// interface when a datagram is sent to it.
    ///
    /// # Errors
    ///
    /// If the group cannot be used.
    pub fn node(
        channel: Channel,
        interface: &Interface,
        options: &SenderOptions,
    ) -> Result<UdpPort, OpenError> {
        UdpPort::open(Recipe::Node(channel, options.clone()), interface)
    }

    fn open(recipe: Recipe, interface: &Interface) -> Result<UdpPort, OpenError> {
        let (sender, receivers) = recipe.sockets(interface)?;
        Ok(UdpPort {
            recipe: recipe.at_the_same_place(sender.as_ref()),
            interface: interface.clone(),
            sender,
            inlets: receivers.into_iter().map(Inlet::new).collect(),
            waiting: Waiting::default(),
            joined: Vec::new(),
            next_check: Instant::EPOCH,
            broken: false,
        })
    }

    /// Returns the address from which datagrams are sent, which at a node also receives unicast.
    /// `None` if the port only receives.
    pub fn address(&self) -> Option<SocketAddr> {
        self.sender.as_ref().map(|sender| without_scope(sender.source()))
    }

    /// Returns the length of the longest datagram that the interface carries unfragmented, in
    /// bytes. `None` if the port only receives.
    pub fn max_datagram(&self) -> Option<usize> {
        self.sender.as_ref().map(Sender::max_datagram)
    }

    fn receiver_of(&mut self, channel: &Channel) -> Option<&mut Receiver> {
        self.inlets.iter_mut().map(Inlet::receiver).find(|receiver| receiver.port() == channel.port)
    }

    /// Reopens the sockets if the interface has changed, or they failed.
    fn mend_if_due(&mut self, now: Instant, turn: &mut Turn) {
        if now < self.next_check {
            return;
        }
        let first = self.next_check == Instant::EPOCH;
        self.next_check = now + CHECK_EVERY;
        for inlet in &mut self.inlets {
            inlet.ask_drops(turn);
        }
        if first {
            return;
        }
        let all = Interface::list().unwrap_or_default();
        let Some(found) = all.into_iter().find(|found| found.name == self.interface.name) else {
            self.broken = true;
            return;
        };
        if found.index == self.interface.index && !self.broken {
            return;
        }
        match self.recipe.sockets(&found) {
            Ok((sender, receivers)) => {
                tracing::info!("sockets on {} are opened anew", found.name);
                self.interface = found;
                self.sender = sender;
                self.inlets = receivers.into_iter().map(Inlet::new).collect();
                self.waiting = Waiting::default();
                self.broken = false;
                for channel in std::mem::take(&mut self.joined) {
                    if let Err(error) = self.join(&channel) {
                        turn.troubles
                            .push(Trouble::NotJoined { channel, reason: error.to_string() });
                        // It is tried again.
                        self.joined.push(channel);
                        self.broken = true;
                    }
                }
            }
            Err(error) => {
                self.broken = true;
                turn.troubles.push(Trouble::NotSent { reason: error.to_string() });
            }
        }
    }
}

impl Recipe {
    fn sockets(&self, interface: &Interface) -> Result<(Option<Sender>, Vec<Receiver>), OpenError> {
        Ok(match self {
            Recipe::Source(_, options) => (Some(Sender::open(interface, options)?), Vec::new()),
            Recipe::Receiver(family, port, options) => {
                (None, vec![Receiver::open(*port, *family, interface, options)?])
            }
            Recipe::Group(channel, options) => {
                let (sender, receiver) = group_sockets(*channel, interface, options)?;
                (Some(sender), vec![receiver])
            }
            Recipe::Node(channel, options) => {
                let receiver_options = ReceiverOptions {
                    batch: NODE_BATCH,
                    hop_limits: true,
                    ..ReceiverOptions::default()
                };
                let sender = Sender::open(interface, options)?;
                let unicast = Receiver::of_sender(&sender, &receiver_options)?;
                let group =
                    Receiver::open(channel.port, options.family, interface, &receiver_options)?;
                (Some(sender), vec![unicast, group])
            }
        })
    }

    /// Returns the recipe for sockets with the address and port of those that were opened, since
    /// peers know them.
    fn at_the_same_place(mut self, sender: Option<&Sender>) -> Recipe {
        if let (
            Recipe::Source(_, options) | Recipe::Group(_, options) | Recipe::Node(_, options),
            Some(sender),
        ) = (&mut self, sender)
        {
            options.source = Some(sender.source().ip());
            options.port = sender.source().port();
        }
        self
    }
}

impl Port for UdpPort {
    fn covers(&self, address: &Address) -> bool {
        match (&self.recipe, address) {
            (Recipe::Source(own, _), Address::Channel(channel)) => own.contains(channel),
            (Recipe::Group(own, _) | Recipe::Node(own, _), Address::Channel(channel)) => {
                own == channel
            }
            (Recipe::Receiver(family, port, _), Address::Channel(channel)) => {
                channel.port == *port && Family::of(channel.group) == *family
            }
            (Recipe::Node(..), Address::Host(_)) => true,
            _ => false,
        }
    }

    fn join(&mut self, channel: &Channel) -> Result<(), JoinError> {
        if let Some(receiver) = self.receiver_of(channel) {
            receiver.join(channel)?;
        }
        if !self.joined.contains(channel) {
            self.joined.push(*channel);
        }
        Ok(())
    }

    fn leave(&mut self, channel: &Channel) -> Result<(), JoinError> {
        self.joined.retain(|joined| joined != channel);
        self.receiver_of(channel).map_or(Ok(()), |receiver| receiver.leave(channel))
    }

    fn send(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        buf: &mut TransmitBuf,
    ) -> Result<(), SendError> {
        let Some(sender) = &mut self.sender else { return Ok(()) };
        let to = match transmit.to {
            Address::Channel(channel) => channel.destination(),
            Address::Host(address) => sender.interface().on_link(address),
            Address::Session(_) => return Ok(()),
        };
        let sent = if transmit.alert {
            // It is said again if there was no room.
            sender.try_send_alert(to, transmit.hop_limit, buf.iter()).map(drop)
        } else {
            self.waiting.send(now, sender, to, transmit.hop_limit, buf)
        };
        self.broken |= sent.as_ref().is_err_and(|error| !error.is_transient());
        sent
    }

    fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn max_batch(&self, packet_len: usize) -> Option<usize> {
        self.sender.as_ref().map(|sender| sender.max_batch(packet_len))
    }

    fn watch<'a>(&'a self, watch: &mut Watch<'a>) {
        watch.until(self.next_check);
        for inlet in &self.inlets {
            inlet.watch(watch);
        }
        if let (Some(sender), Some(retry)) = (&self.sender, self.waiting.retry()) {
            watch.until(retry.at);
            if retry.on_room {
                watch.descriptor(sender.as_fd(), PollFlags::POLLOUT);
            }
        }
    }

    fn turn(&mut self, now: Instant, ready: bool, give: &mut dyn FnMut(Datagram<'_>)) -> Turn {
        let mut turn = Turn::default();
        if let Some(sender) = &mut self.sender
            && (ready || self.waiting.is_due(now))
            && let Err(error) = self.waiting.flush(now, sender)
        {
            turn.troubles.push(Trouble::NotSent { reason: error.to_string() });
        }
        let scoped = !matches!(self.recipe, Recipe::Node(..));
        let mut give = |mut datagram: Datagram<'_>| {
            if let (Address::Host(from), false) = (&mut datagram.by, scoped) {
                *from = without_scope(*from);
            }
            give(datagram);
        };
        for inlet in &mut self.inlets {
            self.broken |= inlet.take(now, ready, &mut give, &mut turn).is_err();
        }
        self.mend_if_due(now, &mut turn);
        turn
    }
}

/// Opens the sockets of a group, which is not joined yet.
pub(super) fn group_sockets(
    channel: Channel,
    interface: &Interface,
    options: &SenderOptions,
) -> Result<(Sender, Receiver), OpenError> {
    let sender = Sender::open(interface, options)?;
    let receiver_options = ReceiverOptions { batch: GROUP_BATCH, ..ReceiverOptions::default() };
    let receiver = Receiver::open(channel.port, options.family, interface, &receiver_options)?;
    Ok((sender, receiver))
}

fn without_scope(mut address: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_scope_id(0);
    }
    address
}
