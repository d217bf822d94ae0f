//! Scenarios of simulations, each written in one TOML file.
//!
//! A scenario has a topology, the section of a protocol, and the events of the run. The topology is
//! in place, in a file of its own that the lab reads too, or from a
//! [generator](crate::topology::generate). `docs/sim.md` has every key, `examples/sim/` has
//! scenarios.
//!
//! ```
//! use std::path::Path;
//! use umbel_sim::scenario::{Protocol, Scenario};
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
//! let Protocol::Repository(repository) = &scenario.protocol;
//! assert_eq!(repository.clients[0].hosts.len(), 3);
//! # Ok::<(), umbel_sim::topology::Mistake>(())
//! ```
//!
//! Any error in a file is a [`Mistake`] that names its line.

mod cut;
mod file;
mod hosts;
mod paths;
pub mod report;
mod repository;
mod run;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::cut::Cut;
pub use self::report::Report;
pub use self::repository::{Arrivals, ClientGroup, Item, Repository};
pub use self::run::Run;
pub use self::workload::Arrival;
use crate::topology::{Mistake, Schedules, Topology};
use crate::{Network, SessionDelay};

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
    /// Protocol that runs on the hosts.
    pub protocol: Protocol,
    /// Traces to write; the extension determines the form.
    pub traces: Vec<PathBuf>,
}

/// Section of a protocol, which determines the programs of the hosts.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// `[repository]`.
    Repository(Box<Repository>),
}

impl Scenario {
    /// Returns the times when links go up and down.
    pub fn schedules(&self) -> Schedules {
        cut::schedules(&self.cuts)
    }

    /// Returns the network with its failures.
    ///
    /// # Errors
    /// If the simulator does not support a feature, such as links that reorder.
    pub fn network(&self) -> Result<Network, Mistake> {
        let mut network = self.topology.to_network(&self.schedules())?;
        if let Some(latency) = self.join_latency {
            network.set_graft_latency(latency);
        }
        if let Some(latency) = self.leave_latency {
            network.set_prune_latency(latency);
        }
        Ok(network)
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// Returns one line with the file, the line, the mistake and the expected input.
    #[allow(clippy::disallowed_methods, reason = "scenarios are read before a run")]
    pub fn from_file(path: &Path) -> Result<Scenario, Mistake> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut scenario = std::fs::read_to_string(path)
            .map_err(|error| Mistake::new(error.to_string()))
            .and_then(|text| Scenario::from_toml(&text, folder))
            .map_err(|mistake| mistake.in_file(path))?;
        if scenario.name.is_empty() {
            scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod tests;
