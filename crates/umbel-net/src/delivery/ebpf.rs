//! Delivery by a program in the kernel, `bpf/delivery.bpf.c`.

use std::net::{IpAddr, SocketAddr};

use aya::maps::{Array, HashMap};
use umbel_engine::smo::delivery::{Connection, DeliveryCounts};

use super::{Deliverer, DeliveryError, Way};
use crate::classifier::{Classifier, ClassifierError, padded};
use crate::interface::{Family, Interface, Traffic};
use crate::packet::ethernet_address;

/// The compiled program: see `bpf/build.sh`.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/delivery.bpf.o");

/// Names of the program and of what is in it.
const PROGRAM: &str = "umbel_smo";
const SETTINGS: &str = "SETTINGS";
const CONNECTIONS: &str = "CONNECTIONS";
const COUNTS: &str = "COUNTS";

/// A program that is attached to an interface until it is dropped.
pub(super) struct Program {
    classifier: Classifier,
    v6: bool,
}

impl Program {
    pub(super) fn start(
        source: SocketAddr,
        group: IpAddr,
        interface: &Interface,
    ) -> Result<Program, DeliveryError> {
        let mut classifier = load(source, group, interface)?;
        classifier.attach(&interface.name).map_err(refused)?;
        Ok(Program { classifier, v6: source.is_ipv6() })
    }

    fn counter(&self, index: u32) -> u64 {
        let counts =
            self.classifier.map(COUNTS).and_then(|map| Array::<_, u64>::try_from(map).ok());
        counts.and_then(|counts| counts.get(&index, 0).ok()).unwrap_or(0)
    }
}

/// Loads the program into the kernel, for a channel on an interface.
fn load(
    source: SocketAddr,
    group: IpAddr,
    interface: &Interface,
) -> Result<Classifier, DeliveryError> {
    let settings = settings(source, group, interface)?;
    Classifier::load(OBJECT, PROGRAM, &[(SETTINGS, &settings)]).map_err(refused)
}

/// Lays out `struct settings`.
fn settings(
    source: SocketAddr,
    group: IpAddr,
    interface: &Interface,
) -> Result<[u8; 48], DeliveryError> {
    let mut out = [0; 48];
    out[..16].copy_from_slice(&padded(source.ip()));
    out[16..32].copy_from_slice(&padded(group));
    out[32..36].copy_from_slice(&u32::from(source.is_ipv6()).to_ne_bytes());
    let forwards = interface.forwards(Family::of(source.ip()), Traffic::Multicast);
    out[36..40].copy_from_slice(&u32::from(!forwards).to_ne_bytes());
    let mac = ethernet_address(interface)
        .map_err(|_| DeliveryError::NotEthernet(interface.name.clone()))?;
    out[40..46].copy_from_slice(&mac);
    out[46..].copy_from_slice(&source.port().to_ne_bytes());
    Ok(out)
}

/// Reads `struct connection`.
fn connection(key: [u8; 20], v6: bool) -> Connection {
    let [a, b, c, d, ..] = key;
    let mut all = [0; 16];
    all.copy_from_slice(&key[..16]);
    let address = if v6 { IpAddr::from(all) } else { IpAddr::from([a, b, c, d]) };
    let port = |at: usize| u16::from_ne_bytes([key[at], key[at + 1]]);
    Connection { local: SocketAddr::new(address, port(16)), source_port: port(18) }
}

fn refused(error: ClassifierError) -> DeliveryError {
    match error {
        ClassifierError::OldKernel => DeliveryError::OldKernel,
        ClassifierError::NotPermitted => DeliveryError::NotPermitted {
            way: Way::Ebpf,
            capabilities: "CAP_BPF and CAP_NET_ADMIN",
            advice: ", or use `--delivery agent`",
        },
        ClassifierError::Refused(words) => DeliveryError::Program(words),
    }
}

impl Deliverer for Program {
    fn way(&self) -> Way {
        Way::Ebpf
    }

    fn counts(&self) -> DeliveryCounts {
        // In the order of `enum counter`.
        DeliveryCounts {
            segments: self.counter(0),
            delivered: self.counter(1),
            not_enrolled: self.counter(2),
            gone: self.counter(3),
            not_ready: self.counter(4),
            already_held: self.counter(5),
            malformed: self.counter(6),
            table_full: self.counter(7),
            other_version: self.counter(8),
            their_version: self.counter(9) as u8,
        }
    }

    fn connections(&self) -> Vec<(Connection, u16)> {
        let map = self.classifier.map(CONNECTIONS);
        let map = map.and_then(|map| HashMap::<_, [u8; 20], [u32; 2]>::try_from(map).ok());
        let Some(map) = map else { return Vec::new() };
        let mut all: Vec<_> = map
            .iter()
            .filter_map(Result::ok)
            .map(|(key, [channel, _])| (connection(key, self.v6), channel as u16))
            .collect();
        all.sort_unstable();
        all
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests;
