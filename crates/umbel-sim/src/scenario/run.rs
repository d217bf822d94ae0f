//! Run of a scenario.

use std::any::Any;
use std::path::Path;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_topology::Mistake;

use super::Scenario;
use super::drops::Ending;
use super::protocol::Programs;
use super::report::{Network as NetworkReport, Report};
use crate::trace::{MembershipRecord, MessageRecord, NoteRecord, PacketRecord, TraceError, Tracer};
use crate::{Counters, Outcome, Simulation};

/// Scenario with a seed, at a moment of simulated time.
#[derive(Debug)]
pub struct Run {
    simulation: Simulation,
    programs: Box<dyn Programs>,
    seed: u64,
    end: Instant,
    /// Outcome of the last step.
    outcome: Outcome,
    /// Whether the programs have nothing left to do.
    is_done: bool,
    /// Whether the run ends when all receivers have everything.
    ends_with_all: bool,
    /// Traces of losses with which the run ends.
    endings: Vec<Ending>,
}

/// Interval at which the programs are asked whether they are done.
const ASK_EVERY: Duration = Duration::from_millis(100);

impl Scenario {
    /// Puts the programs on their hosts. Equal seeds produce equal runs.
    ///
    /// # Errors
    /// If the simulator does not support a feature, such as links that reorder.
    pub fn start(&self, seed: u64) -> Result<Run, Mistake> {
        let (network, endings) = self.network_with_endings(seed)?;
        let mut simulation = Simulation::new(network, seed);
        let mut programs = self.protocol.install(self, &mut simulation, seed)?;
        for traffic in &self.traffic {
            traffic
                .install(&mut simulation, seed)
                .map_err(|error| Mistake::new(error.to_string()))?;
        }
        if let Some(observer) = programs.observer() {
            simulation.set_tracer(observer);
        }
        let end = Instant::EPOCH + self.ends();
        let (outcome, is_done) = (Outcome::Reached, false);
        // With cross traffic something is always left to happen.
        let ends_with_all = !self.traffic.is_empty() && self.protocol.ends().is_none();
        Ok(Run { simulation, programs, seed, end, outcome, is_done, ends_with_all, endings })
    }
}

impl Run {
    /// Reports all events to a tracer from now on.
    pub fn set_tracer(&mut self, tracer: Box<dyn Tracer>) {
        let observer = self.simulation.take_tracer();
        self.simulation.set_tracer(Box::new(Both { observer, tracer }));
    }

    /// Continues for at most `time` of simulated time. Returns whether anything is left to do.
    pub fn go_on(&mut self, time: Duration) -> bool {
        let until = (self.simulation.now() + time).min(self.end);
        while !self.is_over() && self.simulation.now() < until {
            let ask = self.next_question().filter(|ask| *ask <= until);
            self.outcome = self.simulation.run_until(ask.unwrap_or(until));
            self.is_done = ask.is_some() && self.asks_whether_done();
        }
        !self.is_over()
    }

    fn asks_whether_done(&self) -> bool {
        let (done, all) = self.programs.progress(&self.simulation);
        self.programs.is_done(&self.simulation) || (self.ends_with_all && done == all)
    }

    /// Returns the next moment at which the programs are asked whether they are done. It does not
    /// depend on the lengths of steps, and so neither do the results.
    fn next_question(&self) -> Option<Instant> {
        let every = ASK_EVERY.as_nanos() as u64;
        let next = (self.simulation.now().as_nanos() / every).checked_add(1)?.checked_mul(every)?;
        let asks = self.ends_with_all || self.programs.can_be_done();
        asks.then_some(Instant::from_nanos(next))
    }

    /// Returns whether the end is reached, nothing is left to happen, or an error occurred.
    pub fn is_over(&self) -> bool {
        self.outcome != Outcome::Reached
            || self.is_done
            || self.simulation.now() >= self.end
            || self.ended_trace().is_some()
    }

    /// Returns the trace of losses that ended before the run, if that is an error.
    pub fn ended_trace(&self) -> Option<&Path> {
        self.endings.iter().find_map(Ending::file)
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

    /// Returns the number of receivers that have everything that they want, and that of all
    /// receivers.
    pub fn progress(&self) -> (usize, usize) {
        self.programs.progress(&self.simulation)
    }

    /// Ends the trace and returns the tracer.
    ///
    /// # Errors
    /// If the trace could not be written.
    pub fn finish_trace(&mut self) -> Result<Option<Box<dyn Tracer>>, TraceError> {
        let Some(mut tracer) = self.simulation.take_tracer() else { return Ok(None) };
        tracer.finish(self.simulation.now())?;
        let tracer: Box<dyn Any> = tracer;
        match tracer.downcast::<Both>() {
            Ok(both) => Ok(Some(both.tracer)),
            Err(_) => Ok(None),
        }
    }

    /// Returns the results of the run so far.
    pub fn report(&self) -> Report {
        Report {
            seed: self.seed,
            simulated_s: self.simulation.now().since(Instant::EPOCH).as_secs_f64(),
            results: self.programs.results(&self.simulation),
            network: NetworkReport::new(self.counters()),
        }
    }
}

/// The tracer of the programs, if they have one, and that of the user.
struct Both {
    observer: Option<Box<dyn Tracer>>,
    tracer: Box<dyn Tracer>,
}

impl Both {
    fn all(&mut self) -> impl Iterator<Item = &mut Box<dyn Tracer>> {
        self.observer.iter_mut().chain([&mut self.tracer])
    }
}

impl Tracer for Both {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        self.all().for_each(|tracer| tracer.packet(record));
    }

    fn note(&mut self, record: &NoteRecord<'_>) {
        self.all().for_each(|tracer| tracer.note(record));
    }

    fn message(&mut self, record: &MessageRecord<'_>) {
        self.all().for_each(|tracer| tracer.message(record));
    }

    fn membership(&mut self, record: &MembershipRecord) {
        self.all().for_each(|tracer| tracer.membership(record));
    }

    fn failed(&self) -> bool {
        self.tracer.failed()
    }

    fn finish(&mut self, end: Instant) -> Result<(), TraceError> {
        self.tracer.finish(end)
    }
}
