//! Run of a scenario.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_wire::Toi;

use super::report::{Clients, Network as NetworkReport, Report, ServerReport};
use super::workload::Arrival;
use super::{Protocol, Repository, Scenario, paths};
use crate::network::NodeId;
use crate::repository::{Catalog, Client, ClientHost, Server, ServerHost};
use crate::topology::Mistake;
use crate::trace::{TraceError, Tracer};
use crate::{Counters, Outcome, SessionDelay, Simulation};

/// Scenario with a seed, at a moment of simulated time.
#[derive(Debug)]
pub struct Run {
    simulation: Simulation,
    server: NodeId,
    arrivals: Vec<Arrival>,
    groups: Vec<String>,
    seed: u64,
    end: Instant,
    /// Outcome of the last step.
    outcome: Outcome,
}

impl Scenario {
    /// Puts the programs on their hosts. Equal seeds produce equal runs.
    ///
    /// # Errors
    /// If the simulator does not support a feature, such as links that reorder.
    pub fn start(&self, seed: u64) -> Result<Run, Mistake> {
        let failed = |error: crate::NetworkError| Mistake::new(error.to_string());
        let mut simulation = Simulation::new(self.network()?, seed);
        let Protocol::Repository(repository) = &self.protocol;
        let items = repository.items.iter().map(|item| (item.name.clone(), item.oti));
        let catalog = Arc::new(Catalog::new(items));
        let mut server = Server::host(repository.config.clone(), seed, catalog.clone());
        self.set_sessions(repository, &mut simulation, server.host_mut());
        simulation.set_app(repository.server, server, Instant::EPOCH).map_err(failed)?;
        let arrivals = repository.arrivals(seed);
        for arrival in &arrivals {
            let group = &repository.clients[arrival.group];
            let (config, server) = (group.config.clone(), repository.server);
            let wanted = arrival.items.iter().map(|item| Toi(item + 1)).collect();
            let seed = client_seed(seed, arrival);
            let mut client = Client::host(config, seed, server, catalog.clone(), wanted);
            if let Some(time) = group.leave_after {
                client.host_mut().set_leave_after(time);
            }
            simulation.set_app(arrival.node, client, arrival.at).map_err(failed)?;
        }
        Ok(Run {
            simulation,
            server: repository.server,
            arrivals,
            groups: repository.clients.iter().map(|group| group.name.clone()).collect(),
            seed,
            end: Instant::EPOCH + self.duration,
            outcome: Outcome::Reached,
        })
    }

    /// Sets the delays of messages, and the round-trip times as reported to the server.
    fn set_sessions(
        &self,
        repository: &Repository,
        simulation: &mut Simulation,
        server: &mut Server,
    ) {
        if let Some(sessions) = self.sessions {
            simulation.set_sessions(sessions);
            return server.set_rtt((sessions.min + sessions.mean_extra) * 2);
        }
        let node = repository.server;
        let delays = paths::delays(&self.topology, node.0 as usize);
        for client in repository.clients.iter().flat_map(|group| &group.hosts) {
            let Some((there, back)) = delays[client.0 as usize] else { continue };
            let exactly = |min| SessionDelay { min, mean_extra: Duration::ZERO };
            simulation.set_sessions_between(node, *client, exactly(there));
            simulation.set_sessions_between(*client, node, exactly(back));
            server.set_rtt_of(*client, there + back);
        }
    }
}

/// Returns the seed of a client's own random stream, for its NAK delays.
fn client_seed(seed: u64, arrival: &Arrival) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(arrival.node.0)
}

impl Run {
    /// Reports all events to a tracer from now on.
    pub fn set_tracer(&mut self, tracer: Box<dyn Tracer>) {
        self.simulation.set_tracer(tracer);
    }

    /// Continues for at most `time` of simulated time. Returns whether anything is left to do.
    pub fn go_on(&mut self, time: Duration) -> bool {
        if !self.is_over() {
            let until = (self.simulation.now() + time).min(self.end);
            self.outcome = self.simulation.run_until(until);
        }
        !self.is_over()
    }

    /// Returns whether the end is reached, nothing is left to happen, or an error occurred.
    pub fn is_over(&self) -> bool {
        self.outcome != Outcome::Reached || self.simulation.now() >= self.end
    }

    /// Returns the host that ended the run because its engine made no progress.
    pub fn stuck(&self) -> Option<&str> {
        match self.outcome {
            Outcome::Stuck(node) => Some(self.simulation.network().name(node)),
            _ => None,
        }
    }

    /// Returns the simulation.
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> &Counters {
        self.simulation.counters()
    }

    /// Returns the number of clients that have everything that they want, and that of all clients.
    pub fn progress(&self) -> (usize, usize) {
        let done = self.arrivals.iter().filter(|arrival| self.delay(arrival).is_some()).count();
        (done, self.arrivals.len())
    }

    /// Returns the time from a client's arrival until it had everything that it wanted.
    fn delay(&self, arrival: &Arrival) -> Option<Duration> {
        self.simulation.app::<ClientHost>(arrival.node)?.host().delay()
    }

    /// Ends the trace and returns the tracer.
    ///
    /// # Errors
    /// If the trace could not be written.
    pub fn finish_trace(&mut self) -> Result<Option<Box<dyn Tracer>>, TraceError> {
        let mut tracer = self.simulation.take_tracer();
        if let Some(tracer) = &mut tracer {
            tracer.finish(self.simulation.now())?;
        }
        Ok(tracer)
    }

    /// Returns the results of the run so far.
    pub fn report(&self) -> Report {
        let mut groups: BTreeMap<usize, Vec<Option<Duration>>> = BTreeMap::new();
        for arrival in &self.arrivals {
            groups.entry(arrival.group).or_default().push(self.delay(arrival));
        }
        let all: Vec<Option<Duration>> = groups.values().flatten().copied().collect();
        let server = self.simulation.app::<ServerHost>(self.server);
        Report {
            seed: self.seed,
            simulated_s: self.simulation.now().since(Instant::EPOCH).as_secs_f64(),
            clients: Clients::new("all", &all),
            groups: groups
                .iter()
                .map(|(&group, delays)| Clients::new(&self.groups[group], delays))
                .collect(),
            server: server.map(|host| ServerReport::new(host.engine().stats())).unwrap_or_default(),
            network: NetworkReport::new(self.counters()),
        }
    }
}
