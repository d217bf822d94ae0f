//! A host in a lab that nobody asked to take part in a feed, and hears and says what it likes.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use nix::libc;
use serde_json::Value;
use socket2::Socket;
use umbel_engine::tmtp::{Authentication, FEED, NodeConfig, Stamps, node_id};
use umbel_engine::{Address, Datagram, Instant};
use umbel_lab::Node;
use umbel_wire::datagram::IpDatagram;
use umbel_wire::small_block::SmallBlockHeader;
use umbel_wire::tmtp::{Beacon, Body, Message, NodeId, Role, SignedStamp, without_stamp};
use umbel_wire::{Channel, Tsi};

/// Node number of a stranger in feeds where it has no keys: the lowest, which has the best claim to
/// a subnet.
const NOBODY: NodeId = NodeId(1);
/// Seeds of keys among which it takes the one that gives it the lowest number.
const SEEDS: u32 = 500;
/// Hop limit of all that it sends.
pub(crate) const HOPS: u8 = 32;
/// The group and port in which feeds of the lab are announced.
pub(crate) const DIRECTORY: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 255, 255, 255)), 9875);
/// Time between two turns of a stranger.
const TURN: Duration = Duration::from_millis(1);
/// Most datagrams that are heard in one turn.
const HEARD: usize = 64;
/// Datagrams and turns, of which the first to be reached makes a head start.
const HEAD_START: (u64, u32) = (21, 1_000);

/// The numbers and addresses of a feed, which its source prints and announces to all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) tsi: Tsi,
    pub(crate) source: SocketAddr,
    pub(crate) domain: SocketAddr,
}

impl Mark {
    /// Takes them from the event `sending`.
    pub(crate) fn of(sending: &Value) -> Mark {
        let address = |field: &str| sending[field].as_str().unwrap().parse().unwrap();
        let tsi = Tsi(u32::try_from(sending["tsi"].as_u64().unwrap()).unwrap());
        Mark { tsi, source: address("source"), domain: address("domain") }
    }

    /// Returns a data packet that claims to repair a block.
    pub(crate) fn repair(&self, sbn: u32, (k, esi): (u8, u8), symbol: &[u8]) -> Vec<u8> {
        let (tsi, block_symbols) = (self.tsi, k);
        let header = SmallBlockHeader {
            tsi,
            toi: FEED,
            transmission: 1,
            index: 1,
            stamp: None,
            sbn,
            block_symbols,
            esi,
        };
        let mut packet = vec![0; SmallBlockHeader::LEN];
        header.emit(&mut packet).unwrap();
        packet.extend_from_slice(symbol);
        packet
    }

    fn domain_group(&self) -> Channel {
        Channel { source: None, group: self.domain.ip(), port: self.domain.port() }
    }

    /// Returns a message of a node of the feed.
    pub(crate) fn message(&self, sender: NodeId, body: Body) -> Vec<u8> {
        let mut bytes = Vec::new();
        Message { feed: self.tsi, sender, body }.emit(&mut bytes);
        bytes
    }
}

/// A datagram that a stranger has heard.
pub(crate) struct Heard {
    pub(crate) from: SocketAddr,
    pub(crate) bytes: Vec<u8>,
    /// Whether it came to the stranger's own port.
    pub(crate) to_me: bool,
}

impl Heard {
    /// Returns it as a message of a feed.
    pub(crate) fn message(&self) -> Option<Message> {
        message_of(&self.bytes)
    }

    /// Returns it as the text of an announcement, with the address of its origin.
    pub(crate) fn announcement(&self) -> Option<(Ipv4Addr, String)> {
        let packet = umbel_wire::sap::SapPacket::parse(&self.bytes).ok()?;
        let IpAddr::V4(origin) = packet.origin else { return None };
        Some((origin, String::from_utf8(packet.payload.to_vec()).ok()?))
    }
}

/// Returns the message in a datagram, which may have a stamp.
pub(crate) fn message_of(datagram: &[u8]) -> Option<Message> {
    Message::parse(without_stamp(datagram)).ok()?.message()
}

/// Sockets and addresses of a stranger.
pub(crate) struct Voice {
    pub(crate) mark: Mark,
    socket: UdpSocket,
    /// Sends under any address.
    forger: Socket,
    /// Everyone who was heard in the feed's group, and the source.
    pub(crate) neighbours: BTreeSet<SocketAddr>,
    /// The stranger's own node number.
    pub(crate) me: NodeId,
    /// The node number of the source, as far as somebody has said it.
    pub(crate) source_id: Option<NodeId>,
    /// Its stamps, in an open feed whose nodes have keys. It has some of its own, as anybody may.
    stamps: Option<Stamps>,
    started: Clock,
    /// The latest epoch of the tree that was heard.
    pub(crate) epoch: u64,
    sent: u64,
}

impl Voice {
    /// Returns the stranger's own address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    /// Returns the number of datagrams that it has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.started.elapsed().as_nanos() as u64)
    }

    /// Returns a message of the stranger.
    pub(crate) fn message(&self, body: Body) -> Vec<u8> {
        self.mark.message(self.me, body)
    }

    /// Sends a datagram. The stranger's own messages get its stamps, if it has any.
    pub(crate) fn say(&mut self, to: SocketAddr, bytes: &[u8]) {
        let now = self.now();
        let own = Message::parse(bytes).ok().and_then(umbel_wire::Parsed::message);
        let own = own.filter(|message| message.sender == self.me);
        let Some((stamps, message)) = self.stamps.as_mut().zip(own) else {
            return self.say_bare(to, bytes);
        };
        let group = self.mark.domain_group();
        let way = if to == self.mark.domain { Address::Channel(group) } else { Address::Host(to) };
        let bytes = stamps.seal(now, way, message.body);
        self.say_bare(to, &bytes);
    }

    /// Sends a datagram as it is. A full buffer loses it, as the network might.
    fn say_bare(&mut self, to: SocketAddr, bytes: &[u8]) {
        self.sent += u64::from(self.socket.send_to(bytes, to).is_ok());
    }

    /// Sends a datagram with another's address.
    pub(crate) fn say_as(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let mut packet = Vec::new();
        let datagram = IpDatagram {
            source: from,
            destination: to,
            hop_limit: HOPS,
            alert: None,
            payload: bytes,
        };
        datagram.emit(&mut packet).unwrap();
        self.sent += u64::from(self.forger.send_to(&packet, &to.into()).is_ok());
    }

    /// Sends a datagram to the feed's group and to each node by itself.
    pub(crate) fn say_to_all(&mut self, bytes: &[u8]) {
        self.say(self.mark.domain, bytes);
        for node in self.neighbours.clone() {
            self.say(node, bytes);
        }
    }

    fn learn(&mut self, heard: &Heard) {
        let Some(message) = heard.message() else { return };
        if !heard.to_me {
            self.neighbours.insert(heard.from);
        }
        let beacon = match &message.body {
            Body::Beacon(beacon) => beacon,
            Body::JoinConfirm(confirm) => &confirm.beacon,
            _ => return,
        };
        self.source_id = beacon.path.first().copied().or(self.source_id);
        self.epoch = self.epoch.max(beacon.standing.epoch);
        let keyed = SignedStamp::split(&heard.bytes).is_some();
        if keyed && self.stamps.is_none() && is_source(beacon) {
            self.take_part(message.sender);
        }
    }

    /// Takes keys, as everybody may in an open feed.
    fn take_part(&mut self, source: NodeId) {
        let Mark { tsi, source: address, .. } = self.mark;
        let seeds = (0..SEEDS).map(|n| *blake3::hash(&n.to_be_bytes()).as_bytes());
        let (id, seed) = seeds.map(|seed| (node_id(tsi, &seed), seed)).min().expect("some");
        let group = self.mark.domain_group();
        let keys = Authentication::Keys(seed);
        let node = NodeConfig::new(id, tsi, (group, group), self.address(), keys);
        self.stamps = Some(Stamps::new(node, (source, address), &seed));
        self.me = id;
    }

    /// Does its part of handshakes.
    fn shake_hands(&mut self, heard: &Heard) {
        let now = self.now();
        let source = Some(heard.from.ip());
        let group = Channel { source, ..self.mark.domain_group() };
        let by = if heard.to_me { Address::Host(heard.from) } else { Address::Channel(group) };
        let Some(stamps) = &mut self.stamps else { return };
        let _ = stamps.open(now, &Datagram { by, hop_limit: None, payload: &heard.bytes });
        let mut answers = Vec::new();
        while let Some(answer) = stamps.poll(now) {
            answers.push(answer);
        }
        for (to, bytes) in answers {
            self.say_bare(to, &bytes);
        }
    }
}

fn is_source(beacon: &Beacon) -> bool {
    beacon.role == Role::Source
}

/// A stranger at work, until it is stopped or dropped.
pub(crate) struct Stranger {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Stranger {
    /// Starts on a host. `attack` is called about 1,000 times a second with what was heard since.
    ///
    /// Returns once the attack is under way, however busy the machine is. An attack that needs
    /// others to begin has had its head start after a number of turns.
    pub(crate) fn start(
        host: Node<'_>,
        mark: Mark,
        mut attack: impl FnMut(&mut Voice, &[Heard]) + Send + 'static,
    ) -> Stranger {
        let here = host.addr4();
        let socket = host.udp_socket((here, 0).into()).unwrap();
        socket.set_multicast_ttl_v4(HOPS.into()).unwrap();
        socket.set_ttl(HOPS.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let ears = [mark.domain, DIRECTORY].map(|group| {
            let IpAddr::V4(address) = group.ip() else { panic!("an IPv6 group: {group}") };
            let ear = host.udp_socket((Ipv4Addr::UNSPECIFIED, group.port()).into()).unwrap();
            ear.join_multicast_v4(&address, &here).unwrap();
            ear.set_nonblocking(true).unwrap();
            ear
        });
        let stopped = Arc::<AtomicBool>::default();
        let stop = stopped.clone();
        let neighbours = BTreeSet::from([mark.source]);
        let raw = host.socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW).unwrap();
        let forger = Socket::from(raw);
        forger.set_multicast_if_v4(&here).unwrap();
        forger.set_nonblocking(true).unwrap();
        // It does not hear its own messages under another's address.
        forger.set_multicast_loop_v4(false).unwrap();
        let mut voice = Voice {
            mark,
            socket,
            forger,
            neighbours,
            me: NOBODY,
            source_id: None,
            stamps: None,
            started: Clock::now(),
            epoch: 0,
            sent: 0,
        };
        let (started, under_way) = std::sync::mpsc::channel();
        let mut started = Some(started);
        let thread = std::thread::spawn(move || {
            let mut turns = 0;
            while !stop.load(Ordering::Acquire) {
                let mut heard = Vec::new();
                for ear in &ears {
                    listen(ear, &mut heard, (here, false));
                }
                listen(&voice.socket, &mut heard, (here, true));
                for one in &heard {
                    voice.learn(one);
                    voice.shake_hands(one);
                }
                attack(&mut voice, &heard);
                turns += 1;
                let is_under_way = voice.sent >= HEAD_START.0 || turns >= HEAD_START.1;
                if let Some(started) = started.take_if(|_| is_under_way) {
                    let _ = started.send(());
                }
                std::thread::sleep(TURN);
            }
            voice.sent
        });
        under_way.recv().expect("a stranger takes turns");
        Stranger { stopped, thread: Some(thread) }
    }

    /// Stops it. Returns the number of datagrams that it has sent.
    pub(crate) fn stop(mut self) -> u64 {
        self.stopped.store(true, Ordering::Release);
        self.thread.take().expect("it runs until it is stopped").join().unwrap()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes what has come to a socket from others.
fn listen(socket: &UdpSocket, heard: &mut Vec<Heard>, (here, to_me): (Ipv4Addr, bool)) {
    let mut buffer = vec![0; 65_536];
    for _ in 0..HEARD {
        match socket.recv_from(&mut buffer) {
            Ok((_, from)) if from.ip() == IpAddr::V4(here) => {}
            Ok((len, from)) => heard.push(Heard { from, bytes: buffer[..len].to_vec(), to_me }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // A port of somebody who has left.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => panic!("{error}"),
        }
    }
}
