//! One simulation: a session on a network, and what became of it.

use std::time::Duration;

use umbel_engine::smo::receiver::ReceiverConfig;
use umbel_engine::smo::{Congestion, Fairness, SourceConfig, SourceStats};
use umbel_engine::units::Rate;
use umbel_sim::smo::{Behaviour, Crowd, Feed, Member, OVERHEAD, Relay, Session, SourceHost};
use umbel_sim::{Instant, LinkSpec, Loss, Network, NodeId, Queue, Simulation};

use crate::pool::Experiment;
use crate::record::record;

/// Payload of a segment: the paper's frame of 1,448 bytes.
pub const MSS: u16 = 1448;
/// ACKs per second that the paper's server could process: "50,000 to 60,000" [SMO §V-B].
pub(super) const SERVER_ACKS: u32 = 55_000;
/// Rate of the LAN in Mb/s [SMO §V-A].
const LAN: u64 = 100;
/// Hosts over which receivers are spread [SMO §V-A].
const HOSTS: u32 = 5;
/// Receive window of the stacks of that time: without scaling.
const WINDOW: u32 = 65_535;
/// Simulated time after which a session is given up.
const LIMIT_S: u64 = 300;

/// Load that the source sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// This number of segments, as fast as windows permit.
    Bulk(u32),
    /// This number of segments, one at each interval in microseconds.
    Frames(u32, u32),
    /// As much as it can for this number of seconds.
    For(u32),
}

/// Packets that are lost between the switch and a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Losses {
    /// None.
    None,
    /// Independent ones, in thousandths, to the first receivers of this number.
    Independent(u32, u32),
    /// Runs: the share in thousandths, and the mean length. Each receiver has its own host.
    Bursts(u32, u32),
}

/// Rule of the master's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The least of all windows.
    Strict,
    /// Between these multiples of the least average one.
    Essential(u32, u32),
}

/// Conditions of the network besides losses, and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// A LAN.
    Lan,
    /// Two levels with this number of relays [SMO §V-D].
    Relays(u32),
    /// A bottleneck of 10 Mb/s with a queue of 60 packets, and this number of TCP connections.
    Shared(u32),
    /// One receiver stops reading from 1 s to 6 s.
    Stall,
    /// Receivers come one by one in the first half of the stream.
    Late,
    /// A LAN whose links have this rate in Mb/s.
    Crowd(u32),
}

/// Queues, of which the paper says nothing. The defaults are those of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Queues {
    /// ACKs that wait at the server at most.
    pub(super) acks: u32,
    /// Packets that wait for a link at most. More for as many receivers as there are more.
    pub(super) link: u32,
}

impl Default for Queues {
    fn default() -> Queues {
        Queues { acks: 8192, link: 2000 }
    }
}

/// A scenario. Its runs differ in losses and initial sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scenario {
    /// Number of receivers.
    pub receivers: u32,
    /// Load that is sent.
    pub load: Load,
    /// Losses of the network.
    pub losses: Losses,
    /// RTT in microseconds, without queues.
    pub rtt_us: u32,
    /// Segments for which a receiver sends an ACK.
    pub ack_every: u8,
    /// ACKs that the server processes in a second.
    pub server_acks: Option<u32>,
    /// Time in ms after which receivers skip a hole; the source releases data after twice as long.
    pub real_time_ms: Option<u32>,
    /// Rule of the window.
    pub rule: Rule,
    /// Whether CUBIC is used instead of Reno.
    pub is_cubic: bool,
    /// Other conditions.
    pub shape: Shape,
}

/// Outcome of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Share of receivers that have the whole stream from where they began, byte by byte.
    pub whole: f64,
    /// Bits of the stream per second, from its beginning until the last receiver had it.
    pub rate: f64,
    /// Duration of the stream in seconds.
    pub seconds: f64,
    /// The source's counters.
    pub stats: SourceStats,
    /// ACKs that receivers sent.
    pub acks: u64,
    /// Frames that a receiver did not get, since it skipped them or was removed, and that the
    /// network lost to it at first: means.
    pub skipped: f64,
    /// See `skipped`.
    pub lost: f64,
    /// Bits per second of each flow over the bottleneck, the session first.
    pub flows: Vec<f64>,
    /// Connections that were removed.
    pub removed: usize,
}

record!(Outcome { whole, rate, seconds, acks, skipped, lost, flows, removed } with {
    stats: SourceStats
});

impl Outcome {
    /// Returns the ACKs for each segment of the stream and receiver.
    pub fn acks_per_segment(&self, receivers: u32) -> f64 {
        self.acks as f64 / self.stats.multicast.segments as f64 / f64::from(receivers)
    }

    /// Returns the bytes that left the source over those of the stream.
    pub fn expansion(&self) -> f64 {
        let SourceStats { multicast, multicast_again, unicast, unicast_again, .. } = self.stats;
        let sent = multicast.bytes + multicast_again.bytes + unicast.bytes + unicast_again.bytes;
        sent as f64 / multicast.bytes as f64
    }
}

/// Returns a rate in Mb/s.
fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_s(mbit * 1_000_000).expect("it is above 0")
}

fn seconds(s: u64) -> Instant {
    Instant::EPOCH + Duration::from_secs(s)
}

/// Nodes of a session: its source, and the hosts of its receivers.
struct Place {
    session: Session,
    hosts: Vec<NodeId>,
}

impl Scenario {
    /// Creates a session on the paper's LAN: one ACK for two segments, no losses, the server's
    /// limit.
    pub const fn lan(receivers: u32, load: Load) -> Scenario {
        Scenario {
            receivers,
            load,
            losses: Losses::None,
            rtt_us: 400,
            ack_every: 2,
            server_acks: Some(SERVER_ACKS),
            real_time_ms: None,
            rule: Rule::Strict,
            is_cubic: false,
            shape: Shape::Lan,
        }
    }

    /// Returns the same scenario with this percentage of its length.
    #[must_use]
    pub fn shortened(self, percent: u32) -> Scenario {
        let part = |count: u32| count.saturating_mul(percent).div_ceil(100);
        let load = match self.load {
            _ if percent == 100 => self.load,
            Load::Bulk(segments) => Load::Bulk(part(segments)),
            Load::Frames(count, us) => Load::Frames(part(count), us),
            Load::For(seconds) => Load::For(part(seconds).max(4)),
        };
        Scenario { load, ..self }
    }

    fn hosts(&self) -> u32 {
        match self.losses {
            Losses::Bursts(..) => self.receivers,
            _ => HOSTS.max(self.receivers.div_ceil(2000)).min(self.receivers),
        }
    }

    /// Returns the link between the switch and a node, towards the node.
    fn link(&self, queues: Queues, rate: u64) -> LinkSpec {
        let delay = Duration::from_nanos(u64::from(self.rtt_us) * 1000 / 4);
        let queue = Queue::DropTailPackets(queues.link.max(self.receivers));
        LinkSpec::default().rate(mbit(rate)).delay(delay).queue(queue)
    }

    /// Returns the rate of links in Mb/s.
    fn rate(&self) -> u64 {
        match self.shape {
            Shape::Crowd(rate) => rate.into(),
            _ => LAN,
        }
    }

    /// Returns the part of a round trip for which the ACKs of a full window, from all receivers,
    /// occupy the server's link. Beyond 1 the queue before the server grows until ACKs are lost.
    #[cfg(test)]
    pub(super) fn ack_load(&self) -> f64 {
        let acks = f64::from(WINDOW / u32::from(MSS)) / f64::from(self.ack_every);
        let bits = acks * f64::from(self.receivers) * f64::from(OVERHEAD + 20) * 8.0;
        bits / (self.rate() as f64 * f64::from(self.rtt_us))
    }

    /// Adds a server to a switch. ACKs wait for its processor in the queue of its link.
    fn add_server(
        &self,
        queues: Queues,
        network: &mut Network,
        switch: NodeId,
        name: &str,
    ) -> NodeId {
        let server = network.host(name);
        let towards = match self.server_acks {
            // An ACK without SACK takes its share of the processor; one with SACK, more.
            Some(acks) => {
                let bits = u64::from(acks) * u64::from(OVERHEAD + 20) * 8;
                let rate = Rate::from_bits_per_s(bits).expect("it is above 0");
                self.link(queues, LAN).rate(rate).queue(Queue::DropTailPackets(queues.acks))
            }
            None => self.link(queues, self.rate()),
        };
        network
            .link(switch, server, towards, self.link(queues, self.rate()))
            .expect("nodes are there");
        server
    }

    /// Adds hosts of receivers.
    fn add_hosts(
        &self,
        queues: Queues,
        network: &mut Network,
        switch: NodeId,
        count: u32,
    ) -> Vec<NodeId> {
        let loss = match self.losses {
            Losses::Bursts(permille, run) => {
                Loss::bursts(f64::from(permille) / 1000.0, f64::from(run))
            }
            _ => Loss::None,
        };
        let add = |_| {
            let host = network.host("receivers");
            let towards = self.link(queues, self.rate()).loss(loss.clone());
            network
                .link(switch, host, towards, self.link(queues, self.rate()))
                .expect("nodes are there");
            host
        };
        (0..count).map(add).collect()
    }

    fn source_config(&self, session: Session) -> SourceConfig {
        let fairness = match self.rule {
            Rule::Strict => Fairness::Strict,
            Rule::Essential(a, b) => Fairness::Essential { a: a.into(), b: b.into() },
        };
        let congestion = if self.is_cubic { Congestion::Cubic } else { Congestion::Reno };
        let real_time = self.real_time_ms.map(|ms| Duration::from_millis(2 * u64::from(ms)));
        SourceConfig { mss: MSS, fairness, congestion, real_time, ..session.source_config() }
    }

    fn receiver_config(&self, session: Session) -> ReceiverConfig {
        let real_time = self.real_time_ms.map(|ms| Duration::from_millis(ms.into()));
        ReceiverConfig {
            mss: MSS,
            ack_every: self.ack_every,
            buffer: WINDOW,
            window_scale: None,
            real_time,
            ..session.receiver_config()
        }
    }

    fn feed(&self) -> Feed {
        let len = u64::from(MSS);
        let feed = match self.load {
            Load::Bulk(segments) => Feed::bulk(u64::from(segments) * len),
            Load::Frames(count, us) => {
                Feed::frames(count.into(), len, Duration::from_micros(us.into()))
            }
            Load::For(_) => Feed::bulk(1 << 31),
        };
        feed.wait_for(if self.shape == Shape::Late { 1 } else { self.receivers as usize })
    }

    /// Returns what the receiver of a number does.
    fn behaviour(&self, number: u32) -> Behaviour {
        let loss = match self.losses {
            Losses::Independent(permille, to) if number < to => Some(f64::from(permille) / 1000.0),
            _ => None,
        };
        let stalls = (self.shape == Shape::Stall && number == 0).then(|| (seconds(1), seconds(6)));
        let connects = match (self.shape, self.load) {
            (Shape::Late, Load::Frames(count, us)) => {
                let half = Duration::from_micros(u64::from(count) * u64::from(us) / 2);
                half * number / self.receivers
            }
            // So that not all handshakes are at the same time.
            _ => Duration::from_micros(20) * number,
        };
        Behaviour { connects, stalls, loss, ..Behaviour::default() }
    }

    /// Puts receivers on hosts, those with losses on all of them.
    fn begin_crowds(&self, simulation: &mut Simulation, place: &Place, count: u32, seed: u64) {
        let hosts = place.hosts.len() as u32;
        for (n, &host) in (0..).zip(&place.hosts) {
            let here = (count - n).div_ceil(hosts) as u16;
            let seed = seed << 20 | u64::from(host.0);
            let crowd = Crowd::new(&place.session, self.receiver_config(place.session), here, seed)
                .behave(|number| self.behaviour(n + number as u32 * hosts));
            simulation.set_app(host, crowd, Instant::EPOCH).expect("the host is free");
        }
    }

    fn begin_source(&self, simulation: &mut Simulation, session: Session, feed: Feed, seed: u64) {
        let host = session.source_host(self.source_config(session), feed, seed);
        simulation.set_app(session.source, host, Instant::EPOCH).expect("the host is free");
    }

    /// Runs it with other queues than those of the report.
    pub(super) fn run_with(&self, queues: Queues, seed: u64) -> Outcome {
        match self.shape {
            Shape::Relays(relays) => self.run_relays(queues, relays, seed),
            Shape::Shared(connections) => self.run_shared(queues, connections, seed),
            Shape::Lan | Shape::Stall | Shape::Late | Shape::Crowd(_) => self.run_lan(queues, seed),
        }
    }

    /// Runs a session on a LAN.
    fn run_lan(&self, queues: Queues, seed: u64) -> Outcome {
        let mut network = Network::new();
        let switch = network.switch("switch");
        let server = self.add_server(queues, &mut network, switch, "server");
        let hosts = self.add_hosts(queues, &mut network, switch, self.hosts());
        let place = Place { session: Session::new(server), hosts };
        let mut simulation = Simulation::new(network, seed);
        self.begin_source(&mut simulation, place.session, self.feed(), seed);
        self.begin_crowds(&mut simulation, &place, self.receivers, seed);
        finish(&mut simulation, &place.hosts);
        outcome(&simulation, server, &place.hosts)
    }

    /// Runs a session with relays: a server for each.
    fn run_relays(&self, queues: Queues, relays: u32, seed: u64) -> Outcome {
        let mut network = Network::new();
        let switch = network.switch("switch");
        let server = self.add_server(queues, &mut network, switch, "server");
        let mut levels = Vec::new();
        for n in 0..relays {
            let receiver = self.add_hosts(queues, &mut network, switch, 1)[0];
            let lower = network.switch("lower switch");
            let sender = self.add_server(queues, &mut network, lower, "relay");
            let hosts = self.add_hosts(queues, &mut network, lower, 2);
            let count = (self.receivers - n).div_ceil(relays);
            levels.push((receiver, Place { session: Session::new(sender), hosts }, count));
        }
        let mut simulation = Simulation::new(network, seed);
        let root = Session::new(server);
        let feed = Scenario { receivers: relays, ..*self }.feed();
        self.begin_source(&mut simulation, root, feed, seed);
        let mut all = Vec::new();
        for (receiver, place, count) in levels {
            let upper = Crowd::new(&root, self.receiver_config(root), 1, seed << 20)
                .pass_on(place.session.source);
            simulation.set_app(receiver, upper, Instant::EPOCH).expect("the host is free");
            let sender = place.session.source;
            let feed = Feed::relayed().wait_for(count as usize);
            let config = self.source_config(place.session);
            let relay = Relay::new(place.session.source_host(config, feed, seed), receiver);
            simulation.set_app(sender, relay, Instant::EPOCH).expect("the host is free");
            self.begin_crowds(&mut simulation, &place, count, seed);
            all.extend(place.hosts);
        }
        finish(&mut simulation, &all);
        outcome(&simulation, server, &all)
    }

    /// Runs a session and TCP connections, which are sessions of one receiver without a helper,
    /// over one bottleneck.
    fn run_shared(&self, queues: Queues, connections: u32, seed: u64) -> Outcome {
        let Load::For(duration) = self.load else {
            return self.run_lan(queues, seed);
        };
        let mut network = Network::new();
        let (left, right) = (network.router("left"), network.router("right"));
        let half = Duration::from_nanos(u64::from(self.rtt_us) * 500);
        let narrow = LinkSpec::default().delay(half);
        let slow = narrow.clone().rate(mbit(10)).queue(Queue::DropTailPackets(60));
        network.link(left, right, slow, narrow).expect("nodes are there");
        let fast = LinkSpec::default();
        // A segment takes 1.2 ms on the bottleneck. Without delays that vary by as much, one of the
        // flows would find the full queue again and again [Floyd and Jacobson 1992].
        let varied = LinkSpec { jitter: Duration::from_micros(600), ..fast.clone() }
            .delay(Duration::from_micros(600));
        let mut add = |at, name: &str| {
            let node = network.host(name);
            let (down, up) = (fast.clone(), if name == "source" { &varied } else { &fast });
            network.link(at, node, down, up.clone()).expect("nodes are there");
            node
        };
        let pairs: Vec<(NodeId, NodeId)> =
            (0..=connections).map(|_| (add(left, "source"), add(right, "receiver"))).collect();
        let mut simulation = Simulation::new(network, seed);
        for (n, &(source, host)) in (0..).zip(&pairs) {
            let place = Place { session: Session::new(source), hosts: vec![host] };
            let count = if n == 0 { self.receivers } else { 1 };
            let feed = Scenario { receivers: count, ..*self }.feed();
            self.begin_source(&mut simulation, place.session, feed, seed + 1000 * n);
            let mut config = self.receiver_config(place.session);
            config.channel = config.channel.filter(|_| n == 0);
            (config.buffer, config.window_scale) = (1 << 20, Some(7));
            // Connections do not begin at once.
            let after = Duration::from_millis(137 * (n + seed % 7));
            let crowd =
                Crowd::new(&place.session, config, count as u16, seed << 20 | n).behave(|number| {
                    let behaviour = self.behaviour(number as u32);
                    // The path of a TCP connection has the losses of a receiver's.
                    Behaviour { connects: after, ..behaviour }
                });
            simulation.set_app(host, crowd, Instant::EPOCH).expect("the host is free");
        }
        // The beginning does not count.
        let warm_up = u64::from(duration / 4);
        simulation.run_until(seconds(warm_up));
        let received = |simulation: &Simulation| -> Vec<u64> {
            let first = |&(_, host): &(NodeId, NodeId)| {
                let crowd: &Crowd = simulation.app(host).expect("it runs there");
                crowd.members().next().map_or(0, |member| member.received)
            };
            pairs.iter().map(first).collect()
        };
        let before = received(&simulation);
        simulation.run_until(seconds(duration.into()));
        let time = (u64::from(duration) - warm_up) as f64;
        let rates = received(&simulation).into_iter().zip(before);
        let flows = rates.map(|(now, then)| (now - then) as f64 * 8.0 / time).collect();
        let (server, host) = pairs[0];
        Outcome { flows, ..outcome(&simulation, server, &[host]) }
    }
}

/// Returns what became of the session of a server.
fn outcome(simulation: &Simulation, server: NodeId, hosts: &[NodeId]) -> Outcome {
    let source: &SourceHost = simulation.app(server).expect("it runs there");
    let record = source.host().record();
    let crowds = hosts.iter().filter_map(|host| simulation.app::<Crowd>(*host));
    let members: Vec<&Member> = crowds.flat_map(Crowd::members).collect();
    let count = members.len().max(1) as f64;
    let len = record.written;
    let begin = record.started.unwrap_or_default();
    let end = members.iter().filter_map(|member| member.ended).max();
    let time = end.unwrap_or(simulation.now()).since(begin).as_secs_f64();
    let skipped = |member: &&Member| len.saturating_sub(member.first + member.received);
    Outcome {
        whole: members.iter().filter(|member| member.is_whole(len)).count() as f64 / count,
        rate: len as f64 * 8.0 / time,
        seconds: time,
        stats: source.engine().stats(),
        acks: members.iter().map(|member| member.receiver().stats().acks).sum(),
        skipped: members.iter().map(skipped).sum::<u64>() as f64 / f64::from(MSS) / count,
        lost: members.iter().map(|member| member.lost).sum::<u64>() as f64 / count,
        flows: Vec::new(),
        removed: record.removed.len(),
    }
}

/// Runs until all receivers are done.
fn finish(simulation: &mut Simulation, hosts: &[NodeId]) {
    for second in 1..=LIMIT_S {
        simulation.run_until(seconds(second));
        if hosts.iter().filter_map(|host| simulation.app(*host)).all(Crowd::is_done) {
            break;
        }
    }
}

impl Experiment for Scenario {
    type Outcome = Outcome;

    fn run(&self, seed: u64) -> Outcome {
        self.run_with(Queues::default(), seed)
    }

    /// Returns the number of segments times receivers.
    fn work(&self) -> u64 {
        let segments = match self.load {
            Load::Bulk(segments) | Load::Frames(segments, _) => segments,
            Load::For(seconds) => seconds * 860,
        };
        u64::from(segments) * u64::from(self.receivers)
    }
}
