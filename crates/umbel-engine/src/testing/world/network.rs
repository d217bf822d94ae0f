//! The network of a world: hosts in subnets, the links between them, what is joined and what is
//! cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use umbel_wire::Channel;

use super::routers::Tree;
use crate::chance::{Generator, uniform};
use crate::units::Rate;
use crate::{Address, Instant, Membership, SessionId, Transmit};

/// Conditions on a part of the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Share of datagrams that are lost.
    pub(crate) loss: f64,
    /// Share of datagrams that come twice.
    pub(crate) duplicates: f64,
    /// Least delay.
    pub(crate) delay: Duration,
    /// Greatest additional delay, by which datagrams overtake each other.
    pub(crate) jitter: Duration,
}

impl Link {
    /// A link that does nothing at all.
    pub(crate) const CLEAN: Link =
        Link { loss: 0.0, duplicates: 0.0, delay: Duration::ZERO, jitter: Duration::ZERO };

    /// Creates a link with a delay and no faults.
    pub(crate) const fn delayed(delay: Duration) -> Link {
        Link { delay, ..Link::CLEAN }
    }

    /// Returns what this link and the next do together.
    pub(super) fn then(self, next: Link) -> Link {
        let either = |a: f64, b: f64| 1.0 - (1.0 - a) * (1.0 - b);
        Link {
            loss: either(self.loss, next.loss),
            duplicates: either(self.duplicates, next.duplicates),
            delay: self.delay + next.delay,
            jitter: self.jitter + next.jitter,
        }
    }
}

/// A slow link with a queue, which drops what does not fit.
#[derive(Clone, Debug)]
pub(crate) struct Bottleneck {
    pub(crate) rate: Rate,
    /// Number of packets that fit.
    pub(crate) room: usize,
    /// Number of packets that did not fit.
    pub(crate) dropped: u64,
    /// Times at which the packets that are in it leave.
    leaving: VecDeque<Instant>,
}

impl Bottleneck {
    pub(crate) fn new(rate: Rate, room: usize) -> Bottleneck {
        Bottleneck { rate, room, dropped: 0, leaving: VecDeque::new() }
    }

    /// Returns the time at which a packet leaves that comes at `at`, if it fits.
    fn pass(&mut self, at: Instant, len: usize) -> Option<Instant> {
        while self.leaving.front().is_some_and(|&left| left <= at) {
            self.leaving.pop_front();
        }
        if self.leaving.len() >= self.room {
            self.dropped += 1;
            return None;
        }
        let begin = self.leaving.back().map_or(at, |&last| last.max(at));
        let leaves = begin + self.rate.time_for(len as u64);
        self.leaving.push_back(leaves);
        Some(leaves)
    }
}

/// A host's place in the network.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) subnet: usize,
    /// Its way out. A packet that is lost there is lost to everyone.
    pub(crate) up: Link,
    /// Its way in.
    pub(crate) down: Link,
    pub(crate) bottleneck: Option<Bottleneck>,
    /// Whether multicast does not reach it.
    pub(crate) is_deaf: bool,
    /// Pace of its data, of all layers together. Without one, data never wait.
    pub(crate) pace: Option<Rate>,
    pub(crate) is_up: bool,
    /// Whether it stands still, as a machine that is suspended.
    pub(crate) stands: Option<Standstill>,
    pub(crate) joined: BTreeSet<Channel>,
    /// When the next data packet may leave.
    pub(crate) next_data: Instant,
    /// Place of its next wake-up in the world's calendar.
    pub(crate) wake: Option<(Instant, u64)>,
}

/// Time in which a host does nothing, and what comes waits in its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standstill {
    pub(crate) until: Instant,
    /// Datagrams that still fit.
    pub(crate) room: u32,
}

impl Host {
    pub(crate) fn new(address: SocketAddr, subnet: usize) -> Host {
        Host {
            address,
            subnet,
            up: Link::CLEAN,
            down: Link::CLEAN,
            bottleneck: None,
            is_deaf: false,
            pace: None,
            is_up: true,
            stands: None,
            joined: BTreeSet::new(),
            next_data: Instant::EPOCH,
            wake: None,
        }
    }

    pub(super) fn change(&mut self, change: Membership) {
        let is_change = match change {
            Membership::Join(channel) => self.joined.insert(channel),
            Membership::Leave(channel) => self.joined.remove(&channel),
        };
        assert!(is_change, "{change:?} changes nothing");
    }

    /// Returns whether it receives what `sender` sends on a channel. Memberships are of groups;
    /// which ports matter is up to the engine.
    pub(crate) fn receives(&self, channel: Channel, sender: IpAddr) -> bool {
        let fits = |joined: &Channel| {
            joined.group == channel.group && joined.source.is_none_or(|source| source == sender)
        };
        !self.is_deaf && self.joined.iter().any(fits)
    }
}

/// A datagram that will arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Instant,
    pub(super) to: usize,
    pub(super) by: Address,
    pub(super) hop_limit: u8,
}

#[derive(Debug)]
pub(crate) struct Network {
    /// The source and then the receivers.
    pub(crate) hosts: Vec<Host>,
    /// Conditions on the way from any host to any other.
    pub(crate) weather: Link,
    /// Least and greatest additional delay of each hop.
    pub(crate) hop: (Duration, Duration),
    /// Additional delay of the messages of sessions.
    pub(crate) session_delay: Duration,
    /// Share of the multicast datagrams that a whole subnet loses.
    pub(crate) subnet_loss: BTreeMap<usize, f64>,
    /// Number of routers between each two subnets, in a world without engines in routers. There are
    /// none if this is empty.
    pub(crate) routers: Vec<Vec<u8>>,
    /// Routers with engines, if there are any.
    pub(super) tree: Tree,
    /// Pairs of subnets that do not reach each other.
    cut: BTreeSet<(usize, usize)>,
    pub(crate) random: Generator,
}

impl Network {
    pub(super) fn new(source: Host, random: Generator) -> Network {
        Network {
            hosts: vec![source],
            weather: Link::CLEAN,
            hop: (Duration::ZERO, Duration::ZERO),
            session_delay: Duration::ZERO,
            subnet_loss: BTreeMap::new(),
            routers: Vec::new(),
            tree: Tree::default(),
            cut: BTreeSet::new(),
            random,
        }
    }

    /// Cuts the subnets of `a` off from those of `b` until [`heal`](Network::heal).
    pub(crate) fn partition(&mut self, a: &[usize], b: &[usize]) {
        let pairs = a.iter().flat_map(|&x| b.iter().map(move |&y| (x, y)));
        self.cut.extend(pairs.filter(|(x, y)| x != y).flat_map(|(x, y)| [(x, y), (y, x)]));
    }

    /// Mends all cuts.
    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }

    /// Returns whether datagrams pass between two subnets.
    pub(crate) fn connects(&self, a: usize, b: usize) -> bool {
        !self.cut.contains(&(a, b))
    }

    pub(super) fn draw(&mut self, share: f64) -> bool {
        share > 0.0 && uniform(&mut self.random) < share
    }

    /// Draws an additional delay.
    pub(super) fn jitter(&mut self, link: Link) -> Duration {
        link.jitter.mul_f64(uniform(&mut self.random))
    }

    /// Returns the time at which a datagram leaves the bottleneck before a host, if it fits there.
    pub(super) fn queue(&mut self, host: usize, at: Instant, len: usize) -> Option<Instant> {
        match &mut self.hosts[host].bottleneck {
            Some(bottleneck) => bottleneck.pass(at, len),
            None => Some(at),
        }
    }

    /// Returns the arrivals of a datagram.
    pub(super) fn carry(
        &mut self,
        now: Instant,
        from: usize,
        transmit: Transmit,
        len: usize,
    ) -> Vec<Arrival> {
        let sender = self.hosts[from].address;
        let by = |to| match to {
            Address::Host(_) => Address::Host(sender),
            Address::Channel(to) => Address::Channel(Channel { source: Some(sender.ip()), ..to }),
            Address::Session(id) if from == 0 => Address::Session(id),
            Address::Session(_) => Address::Session(SessionId(from as u64 - 1)),
        };
        let to: Vec<usize> = match transmit.to {
            Address::Host(peer) => {
                self.hosts.iter().position(|host| host.address == peer).into_iter().collect()
            }
            Address::Channel(channel) => {
                let lost: Vec<(usize, f64)> =
                    self.subnet_loss.iter().map(|(&subnet, &loss)| (subnet, loss)).collect();
                let lost: Vec<usize> =
                    lost.into_iter().filter_map(|(s, loss)| self.draw(loss).then_some(s)).collect();
                let hears = |to: &usize| {
                    let host = &self.hosts[*to];
                    *to != from
                        && host.receives(channel, sender.ip())
                        && !lost.contains(&host.subnet)
                };
                (0..self.hosts.len()).filter(hears).collect()
            }
            Address::Session(SessionId(number)) => {
                // Sessions are numbered like the receivers, lose nothing and keep the order.
                let to = if from == 0 { number as usize + 1 } else { 0 };
                let at = now + self.way(from, to, 1).delay + self.session_delay;
                return vec![Arrival { at, to, by: by(transmit.to), hop_limit: 64 }];
            }
        };
        let hop_limit = transmit.hop_limit.unwrap_or(64);
        assert!(hop_limit > 0, "{transmit:?} goes nowhere");
        if self.draw(self.hosts[from].up.loss) {
            return Vec::new();
        }
        let mut arrivals = Vec::new();
        for to in to {
            let (a, b) = (self.hosts[from].subnet, self.hosts[to].subnet);
            let routers = self.routers.get(a).map_or(0, |row| row[b]);
            if routers >= hop_limit || !self.connects(a, b) {
                continue;
            }
            let way = self.way(from, to, u32::from(routers) + 1);
            let copies = 1 + usize::from(self.draw(way.duplicates));
            for _ in 0..copies {
                if self.draw(way.loss) {
                    continue;
                }
                let at = now + way.delay + self.jitter(way);
                let at = self.queue(to, at, len);
                let hop_limit = hop_limit - routers;
                let arrival = |at| Arrival { at, to, by: by(transmit.to), hop_limit };
                arrivals.extend(at.map(arrival));
            }
        }
        arrivals
    }

    /// Returns the conditions between two hosts this number of hops apart.
    fn way(&self, from: usize, to: usize, hops: u32) -> Link {
        let up = Link { loss: 0.0, ..self.hosts[from].up };
        let (delay, jitter) = self.hop;
        let hops = Link { jitter: jitter * hops, ..Link::delayed(delay * hops) };
        up.then(self.weather).then(hops).then(self.hosts[to].down)
    }
}
