//! The network's interfaces and their addresses.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};

use super::Family;
use super::netlink::{Answers, Questions};

/// An interface as it was at the time of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number in the system; never 0.
    pub index: u32,
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its addresses that can be used, with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Length of the largest IP packet that it carries in bytes.
    pub mtu: u32,
    /// Whether it is switched on and has a carrier.
    pub is_up: bool,
    /// Whether it can send and receive multicast, and leads to other hosts.
    pub is_multicast: bool,
}

impl Interface {
    /// Returns its first address of a family that is valid beyond its link.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        let mut addresses = self.addresses.iter().map(|(address, _)| *address);
        addresses.find(|address| Family::of(*address) == family && !is_link_local(*address))
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Lists interfaces.
#[derive(Debug)]
pub struct Interfaces {
    questions: Questions,
}

impl Interfaces {
    /// Opens the way to ask.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn open() -> io::Result<Interfaces> {
        Ok(Interfaces { questions: Questions::open()? })
    }

    /// Returns all interfaces of this network namespace in the order of their numbers.
    ///
    /// # Errors
    ///
    /// If the system does not list them.
    pub fn list(&mut self) -> io::Result<Vec<Interface>> {
        let links = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let links = self.questions.ask(links, Answers::All)?;
        let mut found: Vec<Interface> = links.iter().filter_map(read_link).collect();
        found.sort_by_key(|interface| interface.index);
        let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        for answer in self.questions.ask(addresses, Answers::All)? {
            let Some((index, address, prefix_len)) = read_address(&answer) else { continue };
            if let Some(interface) = found.iter_mut().find(|interface| interface.index == index) {
                interface.addresses.push((address, prefix_len));
            }
        }
        Ok(found)
    }
}

fn read_link(answer: &RouteNetlinkMessage) -> Option<Interface> {
    let RouteNetlinkMessage::NewLink(link) = answer else { return None };
    let flags = link.header.flags;
    let mut interface = Interface {
        index: link.header.index,
        name: String::new(),
        addresses: Vec::new(),
        mtu: 0,
        is_up: flags.contains(LinkFlags::Up | LinkFlags::Running),
        is_multicast: flags.contains(LinkFlags::Multicast) && !flags.contains(LinkFlags::Loopback),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            _ => {}
        }
    }
    Some(interface)
}

fn read_address(answer: &RouteNetlinkMessage) -> Option<(u32, IpAddr, u8)> {
    let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
    let (mut local, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            // Of a point-to-point link, `Address` is that of the far end.
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => other = Some(*address),
            AddressAttribute::Flags(flags)
                if flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed) =>
            {
                return None;
            }
            _ => {}
        }
    }
    Some((message.header.index, local.or(other)?, message.header.prefix_len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_listed_with_its_address() {
        let list = Interfaces::open().unwrap().list().unwrap();
        let lo = list.iter().find(|interface| interface.name == "lo").unwrap();
        assert!(lo.addresses.contains(&(IpAddr::from([127, 0, 0, 1]), 8)), "{lo:?}");
        assert!(!lo.is_multicast && lo.mtu >= 1500, "{lo:?}");
        assert!(list.is_sorted_by_key(|interface| interface.index));
    }
}
