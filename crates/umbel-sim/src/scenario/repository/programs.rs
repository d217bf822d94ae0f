//! Programs of a repository's hosts, and what came of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use umbel_engine::Instant;
use umbel_topology::Mistake;
use umbel_wire::{Oti, Toi};

use super::{Arrival, Repository};
use crate::network::NodeId;
use crate::random::node_seed;
use crate::repository::{Catalog, Client, ClientHost, Server, ServerHost};
use crate::scenario::protocol::{Programs, Protocol};
use crate::scenario::report::{Clients, Measure, Results, ServerReport, delay_table, links};
use crate::scenario::{Scenario, paths};
use crate::{SessionDelay, Simulation};

/// A server and clients that run.
#[derive(Debug)]
struct Running {
    server: NodeId,
    arrivals: Vec<Arrival>,
    groups: Vec<String>,
    /// Source symbols of the items that somebody wants.
    needed: u64,
}

impl Protocol for Repository {
    fn extent(&self) -> Vec<(&'static str, usize)> {
        let clients = self.clients.iter().map(|group| group.hosts.len()).sum();
        vec![("items", self.items.len()), ("clients", clients)]
    }

    fn install(
        &self,
        scenario: &Scenario,
        simulation: &mut Simulation,
        seed: u64,
    ) -> Result<Box<dyn Programs>, Mistake> {
        let items = self.items.iter().map(|item| (item.name.clone(), item.oti));
        let catalog = Arc::new(Catalog::new(items));
        let mut server = Server::host(self.config.clone(), seed, catalog.clone());
        self.set_sessions(scenario, simulation, server.host_mut());
        simulation.set_app(self.server, server, Instant::EPOCH)?;
        let arrivals = self.arrivals(seed);
        for arrival in &arrivals {
            let group = &self.clients[arrival.group];
            let (config, server) = (group.config.clone(), self.server);
            let wanted = arrival.items.iter().map(|item| Toi(item + 1)).collect();
            let seed = node_seed(seed, arrival.node);
            let mut client = Client::host(config, seed, server, catalog.clone(), wanted);
            if let Some(time) = group.leave_after {
                client.host_mut().set_leave_after(time);
            }
            simulation.set_app(arrival.node, client, arrival.at)?;
        }
        let groups = self.clients.iter().map(|group| group.name.clone()).collect();
        let wanted: BTreeSet<u32> =
            arrivals.iter().flat_map(|it| it.items.iter().copied()).collect();
        let symbols = |oti: &Oti| oti.object_len.div_ceil(oti.symbol_len.into());
        let needed = wanted.iter().map(|&item| symbols(&self.items[item as usize].oti)).sum();
        Ok(Box::new(Running { server: self.server, arrivals, groups, needed }))
    }
}

impl Repository {
    /// Sets the delays of messages, and the round-trip times as reported to the server.
    fn set_sessions(&self, scenario: &Scenario, simulation: &mut Simulation, server: &mut Server) {
        if let Some(sessions) = scenario.sessions {
            simulation.set_sessions(sessions);
            return server.set_rtt((sessions.min + sessions.mean_extra) * 2);
        }
        let node = self.server;
        let delays = paths::delays(&scenario.topology, node.0 as usize);
        for client in self.clients.iter().flat_map(|group| &group.hosts) {
            let Some((there, back)) = delays[client.0 as usize] else { continue };
            let exactly = |min| SessionDelay { min, mean_extra: Duration::ZERO };
            simulation.set_sessions_between(node, *client, exactly(there));
            simulation.set_sessions_between(*client, node, exactly(back));
            server.set_rtt_of(*client, there + back);
        }
    }
}

impl Running {
    /// Returns the time from a client's arrival until it had everything that it wanted.
    fn delay(simulation: &Simulation, arrival: &Arrival) -> Option<Duration> {
        simulation.app::<ClientHost>(arrival.node)?.host().delay()
    }
}

impl Programs for Running {
    fn progress(&self, simulation: &Simulation) -> (usize, usize) {
        let done = |arrival: &&Arrival| Running::delay(simulation, arrival).is_some();
        (self.arrivals.iter().filter(done).count(), self.arrivals.len())
    }

    fn results(&self, simulation: &Simulation) -> Results {
        let mut groups: BTreeMap<usize, Vec<Option<Duration>>> = BTreeMap::new();
        for arrival in &self.arrivals {
            let delay = Running::delay(simulation, arrival);
            groups.entry(arrival.group).or_default().push(delay);
        }
        let all: Vec<Option<Duration>> = groups.values().flatten().copied().collect();
        let clients = Clients::new("all", &all);
        let groups: Vec<Clients> = groups
            .iter()
            .map(|(&group, delays)| Clients::new(&self.groups[group], delays))
            .collect();
        let server = simulation.app::<ServerHost>(self.server);
        let server = server.map(|host| ServerReport::new(host.engine().stats()));
        let server = server.unwrap_or_default();
        let rows = std::iter::once(&clients).chain(groups.iter().filter(|_| groups.len() > 1));
        let text = format!("{}{server}", delay_table("clients", rows));
        let count = |name, value: u64| Measure::new(name, value as f64);
        let mut measures = clients.measures();
        let sent = server.packets as f64 / self.needed as f64;
        measures.insert(1, Measure::new("sent_per_needed", sent));
        measures.extend([
            count("data_packets", server.packets),
            count("data_bytes", server.bytes),
            count("transmissions", server.transmissions),
            count("retransmissions", server.retransmissions),
            count("naks", server.naks),
        ]);
        Results {
            clients,
            groups,
            delay: "delay",
            measures,
            tables: vec![links(simulation)],
            text,
            details: [("server", json!(server))].into(),
        }
    }
}
