//! A node of a control tree on real sockets. Datagrams to its group and to single hosts arrive as
//! such, with the remainder of their hop limit.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::host::{Host, Io};
use umbel_engine::{
    Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf,
};
use umbel_net::clock::Clock;
use umbel_net::driver::Driver;
use umbel_net::interface::{Family, Interface};
use umbel_net::mailbox;
use umbel_net::port::{Port, UdpPort};
use umbel_net::udp::SenderOptions;
use umbel_wire::Channel;

/// Time that no exchange takes.
const LAST_RESORT: Duration = Duration::from_mins(5);

/// The way by which a datagram came, the remainder of its hop limit, and its payload.
type Heard = (Address, Option<u8>, Vec<u8>);

/// The destination of a datagram, and its hop limit.
type Place = (Address, Option<u8>);

/// Sends the requested datagrams, each to its place and with its hop limit. A datagram to the group
/// is a data packet.
struct Talker {
    to_send: VecDeque<Place>,
    heard: VecDeque<Heard>,
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
        None
    }
}

/// Keeps the datagrams heard, until it has the expected number or the time is up.
struct Keeper {
    expected: usize,
    heard: Vec<Heard>,
}

impl Host<Talker> for Keeper {
    type Input = std::convert::Infallible;

    fn start(&mut self, io: &mut dyn Io<Talker>) {
        io.wake_at(Some(io.now() + LAST_RESORT));
    }

    fn event(&mut self, io: &mut dyn Io<Talker>, event: Heard) {
        self.heard.push(event);
        if self.heard.len() >= self.expected {
            io.stop();
        }
    }

    fn wake(&mut self, io: &mut dyn Io<Talker>) {
        io.stop();
    }
}

/// Creates a node that already listens. Returns its address and a function that runs it until it
/// has heard `expected` datagrams.
fn node(channel: Channel, expected: usize) -> (SocketAddr, impl FnOnce(Vec<Place>) -> Vec<Heard>) {
    let interface = Interface::resolve("lo").unwrap();
    let options = SenderOptions { hop_limit: 9, ..SenderOptions::new(Family::V4) };
    let mut port = UdpPort::node(channel, &interface, &options).unwrap();
    port.join(&channel).unwrap();
    let (_, line) = mailbox::line().unwrap();
    let address = port.address().unwrap();
    let run = move |to_send: Vec<Place>| {
        let talker = Talker {
            to_send: to_send.into(),
            heard: VecDeque::new(),
            joins: [Membership::Join(channel)].into(),
        };
        let keeper = Keeper { expected, heard: Vec::new() };
        let driver = Driver::new(talker, keeper, Clock::new(), line).port(port).pace(
            RateClass::Data,
            None,
            3,
        );
        driver.run().unwrap().heard
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
    // There are two sockets. A datagram on one may overtake a datagram on the other.
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

/// Sends packets without end, until it hears something or has sent [`TOO_MANY`].
struct Flood {
    to: Address,
    sent: u32,
    heard: bool,
    told: bool,
}

/// More packets than leave before a datagram that came first is heard.
const TOO_MANY: u32 = 100_000;

impl Engine for Flood {
    type Command = ();
    type CommandError = ();
    type Event = u32;

    fn handle_datagram(&mut self, _now: Instant, _datagram: Datagram<'_>) {
        self.heard = true;
    }

    fn handle_command(&mut self, _now: Instant, (): ()) -> Result<(), ()> {
        Ok(())
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if !self.wants(RateClass::Data) {
            return None;
        }
        while self.wants(RateClass::Data) && buf.has_room(RateClass::Data) {
            buf.push(b"x", Bytes::from_static(b"yz"));
            self.sent += 1;
        }
        (!buf.is_empty()).then_some(Transmit::data(self.to))
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data && !self.heard && self.sent < TOO_MANY
    }

    fn poll_event(&mut self) -> Option<u32> {
        let over = !self.wants(RateClass::Data) && !std::mem::replace(&mut self.told, true);
        over.then_some(self.sent)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Keeps the number of packets that were sent.
#[derive(Default)]
struct Counter(u32);

impl Host<Flood> for Counter {
    type Input = std::convert::Infallible;

    fn start(&mut self, _io: &mut dyn Io<Flood>) {}

    fn event(&mut self, io: &mut dyn Io<Flood>, sent: u32) {
        self.0 = sent;
        io.stop();
    }
}

#[test]
fn a_source_that_may_send_more_than_it_can_hears_its_receivers() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let group = IpAddr::from(Ipv4Addr::new(239, 96, high, low));
    let channel = Channel { source: None, group, port: 7_795 };
    let interface = Interface::resolve("lo").unwrap();
    let port = UdpPort::node(channel, &interface, &SenderOptions::new(Family::V4)).unwrap();
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.send_to(b"a request", port.address().unwrap()).unwrap();
    let to = Address::Host(peer.local_addr().unwrap());
    let flood = Flood { to, sent: 0, heard: false, told: false };
    let (_, line) = mailbox::line().unwrap();
    let driver = Driver::new(flood, Counter::default(), Clock::new(), line).port(port);
    let Counter(sent) = driver.pace(RateClass::Data, None, 3).run().unwrap();
    assert!(sent < TOO_MANY, "the request was not heard while {sent} packets left");
}
