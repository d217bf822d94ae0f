//! A router's knowledge of channels.

use std::collections::btree_map::{BTreeMap, Entry};

use umbel_wire::Channel;

use super::offers::{Offers, Replier};
use crate::Instant;
use crate::bucket::Limiter;
use crate::lms::config::RouterConfig;
use crate::router::InterfaceId;

/// The channels that a router has state of.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_channel: BTreeMap<Channel, Group>,
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

impl Groups {
    pub(super) fn get(&self, channel: &Channel) -> Option<&Group> {
        self.by_channel.get(channel)
    }

    pub(super) fn get_mut(&mut self, channel: &Channel) -> Option<&mut Group> {
        self.by_channel.get_mut(channel)
    }

    /// Returns the state of a channel, and creates it if there is room. Then there will be work at
    /// `wake_at`.
    pub(super) fn entry(
        &mut self,
        now: Instant,
        channel: &Channel,
        config: &RouterConfig,
        wake_at: &mut Option<Instant>,
    ) -> Option<&mut Group> {
        let len = self.by_channel.len();
        match self.by_channel.entry(*channel) {
            Entry::Occupied(group) => Some(group.into_mut()),
            Entry::Vacant(_) if len >= config.channels => None,
            Entry::Vacant(place) => {
                let expires = now + config.offer_lifetime;
                self.changes += 1;
                *wake_at = Some(wake_at.map_or(expires, |at| at.min(expires)));
                Some(place.insert(Group {
                    offers: Offers::default(),
                    advertised: None,
                    advertised_at: Instant::EPOCH,
                    advertise_at: None,
                    check: None,
                    checked_until: Instant::EPOCH,
                    dmcasts: Limiter::new(config.dmcasts),
                    links: Links::default(),
                    expires,
                }))
            }
        }
    }

    pub(super) fn remove(&mut self, channel: &Channel) {
        if self.by_channel.remove(channel).is_some() {
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
