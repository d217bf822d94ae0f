//! The channels that a receiver has joined.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use umbel_wire::Channel;

use crate::interface::{Family, Interface};
use crate::sys::{self, Change};

/// The reason why a channel cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The group is not a multicast address.
    #[error("{0} is not a multicast address: use 224.0.0.0/4 or ff00::/8")]
    NotMulticast(IpAddr),
    /// The group or the source is not of the receiver's family, or the port differs.
    #[error("channel {channel} does not belong to this receiver ({family}, port {port})")]
    Foreign {
        /// The channel that was to be joined.
        channel: Channel,
        /// Family of the receiver.
        family: Family,
        /// Port of the receiver.
        port: u16,
    },
    /// The group is joined from any source, and now from one, or vice versa.
    #[error("{0} is joined both from one source and from any: leave the other channel first")]
    Mixed(IpAddr),
    /// The system limits the memberships of a socket.
    #[error("cannot join {channel}: too many memberships; {}", limits(.channel))]
    TooMany {
        /// The channel that was to be joined.
        channel: Channel,
    },
    /// The interface is gone, down, or has no address of the family.
    #[error("cannot join {channel} on {interface}: the interface is gone or cannot do multicast")]
    Interface {
        /// The channel that was to be joined.
        channel: Channel,
        /// The interface.
        interface: String,
    },
    /// Another error of the system.
    #[error("cannot join {channel} on {interface}: {source}")]
    System {
        /// The channel that was to be joined.
        channel: Channel,
        /// The interface.
        interface: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Returns the advice on the limits that a socket may have exceeded.
fn limits(channel: &Channel) -> &'static str {
    match (channel.group, channel.source) {
        (IpAddr::V4(_), None) => "raise `sysctl net.ipv4.igmp_max_memberships`",
        (IpAddr::V4(_), Some(_)) => {
            "raise `sysctl net.ipv4.igmp_max_memberships` or, for many sources of one group, \
             `net.ipv4.igmp_max_msf`"
        }
        (IpAddr::V6(_), None) => "raise `sysctl net.core.optmem_max`",
        (IpAddr::V6(_), Some(_)) => {
            "raise `sysctl net.core.optmem_max` or, for many sources of one group, \
             `net.ipv6.mld_max_msf`"
        }
    }
}

/// The decision about a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    NotJoined,
    OtherSource,
}

/// The channels of one family and port that a socket has joined on one interface.
#[derive(Debug)]
pub(super) struct Memberships {
    family: Family,
    pub(super) port: u16,
    pub(super) interface: Interface,
    /// In the order in which they were joined.
    pub(super) joined: Vec<Channel>,
    /// The only unicast address at which it receives.
    pub(super) unicast: Option<IpAddr>,
}

impl Memberships {
    pub(super) fn new(family: Family, port: u16, interface: Interface) -> Memberships {
        Memberships { family, port, interface, joined: Vec::new(), unicast: None }
    }

    pub(super) fn join(
        &mut self,
        socket: BorrowedFd<'_>,
        channel: &Channel,
    ) -> Result<(), JoinError> {
        self.check(channel)?;
        if self.joined.contains(channel) {
            return Ok(());
        }
        let same_group = self.joined.iter().find(|joined| joined.group == channel.group);
        if same_group.is_some_and(|joined| joined.source.is_some() != channel.source.is_some()) {
            return Err(JoinError::Mixed(channel.group));
        }
        self.change(socket, Change::Join, channel)
            .map_err(|errno| self.join_error(errno, channel))?;
        self.joined.push(*channel);
        Ok(())
    }

    pub(super) fn leave(
        &mut self,
        socket: BorrowedFd<'_>,
        channel: &Channel,
    ) -> Result<(), JoinError> {
        let Some(place) = self.joined.iter().position(|joined| joined == channel) else {
            return Ok(());
        };
        self.joined.remove(place);
        match self.change(socket, Change::Leave, channel) {
            Err(Errno::EADDRNOTAVAIL | Errno::ENODEV) | Ok(()) => Ok(()),
            Err(errno) => Err(self.join_error(errno, channel)),
        }
    }

    /// Returns whether a datagram from one address to another is for this receiver. Some kernels
    /// also deliver datagrams that other sockets of this host have joined.
    pub(super) fn verdict(&self, to: IpAddr, from: IpAddr) -> Verdict {
        if self.unicast == Some(to) {
            return Verdict::Accept;
        }
        let mut verdict = Verdict::NotJoined;
        for channel in self.joined.iter().filter(|channel| channel.group == to) {
            if channel.source.is_none_or(|source| source == from) {
                return Verdict::Accept;
            }
            verdict = Verdict::OtherSource;
        }
        verdict
    }

    fn check(&self, channel: &Channel) -> Result<(), JoinError> {
        if !channel.group.is_multicast() {
            return Err(JoinError::NotMulticast(channel.group));
        }
        let addresses = [Some(channel.group), channel.source];
        let mut families = addresses.into_iter().flatten().map(Family::of);
        if channel.port != self.port || families.any(|family| family != self.family) {
            let (family, port) = (self.family, self.port);
            return Err(JoinError::Foreign { channel: *channel, family, port });
        }
        Ok(())
    }

    fn change(
        &self,
        socket: BorrowedFd<'_>,
        change: Change,
        channel: &Channel,
    ) -> Result<(), Errno> {
        let index = self.interface.index;
        sys::change_membership(socket, change, index, channel.group, channel.source)
    }

    fn join_error(&self, errno: Errno, channel: &Channel) -> JoinError {
        let (channel, interface) = (*channel, self.interface.name.clone());
        match errno {
            Errno::ENOBUFS | Errno::ENOMEM => JoinError::TooMany { channel },
            Errno::ENODEV => JoinError::Interface { channel, interface },
            errno => JoinError::System { channel, interface, source: errno.into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_was_joined_and_what_is_sent_to_it_alone() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let channel = |source: Option<&str>, group: &str| Channel {
            source: source.map(address),
            group: address(group),
            port: 7_700,
        };
        let interface = Interface::resolve("lo").unwrap();
        let mut memberships = Memberships::new(Family::V4, 7_700, interface);
        memberships.joined = vec![
            channel(Some("192.0.2.1"), "232.1.1.1"),
            channel(Some("192.0.2.2"), "232.1.1.1"),
            channel(None, "239.1.1.1"),
        ];
        memberships.unicast = Some(address("192.0.2.9"));
        let verdict = |to: &str, from: &str| memberships.verdict(address(to), address(from));
        assert_eq!(verdict("232.1.1.1", "192.0.2.1"), Verdict::Accept);
        assert_eq!(verdict("232.1.1.1", "192.0.2.2"), Verdict::Accept);
        assert_eq!(verdict("232.1.1.1", "192.0.2.3"), Verdict::OtherSource);
        assert_eq!(verdict("239.1.1.1", "192.0.2.3"), Verdict::Accept);
        assert_eq!(verdict("239.1.1.2", "192.0.2.3"), Verdict::NotJoined);
        assert_eq!(verdict("192.0.2.9", "192.0.2.3"), Verdict::Accept);
        assert_eq!(verdict("192.0.2.8", "192.0.2.3"), Verdict::NotJoined);
    }
}
