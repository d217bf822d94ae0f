//! All checks of this host, in an order in which the first problem explains the most.

use std::net::{IpAddr, Ipv6Addr};

use umbel_engine::units::Rate;
use umbel_net::interface::{Family, Interface};
use umbel_wire::session::QUERY_PORT;
use umbel_wire::{Channel, sap};

use super::delivery::{self, Outcome};
use super::firewall::{self, Firewall};
use super::{Finding, Verdict, bridge, buffers, igmp, interface, querier, route};
use crate::endpoint::channel::is_source_specific;
use crate::endpoint::ports::{CONTROL_PORT, DATA_PORT, DOMAIN_PORT, LAYER_PORT};

/// Other ports of incoming multicast, for feeds, streams, announcements and control groups. Each
/// has the traffic that is sent there, and the verdict if that does not arrive.
const OTHER_PORTS: [(u16, &str, Verdict); 5] = [
    (sap::PORT, "announcements of feeds", Verdict::Problem),
    (DOMAIN_PORT, "trees of feeds", Verdict::Problem),
    (QUERY_PORT, "questions for feeds, control groups", Verdict::Warning),
    (LAYER_PORT, "layers of streams", Verdict::Warning),
    (CONTROL_PORT, "join-experiments of streams", Verdict::Warning),
];

/// Default UDP payload of a full data packet, in bytes.
const PACKET_LEN: usize = 1400;

/// The checks of this host to make.
#[derive(Clone, Debug)]
pub struct HostRequest {
    /// The interface on which multicast should arrive.
    pub interface: Interface,
    /// The channel that should arrive, if it is known. Otherwise all families of the interface's
    /// addresses are checked.
    pub channel: Option<Channel>,
    /// UDP payload of a full data packet in bytes. Default 1,400.
    pub packet_len: usize,
    /// The rate of the channel, if it is known.
    pub rate: Option<Rate>,
    /// Whether to wait some 2.6 s for a querier. Default true.
    pub await_querier: bool,
}

impl HostRequest {
    /// Creates a request for channels of any server.
    pub fn for_interface(interface: &Interface) -> HostRequest {
        HostRequest {
            interface: interface.clone(),
            channel: None,
            packet_len: PACKET_LEN,
            rate: None,
            await_querier: true,
        }
    }

    /// Creates a request for one channel.
    pub fn for_channel(interface: &Interface, channel: Channel) -> HostRequest {
        HostRequest { channel: Some(channel), ..HostRequest::for_interface(interface) }
    }

    fn families(&self) -> Vec<Family> {
        if let Some(channel) = self.channel {
            return vec![Family::of(channel.group)];
        }
        let global = |v6: &Ipv6Addr| !v6.is_unicast_link_local() && !v6.is_loopback();
        let v4 = (!self.interface.v4.is_empty()).then_some(Family::V4);
        let v6 = self.interface.v6.iter().any(global).then_some(Family::V6);
        let families: Vec<_> = v4.into_iter().chain(v6).collect();
        if families.is_empty() && !self.interface.v6.is_empty() {
            vec![Family::V6]
        } else {
            families
        }
    }

    fn port(&self) -> u16 {
        self.channel.map_or(DATA_PORT, |channel| channel.port)
    }

    fn source(&self) -> Option<IpAddr> {
        self.channel.and_then(|channel| channel.source)
    }

    /// Returns whether the network needs to know the channel's source. That of an unknown channel
    /// is assumed to be needed.
    fn is_source_specific(&self) -> bool {
        self.channel.is_none_or(|channel| is_source_specific(channel.group))
    }
}

/// Checks this host, reporting each finding as soon as it is known. Takes up to 4 s, or 1.5 s
/// without waiting for a querier.
pub fn examine_host(request: &HostRequest, report: &mut dyn FnMut(Finding)) {
    let family = request.channel.map(|channel| Family::of(channel.group));
    let state = interface::check(&request.interface, family);
    let usable = state.verdict != Verdict::Problem;
    report(state);
    if !usable {
        // All other checks would only repeat it.
        return;
    }
    if let Some(master) = bridge::Master::of(&request.interface) {
        // Nothing arrives at the interface itself, whatever else is right.
        report(master.finding(&request.interface.name));
        return;
    }
    let families = request.families();
    let bridge = bridge::of(&request.interface);
    std::thread::scope(|scope| {
        let queriers: Vec<_> = families
            .iter()
            .filter(|_| request.await_querier && !request.interface.loopback)
            .map(|&family| {
                (family, scope.spawn(move || querier::listen(&request.interface, family)))
            })
            .collect();
        let firewall = Firewall::read();
        for &family in &families {
            examine_family(request, family, (&firewall, bridge.is_some()), report);
        }
        if families.contains(&Family::V4)
            && let Some(finding) = igmp::check_memberships()
        {
            report(finding);
        }
        report(buffers::check(request.rate));
        if !request.await_querier
            && let Some(finding) = bridge.as_ref().and_then(bridge::Bridge::finding)
        {
            report(finding);
        }
        for (family, listening) in queriers {
            let Ok(heard) = listening.join() else { continue };
            report(querier::judge(&request.interface, family, &heard, bridge.as_ref()));
        }
    });
}

fn examine_family(
    request: &HostRequest,
    family: Family,
    (firewall, is_bridge): (&Firewall, bool),
    report: &mut dyn FnMut(Finding),
) {
    let interface = &request.interface;
    if family == Family::V4 && !interface.loopback {
        report(route::check_v4(interface));
    }
    let known = request.channel.map(|channel| channel.group);
    let trial = delivery::trial_group(family, known);
    let outcome = delivery::attempt(interface, family, trial, request.port());
    let suspect = firewall::Suspect {
        interface: interface.name.clone(),
        group: known.unwrap_or(trial),
        port: request.port(),
        purpose: None,
        source: request.source(),
        is_bridge,
    };
    match outcome {
        Outcome::Failed(finding) => report(firewall.explain_refusal(finding, &suspect)),
        Outcome::Delivered => report(firewall.check_data(&suspect, true)),
        Outcome::Lost => report(firewall.check_data(&suspect, false)),
    }
    if request.channel.is_none() {
        examine_feeds(interface, family, (firewall, &suspect), report);
    }
    report(firewall.check_membership(&suspect));
    if let Some(finding) = firewall.check_bridge(&suspect) {
        report(finding);
    }
    if route::has_filter(family)
        && !interface.loopback
        && let Some(finding) = route::check_filter(interface, request.source())
    {
        report(finding);
    }
    if let Some(finding) = igmp::check_version(interface, family, request.is_source_specific()) {
        report(finding);
    }
    report(interface::check_mtu(interface, family, request.packet_len));
}

/// Checks what feeds need besides the data channel. They are received from any host.
fn examine_feeds(
    interface: &Interface,
    family: Family,
    (firewall, data): (&Firewall, &firewall::Suspect),
    report: &mut dyn FnMut(Finding),
) {
    let like = match family {
        Family::V4 => sap::LOCAL_V4.into(),
        Family::V6 => sap::directory_v6(0x5).into(),
    };
    let group = delivery::trial_group(family, Some(like));
    for (port, purpose, verdict) in OTHER_PORTS {
        let suspect = firewall::Suspect { group, port, purpose: Some(purpose), ..data.clone() };
        let finding = match delivery::attempt(interface, family, group, port) {
            // Problems of any group were already reported for the data.
            Outcome::Failed(finding) if finding.check != delivery::PORT_CHECK => continue,
            Outcome::Failed(finding) => finding,
            Outcome::Delivered => firewall.check_data(&suspect, true),
            Outcome::Lost => firewall.check_data(&suspect, false),
        };
        match finding.verdict {
            Verdict::Problem => report(Finding { verdict, ..finding }),
            _ => report(finding),
        }
    }
    let address = interface.address(family).ok();
    if let Some(finding) = address.and_then(|address| firewall.check_unicast(data, address)) {
        report(finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_of_a_known_channel_is_the_only_one_checked() {
        let interface = Interface::resolve("lo").unwrap();
        let channel = Channel { source: None, group: "ff15::1".parse().unwrap(), port: 7702 };
        assert_eq!(HostRequest::for_channel(&interface, channel).families(), [Family::V6]);
        let families = HostRequest::for_interface(&interface).families();
        assert_eq!(families, [Family::V4]);
    }

    #[test]
    fn an_interface_that_is_down_has_one_finding() {
        let mut interface = Interface::resolve("lo").unwrap();
        interface.up = false;
        let mut findings = Vec::new();
        examine_host(&HostRequest::for_interface(&interface), &mut |finding| {
            findings.push(finding);
        });
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].verdict, Verdict::Problem);
    }
}
