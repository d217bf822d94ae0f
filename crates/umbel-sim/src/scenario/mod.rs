//! Scenarios of simulations, each written in one TOML file.
//!
//! A scenario has a topology, the section of a protocol, and the events of the run. The topology is
//! in place, in a file of its own that the lab reads too, or from a
//! [generator](crate::generate). `docs/laboratory/simulator.md` has every key, `examples/sim/` has
//! scenarios.
//!
//! ```
//! use std::path::Path;
//! use umbel_sim::scenario::{Repository, Scenario};
//!
//! let scenario = Scenario::from_toml(
//!     r#"
//!     topology = { generator = "star", receivers = 3, access = { loss = "5%" } }
//!
//!     [repository]
//!     rate = "1M"
//!     items = 10
//!     item_size = "20kB"
//!     "#,
//!     Path::new(""),
//! )?;
//! let repository: &Repository = scenario.section().unwrap();
//! assert_eq!(repository.clients[0].hosts.len(), 3);
//! # Ok::<(), umbel_topology::Mistake>(())
//! ```
//!
//! Any error in a file is a [`Mistake`] that names its line.

mod basep;
mod churn;
mod cut;
mod drops;
mod file;
mod hosts;
mod lms;
mod pace;
mod party;
mod paths;
mod pgm;
mod protocol;
mod queues;
pub mod report;
mod repository;
mod rlm;
mod run;
mod settings;
mod smo;
mod srm;
mod stream;
mod sweep;
mod table;
mod tmtp;
mod traffic;
mod transfer;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use umbel_topology::{Mistake, Topology};

pub use self::basep::Basep;
pub use self::churn::Churn;
pub use self::cut::Cut;
pub use self::drops::Drop;
pub use self::lms::Lms;
pub use self::pgm::Pgm;
pub use self::protocol::{Programs, Protocol};
pub use self::queues::LinkQueue;
pub use self::report::Report;
pub use self::repository::{Arrival, Arrivals, ClientGroup, Item, Repository};
pub use self::rlm::Rlm;
pub use self::run::Run;
pub use self::smo::Smo;
pub use self::srm::Srm;
pub use self::stream::Stream;
pub use self::sweep::{Axis, Study};
pub use self::tmtp::Tmtp;
pub use self::traffic::CrossTraffic;
use crate::topology::Schedules;
use crate::{Kinds, Network, SessionDelay};

/// Scenario that was read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name of the scenario. Default: the name of its file.
    pub name: String,
    /// Seed of the run, for loss, arrivals, choices and delays.
    pub seed: u64,
    /// Time when the run ends, unless nothing is left to happen earlier.
    pub duration: Duration,
    /// Network of the run.
    pub topology: Topology,
    /// Delay of messages of sessions. Default: the propagation time between the two hosts.
    pub sessions: Option<SessionDelay>,
    /// Time that a join takes for a hop up the tree. Default: the delay of the link.
    pub join_latency: Option<Duration>,
    /// Time that a leave takes for a hop up the tree. Default: the delay of the link.
    pub leave_latency: Option<Duration>,
    /// Links that fail.
    pub cuts: Vec<Cut>,
    /// Kinds of packets that links lose by chance.
    pub loss_of: Kinds,
    /// Packets that links lose by plan.
    pub drops: Vec<Drop>,
    /// Queues that replace those of the topology.
    pub queues: Vec<LinkQueue>,
    /// Hosts that come and go.
    pub churn: Vec<Churn>,
    /// Packets of others on the same links.
    pub traffic: Vec<CrossTraffic>,
    /// Protocol that runs on the hosts.
    pub protocol: Arc<dyn Protocol>,
    /// Traces to write; the extension determines the form.
    pub traces: Vec<PathBuf>,
}

impl Scenario {
    /// Returns the section of the protocol, if it is a `P`.
    pub fn section<P: Protocol>(&self) -> Option<&P> {
        let section: &dyn Any = &*self.protocol;
        section.downcast_ref()
    }

    /// Returns the time when a run ends at the latest.
    pub fn ends(&self) -> Duration {
        self.protocol.ends().map_or(self.duration, |ends| ends.min(self.duration))
    }

    /// Returns the times when links go up and down in the run of a seed.
    pub fn schedules(&self, seed: u64) -> Schedules {
        let churn = self.churn.iter();
        let absences: Vec<Cut> =
            churn.flat_map(|churn| churn.absences(&self.topology, seed, self.ends())).collect();
        cut::schedules(self.cuts.iter().chain(&absences))
    }

    /// Returns the network with its failures in the run of the scenario's own seed.
    ///
    /// # Errors
    /// If the simulator does not support a feature, such as links that reorder.
    pub fn network(&self) -> Result<Network, Mistake> {
        self.network_with_endings(self.seed).map(|(network, _)| network)
    }

    /// Returns the network, and what tells that a trace of losses has ended.
    fn network_with_endings(&self, seed: u64) -> Result<(Network, Vec<drops::Ending>), Mistake> {
        let mut network = Network::from_topology(&self.topology, &self.schedules(seed))?;
        if let Some(latency) = self.join_latency {
            network.set_graft_latency(latency);
        }
        if let Some(latency) = self.leave_latency {
            network.set_prune_latency(latency);
        }
        network.set_loss_of(self.loss_of);
        for queue in &self.queues {
            queue.apply(&mut network).map_err(|error| Mistake::new(error.to_string()))?;
        }
        let mut endings = Vec::new();
        for drop in &self.drops {
            let ending = drop.apply(&mut network);
            endings.extend(ending.map_err(|error| Mistake::new(error.to_string()))?);
        }
        Ok((network, endings))
    }

    /// Reads and checks a file. If it has a sweep, the scenario is that of its first point.
    ///
    /// # Errors
    /// Returns one line with the file, the line, the mistake and the expected input.
    pub fn from_file(path: &Path) -> Result<Scenario, Mistake> {
        Study::from_file(path)?.scenario(0)
    }

    /// Reads and checks the TOML form. Files that it names are found in `folder`. If it has a
    /// sweep, the scenario is that of its first point.
    ///
    /// # Errors
    /// Returns one line with the line of the text, the mistake and the expected input.
    pub fn from_toml(text: &str, folder: &Path) -> Result<Scenario, Mistake> {
        Study::from_toml(text, folder)?.scenario(0)
    }
}

#[cfg(test)]
mod protocol_tests;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod surroundings_tests;
#[cfg(test)]
mod tests;
