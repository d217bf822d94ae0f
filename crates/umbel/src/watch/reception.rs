//! Reception of a stream, whatever becomes of the content.

use anyhow::bail;
use umbel_engine::host::Host;
use umbel_engine::rlm::{ControllerKind, Receiver, ReceiverConfig};
use umbel_engine::units::Rate;
use umbel_net::interface::{Family, Interface};
use umbel_net::port::UdpPort;
use umbel_net::udp::{ReceiverOptions, SenderOptions};
use umbel_wire::stream::Stream;

use crate::endpoint::{Wiring, generator, random};

/// Receives a stream until its host stops, then returns the host. `levels` are the rule by which
/// the level is chosen, and the highest level.
///
/// # Errors
///
/// If the stream has no such level, or its ports cannot be opened.
pub(crate) fn run<H: Host<Receiver>>(
    stream: &Stream,
    interface: &Interface,
    levels: (ControllerKind, Option<u8>),
    host: H,
    wiring: Wiring<H::Input>,
) -> anyhow::Result<H> {
    let engine = Receiver::new(config(stream, levels)?, generator()?)?;
    Ok(wiring.driver(engine, host).ports(ports(stream, interface)?).run()?)
}

/// Returns the engine's configuration.
fn config(
    stream: &Stream,
    (controller, max_level): (ControllerKind, Option<u8>),
) -> anyhow::Result<ReceiverConfig> {
    let layers = stream.layers.len() as u8;
    let max_level = max_level.unwrap_or(layers);
    if max_level == 0 || max_level > layers {
        bail!("--max-level {max_level}: `{}` has levels 1 to {layers}", stream.name);
    }
    let rate = |kbit_per_s: u64| Rate::from_bits_per_s(kbit_per_s.saturating_mul(1000));
    let id = u64::from_be_bytes(random()?);
    let mut config = ReceiverConfig::new(stream.tsi, id, stream.channels());
    config.rates = stream.layers.iter().filter_map(|layer| rate(layer.kbit_per_s)).collect();
    config.control = stream.control;
    config.mode = stream.mode;
    config.controller = controller;
    config.max_level = max_level;
    Ok(config)
}

/// Opens the ports of a receiver: that of the layers and that of the control group.
fn ports(stream: &Stream, interface: &Interface) -> anyhow::Result<Vec<UdpPort>> {
    let family = Family::of(stream.base.group);
    let receiving = ReceiverOptions {
        rate: Rate::from_bits_per_s(stream.kbit_per_s().saturating_mul(1000)),
        ..ReceiverOptions::default()
    };
    let layers = UdpPort::receiver(family, stream.base.port, interface, &receiving)?;
    let mut ports = vec![layers];
    if let Some(control) = stream.control {
        let sender = SenderOptions { hop_limit: stream.scope, ..SenderOptions::new(family) };
        ports.push(UdpPort::group(control, interface, &sender)?);
    }
    Ok(ports)
}
