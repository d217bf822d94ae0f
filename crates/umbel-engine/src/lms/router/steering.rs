//! Destinations of requests: for the engine itself, and for hosts that steer plain requests without
//! it.

use std::net::{IpAddr, SocketAddr};

use umbel_wire::Channel;

use super::offers::{Offers, Step};
use super::{Router, Side};
use crate::lms::config::RouterConfig;
use crate::router::{InterfaceId, Routes, Upstream};

/// Destination of requests for a channel that come by one interface. It holds while
/// [`Router::changes`] and the routes stay what they are, for requests that do not say that a
/// replier failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// The replier on the interface, and where its own requests go.
    pub of_replier: Option<(IpAddr, Steer)>,
    /// Destination of the requests of others.
    pub of_others: Steer,
}

/// Destination of a request, and its treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steer {
    /// Next hop, or the source.
    pub to: SocketAddr,
    /// Its direction.
    pub direction: Direction,
    /// Whether the turning point is stamped, unless there is one.
    pub stamps: bool,
}

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From below towards the source, with Router Alert.
    Up,
    /// From below to a replier.
    Turn,
    /// From above to a replier.
    Down,
}

impl Router {
    /// Returns a number that changes with the channels and their repliers.
    pub fn changes(&self) -> u64 {
        self.groups.changes()
    }

    /// Returns the channels of which it has state.
    pub fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.groups.channels()
    }

    /// Returns where requests go that come by an interface; none if they are not steered.
    pub fn steering(
        &self,
        routes: &mut dyn Routes,
        channel: &Channel,
        arrived_on: InterfaceId,
    ) -> Option<Steering> {
        let group = self.groups.get(channel)?;
        let source = SocketAddr::new(channel.source?, channel.port);
        let upstream = routes.upstream(channel)?;
        if Router::side(routes, channel, upstream, arrived_on)? == Side::Above {
            let to = group.offers.first()?.neighbour;
            let down = Steer { to, direction: Direction::Down, stamps: false };
            return Some(Steering { of_replier: None, of_others: down });
        }
        let (config, offers) = (&self.config, &group.offers);
        let mut steer = |from| match step(config, offers, routes, channel, (arrived_on, from)) {
            Step::Up => {
                let stamps = stamps_upwards(config, routes, channel, upstream);
                Steer { to: source, direction: Direction::Up, stamps }
            }
            Step::Turn(replier) => {
                Steer { to: replier.neighbour, direction: Direction::Turn, stamps: true }
            }
        };
        let replier = offers.chosen_on(arrived_on);
        Some(Steering {
            of_replier: replier.map(|replier| (replier, steer(Some(replier)))),
            of_others: steer(None),
        })
    }
}

/// Returns the next step of a request from below, by the address that it came from; none for that
/// of no replier.
pub(super) fn step(
    config: &RouterConfig,
    offers: &Offers,
    routes: &mut dyn Routes,
    channel: &Channel,
    (arrived_on, from): (InterfaceId, Option<IpAddr>),
) -> Step {
    // The source of an attached host is the replier of all links [LMS §II-C].
    if is_attached(config, routes, channel) { Step::Up } else { offers.step(arrived_on, from) }
}

/// Returns whether a request that goes up is stamped here. The last router before the source stamps
/// it, and the core of a shared tree, from which it is unicast to the source [LMS §III-B].
pub(super) fn stamps_upwards(
    config: &RouterConfig,
    routes: &mut dyn Routes,
    channel: &Channel,
    upstream: Upstream,
) -> bool {
    upstream == Upstream::Root || is_attached(config, routes, channel)
}

fn is_attached(config: &RouterConfig, routes: &mut dyn Routes, channel: &Channel) -> bool {
    config.source_as_replier && channel.source.is_some_and(|source| routes.is_attached(source))
}
