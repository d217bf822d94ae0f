//! The smallest protocol that there is, in both worlds, made by the steps of "How to add a
//! protocol" in ARCHITECTURE.md. A source sends numbered packets; a receiver counts the gaps.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::host::{Host, Io, PortSpec};
use umbel_engine::units::Rate;
use umbel_engine::{
    Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf,
};
use umbel_net::clock::Clock;
use umbel_net::driver::Driver;
use umbel_net::interface::{Family, Interface};
use umbel_net::mailbox;
use umbel_net::port::{Port, UdpPort};
use umbel_net::udp::{ReceiverOptions, SenderOptions};
use umbel_sim::{EngineHost, HostConfig, LinkSpec, Loss, Network, Simulation, channel};
use umbel_wire::Channel;

/// Packets that the source sends.
const PACKETS: u64 = 100;
/// Bytes of a packet: its number and padding.
const PACKET_LEN: usize = 1_000;
/// The source's pace: one packet per millisecond.
const PACE: Rate = Rate::from_bits_per_s(8_000_000).unwrap();

/// Sends numbered packets on a channel.
struct Source {
    channel: Channel,
    next: u64,
}

/// Counts the numbers that arrive, and those that do not.
struct Receiver {
    membership: Option<Membership>,
    counted: u64,
    highest: Option<u64>,
    malformed: u64,
    events: VecDeque<Counted>,
}

/// The final event: the last packet has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    came: u64,
    lost: u64,
}

impl Engine for Source {
    type Command = Infallible;
    type CommandError = Infallible;
    type Event = Infallible;

    fn handle_datagram(&mut self, _now: Instant, _datagram: Datagram<'_>) {}

    fn handle_command(&mut self, _now: Instant, command: Infallible) -> Result<(), Infallible> {
        match command {}
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if !self.wants(RateClass::Data) || buf.allows(RateClass::Data) == 0 {
            return None;
        }
        for _ in 0..buf.allows(RateClass::Data).min((PACKETS - self.next) as usize) {
            buf.push(&self.next.to_be_bytes(), Bytes::from_static(&[0; PACKET_LEN - 8]));
            self.next += 1;
        }
        Some(Transmit::data(Address::Channel(self.channel)))
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data && self.next < PACKETS
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

impl Receiver {
    fn new(channel: Channel) -> Receiver {
        Receiver {
            membership: Some(Membership::Join(channel)),
            counted: 0,
            highest: None,
            malformed: 0,
            events: VecDeque::new(),
        }
    }
}

impl Engine for Receiver {
    type Command = Infallible;
    type CommandError = Infallible;
    type Event = Counted;

    fn handle_datagram(&mut self, _now: Instant, datagram: Datagram<'_>) {
        let Some(number) = datagram.payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
        else {
            self.malformed += 1;
            return;
        };
        if number >= PACKETS || self.highest >= Some(number) {
            self.malformed += 1;
            return;
        }
        self.highest = Some(number);
        self.counted += 1;
        if number == PACKETS - 1 {
            self.events.push_back(Counted { came: self.counted, lost: PACKETS - self.counted });
        }
    }

    fn handle_command(&mut self, _now: Instant, command: Infallible) -> Result<(), Infallible> {
        match command {}
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_membership(&mut self) -> Option<Membership> {
        self.membership.take()
    }

    fn poll_transmit(&mut self, _now: Instant, _buf: &mut TransmitBuf) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<Counted> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Sends until it is told to stop.
struct Sending;

impl Host<Source> for Sending {
    type Input = ();

    fn start(&mut self, io: &mut dyn Io<Source>) {
        io.set_pace(RateClass::Data, Some(PACE));
    }

    fn event(&mut self, _io: &mut dyn Io<Source>, event: Infallible) {
        match event {}
    }

    fn input(&mut self, io: &mut dyn Io<Source>, (): ()) {
        io.stop();
    }
}

/// Receives until everything is counted.
struct Counting {
    channel: Channel,
    counted: Option<Counted>,
}

impl Host<Receiver> for Counting {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<Receiver>) {
        io.open(PortSpec::Channel { channel: self.channel, rate: Some(PACE) }).unwrap();
    }

    fn event(&mut self, io: &mut dyn Io<Receiver>, counted: Counted) {
        self.counted = Some(counted);
        io.stop();
    }
}

#[test]
fn it_runs_in_the_simulator() {
    let mut network = Network::new();
    let (source, receiver) = (network.host("source"), network.host("receiver"));
    let lossy = LinkSpec { loss: Loss::Bernoulli(0.1), ..LinkSpec::default() };
    network.link(source, receiver, lossy.clone(), lossy).unwrap();
    let group = channel(Some(source), 1);
    let mut simulation = Simulation::new(network, 1);
    let counting = Counting { channel: group, counted: None };
    let config = HostConfig::default();
    let host: EngineHost<_, _> = EngineHost::new(Receiver::new(group), counting, config.clone());
    simulation.set_app(receiver, host, Instant::EPOCH).unwrap();
    let host: EngineHost<_, _> =
        EngineHost::new(Source { channel: group, next: 0 }, Sending, config);
    simulation.set_app(source, host, Instant::EPOCH + Duration::from_secs(1)).unwrap();
    simulation.run_until(Instant::EPOCH + Duration::from_secs(2));
    let host = simulation.app::<EngineHost<Receiver, Counting>>(receiver).unwrap();
    let counted = host.host().counted.unwrap();
    assert!(counted.lost > 0 && counted.came + counted.lost == PACKETS, "{counted:?}");
}

#[test]
fn it_runs_on_the_wire() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let group = IpAddr::from(Ipv4Addr::new(232, 98, high, low));
    let channel = Channel { source: Some(Ipv4Addr::LOCALHOST.into()), group, port: 7_794 };
    let lo = Interface::resolve("lo").unwrap();

    let options = ReceiverOptions::default();
    let mut port = UdpPort::receiver(Family::V4, channel.port, &lo, &options).unwrap();
    port.join(&channel).unwrap();
    let (_, line) = mailbox::line().unwrap();
    let counting = Counting { channel, counted: None };
    let mut ready = Some(port);
    let receiver = Driver::new(Receiver::new(channel), counting, Clock::new(), line)
        .opener(Box::new(move |_| Ok(Box::new(ready.take().unwrap()))));
    let counted = std::thread::spawn(move || receiver.run().unwrap().counted);

    let port = UdpPort::source(channel, &lo, &SenderOptions::new(Family::V4)).unwrap();
    let (stop, line) = mailbox::line().unwrap();
    let source = Driver::new(Source { channel, next: 0 }, Sending, Clock::new(), line)
        .port(port)
        .pace(RateClass::Data, Some(PACE), PACKET_LEN);
    let source = std::thread::spawn(move || source.run().unwrap());
    let counted = counted.join().unwrap();
    stop.put(());
    source.join().unwrap();
    assert_eq!(counted, Some(Counted { came: PACKETS, lost: 0 }));
}
