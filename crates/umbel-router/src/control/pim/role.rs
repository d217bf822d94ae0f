//! Part that PIM plays on a link.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::super::api::UnicastRoutes;
use super::super::config::PimConfig;
use super::super::link::Link;

/// Who may be a neighbour on a link. A stranger's Hello must not take a link's multicast away.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PimRole {
    /// Nobody: there are only hosts, as far as unicast routing knows.
    Passive,
    /// These.
    Named(Vec<IpAddr>),
    /// Any router, since unicast routes lead through the link to somewhere beyond it.
    Routed,
}

impl PimRole {
    /// Returns the role on a link of an interface with this name.
    pub(in crate::control) fn of(
        link: &Link,
        name: &str,
        config: &PimConfig,
        routes: &dyn UnicastRoutes,
    ) -> PimRole {
        if config.passive.iter().any(|passive| passive == name) {
            return PimRole::Passive;
        }
        let named = config.neighbours.iter().filter(|neighbour| {
            let is_here = neighbour.interface.as_ref().is_none_or(|interface| interface == name);
            is_here && link.is_on_link(neighbour.address, routes)
        });
        let named: Vec<IpAddr> = named.map(|neighbour| neighbour.address).collect();
        if !named.is_empty() {
            PimRole::Named(named)
        } else if routes.leads_beyond(link.id.interface, link.family, &link.networks) {
            PimRole::Routed
        } else {
            PimRole::Passive
        }
    }

    /// Returns whether a router may be a neighbour.
    pub(in crate::control) fn admits(&self, router: IpAddr) -> bool {
        match self {
            PimRole::Passive => false,
            PimRole::Named(named) => named.contains(&router),
            PimRole::Routed => true,
        }
    }
}
