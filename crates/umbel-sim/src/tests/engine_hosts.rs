use std::collections::VecDeque;

use umbel_engine::host::{Host, Io, SessionNews};
use umbel_engine::{
    Address, Datagram, Engine, Membership, RateClass, SessionId, Transmit, TransmitBuf,
};

use super::*;
use crate::engine_host::{EngineHost, HostConfig};
use crate::{NodeSessions, Outcome, address_of, channel};

/// Sends `left` data packets to a channel, receives packets and messages, and records the order of
/// its calls.
#[derive(Debug, Default)]
struct Probe {
    left: u32,
    log: Vec<(Instant, String)>,
    outbox: VecDeque<(Address, Bytes)>,
    memberships: VecDeque<Membership>,
    events: VecDeque<&'static str>,
    timeout: Option<Instant>,
    /// Whether it requests its timeout again each time it is handled.
    stubborn: bool,
    source: NodeId2,
}

/// A node with a default.
#[derive(Clone, Copy, Debug, Default)]
struct NodeId2(u32);

#[derive(Debug)]
enum Command {
    Join,
    Tell(NodeId, &'static [u8]),
}

impl Engine for Probe {
    type Command = Command;
    type CommandError = ();
    type Event = &'static str;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let text = String::from_utf8_lossy(datagram.payload).into_owned();
        let from = match datagram.by {
            Address::Session(session) => format!("session {}", session.0),
            Address::Channel(channel) => format!("{}", channel.source.unwrap()),
            Address::Host(address) => format!("{}", address.ip()),
        };
        self.log.push((now, format!("{text} from {from}")));
        self.events.push_back("heard");
    }

    fn handle_command(&mut self, _now: Instant, command: Command) -> Result<(), ()> {
        match command {
            Command::Join => {
                let source = Some(NodeId(self.source.0));
                self.memberships.push_back(Membership::Join(channel(source, GROUP)));
            }
            Command::Tell(to, text) => {
                let session = Address::Session(SessionId(u64::from(to.0)));
                self.outbox.push_back((session, Bytes::from_static(text)));
            }
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.log.push((now, "timeout".into()));
        self.timeout = self.timeout.filter(|_| self.stubborn);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front()
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        assert!(self.memberships.is_empty(), "a join comes before what relies on it");
        if let Some((to, body)) = self.outbox.pop_front() {
            buf.push(&[], body);
            return Some(Transmit::control(to));
        }
        if self.left == 0 || buf.allows(RateClass::Data) == 0 {
            return None;
        }
        self.left -= 1;
        buf.push(b"da", Bytes::from_static(b"ta"));
        let to = Address::Channel(channel(Some(NodeId(self.source.0)), GROUP));
        Some(Transmit::data(to))
    }

    fn wants(&self, _class: RateClass) -> bool {
        self.left > 0
    }

    fn poll_event(&mut self) -> Option<&'static str> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timeout
    }
}

/// Executes its plan at the start and answers nothing.
#[derive(Debug)]
struct Plan {
    commands: Vec<Command>,
    events: u32,
    woken: Vec<Instant>,
    stop_at: Option<u32>,
}

impl Host<Probe> for Plan {
    type Input = SessionNews;

    fn input(&mut self, io: &mut dyn Io<Probe>, news: SessionNews) {
        if let SessionNews::Message { session, message } = news {
            io.message(session, &message);
        }
    }

    fn start(&mut self, io: &mut dyn Io<Probe>) {
        for command in self.commands.drain(..) {
            io.command(command).unwrap();
        }
        io.wake_at(Some(ms(40)));
    }

    fn event(&mut self, io: &mut dyn Io<Probe>, event: &'static str) {
        assert_eq!(event, "heard");
        self.events += 1;
        if Some(self.events) == self.stop_at {
            io.stop();
        }
    }

    fn wake(&mut self, io: &mut dyn Io<Probe>) {
        self.woken.push(io.now());
    }
}

type ProbeHost = EngineHost<Probe, Plan, NodeSessions>;

fn plan(commands: Vec<Command>) -> Plan {
    Plan { commands, events: 0, woken: Vec::new(), stop_at: None }
}

/// Creates two hosts with 1 ms between them.
fn pair() -> (Network, NodeId, NodeId) {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    network.link(a, b, delay_ms(1), delay_ms(1)).unwrap();
    (network, a, b)
}

fn log(simulation: &Simulation, node: NodeId) -> &[(Instant, String)] {
    &simulation.app::<ProbeHost>(node).unwrap().engine().log
}

#[test]
fn data_packets_leave_at_exactly_the_rate() {
    let (network, a, b) = pair();
    let mut simulation = Simulation::new(network, 1);
    // 4 bytes at 3 bit/ms take 10.666… ms.
    let rate = Rate::from_bits_per_s(3_000);
    let probe = |left| Probe { left, source: NodeId2(a.0), ..Probe::default() };
    let sender =
        ProbeHost::new(probe(4), plan(vec![]), HostConfig { rate, ..HostConfig::default() });
    let receiver = ProbeHost::new(probe(0), plan(vec![Command::Join]), HostConfig::default());
    simulation.set_app(b, receiver, ms(0)).unwrap();
    simulation.set_app(a, sender, ms(5)).unwrap();
    simulation.run_until(ms(1_000));
    let expected: Vec<_> = [6_000_000, 16_666_666, 27_333_333, 38_000_000]
        .map(|ns| (Instant::from_nanos(ns), format!("data from {}", address_of(a))))
        .into();
    assert_eq!(log(&simulation, b), expected);
    let host = simulation.app::<ProbeHost>(b).unwrap();
    assert_eq!((host.host().events, &host.host().woken), (4, &vec![ms(40)]));
}

#[test]
fn sessions_are_numbered_by_node() {
    let (network, a, b) = pair();
    let mut simulation = Simulation::new(network, 1);
    let host = |commands| ProbeHost::new(Probe::default(), plan(commands), HostConfig::default());
    simulation.set_app(b, host(vec![]), ms(0)).unwrap();
    simulation
        .set_app(a, host(vec![Command::Tell(b, b"x"), Command::Tell(b, b"y")]), ms(3))
        .unwrap();
    simulation.run_until(ms(1_000));
    let expected = ["x", "y"].map(|text| (ms(3), format!("{text} from session {}", a.0)));
    assert_eq!(log(&simulation, b), expected);
}

#[test]
fn the_engines_timeout_is_kept() {
    let (network, a, _) = pair();
    let mut simulation = Simulation::new(network, 1);
    let engine = Probe { timeout: Some(ms(70)), ..Probe::default() };
    simulation
        .set_app(a, ProbeHost::new(engine, plan(vec![]), HostConfig::default()), ms(0))
        .unwrap();
    simulation.run_until(ms(1_000));
    assert_eq!(log(&simulation, a), [(ms(70), "timeout".to_owned())]);
}

#[test]
fn a_host_that_stops_in_an_event_is_left_alone() {
    let (network, a, b) = pair();
    let mut simulation = Simulation::new(network, 1);
    let stopping = Plan { stop_at: Some(1), ..plan(vec![]) };
    let receiver = ProbeHost::new(Probe::default(), stopping, HostConfig::default());
    simulation.set_app(b, receiver, ms(0)).unwrap();
    let commands = vec![Command::Tell(b, b"x"), Command::Tell(b, b"y")];
    let sender = ProbeHost::new(Probe::default(), plan(commands), HostConfig::default());
    simulation.set_app(a, sender, ms(3)).unwrap();
    simulation.run_until(ms(1_000));
    assert_eq!(log(&simulation, b).len(), 1);
    // Its timer does not fire either.
    let host = simulation.app::<ProbeHost>(b).unwrap();
    assert_eq!(host.host().woken, []);
}

#[test]
fn an_engine_that_never_moves_on_is_stopped_and_named() {
    let (network, a, b) = pair();
    let mut simulation = Simulation::new(network, 1);
    let host = |stubborn| {
        let engine = Probe { timeout: Some(ms(70)), stubborn, ..Probe::default() };
        ProbeHost::new(engine, plan(vec![]), HostConfig::default())
    };
    simulation.set_app(a, host(true), ms(0)).unwrap();
    simulation.set_app(b, host(false), ms(75)).unwrap();
    assert_eq!(simulation.run_until(ms(1_000)), Outcome::Stuck(a));
    assert_eq!((simulation.now(), simulation.counters().stuck), (ms(70), 1));
    // The other host continues.
    assert_eq!(simulation.run_until(ms(1_000)), Outcome::Idle);
    assert_eq!(log(&simulation, b), [(ms(75), "timeout".to_owned())]);
}
