//! Addresses of the nodes and groups of a simulation, as engines see them.

use std::net::{IpAddr, Ipv4Addr};

use umbel_wire::Channel;

use crate::network::NodeId;

/// UDP port that all channels use.
pub(crate) const PORT: u16 = 7702;

/// Returns the address of a node. It is the node's number within 10.0.0.0/8, from 10.0.0.1 on.
pub fn address_of(node: NodeId) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 1)).wrapping_add(node.0))
}

/// Returns the node that has this address, if any can.
pub fn node_of(address: IpAddr) -> Option<NodeId> {
    let IpAddr::V4(address) = address else { return None };
    if address.octets()[0] != 10 {
        return None;
    }
    u32::from(address).checked_sub(u32::from(Ipv4Addr::new(10, 0, 0, 1))).map(NodeId)
}

/// Returns the channel of group number `group`. It is in 232.0.0.0/8 if it has one source, in
/// 239.0.0.0/8 if not. Groups are numbered below 2²⁴.
pub fn channel(source: Option<NodeId>, group: u32) -> Channel {
    let first = if source.is_some() { 232 } else { 239 };
    let [_, b, c, d] = group.to_be_bytes();
    Channel {
        source: source.map(|node| IpAddr::V4(address_of(node))),
        group: IpAddr::V4(Ipv4Addr::new(first, b, c, d)),
        port: PORT,
    }
}

/// Returns the source and the group number from which [`channel`] made this channel.
pub fn channel_parts(channel: &Channel) -> Option<(Option<NodeId>, u32)> {
    let IpAddr::V4(group) = channel.group else { return None };
    let [_, b, c, d] = group.octets();
    let source = match channel.source {
        Some(address) => Some(node_of(address)?),
        None => None,
    };
    Some((source, u32::from_be_bytes([0, b, c, d])))
}
