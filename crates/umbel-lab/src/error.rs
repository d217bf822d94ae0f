//! Errors, in one line each.

use std::io;

use umbel_topology::Mistake;

/// An error of describing, building or changing a lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The topology contradicts itself or names something that it does not define.
    #[error(transparent)]
    Topology(#[from] Mistake),
    /// This machine cannot host a lab.
    #[error("{0}")]
    Unavailable(SkipReason),
    /// A step of building or changing the lab failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The step, worded to follow "cannot".
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// `ip` refused a batch of commands.
    #[error("`ip` refused the configuration of {node}: {message}")]
    Ip {
        /// The node whose configuration it was.
        node: String,
        /// Its complaint.
        message: String,
    },
    /// No host, router or switch has this name.
    #[error("the lab has no {kind} `{name}`")]
    Unknown {
        /// "host", "node" or "link".
        kind: &'static str,
        /// The name that was not found.
        name: String,
    },
    /// The link has no emulator in its path, so it cannot be impaired.
    #[error("link {0} is a plain pair: declare it `emulated = true` to change it while it runs")]
    NotEmulated(String),
    /// The command-line interface could not reach, start or stop a running lab.
    #[error("{0}")]
    Control(String),
}

impl LabError {
    /// Returns a function that wraps a failed system call with the step that it belonged to.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::System { what, source }
    }
}

/// The reason why this machine cannot host a lab. A test prints it and skips.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no lab here: {0}")]
pub struct SkipReason(pub(crate) String);
