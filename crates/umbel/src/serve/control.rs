//! Whether clients hear of transmissions in a multicast control group, and in which.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::{Context, bail};
use umbel_engine::repository::{ControlConfig, SourceCommand};
use umbel_net::driver::Mailbox;
use umbel_net::group::{self, Group};
use umbel_net::interface::{Family, Interface};
use umbel_net::session::Pin;
use umbel_net::udp::SenderOptions;
use umbel_wire::Channel;
use umbel_wire::repository::ControlKey;

use super::ServeOptions;

/// How clients hear of transmissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControlChoice {
    /// In a control group if this host's own multicast to it comes back, else on the sessions.
    #[default]
    Auto,
    /// In a control group, by SRM. Clients that do not hear it are told on their sessions.
    Srm,
    /// On the sessions.
    Unicast,
}

impl FromStr for ControlChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<ControlChoice, String> {
        match text {
            "auto" => Ok(ControlChoice::Auto),
            "srm" => Ok(ControlChoice::Srm),
            "unicast" => Ok(ControlChoice::Unicast),
            _ => Err("it is auto, srm or unicast".to_owned()),
        }
    }
}

/// Joins the control group, if there is to be one.
pub(super) fn open(
    options: &ServeOptions,
    interface: &Interface,
    data: &SenderOptions,
    pin: &Pin,
    mailbox: &Mailbox<SourceCommand>,
) -> anyhow::Result<Option<(ControlConfig, Group)>> {
    if options.control == ControlChoice::Unicast {
        return Ok(None);
    }
    if options.control_port == 0 || options.control_port == options.port {
        bail!("--control-port must be a port of its own: the default is 7701");
    }
    let channel = choose(data.family, options.control_port, pin);
    let sender = SenderOptions { rate: None, loopback: true, ..data.clone() };
    let opened = group::probe(channel, interface, &sender, random()?)
        .and_then(|()| Group::open(channel, interface, &sender, mailbox.clone()));
    match opened {
        Ok(group) => {
            let config = ControlConfig {
                channel,
                key: ControlKey(random()?),
                seed: u64::from_be_bytes(random()?),
            };
            Ok(Some((config, group)))
        }
        Err(error) if options.control == ControlChoice::Auto => {
            tracing::info!("announcements on the sessions: {error}");
            Ok(None)
        }
        Err(error) => Err(error).context("--control srm needs any-source multicast"),
    }
}

/// A group that follows from the server's key, so that two servers on one network do not share it:
/// in 239.255.0.0/16 [RFC 2365 §6.1], or of site-local scope and not permanent [RFC 4291 §2.7].
fn choose(family: Family, port: u16, pin: &Pin) -> Channel {
    let hash = blake3::hash(format!("control {pin}").as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    let group = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(239, 255, a, b)),
        Family::V6 => {
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x8000 | high, low))
        }
    };
    Channel { source: None, group, port }
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("no randomness from /dev/urandom")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_follows_from_the_key_and_is_of_any_source() {
        let pin: Pin = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".parse().unwrap();
        for family in [Family::V4, Family::V6] {
            let channel = choose(family, 7701, &pin);
            assert!(channel.group.is_multicast() && channel.source.is_none());
            assert_eq!(channel, choose(family, 7701, &pin));
        }
        assert_ne!(random::<32>().unwrap(), random::<32>().unwrap());
    }
}
