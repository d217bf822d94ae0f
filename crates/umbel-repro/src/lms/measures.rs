//! The metrics of [LMS Fig. 10] over runs.

use super::observer::Recovery;
use super::scenario::LinkClass;
use super::trial::Outcome;
use crate::estimate::Estimate;

/// Place of a loss [LMS §IV-B, §IV-F].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the source: all receivers lose the packet.
    Source,
    /// At each receiver, one after the other.
    Receivers,
    /// At each link between routers, one after the other.
    Links,
    /// At each link between routers and each receiver: all links of a tree whose leaves are the
    /// receivers.
    Tree,
    /// At each link of the tree, those of the source and of receivers too.
    Every,
    /// At each link of a class.
    Class(LinkClass),
}

impl Place {
    fn holds(self, recovery: &Recovery) -> bool {
        match self {
            Place::Source => recovery.class == LinkClass::Source,
            Place::Receivers => recovery.class == LinkClass::Receiver,
            Place::Links => !matches!(recovery.class, LinkClass::Source | LinkClass::Receiver),
            Place::Tree => recovery.class != LinkClass::Source,
            Place::Every => true,
            Place::Class(class) => recovery.class == class,
        }
    }
}

/// Means over runs of a run's mean, least and greatest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) average: Estimate,
    pub(super) least: Estimate,
    pub(super) greatest: Estimate,
}

impl Spread {
    /// Sums up the mean, least and greatest values of runs with at least one value.
    fn of(runs: &[[f64; 3]]) -> Spread {
        let [average, least, greatest] =
            [0, 1, 2].map(|n| Estimate::of(&runs.iter().map(|run| run[n]).collect::<Vec<_>>()));
        Spread { average, least, greatest }
    }
}

fn at(outcome: &Outcome, place: Place) -> impl Iterator<Item = &Recovery> {
    outcome.recoveries.iter().filter(move |recovery| place.holds(recovery))
}

fn spread(
    outcomes: &[Outcome],
    place: Place,
    value: impl Fn(&Outcome, &Recovery) -> f64,
) -> Spread {
    let mut runs = Vec::new();
    for outcome in outcomes {
        let values: Vec<f64> =
            at(outcome, place).map(|recovery| value(outcome, recovery)).collect();
        let fold = |start, f: fn(f64, f64) -> f64| values.iter().copied().fold(start, f);
        if !values.is_empty() {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            runs.push([mean, fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max)]);
        }
    }
    Spread::of(&runs)
}

/// Returns the normalised recovery latency. The average is over all receivers that recovered, so a
/// loss counts in proportion to the receivers that it hits.
pub(super) fn latency(outcomes: &[Outcome], place: Place) -> Spread {
    let mut runs = Vec::new();
    for outcome in outcomes {
        let (mut sum, mut count) = (0.0, 0);
        let (mut least, mut greatest) = (f64::INFINITY, f64::NEG_INFINITY);
        for recovery in at(outcome, place) {
            sum += recovery.latency[0];
            count += recovery.missed - recovery.unrepaired;
            least = least.min(recovery.latency[1]);
            greatest = greatest.max(recovery.latency[2]);
        }
        if count > 0 {
            runs.push([sum / f64::from(count), least, greatest]);
        }
    }
    Spread::of(&runs)
}

/// Returns the duplicates per receiver and loss.
pub(super) fn exposure(outcomes: &[Outcome], place: Place) -> Spread {
    spread(outcomes, place, |outcome, recovery| recovery.exposure(outcome.receivers))
}

/// Returns the requests per loss.
pub(super) fn requests(outcomes: &[Outcome], place: Place) -> Spread {
    spread(outcomes, place, |_, recovery| f64::from(recovery.requests))
}

/// Returns the repairs per loss.
pub(super) fn repairs(outcomes: &[Outcome], place: Place) -> Spread {
    spread(outcomes, place, |_, recovery| f64::from(recovery.repairs))
}

/// Returns the retransmissions of the source beyond the first, per loss [LMS §IV-H].
pub(super) fn repeated(outcomes: &[Outcome], place: Place) -> Spread {
    spread(outcomes, place, |_, recovery| f64::from(recovery.by_source.saturating_sub(1)))
}

/// Returns the number of losses from which at least one receiver did not recover.
pub(super) fn unrepaired(outcomes: &[Outcome]) -> u32 {
    outcomes.iter().flat_map(|outcome| &outcome.recoveries).map(|loss| loss.unrepaired).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_those_between_routers() {
        for (class, links, tree) in [
            (LinkClass::Source, false, false),
            (LinkClass::Receiver, false, true),
            (LinkClass::Core, true, true),
            (LinkClass::StubStub, true, true),
        ] {
            let recovery = recovery(class, &[1.0], 0);
            assert_eq!(
                (Place::Links.holds(&recovery), Place::Tree.holds(&recovery)),
                (links, tree)
            );
            assert!(Place::Every.holds(&recovery));
        }
    }

    fn recovery(class: LinkClass, latencies: &[f64], duplicates: u32) -> Recovery {
        let fold = |start, f: fn(f64, f64) -> f64| latencies.iter().copied().fold(start, f);
        Recovery {
            class,
            missed: latencies.len() as u32,
            unrepaired: 0,
            latency: [latencies.iter().sum(), fold(9.0, f64::min), fold(0.0, f64::max)],
            duplicates,
            requests: 2,
            repairs: 3,
            by_source: 3,
        }
    }

    fn outcomes() -> Vec<Outcome> {
        let run = |recoveries| Outcome { receivers: 4, recoveries };
        vec![
            run(vec![
                recovery(LinkClass::Receiver, &[1.5], 2),
                recovery(LinkClass::Core, &[0.5, 0.5, 1.0, 1.0], 0),
            ]),
            run(vec![
                recovery(LinkClass::Receiver, &[0.5], 0),
                recovery(LinkClass::Core, &[0.25, 0.75, 1.0, 1.0], 0),
            ]),
        ]
    }

    fn is(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9
    }

    #[test]
    fn latency_is_averaged_over_receivers() {
        let links = latency(&outcomes(), Place::Tree);
        assert!(is(links.average.mean, f64::midpoint(4.5 / 5.0, 3.5 / 5.0)));
        assert!(is(links.least.mean, 0.375) && is(links.greatest.mean, 1.25));
        assert!(is(latency(&outcomes(), Place::Links).average.mean, 0.75));
        assert!(is(latency(&outcomes(), Place::Receivers).average.mean, 1.0));
    }

    #[test]
    fn the_rest_is_averaged_over_losses() {
        assert!(is(exposure(&outcomes(), Place::Receivers).average.mean, 0.25));
        assert!(is(exposure(&outcomes(), Place::Tree).average.mean, 0.125));
        assert!(is(exposure(&outcomes(), Place::Tree).greatest.mean, 0.25));
        assert!(is(requests(&outcomes(), Place::Tree).average.mean, 2.0));
        assert!(is(repairs(&outcomes(), Place::Links).average.mean, 3.0));
        assert!(is(repeated(&outcomes(), Place::Links).average.mean, 2.0));
        assert_eq!(unrepaired(&outcomes()), 0);
    }

    #[test]
    fn a_place_without_losses_has_no_average() {
        let none = latency(&outcomes(), Place::Class(LinkClass::StubStub));
        assert!(none.average.mean.is_nan());
    }
}
