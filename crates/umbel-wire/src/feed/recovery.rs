//! Ways by which the receivers of a feed recover losses.

use std::fmt;
use std::str::FromStr;

/// Recovery of losses. Content, blocks and guarantees are the same with all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Recovery {
    /// By a control tree of domain managers: TMTP.
    #[default]
    Tree,
    /// By the helpers that routers choose: LMS.
    Lms,
    /// By any member that has it and answers first: SRM.
    Srm,
    /// By the source alone.
    Source,
}

impl Recovery {
    /// All of them.
    pub const ALL: [Recovery; 4] = [Recovery::Tree, Recovery::Lms, Recovery::Srm, Recovery::Source];

    /// Returns whether there is a control tree. Without one every receiver reports to the source.
    pub fn has_tree(self) -> bool {
        self == Recovery::Tree
    }

    /// Returns whether members send to their own group, besides the data channel.
    pub fn has_group(self) -> bool {
        matches!(self, Recovery::Tree | Recovery::Srm)
    }

    /// Returns the name in announcements and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Recovery::Tree => "tree",
            Recovery::Lms => "lms",
            Recovery::Srm => "srm",
            Recovery::Source => "source",
        }
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is none of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is `tree`, `lms`, `srm` or `source`")]
pub struct UnknownRecovery;

impl FromStr for Recovery {
    type Err = UnknownRecovery;

    fn from_str(name: &str) -> Result<Recovery, UnknownRecovery> {
        Recovery::ALL.into_iter().find(|known| known.name() == name).ok_or(UnknownRecovery)
    }
}
