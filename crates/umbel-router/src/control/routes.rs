//! Answers to router engines about trees.

use std::net::IpAddr;

use umbel_engine::router::{InterfaceId, Routes, Upstream};
use umbel_wire::Channel;

use super::ControlPlane;
use super::api::SourceGroup;
use super::trees::Tree;

impl ControlPlane {
    /// Returns the tree of a channel that goes out somewhere.
    fn live(&self, channel: &Channel) -> Option<&Tree> {
        let channel = SourceGroup { group: channel.group, source: channel.source? };
        self.trees.get(&channel).filter(|tree| !tree.outputs().is_empty())
    }
}

impl Routes for ControlPlane {
    fn upstream(&mut self, channel: &Channel) -> Option<Upstream> {
        let (input, _) = self.live(channel)?.forwarding.as_ref()?;
        Some(Upstream::Interface(*input))
    }

    fn is_downstream(&mut self, channel: &Channel, interface: InterfaceId) -> bool {
        self.live(channel).is_some_and(|tree| tree.is_output(interface))
    }

    fn downstream(&mut self, channel: &Channel, to: &mut Vec<InterfaceId>) {
        to.extend(self.live(channel).into_iter().flat_map(Tree::outputs));
    }

    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.extend(self.interfaces.keys());
    }

    fn is_attached(&mut self, host: IpAddr) -> bool {
        self.interfaces
            .values()
            .flat_map(|info| &info.addresses)
            .any(|network| network.covers(host))
    }
}
