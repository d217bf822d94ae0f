//! Checks whether a querier on the link asks for the members of groups.
//!
//! Switches that snoop learn members from the answers, and forget them without queries. General
//! queries come every one or two minutes [RFC 3376 §8.2], which is too long to wait for. But a
//! querier asks at once when a member leaves [RFC 3376 §6.4.2] or blocks a source. So this host
//! does both with its own groups and listens on a raw socket:
//!
//! - It joins two sources of a group and drops one. The querier asks the group, which this host
//!   still hears.
//! - It joins a group, leaves it and joins again. So it hears the repetition of the query a second
//!   later.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use umbel_net::interface::{Family, Interface};
use umbel_net::udp::{Receiver, ReceiverOptions};
use umbel_wire::igmp::is_igmp_query;
use umbel_wire::mld::is_mld_query;
use umbel_wire::{Channel, ip};

use super::bridge::Bridge;
use super::{Finding, delivery};

pub(super) const CHECK: &str = "querier";

/// Time to listen: two repetitions of a query [RFC 3376 §8.8], and a margin.
const LISTEN: Duration = Duration::from_millis(2_600);

/// Time that the kernel takes to send a report, and a querier to answer it.
const REPORT: Duration = Duration::from_millis(120);

/// Result of listening.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A query came.
    Query,
    /// No query came.
    Nothing,
    /// Listening is not permitted, or failed.
    Deaf(String),
}

/// Provokes a querier and listens for about 2.6 s, or until a query comes.
pub(super) fn listen(interface: &Interface, family: Family) -> Heard {
    match listen_raw(interface, family) {
        Ok(true) => Heard::Query,
        Ok(false) => Heard::Nothing,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Heard::Deaf("listening for queries needs the capability CAP_NET_RAW".to_owned())
        }
        Err(error) => Heard::Deaf(format!("cannot listen for queries: {error}")),
    }
}

fn listen_raw(interface: &Interface, family: Family) -> std::io::Result<bool> {
    let socket = match family {
        Family::V4 => {
            Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(i32::from(ip::IGMP))))?
        }
        Family::V6 => Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?,
    };
    socket.bind_device(Some(interface.name.as_bytes()))?;
    let started = Instant::now();
    let mut provocation = Provocation::begin(interface, family);
    let mut stage = 0;
    while started.elapsed() < LISTEN {
        let due = REPORT * (stage + 1);
        let until = if stage < 2 { due } else { LISTEN };
        let left = until.saturating_sub(started.elapsed()).max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left))?;
        if hears_query(&socket, family)? {
            return Ok(true);
        }
        if stage < 2 && started.elapsed() >= due {
            provocation.step(stage);
            stage += 1;
        }
    }
    Ok(false)
}

/// Reads one packet, if one comes in time. Returns whether it is a query.
fn hears_query(mut socket: &Socket, family: Family) -> std::io::Result<bool> {
    let mut packet = [0; 2048];
    match socket.read(&mut packet) {
        Ok(length) => Ok(is_query(&packet[..length], family)),
        Err(error) => match error.kind() {
            std::io::ErrorKind::WouldBlock
            | std::io::ErrorKind::TimedOut
            | std::io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        },
    }
}

/// Returns whether a packet is a query. A raw IPv4 socket delivers packets with their IP header, an
/// IPv6 socket without.
fn is_query(packet: &[u8], family: Family) -> bool {
    match family {
        Family::V4 => is_igmp_query(packet),
        Family::V6 => is_mld_query(packet),
    }
}

/// Memberships whose changes make a querier ask.
struct Provocation {
    blocker: Option<(Receiver, [Channel; 2])>,
    leaver: Option<(Receiver, Channel)>,
}

impl Provocation {
    fn begin(interface: &Interface, family: Family) -> Provocation {
        let open = || {
            let options = ReceiverOptions { batch: 1, ..ReceiverOptions::default() };
            Receiver::open(0, family, interface, &options).ok()
        };
        let group = delivery::trial_group(family, None);
        let blocker = open().map(|mut receiver| {
            let channels = documentation_sources(family).map(|source| Channel {
                source: Some(source),
                group,
                port: receiver.port(),
            });
            for channel in &channels {
                let _ = receiver.join(channel);
            }
            (receiver, channels)
        });
        let leaver = open().map(|mut receiver| {
            let group = delivery::trial_group(family, Some(any_source_range(family)));
            let channel = Channel { source: None, group, port: receiver.port() };
            let _ = receiver.join(&channel);
            (receiver, channel)
        });
        Provocation { blocker, leaver }
    }

    /// Leaves and blocks in the first stage, then joins again.
    fn step(&mut self, stage: u32) {
        if let Some((receiver, channels)) = &mut self.blocker
            && stage == 0
        {
            let _ = receiver.leave(&channels[1]);
        }
        if let Some((receiver, channel)) = &mut self.leaver {
            let _ = if stage == 0 { receiver.leave(channel) } else { receiver.join(channel) };
        }
    }
}

/// Returns sources that send nothing [RFC 5737 §3, RFC 3849 §2].
fn documentation_sources(family: Family) -> [IpAddr; 2] {
    match family {
        Family::V4 => [1, 2].map(|n| Ipv4Addr::new(192, 0, 2, n).into()),
        Family::V6 => [1, 2].map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n).into()),
    }
}

/// Returns a group of the any-source range.
fn any_source_range(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(239, 255, 0, 1).into(),
        Family::V6 => Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// Combines what was heard with the state of the bridge on this host.
pub(super) fn judge(
    interface: &Interface,
    family: Family,
    heard: &Heard,
    bridge: Option<&Bridge>,
) -> Finding {
    let name = &interface.name;
    let protocol = if family == Family::V4 { "IGMP" } else { "MLD" };
    let lacking = bridge.filter(|bridge| bridge.lacks_querier());
    match (heard, lacking) {
        (Heard::Query, _) => Finding::ok(CHECK, format!("{protocol} is queried on {name}")),
        (Heard::Deaf(_), Some(bridge)) => {
            bridge.finding().unwrap_or_else(|| Finding::ok(CHECK, "the bridge queries"))
        }
        (Heard::Deaf(why), None) => {
            Finding::unknown(CHECK, why.clone()).mend("run `umbel doctor` as root")
        }
        (Heard::Nothing, Some(bridge)) => Finding::warning(
            CHECK,
            format!(
                "bridge {} snoops {protocol}, and nobody queries: members are forgotten after some \
                 minutes",
                bridge.name
            ),
        )
        .mend(bridge.mend()),
        (Heard::Nothing, None) => Finding::warning(
            CHECK,
            format!(
                "nobody queries {protocol} on {name}: a switch that snoops forgets members after \
                 some minutes"
            ),
        )
        .mend(format!("switch on the {protocol} querier of the switch or router, or snooping off")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_capability_it_says_so() {
        let interface = Interface::resolve("lo").unwrap();
        let deaf = Heard::Deaf("listening for queries needs the capability CAP_NET_RAW".to_owned());
        let found = judge(&interface, Family::V4, &deaf, None);
        assert_eq!(found.verdict, crate::doctor::Verdict::Unknown);
        assert!(found.what.contains("CAP_NET_RAW"));
    }
}
