//! Checks the path from a server: whether the session works and multicast arrives, how large
//! packets can be, and how fast.
//!
//! The server sends bursts of numbered packets on its data channel on request.
//!
//! - `scout.rs`, `ear.rs`: a client that wants only these packets.
//! - `burst.rs`: the fate of a burst.
//! - `mtu.rs`, `rate.rs`: the packet length and the rate that the path carries.

mod burst;
mod ear;
mod mtu;
mod rate;
mod scout;

use std::net::IpAddr;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use umbel_engine::units::{Rate, counted};
use umbel_net::interface::{Family, Interface};
use umbel_net::session::{ClientError, Credentials, SessionUrl};
use umbel_wire::Channel;

use self::burst::{Burst, Order};
use self::scout::{Scout, ScoutError, Welcome};
use super::{Finding, interface};

/// A server, and what its session says about its data channel.
pub struct Path {
    scout: Scout,
    server: String,
    welcome: Welcome,
    packet_len: Option<u16>,
}

const SESSION: &str = "session";
const MULTICAST: &str = "multicast";
const LOSS: &str = "loss";

/// UDP payload of the first probe packets, small enough for every link.
const SMALL: u16 = 200;

/// UDP payload of full data packets if the server has none.
const USUAL: u16 = 1400;

impl Path {
    /// Opens a session with the server. Takes up to 5 s.
    ///
    /// # Errors
    ///
    /// The finding that says why the session cannot be opened.
    pub fn open(url: &SessionUrl, credentials: Credentials) -> Result<Path, Finding> {
        let server = url.authority();
        let (scout, welcome) =
            Scout::start(url, credentials).map_err(|error| no_session(&error, &server, url))?;
        let packet_len = scout.packet_len();
        Ok(Path { scout, server, welcome, packet_len })
    }

    /// Returns the server's data channel.
    pub fn channel(&self) -> Channel {
        self.welcome.channel
    }

    /// Returns the rate of the channel in bits of UDP payload per second.
    pub fn rate(&self) -> Option<Rate> {
        self.welcome.rate
    }

    /// Returns the UDP payload of the server's full data packets in bytes, if it offers anything.
    pub fn packet_len(&self) -> Option<usize> {
        self.packet_len.map(usize::from)
    }

    /// Returns the interface on which a client would receive the channel by default.
    ///
    /// # Errors
    ///
    /// A problem: there is none.
    pub fn interface(&self) -> Result<Interface, Finding> {
        let Welcome { local, channel, .. } = self.welcome;
        if Family::of(local) == Family::of(channel.group)
            || Interface::resolve(&local.to_string())
                .is_ok_and(|interface| interface.address(Family::of(channel.group)).is_ok())
        {
            return interface::find(Some(&local.to_string()), None);
        }
        interface::find(None, channel.source.or(Some(self.welcome.remote.ip())))
    }

    /// Returns the finding about the session.
    pub fn session(&self) -> Finding {
        let Welcome { agent, rtt, .. } = &self.welcome;
        let rtt = Duration::from_micros(rtt.as_micros() as u64);
        Finding::ok(
            SESSION,
            format!("{agent} at {} answers in {rtt:?}, and its key is right", self.server),
        )
    }

    /// Checks the path to `interface`, reporting each finding as soon as it is known. Takes up to
    /// 6 s.
    pub fn examine(mut self, interface: &Interface, report: &mut dyn FnMut(Finding)) {
        let (channel, rate) = (self.channel(), self.rate());
        let looked = self.scout.listen_on(interface, channel, rate);
        if let Err(error) = looked.and_then(|()| self.look(interface, report)) {
            report(interrupted(&error));
        }
    }

    fn look(
        &mut self,
        interface: &Interface,
        report: &mut dyn FnMut(Finding),
    ) -> Result<(), ScoutError> {
        let channel = self.channel();
        if let Some(finding) = self.first_contact(interface)? {
            report(finding);
            return Ok(());
        }
        report(Finding::ok(MULTICAST, format!("{channel} arrives on {}", interface.name)));
        let (loss, finding) = self.loss(interface)?;
        report(finding);
        let packet_len = self.packet_len.unwrap_or(USUAL);
        let family = Family::of(channel.group);
        let largest = mtu::largest(&mut self.scout, interface, family)?;
        report(mtu::judge(largest, packet_len, family));
        let packet_len = largest.map_or(SMALL, |largest| largest.min(packet_len));
        let limit = self.rate();
        let found = rate::search(&mut self.scout, packet_len, limit, loss)?;
        report(rate::judge(&found, limit));
        Ok(())
    }

    /// Waits until a packet arrives. Returns what is wrong if none does.
    fn first_contact(&mut self, interface: &Interface) -> Result<Option<Finding>, ScoutError> {
        let mut sent = 0;
        // Switches and routers take some time to learn of a new member.
        for _ in 0..6 {
            let burst = self.scout.burst(self.slowly(20, SMALL))?;
            if burst.received > 0 {
                return Ok(None);
            }
            sent += burst.sent;
        }
        let Channel { group, source, .. } = self.channel();
        let channel = self.channel();
        if sent == 0 {
            let what = format!("the server cannot send to {channel}");
            return Ok(Some(
                Finding::problem(MULTICAST, what).mend("run `umbel doctor` on the server"),
            ));
        }
        let what = format!(
            "the session works, but of {sent} packets to {channel} none arrives on {}",
            interface.name
        );
        let near = source.is_some_and(|source| is_on_link(interface, source));
        let protocol = if group.is_ipv4() { "IGMP" } else { "MLD" };
        let mend = if near {
            format!(
                "unless a finding above explains it: give the switch an {protocol} querier or \
                 switch its snooping off, and run `umbel doctor` on the server"
            )
        } else {
            format!(
                "unless a finding above explains it: have the routers in between forward {group} \
                 (PIM-SSM and {protocol})"
            )
        };
        Ok(Some(Finding::problem(MULTICAST, what).mend(mend)))
    }

    /// Returns a burst at a rate that every link carries.
    fn slowly(&self, packets: u32, packet_len: u16) -> Order {
        let most = self.rate().map_or(rate::FIRST_BITS_PER_S, Rate::bits_per_s);
        let rate = Rate::from_bits_per_s(most.clamp(1, rate::FIRST_BITS_PER_S));
        Order { packets, packet_len, rate: rate.unwrap_or(rate::FIRST) }
    }

    /// Measures loss, reordering and duplication at a low rate.
    fn loss(&mut self, interface: &Interface) -> Result<(f64, Finding), ScoutError> {
        let mut order = self.slowly(400, SMALL);
        while order.time() > Duration::from_secs(1) && order.packets > 20 {
            order.packets /= 2;
        }
        let burst = self.scout.burst(order)?;
        Ok((burst.loss(), judge_loss(&burst, order.rate, &interface.name)))
    }
}

fn judge_loss(burst: &Burst, rate: Rate, interface: &str) -> Finding {
    let percent = burst.loss() * 100.0;
    let what = format!(
        "of {} at {rate}, {} lost ({percent:.1} %), {} reordered, {} duplicated",
        counted(burst.sent, "packet"),
        burst.lost(),
        burst.reordered,
        burst.duplicated
    );
    let look = format!(
        "ip -s link show dev {interface}, and the same on the way: a bad cable, radio or queue"
    );
    // A fifth is more than the default policy makes up for in one go.
    match percent {
        20.0.. => Finding::problem(LOSS, what).mend(look),
        1.0.. => Finding::warning(LOSS, what).mend(look),
        _ if burst.duplicated * 100 > burst.sent => {
            Finding::warning(LOSS, what).mend("look for two routers that forward the same group")
        }
        _ => Finding::ok(LOSS, what),
    }
}

/// Returns whether the address is in a network of the interface.
fn is_on_link(interface: &Interface, address: IpAddr) -> bool {
    let Ok(mut entries) = getifaddrs() else { return false };
    entries.any(|entry| {
        if entry.interface_name != interface.name {
            return false;
        }
        let (Some(own), Some(mask)) = (entry.address, entry.netmask) else { return false };
        match address {
            IpAddr::V4(v4) => match (own.as_sockaddr_in(), mask.as_sockaddr_in()) {
                (Some(own), Some(mask)) => {
                    let mask = mask.ip().to_bits();
                    own.ip().to_bits() & mask == v4.to_bits() & mask
                }
                _ => false,
            },
            IpAddr::V6(v6) => match (own.as_sockaddr_in6(), mask.as_sockaddr_in6()) {
                (Some(own), Some(mask)) => {
                    let mask = mask.ip().to_bits();
                    own.ip().to_bits() & mask == v6.to_bits() & mask
                }
                _ => false,
            },
        }
    })
}

/// Returns why there is no session.
fn no_session(error: &ScoutError, server: &str, url: &SessionUrl) -> Finding {
    let error = match error {
        ScoutError::Session(error) => error,
        ScoutError::Refused(reason) => {
            return Finding::problem(
                SESSION,
                format!("{server} does not admit this client: {reason}"),
            )
            .mend("ask the server's operator for a URL with a token");
        }
        ScoutError::Silent(what) => return Finding::problem(SESSION, format!("{server} {what}")),
        ScoutError::Here(why) => return Finding::unknown(SESSION, why.clone()),
    };
    match error {
        ClientError::WrongPin { expected, got } => Finding::problem(
            SESSION,
            format!("the key of {server} is {got}, not {expected} as the URL says"),
        )
        .mend(
            "ask the server's operator for the new URL; if the key was not changed, somebody else \
             is answering",
        ),
        ClientError::NoAnswer { after, .. } => {
            Finding::problem(SESSION, format!("nothing answers at {server} within {after:?}"))
                .mend(format!("start `umbel serve` there, and let UDP port {} in", url.port))
        }
        error => match error.to_string().split_once(": ") {
            // The advice stands behind the colon.
            Some((what, mend)) if !matches!(error, ClientError::Closed { .. }) => {
                Finding::problem(SESSION, what).mend(mend)
            }
            _ => Finding::problem(SESSION, error.to_string()),
        },
    }
}

/// Returns the finding that the server went away meanwhile, or that something on this host failed.
fn interrupted(error: &ScoutError) -> Finding {
    match error {
        ScoutError::Session(error) => Finding::problem(SESSION, error.to_string()),
        ScoutError::Refused(reason) => Finding::problem(SESSION, reason.clone()),
        ScoutError::Silent(what) => Finding::unknown(MULTICAST, format!("the server {what}")),
        ScoutError::Here(why) => Finding::problem(MULTICAST, why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn loss_is_a_warning_and_much_of_it_a_problem() {
        let verdict = |received, duplicated| {
            let burst = Burst { sent: 400, received, duplicated, ..Burst::default() };
            judge_loss(&burst, rate::FIRST, "eth0").verdict
        };
        assert_eq!(verdict(400, 0), Verdict::Ok);
        assert_eq!(verdict(397, 0), Verdict::Ok);
        assert_eq!(verdict(390, 0), Verdict::Warning);
        assert_eq!(verdict(300, 0), Verdict::Problem);
        assert_eq!(verdict(400, 5), Verdict::Warning);
    }

    #[test]
    fn an_address_in_the_network_of_an_interface_is_on_its_link() {
        let interface = Interface::resolve("lo").unwrap();
        assert!(is_on_link(&interface, [127, 9, 9, 9].into()));
        assert!(!is_on_link(&interface, [192, 0, 2, 1].into()));
    }

    #[test]
    fn the_advice_of_an_error_becomes_the_mend() {
        let url: SessionUrl = "umbel://192.0.2.1/".parse().unwrap();
        let found = no_session(&ScoutError::Session(ClientError::NoPin), "192.0.2.1:7700", &url);
        assert!(found.what.starts_with("the URL has no `pin`"), "{found:?}");
        assert!(found.mend.unwrap().starts_with("copy the whole line"));
    }
}
