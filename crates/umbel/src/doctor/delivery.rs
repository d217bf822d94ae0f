//! Checks whether a datagram that is sent to a group on the interface reaches a member on this
//! host.
//!
//! Its hop limit is 0. The kernel hands it to members on this host, through the firewall's output
//! and input, and sends nothing to the wire.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use umbel_engine::{Allowance, TransmitBuf};
use umbel_net::interface::{Family, Interface};
use umbel_net::udp::{
    JoinError, OpenReceiverError, Receiver, ReceiverOptions, SendError, Sender, SenderOptions,
};
use umbel_wire::Channel;

use super::{Finding, igmp, interface, route};

pub(super) const CHECK: &str = "firewall";
/// The check of whether the port can be used.
pub(super) const PORT_CHECK: &str = "port";

/// Number of times that the datagram is sent, and the wait after each.
const ATTEMPTS: u32 = 3;
const WAIT: Duration = Duration::from_millis(80);

/// Result of a trial.
pub(super) enum Outcome {
    /// The member received it.
    Delivered,
    /// It was sent, and the member received nothing.
    Lost,
    /// It could not be sent.
    Failed(Finding),
}

/// Returns the group for trials. It is in the range of the channel's group, so that rules about the
/// range apply to it, and differs between processes.
pub(super) fn trial_group(family: Family, like: Option<IpAddr>) -> IpAddr {
    let id = std::process::id();
    match (family, like) {
        (Family::V4, Some(IpAddr::V4(group))) if group.octets()[0] != 224 => {
            let [first, ..] = group.octets();
            Ipv4Addr::new(first, 254, (id >> 8) as u8, id as u8).into()
        }
        (Family::V4, _) => Ipv4Addr::new(232, 254, (id >> 8) as u8, id as u8).into(),
        (Family::V6, Some(IpAddr::V6(group))) if group.segments()[0] & 0x0f > 2 => {
            let [first, ..] = group.segments();
            Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0xfe75 | 0x8000, id as u16).into()
        }
        (Family::V6, _) => Ipv6Addr::new(0xff3e, 0, 0, 0, 0, 0, 0xfe75, id as u16).into(),
    }
}

/// Sends to the trial group from and to this host.
pub(super) fn attempt(interface: &Interface, family: Family, group: IpAddr, port: u16) -> Outcome {
    match try_it(interface, family, group, port) {
        Ok(true) => Outcome::Delivered,
        Ok(false) => Outcome::Lost,
        Err(finding) => Outcome::Failed(finding),
    }
}

fn try_it(
    interface: &Interface,
    family: Family,
    group: IpAddr,
    port: u16,
) -> Result<bool, Finding> {
    let options = ReceiverOptions { batch: 1, ..ReceiverOptions::default() };
    let mut receiver = Receiver::open(port, family, interface, &options).map_err(not_opened)?;
    let options = SenderOptions { hop_limit: 0, ..SenderOptions::new(family) };
    let mut sender = Sender::open(interface, &options).map_err(|error| {
        let (what, mend) = split_command(&error.to_string());
        with_mend(Finding::problem(interface::CHECK, what), mend)
    })?;
    let source = sender.source().ip();
    let channel = Channel { source: Some(source), group, port };
    receiver.join(&channel).map_err(|error| not_joined(&error))?;
    let mark = Bytes::from(format!("umbel doctor {} {:?}", std::process::id(), Instant::now()));
    let mut buf = TransmitBuf::default();
    for _ in 0..ATTEMPTS {
        buf.reset(Allowance::data(1));
        buf.push(&mark, Bytes::new());
        sender.send(channel.destination(), &buf).map_err(|error| not_sent(&error))?;
        if hears(&mut receiver, &mark) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn hears(receiver: &mut Receiver, mark: &[u8]) -> bool {
    let deadline = Instant::now() + WAIT;
    let mut heard = false;
    while !heard {
        let left = deadline.saturating_duration_since(Instant::now());
        let got = receiver.receive(Some(left), None, |received| heard |= received.payload == mark);
        if got.is_err() || left.is_zero() {
            break;
        }
    }
    heard
}

fn not_opened(error: OpenReceiverError) -> Finding {
    match error {
        OpenReceiverError::PortTaken(port) => Finding::problem(
            PORT_CHECK,
            format!("UDP port {port} is taken by a program that does not share it"),
        )
        .mend(format!("ss -ulpn 'sport = :{port}', then stop that program")),
        error @ OpenReceiverError::System { .. } => Finding::unknown(CHECK, error.to_string()),
    }
}

fn not_joined(error: &JoinError) -> Finding {
    let check = match error {
        JoinError::TooMany { .. } => igmp::MEMBERSHIPS_CHECK,
        _ => interface::CHECK,
    };
    let finding = Finding::problem(check, error.to_string());
    match error {
        JoinError::TooMany { channel: Channel { group: IpAddr::V4(_), .. } } => {
            finding.mend("sysctl -w net.ipv4.igmp_max_memberships=20")
        }
        JoinError::TooMany { .. } => finding.mend("sysctl -w net.core.optmem_max=131072"),
        _ => finding,
    }
}

fn not_sent(error: &SendError) -> Finding {
    let (what, mend) = split_command(&error.to_string());
    match error {
        SendError::Unreachable { .. } => with_mend(Finding::problem(route::CHECK, what), mend),
        SendError::Refused(_) => Finding::problem(CHECK, "a firewall rule lets no multicast out")
            .mend("nft list ruleset, and let multicast out in its `output` chain"),
        _ => with_mend(Finding::problem(interface::CHECK, what), mend),
    }
}

/// Splits a command between back-ticks off the end of a message.
fn split_command(message: &str) -> (String, Option<String>) {
    let parts = message.strip_suffix('`').and_then(|rest| rest.rsplit_once(": `"));
    match parts {
        Some((what, command)) => (what.to_owned(), Some(command.to_owned())),
        None => (message.to_owned(), None),
    }
}

fn with_mend(finding: Finding, mend: Option<String>) -> Finding {
    match mend {
        Some(mend) => finding.mend(mend),
        None => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_on_the_loopback_interface_is_delivered() {
        let interface = Interface::resolve("lo").unwrap();
        let group = trial_group(Family::V4, None);
        let port = 20_000 + (std::process::id() % 20_000) as u16;
        assert!(matches!(attempt(&interface, Family::V4, group, port), Outcome::Delivered));
    }

    #[test]
    fn a_port_that_is_not_shared_is_named() {
        let interface = Interface::resolve("lo").unwrap();
        let taken = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let group = trial_group(Family::V4, None);
        let Outcome::Failed(found) = attempt(&interface, Family::V4, group, port) else {
            panic!("the port is taken");
        };
        assert_eq!(found.check, "port");
        assert!(found.what.contains(&port.to_string()), "{found}");
    }

    #[test]
    fn the_trial_group_is_of_the_range_of_the_channel() {
        let group = trial_group(Family::V4, Some([239, 1, 2, 3].into()));
        assert!(matches!(group, IpAddr::V4(v4) if v4.octets()[0] == 239));
        let group = trial_group(Family::V4, Some([224, 0, 0, 5].into()));
        assert!(
            matches!(group, IpAddr::V4(v4) if v4.octets()[0] == 232),
            "link-local groups are not ours"
        );
        let group = trial_group(Family::V6, Some("ff15::7".parse().unwrap()));
        assert!(matches!(group, IpAddr::V6(v6) if v6.segments()[0] == 0xff15));
    }

    #[test]
    fn the_command_is_split_off_a_message() {
        let (what, mend) = split_command("no route to x by eth0: `ip route add y`");
        assert_eq!(
            (what.as_str(), mend.as_deref()),
            ("no route to x by eth0", Some("ip route add y"))
        );
        assert_eq!(split_command("plain"), ("plain".to_owned(), None));
    }
}
