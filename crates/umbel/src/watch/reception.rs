//! Reception of a stream, whatever becomes of the content.

use anyhow::bail;
use umbel_engine::host::Host;
use umbel_engine::rlm::{ControllerKind, Receiver, ReceiverConfig, StreamKey};
use umbel_engine::units::Rate;
use umbel_net::interface::{Family, Interface};
use umbel_net::port::UdpPort;
use umbel_net::udp::{ReceiverOptions, SenderOptions};
use umbel_wire::stream::Stream;

use crate::endpoint::{Wiring, generator, random};

/// Line for the user when the first packet came that the source did not sign.
pub(crate) const FORGED: &str =
    "packets come in the source's name that it did not sign: they are dropped";

/// Receives a stream until its host stops, then returns the host. Only what is signed by the key of
/// its announcement is taken. `levels` are the rule by which the level is chosen, and the highest
/// level.
///
/// # Errors
///
/// If the stream has no such level, or its ports cannot be opened.
pub(crate) fn run<H: Host<Receiver>>(
    (stream, key): (&Stream, [u8; 32]),
    interface: &Interface,
    levels: (ControllerKind, Option<u8>),
    host: H,
    wiring: Wiring<H::Input>,
) -> anyhow::Result<H> {
    let engine = Receiver::new(config((stream, key), levels)?, generator()?)?;
    Ok(wiring.driver(engine, host).ports(ports(stream, interface)?).run()?)
}

/// Returns the engine's configuration.
fn config(
    (stream, public): (&Stream, [u8; 32]),
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
    config.key = Some(key_of(stream, public));
    Ok(config)
}

/// Returns the key that signs the content of a stream whose announcement this one signed.
pub(crate) fn key_of(stream: &Stream, public: [u8; 32]) -> StreamKey {
    StreamKey { public, version: stream.version }
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
