//! State of the control plane, for people and programs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use umbel_engine::Instant;

use super::ControlPlane;
use super::api::{Family, SourceGroup};
use super::pim::{AssertState, PimRole};
use super::trees::Tree;
use super::work::LinkId;

/// Present state of the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ControlStatus {
    /// The interfaces, by number.
    pub interfaces: Vec<InterfaceStatus>,
    /// The channels, by group and source.
    pub trees: Vec<TreeStatus>,
    /// Number of discarded inputs, by reason. Reasons that did not occur are not in it.
    pub drops: BTreeMap<String, u64>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct InterfaceStatus {
    /// Its number.
    pub interface: u32,
    /// Its name.
    pub name: String,
    /// State by address family.
    pub links: Vec<LinkStatus>,
}

/// An interface, as far as one address family goes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LinkStatus {
    /// The family.
    pub family: Family,
    /// The router's address there.
    pub address: IpAddr,
    /// The querier.
    pub querier: QuerierStatus,
    /// The router that forwards for the hosts there: the querier where PIM is not spoken.
    pub designated_router: IpAddr,
    /// With whom PIM is spoken.
    pub pim: PimRole,
    /// The last router that said Hello and is no neighbour by that.
    pub refused: Option<IpAddr>,
    /// PIM neighbours.
    pub neighbours: Vec<NeighbourStatus>,
    /// Members of groups, by group and host.
    pub members: Vec<MemberStatus>,
}

/// The querier of a link.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct QuerierStatus {
    /// Its address.
    pub address: IpAddr,
    /// Whether it is this router.
    pub is_me: bool,
    /// A router that asks in an older version, and that version. Hosts that follow it can no
    /// longer name sources.
    pub older: Option<(IpAddr, String)>,
}

/// A PIM neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct NeighbourStatus {
    /// Its address.
    pub address: IpAddr,
    /// Its priority for becoming the designated router.
    pub dr_priority: Option<u32>,
    /// Its generation id.
    pub generation: Option<u32>,
    /// Seconds until it is forgotten; `None` is never.
    pub expires_in_s: Option<u64>,
}

/// The sources of a group that a host wants.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct MemberStatus {
    /// The group.
    pub group: IpAddr,
    /// The host.
    pub host: IpAddr,
    /// Version that it speaks. Hosts of older versions cannot name sources.
    pub version: String,
    /// Sources that it has named.
    pub sources: Vec<IpAddr>,
    /// If it wants any source: all but these.
    pub any_source_but: Option<Vec<IpAddr>>,
    /// Its cost as a replier of LMS.
    pub cost: Option<u32>,
    /// Seconds until it is forgotten.
    pub expires_in_s: u64,
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct TreeStatus {
    /// The source.
    pub source: IpAddr,
    /// The group.
    pub group: IpAddr,
    /// Interface towards the source, or `None` if there is no route.
    pub input: Option<u32>,
    /// The next router towards the source, or `None` if the source is on the link.
    pub gateway: Option<IpAddr>,
    /// The neighbour that is joined.
    pub joined: Option<IpAddr>,
    /// Reason why it cannot come, though it is wanted, as far as routing knows.
    pub problem: Option<String>,
    /// Interfaces on which it goes out, with the reasons.
    pub outputs: Vec<OutputStatus>,
}

/// An interface on which a channel goes out, or would go out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct OutputStatus {
    /// The interface.
    pub interface: u32,
    /// Whether it goes out there now.
    pub is_forwarding: bool,
    /// Whether hosts there want it.
    pub has_members: bool,
    /// Neighbours there that have joined it.
    pub joined_by: Vec<IpAddr>,
    /// The router that forwards instead, by an Assert.
    pub lost_to: Option<IpAddr>,
}

impl ControlPlane {
    /// Returns what the control plane knows now.
    pub fn status(&self, now: Instant) -> ControlStatus {
        let drops = self.work.drops.iter();
        ControlStatus {
            interfaces: self.interface_statuses(now),
            trees: self.tree_statuses(),
            drops: drops.map(|(reason, count)| (format!("{reason:?}"), count)).collect(),
        }
    }

    fn interface_statuses(&self, now: Instant) -> Vec<InterfaceStatus> {
        let links = |interface| {
            let links = [Family::Ipv4, Family::Ipv6].map(|family| LinkId { interface, family });
            links.into_iter().filter_map(|id| {
                let link = self.links.get(&id)?;
                let (querier, members) = link.membership.status(now);
                Some(LinkStatus {
                    family: id.family,
                    address: link.me,
                    querier,
                    designated_router: link.forwarder(&self.config.pim),
                    pim: link.neighbours.role().clone(),
                    refused: link.neighbours.refused(),
                    neighbours: link.neighbours.status(now),
                    members,
                })
            })
        };
        self.interfaces
            .iter()
            .map(|(&interface, info)| InterfaceStatus {
                interface: interface.0,
                name: info.name.clone(),
                links: links(interface).collect(),
            })
            .collect()
    }

    /// Returns why a channel cannot come from its source, in words.
    fn problem(&self, channel: &SourceGroup, tree: &Tree) -> Option<String> {
        let Some(rpf) = tree.rpf else {
            return Some(format!("no unicast route leads to {}", channel.source));
        };
        let name = match self.interfaces.get(&rpf.interface) {
            Some(info) => &info.name,
            None => return Some("its source is by an interface without multicast".to_owned()),
        };
        let link = self.links.get(&LinkId::of(rpf.interface, channel))?;
        if tree.joined.is_some() {
            return None;
        }
        match (rpf.gateway, link.neighbours.len()) {
            (Some(gateway), neighbours)
                if Family::of(gateway) == link.family || neighbours == 0 =>
            {
                Some(format!("{gateway}, the next hop on {name}, is no PIM neighbour"))
            }
            (None, 0 | 1) => None,
            (None, _) if link.has_in_subnet(channel.source) => None,
            _ => Some(format!("the route by {name} names none of the PIM neighbours there")),
        }
    }

    fn tree_statuses(&self) -> Vec<TreeStatus> {
        let mut trees = Vec::with_capacity(self.trees.len());
        for (channel, tree) in &self.trees {
            let mut outputs = Vec::new();
            for &interface in self.interfaces.keys() {
                let id = LinkId::of(interface, channel);
                let Some(link) = self.links.get(&id) else { continue };
                let has_members = link.membership.wants(channel);
                let joined = tree.downstream.get(&interface);
                if has_members || joined.is_some() {
                    outputs.push(OutputStatus {
                        interface: interface.0,
                        is_forwarding: tree.is_output(interface),
                        has_members,
                        joined_by: joined.map_or(Vec::new(), super::trees::Downstream::neighbours),
                        lost_to: match tree.asserts.get(&interface) {
                            Some(AssertState::Lost { winner, .. }) => Some(winner.router),
                            _ => None,
                        },
                    });
                }
            }
            trees.push(TreeStatus {
                source: channel.source,
                group: channel.group,
                input: tree.rpf.map(|rpf| rpf.interface.0),
                gateway: tree.rpf.and_then(|rpf| rpf.gateway),
                joined: tree.joined.map(|(_, neighbour)| neighbour),
                problem: if outputs.is_empty() { None } else { self.problem(channel, tree) },
                outputs,
            });
        }
        trees
    }
}
