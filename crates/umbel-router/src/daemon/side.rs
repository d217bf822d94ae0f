//! One family of the daemon: its forwarding table, its sockets, its LMS.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use umbel_engine::Instant;
use umbel_engine::router::InterfaceId;

use super::StartError;
use super::config::Config;
use super::lms::{Lms, Turn};
use crate::control::{
    ControlMessage, ControlPlane, ControlTransmit, ForwardingChange, Protocol, SourceGroup,
    UnicastRoutes,
};
use crate::kernel::mroute::{Counters, Incoming, MulticastTable, Upcall, UpcallKind};
use crate::kernel::signalling::{LinkGroups, pim_socket, prepare_membership};
use crate::kernel::{Envelope, Family, InterfaceSocket};

/// Messages taken from one socket before others have their turn.
const BATCH: usize = 64;

/// Sockets and state of one address family.
#[derive(Debug)]
pub(super) struct Side {
    family: Family,
    table: MulticastTable,
    pim: InterfaceSocket,
    groups: BTreeMap<InterfaceId, LinkGroups>,
    pub(super) lms: Option<Lms>,
}

/// Parts of the daemon that are lent while arrivals are handled.
pub(super) struct Loan<'a, U> {
    pub(super) now: Instant,
    pub(super) control: &'a mut ControlPlane,
    pub(super) unicast: &'a U,
    /// The router's own addresses.
    pub(super) own: &'a dyn Fn(IpAddr) -> bool,
    pub(super) buffer: &'a mut [u8],
}

/// A socket of a side that has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Membership,
    Pim,
    Alerts,
    Mine,
}

impl Side {
    /// Takes the forwarding and opens all sockets.
    pub(super) fn open(
        family: Family,
        config: &Config,
        secret: [u8; 32],
    ) -> Result<Side, StartError> {
        let table = MulticastTable::open(family, config.table).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EADDRINUSE) => StartError::TableTaken { table: config.table },
                _ => StartError::System { what: "take the multicast forwarding", source: error },
            }
        })?;
        let system = |what| move |source| StartError::System { what, source };
        table.report_wrong_interfaces().map_err(system("ask for upcalls"))?;
        prepare_membership(&table).map_err(system("prepare the socket of IGMP or MLD"))?;
        let pim = pim_socket(family).map_err(system("open the socket of PIM"))?;
        let lms = config.lms.clone().map(|lms| {
            let port = lms.port;
            Lms::open(family, lms, secret).map_err(|source| match source.raw_os_error() {
                Some(libc::EADDRINUSE) => StartError::PortTaken { port },
                _ => StartError::System { what: "listen for Router Alert", source },
            })
        });
        Ok(Side { family, table, pim, groups: BTreeMap::new(), lms: lms.transpose()? })
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    /// Returns the sockets to wait for.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (Way, BorrowedFd<'_>)> {
        use std::os::fd::AsFd as _;
        let own = [(Way::Membership, self.table.socket().as_fd()), (Way::Pim, self.pim.as_fd())];
        let lms = self.lms.as_ref().map(|lms| {
            let (alerts, mine) = lms.sockets();
            [(Way::Alerts, alerts.as_fd()), (Way::Mine, mine.as_fd())]
        });
        own.into_iter().chain(lms.into_iter().flatten())
    }

    /// Takes part on an interface.
    pub(super) fn add(&mut self, interface: InterfaceId) -> io::Result<()> {
        self.table.add_interface(interface.0)?;
        if !self.groups.contains_key(&interface) {
            let groups = LinkGroups::join(self.family, interface.0)?;
            self.groups.insert(interface, groups);
        }
        Ok(())
    }

    /// Takes part on an interface no longer.
    pub(super) fn remove(&mut self, interface: InterfaceId) {
        self.groups.remove(&interface);
        self.table.remove_interface(interface.0);
        if let Some(lms) = &mut self.lms {
            lms.forget_interface(interface);
        }
    }

    /// Takes what has come by one of the sockets.
    pub(super) fn take<U: UnicastRoutes>(&mut self, way: Way, loan: Loan<'_, U>) {
        match way {
            Way::Membership => self.take_membership(loan),
            Way::Pim => self.take_pim(loan),
            Way::Alerts | Way::Mine => {
                let Some(lms) = &mut self.lms else { return };
                let Loan { now, control: routes, own, buffer, .. } = loan;
                let mut turn = Turn { now, routes, own, buffer };
                if way == Way::Alerts {
                    lms.take_alerts(&mut turn);
                } else {
                    lms.take_mine(&mut turn);
                }
            }
        }
    }

    fn take_membership<U: UnicastRoutes>(&mut self, mut loan: Loan<'_, U>) {
        let protocol = match self.family {
            Family::V4 => Protocol::Igmp,
            Family::V6 => Protocol::Icmpv6,
        };
        for _ in 0..BATCH {
            let Ok(incoming) = self.table.receive(loan.buffer) else { return };
            match incoming {
                Incoming::Upcall(upcall) => loan.on_upcall(upcall),
                Incoming::Message(envelope) => loan.hand_over(envelope, protocol),
                Incoming::Other => {}
            }
        }
    }

    fn take_pim<U: UnicastRoutes>(&mut self, mut loan: Loan<'_, U>) {
        for _ in 0..BATCH {
            let Ok(envelope) = self.pim.receive(loan.buffer) else { return };
            loan.hand_over(envelope, Protocol::Pim);
        }
    }

    /// Sends a message of the control plane.
    pub(super) fn send(&self, transmit: &ControlTransmit) -> io::Result<()> {
        let socket = match transmit.protocol {
            Protocol::Igmp | Protocol::Icmpv6 => self.table.socket(),
            Protocol::Pim => &self.pim,
        };
        let interface = Some(transmit.interface.0);
        socket.send(interface, Some(transmit.from), transmit.to, &transmit.payload)
    }

    /// Changes what the kernel forwards.
    pub(super) fn apply(&self, change: &ForwardingChange) -> io::Result<()> {
        match change {
            ForwardingChange::Set { channel, input, outputs } => {
                let outputs: Vec<u32> = outputs.iter().map(|output| output.0).collect();
                self.table.set(channel.source, channel.group, input.0, &outputs)
            }
            ForwardingChange::Remove { channel } => {
                self.table.remove(channel.source, channel.group)
            }
        }
    }

    /// Returns what the kernel has forwarded of a channel.
    pub(super) fn counters(&self, channel: &SourceGroup) -> Counters {
        self.table.counters(channel.source, channel.group).unwrap_or_default()
    }
}

impl<U: UnicastRoutes> Loan<'_, U> {
    fn on_upcall(&mut self, upcall: Upcall) {
        let Some(interface) = upcall.interface.map(InterfaceId) else { return };
        let channel = SourceGroup { group: upcall.group, source: upcall.source };
        let Loan { now, control, unicast, .. } = self;
        match upcall.kind {
            UpcallKind::NoEntry => control.unresolved(*now, *unicast, channel, interface),
            UpcallKind::WrongInterface => {
                control.wrong_interface(*now, *unicast, channel, interface);
            }
        }
    }

    /// Passes the message in the buffer to the control plane, without the header that IPv4 leaves
    /// before it.
    fn hand_over(&mut self, envelope: Envelope, protocol: Protocol) {
        let (Some(from), Some(to)) = (envelope.from, envelope.to) else { return };
        let packet = &self.buffer[..envelope.len];
        let header = match from.ip() {
            IpAddr::V4(_) => {
                packet.first().map_or(0, |first| umbel_wire::ip::v4_header_len(*first))
            }
            IpAddr::V6(_) => 0,
        };
        let Some(payload) = packet.get(header..) else { return };
        let interface = InterfaceId(envelope.interface);
        let message = ControlMessage { interface, from: from.ip(), to, protocol, payload };
        self.control.handle_message(self.now, self.unicast, message);
    }
}
