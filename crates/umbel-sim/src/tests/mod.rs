//! Small networks with scripted hosts, and the exact arrival times to the nanosecond.

mod engine_hosts;
mod failures;
mod links;
mod routers;
mod runs;
mod trees;

use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::units::Rate;

use crate::link::LinkSpec;
use crate::network::{Network, NodeId};
use crate::packet::{Destination, FlowId, Kind, Packet};
use crate::simulation::Simulation;
use crate::{App, Context};

/// Group number of the channel that the scripts use.
const GROUP: u32 = 7;

/// Returns the time `n` milliseconds after the epoch.
fn ms(n: u64) -> Instant {
    us(n * 1_000)
}

/// Returns the time `n` microseconds after the epoch.
fn us(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000)
}

fn delay_ms(n: u64) -> LinkSpec {
    LinkSpec::default().delay(Duration::from_millis(n))
}

/// Returns a link on which 1,000 bytes take 1 ms.
fn slow() -> LinkSpec {
    LinkSpec::default().rate(Rate::from_bits_per_s(8_000_000).unwrap())
}

/// Action of a scripted host.
#[derive(Clone, Copy, Debug)]
enum Do {
    /// Joins the channel of this source, or of any.
    Join(Option<NodeId>),
    Leave(Option<NodeId>),
    /// Sends 1,000 bytes of this flow, with this hop limit, to a node.
    Send(NodeId, u32, u8),
    /// Sends 1,000 bytes of this flow to the channel of this source, or of any.
    Cast(Option<NodeId>, u32),
    /// Sends 1,000 bytes of this flow to the channel of any source, with this hop limit.
    CastNear(u32, u8),
    /// Sends a message of one byte.
    Say(NodeId, u8),
    Stop,
}

/// Executes its script, and records the packets that it receives.
#[derive(Debug, Default)]
struct Scripted {
    /// Latest first.
    script: Vec<(Instant, Do)>,
    /// Times of arrival and flows of packets.
    got: Vec<(Instant, u32)>,
    /// Hop limits of the packets.
    left: Vec<u8>,
    heard: Vec<(Instant, NodeId, u8)>,
}

impl Scripted {
    fn go_on(&mut self, context: &mut Context<'_>) {
        while let Some((_, action)) = self.script.pop_if(|(at, _)| *at <= context.now()) {
            match action {
                Do::Join(source) => {
                    let group = context.group(source, GROUP);
                    context.join(group);
                }
                Do::Leave(source) => {
                    let group = context.group(source, GROUP);
                    context.leave(group);
                }
                Do::Send(to, flow, hop_limit) => {
                    send(context, Destination::Unicast(to), flow, hop_limit);
                }
                Do::Cast(source, flow) => {
                    let group = context.group(source, GROUP);
                    send(context, Destination::Group(group), flow, Packet::ANYWHERE);
                }
                Do::CastNear(flow, hop_limit) => {
                    let group = context.group(None, GROUP);
                    send(context, Destination::Group(group), flow, hop_limit);
                }
                Do::Say(to, byte) => context.send_message(to, Bytes::copy_from_slice(&[byte])),
                Do::Stop => context.stop_node(),
            }
        }
        context.wake_at(self.script.last().map(|(at, _)| *at));
    }
}

fn send(context: &mut Context<'_>, to: Destination, flow: u32, hop_limit: u8) {
    let packet = Packet::new(context.node(), to, Kind::Data, Bytes::from_static(b"payload"));
    context.send(Packet { flow: FlowId(flow), hop_limit, wire_len: 1_000, ..packet });
}

impl App for Scripted {
    fn start(&mut self, context: &mut Context<'_>) {
        self.go_on(context);
    }

    fn packet(&mut self, context: &mut Context<'_>, packet: &Packet) {
        assert_eq!(packet.payload, "payload");
        self.got.push((context.now(), packet.flow.0));
        self.left.push(packet.hop_limit);
    }

    fn message(&mut self, context: &mut Context<'_>, from: NodeId, message: Bytes) {
        self.heard.push((context.now(), from, message[0]));
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.go_on(context);
    }
}

/// Creates a simulation of `network` with these scripts. The other hosts run empty ones.
fn scripted(network: Network, scripts: &[(NodeId, &[(Instant, Do)])]) -> Simulation {
    seeded(network, scripts, 1)
}

fn seeded(network: Network, scripts: &[(NodeId, &[(Instant, Do)])], seed: u64) -> Simulation {
    let hosts: Vec<NodeId> = network
        .nodes()
        .filter(|(_, kind)| *kind == crate::NodeKind::Host)
        .map(|(node, _)| node)
        .collect();
    let mut simulation = Simulation::new(network, seed);
    for host in hosts {
        let mut script: Vec<_> = scripts
            .iter()
            .filter(|(node, _)| *node == host)
            .flat_map(|(_, script)| script.iter().copied())
            .collect();
        script.sort_by_key(|(at, _)| *at);
        script.reverse();
        let app = Scripted { script, ..Scripted::default() };
        simulation.set_app(host, app, Instant::EPOCH).unwrap();
    }
    simulation
}

/// Returns the packets that a host received.
fn got(simulation: &Simulation, host: NodeId) -> &[(Instant, u32)] {
    &simulation.app::<Scripted>(host).unwrap().got
}

/// Returns a script that sends a packet every millisecond to the channel of `source`, with flows
/// counted from 0.
fn stream(source: NodeId, packets: u32) -> Vec<(Instant, Do)> {
    (0..packets).map(|n| (ms(u64::from(n)), Do::Cast(Some(source), n))).collect()
}
