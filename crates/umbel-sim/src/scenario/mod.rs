//! What is simulated, written in one TOML file.
//!
//! A scenario has a topology (in place, in a file of its own that the lab reads too, or by a
//! [generator](crate::topology::generate)), the section of a protocol, and what happens
//! meanwhile. `docs/sim.md` has every key, `examples/sim/` has scenarios.
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
//! Whatever is wrong with a file is a [`Mistake`] with the line that has it.

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

/// A scenario that was read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What to call it; else the name of its file.
    pub name: String,
    /// Seed of the run: loss, arrivals, choices, delays.
    pub seed: u64,
    /// When the run ends, unless nothing is left to happen before.
    pub duration: Duration,
    /// The network.
    pub topology: Topology,
    /// How long messages of sessions take; else the propagation time between the two.
    pub sessions: Option<SessionDelay>,
    /// What a join takes a hop up the tree, and a leave; else the delay of the link.
    pub join_latency: Option<Duration>,
    /// As above.
    pub leave_latency: Option<Duration>,
    /// Links that fail.
    pub cuts: Vec<Cut>,
    /// What runs on the hosts.
    pub protocol: Protocol,
    /// Traces to write; the extension says in which form.
    pub traces: Vec<PathBuf>,
}

/// The section that says what runs on the hosts.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// `[repository]`.
    Repository(Box<Repository>),
}

impl Scenario {
    /// When links go up and down.
    pub fn schedules(&self) -> Schedules {
        cut::schedules(&self.cuts)
    }

    /// The network with its failures.
    ///
    /// # Errors
    /// What the simulator cannot do, such as links that reorder.
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
    /// One line: file, line, what is wrong and what was expected.
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
