//! A node of a control tree on real sockets: what it sends to its group and to single hosts arrives
//! as such, and tells what is left of its hop limit.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::{
    Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf,
};
use umbel_net::clock::Clock;
use umbel_net::domain::Domain;
use umbel_net::driver::{self, Driver, Host, Io};
use umbel_net::interface::{Family, Interface};
use umbel_net::pacer::Pacer;
use umbel_net::udp::SenderOptions;
use umbel_wire::Channel;

/// How a datagram came, what was left of its hop limit, and what it said.
type Heard = (Address, Option<u8>, Vec<u8>);

/// Where to send a datagram, and how far.
type Place = (Address, Option<u8>);

/// Sends what it was told to, each datagram to its place and with its hop limit; a data packet
/// if the place is the group.
struct Talker {
    to_send: VecDeque<Place>,
    heard: VecDeque<Heard>,
    deadline: Instant,
    joins: VecDeque<Membership>,
}

impl Engine for Talker {
    type Command = ();
    type CommandError = ();
    type Event = Heard;

    fn handle_datagram(&mut self, _now: Instant, datagram: Datagram<'_>) {
        self.heard.push_back((datagram.by, datagram.hop_limit, datagram.payload.to_vec()));
    }

    fn handle_command(&mut self, _now: Instant, (): ()) -> Result<(), ()> {
        Ok(())
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_membership(&mut self) -> Option<Membership> {
        self.joins.pop_front()
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let data = |to: &Address| matches!(to, Address::Channel(_));
        let allowed = buf.allows(RateClass::Data);
        if self.to_send.front().is_some_and(|(to, _)| data(to)) && allowed == 0 {
            return None;
        }
        let (to, hop_limit) = self.to_send.pop_front()?;
        buf.push(b"x", Bytes::from_static(b"yz"));
        Some(Transmit::data(to).within(hop_limit))
    }

    fn wants(&self, _class: RateClass) -> bool {
        !self.to_send.is_empty()
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        self.heard.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.deadline)
    }
}

/// Keeps what was heard, until it is as much as expected or the time is up.
struct Keeper {
    expected: usize,
    heard: Vec<Heard>,
    late: bool,
}

impl Host<Talker> for Keeper {
    fn post(&mut self, _session: umbel_engine::SessionId, _message: Bytes) {}

    fn event(&mut self, _now: Instant, _engine: &mut Talker, _io: &mut Io, event: Heard) {
        self.heard.push(event);
    }

    fn tick(&mut self, now: Instant, engine: &mut Talker, _io: &mut Io) {
        self.late = now > engine.deadline;
    }

    fn goes_on(&self) -> bool {
        !self.late && self.heard.len() < self.expected
    }
}

/// A node that listens already, and what makes it run until it has heard so much.
fn node(channel: Channel, expected: usize) -> (SocketAddr, impl FnOnce(Vec<Place>) -> Vec<Heard>) {
    let interface = Interface::resolve("lo").unwrap();
    let options = SenderOptions { hop_limit: 9, ..SenderOptions::new(Family::V4) };
    let pacer = Pacer::new(None, 3, 1, Instant::EPOCH);
    let mut domain = Domain::open(channel, &interface, &options, Some(pacer)).unwrap();
    let (mailbox, line) = driver::line().unwrap();
    domain.start(mailbox).unwrap();
    let address = domain.address();
    let run = move |to_send: Vec<Place>| {
        let clock = Clock::new();
        let talker = Talker {
            to_send: to_send.into(),
            heard: VecDeque::new(),
            deadline: clock.now() + Duration::from_secs(5),
            joins: [Membership::Join(channel)].into(),
        };
        let keeper = Keeper { expected, heard: Vec::new(), late: false };
        let io = Io { domain: Some(domain), ..Io::default() };
        Driver::new(talker, keeper, io, clock, 1400, line).run().unwrap().heard
    };
    (address, run)
}

#[test]
fn two_nodes_hear_each_other_and_know_how_far_it_might_have_been() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let group = IpAddr::from(Ipv4Addr::new(239, 97, high, low));
    let channel = Channel { source: None, group, port: 7_793 };
    let (first, run_first) = node(channel, 5);
    let (second, run_second) = node(channel, 4);
    let heard_second = std::thread::spawn(move || run_second(Vec::new()));
    let heard_first = run_first(vec![
        (Address::Host(second), None),
        (Address::Channel(channel), Some(1)),
        (Address::Channel(channel), None),
        (Address::Channel(channel), Some(3)),
        (Address::Host(first), Some(7)),
        (Address::Host(first), None),
    ]);
    let heard_second = heard_second.join().unwrap();
    let by_group = Address::Channel(Channel { source: Some(first.ip()), ..channel });
    let said = |by, left| (by, Some(left), b"xyz".to_vec());
    let mut of_group = vec![said(by_group, 1), said(by_group, 9), said(by_group, 3)];
    // Two sockets: what comes by one may overtake what comes by the other.
    let sorted = |mut heard: Vec<_>| {
        heard.sort();
        heard
    };
    let mut own = of_group.clone();
    own.extend([said(Address::Host(first), 7), said(Address::Host(first), 64)]);
    assert_eq!(sorted(heard_first), sorted(own));
    of_group.push(said(Address::Host(first), 64));
    assert_eq!(sorted(heard_second), sorted(of_group));
}
