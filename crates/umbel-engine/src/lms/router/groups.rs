//! A router's knowledge of channels.

use std::collections::btree_map::BTreeMap;
use std::net::IpAddr;

use umbel_wire::Channel;

use super::offers::{Offers, Replier};
use crate::Instant;
use crate::bucket::Limiter;
use crate::lms::config::RouterConfig;
use crate::router::InterfaceId;
use crate::shares::{Origin, Places};

/// The channels that a router has state of.
///
/// Whoever names a channel of a tree has the router keep state of it, under any port. So hosts have
/// shares of it: the one with most gives up what was advertised longest ago.
#[derive(Debug)]
pub(super) struct Groups {
    by_channel: BTreeMap<Channel, Group>,
    places: Places<InterfaceId, Channel>,
    /// Number of changes of channels and repliers.
    changes: u64,
}

/// State of one channel.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) offers: Offers,
    /// Cost last told to the router above.
    pub(super) advertised: Option<u32>,
    pub(super) advertised_at: Instant,
    pub(super) advertise_at: Option<Instant>,
    pub(super) check: Option<Check>,
    /// Time until which the replier, having answered, is not asked again.
    pub(super) checked_until: Instant,
    pub(super) dmcasts: Limiter,
    pub(super) links: Links,
    /// Time at which the state is forgotten if there are no offers.
    pub(super) expires: Instant,
}

/// A replier said to have failed that was asked to advertise [LMS §III-C].
#[derive(Debug)]
pub(super) struct Check {
    pub(super) replier: Replier,
    /// Number of times that it was asked.
    pub(super) asked: u32,
    /// Time to ask again, or to give it up.
    pub(super) at: Instant,
}

/// State of a channel on the interfaces by which its requests come.
#[derive(Debug, Default)]
pub(super) struct Links(BTreeMap<InterfaceId, Link>);

/// State of a channel on one interface.
#[derive(Debug)]
pub(super) struct Link {
    /// Requests and reports that may come.
    pub(super) requests: Limiter,
    /// An epoch and the tag of its turning points: the same for all requests until the next.
    pub(super) tag: Option<(u64, u64)>,
}

impl Group {
    fn new(expires: Instant, config: &RouterConfig) -> Group {
        Group {
            offers: Offers::default(),
            advertised: None,
            advertised_at: Instant::EPOCH,
            advertise_at: None,
            check: None,
            checked_until: Instant::EPOCH,
            dmcasts: Limiter::new(config.dmcasts),
            links: Links::default(),
            expires,
        }
    }
}

impl Groups {
    /// Creates room for so many channels.
    pub(super) fn new(channels: usize) -> Groups {
        let places = Places::new(channels, channels);
        Groups { by_channel: BTreeMap::new(), places, changes: 0 }
    }

    pub(super) fn get(&self, channel: &Channel) -> Option<&Group> {
        self.by_channel.get(channel)
    }

    pub(super) fn get_mut(&mut self, channel: &Channel) -> Option<&mut Group> {
        self.by_channel.get_mut(channel)
    }

    /// Returns the state of a channel, and creates it if there is a place for the host `by` that
    /// names it. Then there will be work at `wake_at`.
    pub(super) fn entry(
        &mut self,
        now: Instant,
        channel: &Channel,
        by: (InterfaceId, IpAddr),
        config: &RouterConfig,
        wake_at: &mut Option<Instant>,
    ) -> Option<&mut Group> {
        if !self.by_channel.contains_key(channel) {
            let lost = self.places.enter(by.0, Origin::alone(by.1), *channel).ok()?;
            if let Some(lost) = lost {
                self.by_channel.remove(&lost);
            }
            let expires = now + config.offer_lifetime;
            self.changes += 1;
            *wake_at = Some(wake_at.map_or(expires, |at| at.min(expires)));
            self.by_channel.insert(*channel, Group::new(expires, config));
        }
        self.by_channel.get_mut(channel)
    }

    /// Notes that a channel has a replier, and is in use.
    pub(super) fn renew(&mut self, channel: &Channel) {
        self.places.renew(*channel);
    }

    pub(super) fn remove(&mut self, channel: &Channel) {
        if self.by_channel.remove(channel).is_some() {
            self.places.leave(*channel);
            self.changes += 1;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Channel, &Group)> {
        self.by_channel.iter()
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.by_channel.keys()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Counts a change of the repliers of a channel, if there was one.
    pub(super) fn count_change(&mut self, is_other: bool) {
        self.changes += u64::from(is_other);
    }
}

impl Links {
    /// Returns the state of an interface, and creates it.
    pub(super) fn entry(&mut self, interface: InterfaceId, config: &RouterConfig) -> &mut Link {
        self.0
            .entry(interface)
            .or_insert_with(|| Link { requests: Limiter::new(config.requests), tag: None })
    }

    pub(super) fn get_mut(&mut self, interface: InterfaceId) -> Option<&mut Link> {
        self.0.get_mut(&interface)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
