//! Cross traffic: `[[traffic]]`, packets of others that share links with the protocol.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;
use toml::Spanned;
use umbel_engine::Instant;
use umbel_engine::units::{ByteCount, Rate};
use umbel_topology::values::{Time, Written};
use umbel_topology::{Mistake, NodeKind, Topology};

use super::file::Text;
use super::settings::Period;
use crate::Simulation;
use crate::app::{App, Context};
use crate::network::{NetworkError, NodeId};
use crate::packet::{Destination, Kind, Packet};
use crate::random::{Purpose, exponential, stream};

/// Packets that a host sends to another one, which does nothing with them.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossTraffic {
    /// Host that sends; it runs nothing else.
    pub from: NodeId,
    /// Host to which it sends; it runs nothing else either.
    pub to: NodeId,
    /// Rate while it sends, headers included.
    pub rate: Rate,
    /// Bytes of a packet on a link, headers included.
    pub packet_len: u32,
    /// Whether times between packets are exponential instead of regular.
    pub is_poisson: bool,
    /// Mean times for which it sends and is silent, both exponential; `None` if it always sends.
    pub bursts: Option<(Duration, Duration)>,
    /// Time of the first packet.
    pub start: Duration,
    /// Time of the last packet at most.
    pub until: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrafficEntry {
    from: Spanned<String>,
    to: Spanned<String>,
    rate: Written<Rate>,
    packet_size: Option<Spanned<Written<ByteCount>>>,
    #[serde(default)]
    poisson: bool,
    on: Option<Period>,
    off: Option<Spanned<Period>>,
    #[serde(default)]
    start: Option<Written<Time>>,
    until: Option<Written<Time>>,
}

/// Bytes of a packet of IPv4 and UDP at least, and at most.
const LENGTHS: std::ops::RangeInclusive<u64> = 28..=1500;

/// Reads the cross traffic of a file.
pub(super) fn read(
    entries: Vec<TrafficEntry>,
    text: &Text<'_>,
    topology: &Topology,
) -> Result<Vec<CrossTraffic>, Mistake> {
    let (mut senders, mut all) = (BTreeSet::new(), Vec::new());
    for entry in entries {
        let traffic = entry.read(text, topology, &mut senders)?;
        all.push(traffic);
    }
    Ok(all)
}

impl TrafficEntry {
    fn read(
        self,
        text: &Text<'_>,
        topology: &Topology,
        senders: &mut BTreeSet<NodeId>,
    ) -> Result<CrossTraffic, Mistake> {
        let host = |name: &Spanned<String>| {
            let node = NodeId::named(topology, name.get_ref());
            let is_host = |node: &NodeId| topology.nodes[node.0 as usize].kind == NodeKind::Host;
            node.filter(is_host).ok_or_else(|| {
                text.mistake(name.span(), format!("no host is called `{}`", name.get_ref()))
            })
        };
        let (from, to) = (host(&self.from)?, host(&self.to)?);
        if from == to {
            return Err(text.mistake(self.to.span(), "expected another host than `from`"));
        }
        if !senders.insert(from) {
            let message = format!("`{}` has cross traffic to send already", self.from.get_ref());
            return Err(text.mistake(self.from.span(), message));
        }
        let packet_len = self.packet_size.as_ref().map_or(1000, |size| size.get_ref().0.0);
        if let Some(size) = self.packet_size.as_ref().filter(|_| !LENGTHS.contains(&packet_len)) {
            let message = format!("packet_size = {packet_len}: expected 28 to 1500 bytes");
            return Err(text.mistake(size.span(), message));
        }
        let bursts = match (self.on, &self.off) {
            (Some(on), Some(off)) => Some((on.0, off.get_ref().0)),
            (None, None) => None,
            (on, off) => {
                let place = off.as_ref().map_or(self.from.span(), Spanned::span);
                let missing = if on.is_some() { "off" } else { "on" };
                let message = format!("`{missing}` is missing: bursts have both, `on` and `off`");
                return Err(text.mistake(place, message));
            }
        };
        Ok(CrossTraffic {
            from,
            to,
            rate: self.rate.0,
            packet_len: packet_len as u32,
            is_poisson: self.poisson,
            bursts,
            start: self.start.map_or(Duration::ZERO, |start| start.0.0),
            until: self.until.map(|until| until.0.0),
        })
    }
}

impl CrossTraffic {
    /// Puts the sender on its host.
    pub(super) fn install(
        &self,
        simulation: &mut Simulation,
        seed: u64,
    ) -> Result<(), NetworkError> {
        let start = Instant::EPOCH + self.start;
        let sender = Sender {
            random: stream(seed, Purpose::Workload, STREAMS + u64::from(self.from.0)),
            traffic: self.clone(),
            silent_from: Instant::from_nanos(u64::MAX),
            next: start,
        };
        simulation.set_app(self.from, sender, start)
    }
}

/// Base of the random streams of cross traffic; those of clients have the numbers of their nodes.
const STREAMS: u64 = 3 << 40;

/// Program of a host that sends cross traffic.
struct Sender {
    traffic: CrossTraffic,
    random: Xoshiro256PlusPlus,
    /// Time of the next packet.
    next: Instant,
    /// End of the burst.
    silent_from: Instant,
}

impl Sender {
    fn draw(&mut self, mean: Duration) -> Duration {
        Duration::from_secs_f64(exponential(&mut self.random, mean.as_secs_f64()))
    }

    /// Sets the timer to the next packet, after a pause if the burst is over by then.
    fn wait(&mut self, context: &mut Context<'_>) {
        if let Some((on, off)) = self.traffic.bursts
            && self.next >= self.silent_from
        {
            let (silence, burst) = (self.draw(off), self.draw(on));
            self.next += silence;
            self.silent_from = self.next + burst;
        }
        let until = self.traffic.until.map(|until| Instant::EPOCH + until);
        context.wake_at(Some(self.next).filter(|next| until.is_none_or(|until| *next <= until)));
    }
}

impl App for Sender {
    fn start(&mut self, context: &mut Context<'_>) {
        if let Some((on, _)) = self.traffic.bursts {
            let burst = self.draw(on);
            self.silent_from = self.next + burst;
        }
        self.wait(context);
    }

    fn packet(&mut self, _context: &mut Context<'_>, _packet: &Packet) {}

    fn wake(&mut self, context: &mut Context<'_>) {
        let CrossTraffic { to, rate, packet_len, is_poisson, .. } = self.traffic;
        let payload = Bytes::new();
        let to = Destination::Unicast(to);
        let packet = Packet::new(context.node(), to, Kind::Other(0), payload);
        context.send(Packet { wire_len: packet_len, ..packet });
        let mean = rate.time_for(u64::from(packet_len));
        // A time of 0 would be a packet without end.
        let gap = if is_poisson { self.draw(mean) } else { mean };
        self.next = context.now() + gap.max(Duration::from_nanos(1));
        self.wait(context);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::scenario::Scenario;
    use crate::scenario::report::Report;
    use umbel_topology::Mistake;

    /// A dumbbell whose link others use too.
    const SHARED: &str = "duration = \"2min\"\n[topology]\ngenerator = \"dumbbell\"\nsources = 2\n\
        receivers = 3\nlink = { rate = \"1M\", queue = 20, delay = \"5ms\" }\n\
        [[traffic]]\nfrom = \"source2\"\nto = \"h3\"\nrate = \"500k\"\nstart = \"10s\"\nuntil = \"20s\"\n\
        [lms]\nsource = \"source1\"\npackets = 100\nstart = \"5s\"\nafter = \"10s\"\n";

    fn read(text: &str) -> Result<Scenario, Mistake> {
        Scenario::from_toml(text, Path::new(""))
    }

    fn finished(text: &str) -> Report {
        let mut run = read(text).unwrap_or_else(|mistake| panic!("{mistake}")).start(1).unwrap();
        while run.go_on(std::time::Duration::from_secs(10)) {}
        run.report()
    }

    #[test]
    fn cross_traffic_uses_links_and_its_hosts_do_nothing_else() {
        let results = finished(SHARED).results;
        assert_eq!(results.clients.count, 2, "h3 is no receiver");
        assert_eq!(results.measure("unrepaired"), Some(0.0));
        let sent = |text: &str| finished(text).network.packets;
        let without = sent(&SHARED.replace("rate = \"500k\"", "rate = \"8k\""));
        // 62.5 packets a second for ten seconds, instead of one.
        let more = sent(SHARED) - without;
        assert!((600..=630).contains(&more), "{more}");
        let poisson = sent(&SHARED.replace("[lms]", "poisson = true\n[lms]")) - without;
        assert!(poisson != more && (500..=750).contains(&poisson), "{poisson}");
        let bursts = "on = \"100ms\"\noff = \"300ms\"\n[lms]";
        let bursts = sent(&SHARED.replace("[lms]", bursts)).saturating_sub(without);
        assert!((60..=320).contains(&bursts), "{bursts}");
    }

    #[test]
    fn more_than_a_link_carries_fills_its_queue() {
        let full = SHARED.replace("\"500k\"", "\"2M\"").replace("packets = 100", "packets = 200");
        let report = finished(&full);
        assert!(report.network.queue_drops > 100, "{report}");
        assert!(report.results.measure("missed").unwrap() > 0.0, "{report}");
    }

    #[test]
    fn every_mistake_has_its_line_and_says_what_was_expected() {
        for (what, with, expected) in [
            ("to = \"h3\"", "to = \"h9\"", "line 9: no host is called `h9`"),
            ("to = \"h3\"", "to = \"left\"", "line 9: no host is called `left`"),
            ("to = \"h3\"", "to = \"source2\"", "line 9: expected another host than `from`"),
            (
                "to = \"h3\"",
                "to = \"h3\"\npacket_size = 9",
                "line 10: packet_size = 9: expected 28 to 1500 bytes",
            ),
            (
                "to = \"h3\"",
                "to = \"h3\"\noff = \"1s\"",
                "line 10: `on` is missing: bursts have both, `on` and `off`",
            ),
            (
                "source = \"source1\"",
                "source = \"source2\"",
                "line 14: `source2` has cross traffic, and runs nothing else",
            ),
            (
                "source = \"source1\"",
                "source = \"source1\"\nreceivers = [\"h3\"]",
                "line 15: `h3` has cross traffic, and runs nothing else",
            ),
        ] {
            assert!(SHARED.contains(what), "{what}");
            let found = read(&SHARED.replacen(what, with, 1)).unwrap_err().to_string();
            assert_eq!(found, expected);
        }
        let twice = SHARED
            .replace("[lms]", "[[traffic]]\nfrom = \"source2\"\nto = \"h1\"\nrate = \"1M\"\n[lms]");
        let twice = read(&twice).unwrap_err().to_string();
        assert_eq!(twice, "line 14: `source2` has cross traffic to send already");
    }
}
