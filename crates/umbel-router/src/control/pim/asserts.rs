//! Assert: which of two routers forwards to a LAN that both reach [RFC 7761 §4.6].

use std::net::IpAddr;

use umbel_engine::Instant;
use umbel_wire::pim::Assert;

use super::super::api::SourceGroup;

/// The rank of a router: lower preference, then lower metric, then higher address wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) struct AssertMetric {
    pub(in crate::control) preference: u32,
    pub(in crate::control) metric: u32,
    pub(in crate::control) router: IpAddr,
}

impl AssertMetric {
    /// Preference that no route has: it ends what was claimed before [RFC 7761 §4.6.3].
    const WORST_PREFERENCE: u32 = (1 << 31) - 1;

    /// Reads the claim of a router.
    pub(in crate::control) fn of(router: IpAddr, assert: &Assert) -> AssertMetric {
        AssertMetric { preference: assert.preference, metric: assert.metric, router }
    }

    /// Returns whether this one forwards rather than the other.
    pub(in crate::control) fn beats(&self, other: &AssertMetric) -> bool {
        let rank = |of: &AssertMetric| (of.preference, of.metric);
        (rank(self), other.router) < (rank(other), self.router)
    }

    /// Returns whether it ends a claim.
    pub(in crate::control) fn is_cancel(&self) -> bool {
        self.preference == AssertMetric::WORST_PREFERENCE && self.metric == u32::MAX
    }

    /// Returns the claim as it is said.
    pub(in crate::control) fn claim(&self, channel: &SourceGroup) -> Assert {
        Assert {
            group: channel.group,
            source: channel.source,
            shared: false,
            preference: self.preference,
            metric: self.metric,
        }
    }

    /// Returns the end of a claim as it is said.
    pub(in crate::control) fn cancel(channel: &SourceGroup) -> Assert {
        Assert {
            group: channel.group,
            source: channel.source,
            shared: false,
            preference: AssertMetric::WORST_PREFERENCE,
            metric: u32::MAX,
        }
    }
}

/// Outcome of an Assert on one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::control) enum AssertState {
    /// This router forwards.
    Won {
        /// Time at which it said so.
        said: Instant,
    },
    /// Another router forwards.
    Lost {
        /// Its claim.
        winner: AssertMetric,
        /// Time until which it holds.
        until: Instant,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preference_decides_then_the_metric_then_the_higher_address() {
        let claim = |preference, metric, host: u8| AssertMetric {
            preference,
            metric,
            router: [10, 0, 0, host].into(),
        };
        for (better, worse) in [
            (claim(1, 9, 1), claim(2, 1, 9)),
            (claim(1, 1, 1), claim(1, 2, 9)),
            (claim(1, 1, 9), claim(1, 1, 1)),
        ] {
            assert!(better.beats(&worse) && !worse.beats(&better));
        }
        assert!(!claim(1, 1, 1).beats(&claim(1, 1, 1)));
        let channel = SourceGroup { group: [232, 1, 1, 1].into(), source: [10, 1, 0, 1].into() };
        let cancel = AssertMetric::of([10, 0, 0, 1].into(), &AssertMetric::cancel(&channel));
        assert!(cancel.is_cancel() && claim(1, 1, 1).beats(&cancel));
    }
}
