//! The way of a stream to its receivers, whatever its content: interface, channels, ports.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use umbel_engine::RateClass;
use umbel_engine::host::Host;
use umbel_engine::rlm::{Signing, Source};
use umbel_engine::units::Rate;
use umbel_net::interface::{Family, Interface};
use umbel_net::port::UdpPort;
use umbel_net::session::{Identity, Signer};
use umbel_net::udp::SenderOptions;
use umbel_wire::session::SessionName;
use umbel_wire::stream::{LayerInfo, Stream, StreamContent, StreamMode};
use umbel_wire::{Channel, Tsi, rlm};

use super::Begun;
use crate::directory::{self, Announcer};
use crate::endpoint::interface::AddressWatch;
use crate::endpoint::ports::{CONTROL_PORT, LAYER_PORT};
use crate::endpoint::{Interrupted, Wiring, channel, interface, packet_len, random};

/// The name of a stream, and its way.
#[derive(Clone, Debug)]
pub struct Way {
    /// Name of the stream.
    pub name: SessionName,
    /// Name or address of the interface. Default: that of the default route.
    pub interface: Option<String>,
    /// The family. Default: IPv4 where the interface has an IPv4 address.
    pub family: Option<Family>,
    /// The group of the base layer. Default: a source-specific one.
    pub group: Option<IpAddr>,
    /// Whether receivers have a group to tell each other about join-experiments.
    pub control: bool,
    /// Most hops of any packet; at least 1.
    pub scope: u8,
    /// MTU of the path in bytes; data packets carry 100 bytes less. Default: what the interface
    /// carries, at most 1,500.
    pub mtu: Option<u16>,
    /// Directory of the key by which the stream is signed. Default: that of the user.
    pub state_dir: Option<PathBuf>,
}

impl Way {
    /// Creates a way with the defaults.
    pub fn new(name: SessionName) -> Way {
        Way {
            name,
            interface: None,
            family: None,
            group: None,
            control: true,
            scope: 32,
            mtu: None,
            state_dir: None,
        }
    }

    /// Finds the interface and the sender's key, which is made if there is none. Waits until an
    /// interface has an address. Returns `None` if it is interrupted meanwhile.
    ///
    /// # Errors
    ///
    /// If there is no interface or the key cannot be read, or the options contradict each other or
    /// what the interface carries.
    pub(super) fn ground(
        self,
        note: impl Fn(&str),
        interrupted: &Interrupted,
    ) -> anyhow::Result<Option<Ground>> {
        if self.scope == 0 {
            bail!("--scope 0 reaches nobody; it is at least 1");
        }
        let state_dir = self.state_dir.clone().map_or_else(crate::state::default_dir, Ok)?;
        let signer = Identity::load_or_create(&state_dir)?.signer()?;
        let (wanted, pause) = (self.interface.as_deref(), |time| interrupted.pause(time));
        let Some(interface) = interface::wait(wanted, self.family, &note, pause)? else {
            return Ok(None);
        };
        if let Some(line) = interface::others(&interface, wanted) {
            note(&line);
        }
        let family = channel::choose_family(&interface, self.family, self.group)?;
        let packet_len = packet_len(self.mtu, &interface, family)?;
        let tsi = Tsi(u32::from_be_bytes(random()?));
        Ok(Some(Ground { way: self, interface, family, packet_len, tsi, signer }))
    }
}

/// A stream that has an interface, and no channels yet.
pub(super) struct Ground {
    way: Way,
    pub(super) interface: Interface,
    pub(super) family: Family,
    /// UDP payload of a full packet in bytes.
    pub(super) packet_len: u16,
    pub(super) tsi: Tsi,
    signer: Signer,
}

/// Announced properties of a stream, beside its way.
pub(super) struct Said {
    pub(super) mode: StreamMode,
    pub(super) symbol_len: u16,
    pub(super) layers: Vec<LayerInfo>,
    pub(super) content: StreamContent,
    pub(super) repair: Option<u16>,
}

/// The ports of a stream, and its announcement.
pub(super) struct Air {
    pub(super) stream: Stream,
    interface: Interface,
    ports: Vec<UdpPort>,
    packet_len: u16,
    signer: Signer,
}

impl Air {
    /// Announces the stream until the result is dropped.
    ///
    /// # Errors
    ///
    /// If a socket cannot be opened.
    pub(super) fn announce(&self) -> anyhow::Result<Announcer> {
        Announcer::start(&self.stream.clone().into(), &self.signer, &self.interface)
    }

    /// Tells the user while the address that the stream is sent from is gone, until the result is
    /// dropped.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub(super) fn watch_address(
        &self,
        note: impl Fn(&str) + Send + 'static,
    ) -> anyhow::Result<AddressWatch> {
        let interface = self.interface.name.clone();
        let watch = AddressWatch::start(self.stream.source.ip(), interface, note);
        watch.context("cannot start")
    }

    /// Returns what signs in the name of the source, and the version of the announcement.
    pub(super) fn signer(&self) -> (Signer, u64) {
        (self.signer.clone(), self.stream.version)
    }

    /// Returns what the user learns of it.
    pub(super) fn begun(&self) -> Begun {
        let interface = self.interface.name.clone();
        Begun { stream: self.stream.clone(), pin: self.signer.pin(), interface }
    }

    /// Sends the stream, and signs each packet, until its host stops; then returns the host. The
    /// layers have these paces, the base first.
    ///
    /// # Errors
    ///
    /// If the system does not let the program wait.
    pub(super) fn send<H: Host<Source>>(
        self,
        engine: Source,
        host: H,
        wiring: Wiring<H::Input>,
        paces: impl Iterator<Item = Rate>,
    ) -> anyhow::Result<H> {
        let (signer, version) = self.signer();
        let sign = Box::new(move |message: &[u8]| signer.sign(message));
        let engine = engine.signed(Signing::new(sign, version));
        let mut driver = wiring.driver(engine, host).ports(self.ports);
        for (layer, pace) in (0..).zip(paces) {
            driver = driver.pace(RateClass::Layer(layer), Some(pace), self.packet_len.into());
        }
        Ok(driver.run()?)
    }
}

impl Ground {
    /// Opens the ports.
    ///
    /// # Errors
    ///
    /// If they cannot be opened, or not all layers have a group.
    pub(super) fn open(self, said: Said) -> anyhow::Result<Air> {
        let Ground { way, interface, family, packet_len, tsi, signer } = self;
        let places = Places::new(&way, tsi, interface.address(family)?, said.layers.len())?;
        let rate = said.layers.iter().map(|layer| layer.kbit_per_s).sum::<u64>();
        let sender = SenderOptions {
            source: places.base.source,
            hop_limit: way.scope,
            rate: Rate::from_bits_per_s(rate.saturating_mul(1_000)),
            ..SenderOptions::new(family)
        };
        let layers = UdpPort::layers(places.channels, &interface, &sender)?;
        let source = layers.address().context("a sending port has an address")?;
        let mut ports = vec![layers];
        if let Some(control) = places.control {
            let sender = SenderOptions { rate: None, ..sender };
            ports.push(UdpPort::group(control, &interface, &sender)?);
        }
        let stream = Stream {
            name: way.name,
            tsi,
            source,
            base: places.base,
            control: places.control,
            scope: way.scope,
            mode: said.mode,
            symbol_len: said.symbol_len,
            layers: said.layers,
            content: said.content,
            repair: said.repair,
            version: directory::version_now(),
        };
        Ok(Air { stream, interface, ports, packet_len, signer })
    }
}

/// Channels of a stream.
struct Places {
    base: Channel,
    channels: Vec<Channel>,
    control: Option<Channel>,
}

impl Places {
    /// Unless they are asked for, groups are derived from the stream's number, so that two streams
    /// of one network hardly ever share them.
    fn new(way: &Way, tsi: Tsi, source: IpAddr, layers: usize) -> anyhow::Result<Places> {
        let family = Family::of(source);
        let group = way
            .group
            .unwrap_or_else(|| channel::specific_group(family, &format!("stream {}", tsi.0)));
        let base = Channel { source: Some(source), group, port: LAYER_PORT };
        let channels = rlm::channels(base, layers as u8);
        let Some(channels) = channels else {
            bail!("{group} has no room for {layers} consecutive groups: take a lower one");
        };
        let control = way.control.then(|| Channel {
            source: None,
            group: channel::any_source_group(family, &format!("stream control {}", tsi.0)),
            port: CONTROL_PORT,
        });
        Ok(Places { base, channels, control })
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::stream::StreamContent;

    use super::*;

    #[test]
    fn of_two_streams_of_a_sender_the_later_one_has_the_greater_version() {
        let state_dir = tempfile::tempdir().unwrap();
        let version = || {
            let way = Way {
                interface: Some("lo".to_owned()),
                state_dir: Some(state_dir.path().to_owned()),
                control: false,
                ..Way::new("news".parse().unwrap())
            };
            let layer = LayerInfo { kbit_per_s: 64, fec: None };
            let said = Said {
                mode: StreamMode::Cumulative,
                symbol_len: 1_000,
                layers: vec![layer],
                content: StreamContent::Hls,
                repair: None,
            };
            let ground = way.ground(|_| (), &Interrupted::default()).unwrap().unwrap();
            ground.open(said).unwrap().stream.version
        };
        let earlier = version();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(version() > earlier);
    }
}
