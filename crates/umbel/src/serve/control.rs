//! Decides whether clients hear of transmissions in a multicast control group, and in which.

use std::str::FromStr;

use anyhow::{Context, bail};
use umbel_engine::repository::ControlConfig;
use umbel_net::interface::{Family, Interface};
use umbel_net::port::{UdpPort, probe};
use umbel_net::session::Pin;
use umbel_net::udp::SenderOptions;
use umbel_wire::Channel;
use umbel_wire::repository::ControlKey;

use super::ServeOptions;
use crate::endpoint::channel::any_source_group;
use crate::endpoint::random;

/// Way by which clients hear of transmissions.
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

/// Opens the port of the control group, if there is to be one.
pub(super) fn open(
    options: &ServeOptions,
    interface: &Interface,
    data: &SenderOptions,
    pin: &Pin,
) -> anyhow::Result<Option<(ControlConfig, UdpPort)>> {
    if options.control == ControlChoice::Unicast {
        return Ok(None);
    }
    if options.control_port == 0 || options.control_port == options.port {
        bail!("--control-port must be neither 0 nor that of --port: the default is 7701");
    }
    let channel = choose(data.family, options.control_port, pin);
    let sender = SenderOptions { rate: None, loopback: true, ..data.clone() };
    let opened = probe(channel, interface, &sender, random()?)
        .and_then(|()| UdpPort::group(channel, interface, &sender));
    match opened {
        Ok(port) => {
            let config = ControlConfig { channel, key: ControlKey(random()?) };
            Ok(Some((config, port)))
        }
        Err(error) if options.control == ControlChoice::Auto => {
            tracing::info!("announcements on the sessions: {error}");
            Ok(None)
        }
        Err(error) => Err(error).context("--control srm needs any-source multicast"),
    }
}

/// Returns a group that follows from the server's key, so that two servers on one network do not
/// share it.
fn choose(family: Family, port: u16, pin: &Pin) -> Channel {
    let group = any_source_group(family, &format!("control {pin}"));
    Channel { source: None, group, port }
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
    }
}
