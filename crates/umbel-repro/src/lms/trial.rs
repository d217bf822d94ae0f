//! One packet lost on each link of a tree, one after the other, and repaired by one of the
//! schemes.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_sim::{FlowId, Instant, Kind, Kinds, LinkSpec, Loss, NodeId, ScriptedLoss, Simulation};

use super::observer::{Observer, Recovery, Timetable};
use super::scenario::{Graph, LinkClass, Scenario, Setting};
use super::schemes::{self, Scheme, Tuning};
use crate::pool::Experiment;
use crate::record::{Cell, Cells, Record};

/// A scheme on a graph. Its runs differ in the places of the receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trial {
    /// The scheme that repairs.
    pub scheme: Scheme,
    /// The network between source and receivers.
    pub setting: Setting,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Number of receivers.
    pub receivers: usize,
    /// Recovery from each loss.
    pub recoveries: Vec<Recovery>,
}

/// A cell for each quantity, with a value for each loss.
impl Record for Outcome {
    fn columns() -> Vec<String> {
        let lists = ["class", "missed", "unrepaired", "latency", "duplicates", "requests"];
        let names = ["receivers"].into_iter().chain(lists).chain(["repairs", "by_source"]);
        names.map(str::to_owned).collect()
    }

    fn write(&self, cells: &mut Vec<String>) {
        fn list<T: Cell>(all: &[Recovery], value: impl Fn(&Recovery) -> T) -> String {
            all.iter().map(value).collect::<Vec<T>>().text()
        }
        let all = &self.recoveries;
        cells.extend([
            self.receivers.text(),
            list(all, |loss| loss.class),
            list(all, |loss| loss.missed),
            list(all, |loss| loss.unrepaired),
            list(all, |loss| loss.latency),
            list(all, |loss| loss.duplicates),
            list(all, |loss| loss.requests),
            list(all, |loss| loss.repairs),
            list(all, |loss| loss.by_source),
        ]);
    }

    fn read(cells: &mut Cells<'_>) -> Option<Outcome> {
        let receivers = Cell::parse(cells.next()?)?;
        let class: Vec<LinkClass> = Cell::parse(cells.next()?)?;
        let mut counts = || Vec::<u32>::parse(cells.next()?).filter(|all| all.len() == class.len());
        let (missed, unrepaired) = (counts()?, counts()?);
        let latency: Vec<[f64; 3]> = Cell::parse(cells.next()?)?;
        let mut counts = || Vec::<u32>::parse(cells.next()?).filter(|all| all.len() == class.len());
        let (duplicates, requests, repairs, by_source) =
            (counts()?, counts()?, counts()?, counts()?);
        if latency.len() != class.len() {
            return None;
        }
        let recovery = |n: usize| Recovery {
            class: class[n],
            missed: missed[n],
            unrepaired: unrepaired[n],
            latency: latency[n],
            duplicates: duplicates[n],
            requests: requests[n],
            repairs: repairs[n],
            by_source: by_source[n],
        };
        Some(Outcome { receivers, recoveries: (0..class.len()).map(recovery).collect() })
    }
}

/// Time in which distances, trees and paths become known.
const WARM_UP: Duration = Duration::from_secs(30);

impl Experiment for Trial {
    type Outcome = Outcome;

    fn run(&self, seed: u64) -> Outcome {
        self.run_on(self.setting.place(seed), seed)
    }
    fn work(&self) -> u64 {
        let receivers = match self.setting.graph {
            Graph::Binary { height } => 1 << height,
            Graph::Random { receivers } | Graph::TransitStub { receivers } => u64::from(receivers),
        };
        let losses = if self.scheme == Scheme::SrmLarge { 10 } else { receivers + 50 };
        receivers * losses * self.scheme.work()
    }
}

impl Trial {
    /// Returns the number of the graph if it is one of a sample: graphs of a number are drawn
    /// alike.
    pub(super) fn graph(&self) -> Option<u32> {
        match self.setting.graph {
            Graph::Binary { .. } => None,
            Graph::Random { .. } | Graph::TransitStub { .. } => Some(self.setting.number),
        }
    }

    /// Runs the scheme on a scenario.
    fn run_on(&self, mut scenario: Scenario, seed: u64) -> Outcome {
        self.run_tuned(&mut scenario, seed, Tuning::default())
    }

    /// Runs the scheme on a scenario, with other values in the place of chosen ones.
    pub(super) fn run_tuned(&self, scenario: &mut Scenario, seed: u64, tuning: Tuning) -> Outcome {
        if self.scheme == Scheme::SrmLarge {
            scenario.keep_some_links();
        }
        let timetable = self.timetable(scenario);
        let mut simulation = Simulation::new(lossy(scenario), seed);
        let sends = timetable.sends();
        schemes::install_tuned(self.scheme, tuning, &mut simulation, scenario, sends, seed);
        simulation.set_tracer(Box::new(Observer::new(scenario, timetable)));
        simulation.run_until(timetable.end());
        let observer = simulation.take_tracer().expect("it was set");
        Outcome { receivers: scenario.receivers.len(), recoveries: Observer::finish(observer) }
    }

    fn timetable(&self, scenario: &Scenario) -> Timetable {
        Timetable {
            start: Instant::EPOCH + WARM_UP,
            spacing: self.scheme.quiet(scenario.greatest_rtt()),
            losses: scenario.tree.len(),
        }
    }
}

/// Returns the network, in which each link of the tree loses one original packet.
fn lossy(scenario: &Scenario) -> umbel_sim::Network {
    let losses: BTreeMap<(u32, NodeId), u64> = scenario
        .tree
        .iter()
        .enumerate()
        .map(|(loss, link)| ((link.link.0, link.from), Timetable::nth(loss)))
        .collect();
    scenario.network(|link, from, spec| match losses.get(&(link.0, from)) {
        Some(&nth) => LinkSpec {
            loss: Loss::Script(vec![ScriptedLoss { flow: FlowId(0), nth }]),
            loss_of: Kinds::NONE.with(Kind::Data),
            ..spec
        },
        None => spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    use umbel_sim::{Network, Schedules};
    use umbel_topology::Topology;

    use crate::lms::scenario::Delays;

    fn trial(scheme: Scheme, graph: Graph) -> Trial {
        let setting = Setting { graph, delays: Delays::Plane, number: 1, access_percent: 10 };
        Trial { scheme, setting }
    }

    #[test]
    fn each_loss_hits_those_below_it_and_is_repaired() {
        for scheme in Scheme::ALL {
            let outcome = trial(scheme, Graph::Random { receivers: 8 }).run(3);
            assert_eq!(outcome.receivers, 8);
            for recovery in &outcome.recoveries {
                assert!((1..=8).contains(&recovery.missed), "{scheme:?}: {recovery:?}");
                assert_eq!(recovery.unrepaired, 0, "{scheme:?}: {recovery:?}");
                match recovery.class {
                    LinkClass::Source => assert_eq!(recovery.missed, 8),
                    LinkClass::Receiver => assert_eq!(recovery.missed, 1),
                    _ => {}
                }
                assert!(recovery.requests > 0 && recovery.repairs > 0);
                assert!(recovery.latency[1] <= recovery.latency[2]);
            }
        }
    }

    #[test]
    fn on_a_binary_tree_pgm_takes_a_round_trip_to_the_source() {
        let outcome = trial(Scheme::Pgm, Graph::Binary { height: 3 }).run(1);
        assert_eq!(outcome.recoveries.len(), 15);
        for recovery in &outcome.recoveries {
            let mean = recovery.latency[0] / f64::from(recovery.missed);
            assert!((mean - 1.0).abs() < 1e-6, "{recovery:?}");
            assert_eq!((recovery.by_source, recovery.duplicates), (1, 0));
        }
    }

    #[test]
    fn an_outcome_reads_back() {
        let outcome = trial(Scheme::Lms, Graph::Random { receivers: 5 }).run(1);
        let mut cells = Vec::new();
        outcome.write(&mut cells);
        assert_eq!(cells.len(), Outcome::columns().len());
        assert_eq!(Outcome::read(&mut cells.iter()), Some(outcome));
        cells[1] = cells[1].replace(' ', " core ");
        assert_eq!(Outcome::read(&mut cells.iter()), None);
    }

    #[test]
    fn a_run_is_a_function_of_trial_and_seed() {
        let trial = trial(Scheme::Pgm, Graph::TransitStub { receivers: 5 });
        assert_eq!(trial.run(1), trial.run(1));
        assert_ne!(trial.run(1), trial.run(2));
    }

    /// Writes a trial as a scenario file: its packets and losses, with the section of a protocol.
    fn file(trial: &Trial, scenario: &Scenario, topology: &Topology, section: &str) -> String {
        let timetable = trial.timetable(scenario);
        let ns = |at: Instant| at.since(Instant::EPOCH).as_nanos();
        let sends: Vec<u128> = timetable.sends().map(ns).collect();
        let after = ns(timetable.end()) - sends.last().unwrap();
        let network = Network::from_topology(topology, &Schedules::new()).unwrap();
        let mut text = String::from("topology.file = \"topology.toml\"\n");
        for (loss, link) in scenario.tree.iter().enumerate() {
            let (a, b) = network.ends(link.link);
            let to = if a == link.from { b } else { a };
            let (from, to) = (network.name(link.from), network.name(to));
            let nth = Timetable::nth(loss);
            let _ = write!(text, "[[drop]]\nlink = [\"{from}\", \"{to}\"]\nnth = [{nth}]\n");
        }
        let sends: Vec<String> = sends.iter().map(|at| format!("\"{at}ns\"")).collect();
        text + &format!(
            "[{section}]\npaper = true\nsends = [{}]\nafter = \"{after}ns\"\n",
            sends.join(", ")
        )
    }

    #[test]
    fn a_scenario_file_of_the_same_losses_has_the_same_results() {
        for (scheme, section) in [(Scheme::Lms, "lms"), (Scheme::Srm, "srm"), (Scheme::Pgm, "pgm")]
        {
            let trial = trial(scheme, Graph::Random { receivers: 8 });
            // Files list hosts before routers, and so nodes get other numbers.
            let written = trial.setting.topology(3).to_toml();
            let topology = Topology::from_toml(&written).unwrap();
            let scenario =
                Scenario::new(Network::from_topology(&topology, &Schedules::new()).unwrap());
            let text = file(&trial, &scenario, &topology, section);
            let outcome = trial.run_on(scenario, 5);

            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("topology.toml"), written).unwrap();
            let study = umbel_sim::scenario::Study::from_toml(&text, folder.path()).unwrap();
            let mut run = study.scenario(0).unwrap().start(5).unwrap();
            while run.go_on(Duration::from_secs(100)) {}
            let results = run.report().results;
            let losses = results.table("losses").unwrap();
            assert_eq!(losses.rows(), outcome.recoveries.len(), "{scheme:?}");
            let column = |name: &str| losses.numbers(name);
            let packets = column("packet");
            for (loss, recovery) in outcome.recoveries.iter().enumerate() {
                let packet = (Timetable::nth(loss) - 1) as f64;
                let row = packets.iter().position(|other| (other - packet).abs() < 0.5).unwrap();
                let found = ["missed", "requests", "repairs", "source_repairs", "duplicates"]
                    .map(|name| column(name)[row].round() as u32);
                let expected = [
                    recovery.missed,
                    recovery.requests,
                    recovery.repairs,
                    recovery.by_source,
                    recovery.duplicates,
                ];
                assert_eq!(found, expected, "{scheme:?}, loss {loss}");
                let [sum, least, greatest] = recovery.latency;
                let expected = [sum / f64::from(recovery.missed), least, greatest];
                for (name, expected) in
                    ["latency_rtt", "latency_min_rtt", "latency_max_rtt"].into_iter().zip(expected)
                {
                    let found = column(name)[row];
                    assert!(
                        (found - expected).abs() < 1e-9,
                        "{scheme:?}, loss {loss}: {name} {found}, not {expected}"
                    );
                }
            }
        }
    }
}
