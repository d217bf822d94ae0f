//! Static multicast routes of a lab's router.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use umbel_router::kernel::Family;
use umbel_router::kernel::mroute::MulticastTable;
use umbel_router::kernel::signalling::LinkGroups;

use crate::namespace::Namespace;

/// The multicast forwarding of one router. Dropping it releases the forwarding.
#[derive(Debug)]
pub(crate) struct MulticastRouter {
    namespace: Namespace,
    v4: MulticastTable,
    v6: MulticastTable,
    interfaces: Vec<u32>,
}

/// A router's IGMP: the socket by which reports come, and the memberships that let them come.
#[derive(Debug)]
pub(crate) struct Reports {
    pub(crate) socket: OwnedFd,
    _groups: Vec<LinkGroups>,
}

impl MulticastRouter {
    /// Takes over forwarding in `namespace` between its interfaces, given by their numbers.
    pub(crate) fn open(namespace: &Namespace, interfaces: &[u32]) -> io::Result<MulticastRouter> {
        let v4 = namespace.socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_IGMP)?;
        let v6 = namespace.socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6)?;
        let mut v4 = MulticastTable::from_socket(Family::V4, v4)?;
        let mut v6 = MulticastTable::from_socket(Family::V6, v6)?;
        for &index in interfaces {
            v4.add_interface(index)?;
            v6.add_interface(index)?;
        }
        let (namespace, interfaces) = (namespace.clone(), interfaces.to_vec());
        Ok(MulticastRouter { namespace, v4, v6, interfaces })
    }

    /// Receives the reports of hosts next to the router from now on.
    pub(crate) fn hear_reports(&self) -> io::Result<Reports> {
        let join = |index: &u32| {
            let member = self.namespace.socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
            LinkGroups::join_with(member, Family::V4, *index)
        };
        let groups = self.interfaces.iter().map(join).collect::<io::Result<_>>()?;
        let socket = self.v4.socket().as_fd().try_clone_to_owned()?;
        Ok(Reports { socket, _groups: groups })
    }

    /// Forwards `source`'s packets to `group` from interface `input` to `outputs`. Interfaces are
    /// positions in the list passed to `open`. Replaces an entry for the same channel.
    pub(crate) fn add(
        &self,
        source: IpAddr,
        group: IpAddr,
        input: usize,
        outputs: &[usize],
    ) -> io::Result<()> {
        let table = if group.is_ipv4() { &self.v4 } else { &self.v6 };
        let outputs: Vec<u32> = outputs.iter().map(|output| self.interfaces[*output]).collect();
        table.set(source, group, self.interfaces[input], &outputs)
    }
}
