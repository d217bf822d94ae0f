//! Places in the tables of channels, shared among links, and on each link among hosts.
//!
//! When all are taken, the link that has most gives one up for a link that has fewer, and on a link
//! the host that has most. What goes is the channel that carried packets longest ago
//! ([`renew`](Places::renew)). So hosts of one link keep no host of another link from joining,
//! under however many addresses they speak.

use std::collections::BTreeMap;
use std::net::IpAddr;

use umbel_engine::shares::{Full, Origin, Shares};

use super::api::SourceGroup;
use super::work::LinkId;

/// Places of channels, each of a host on a link.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    share: usize,
    links: BTreeMap<LinkId, Shares<SourceGroup>>,
    owners: BTreeMap<SourceGroup, LinkId>,
}

impl Places {
    /// Creates `most` places, of which a host has at most `share`.
    pub(super) fn new(most: usize, share: usize) -> Places {
        Places { most, share, links: BTreeMap::new(), owners: BTreeMap::new() }
    }

    /// Takes a place for a host on a link, unless the channel has one. Returns the channel that
    /// lost its place for it.
    ///
    /// # Errors
    ///
    /// If there is no place, and none is given up.
    pub(super) fn enter(
        &mut self,
        link: LinkId,
        host: IpAddr,
        channel: SourceGroup,
    ) -> Result<Option<SourceGroup>, Full> {
        if self.owners.contains_key(&channel) {
            return Ok(None);
        }
        let host = Origin::alone(host);
        let mine = self.links.get(&link).map_or(0, Shares::len);
        let has = self.links.get(&link).map_or(0, |of| of.of(host));
        if has >= host.places(self.share) {
            return Err(Full::Host);
        }
        let mut lost = None;
        if self.owners.len() >= self.most {
            let greediest = self.links.values_mut().max_by_key(|of| of.len());
            lost = greediest.filter(|of| of.len() > mine + 1).and_then(Shares::yield_one);
        }
        if let Some(lost) = &lost {
            self.owners.remove(lost);
        }
        let free = self.most.saturating_sub(self.owners.len());
        let of = self.links.entry(link).or_insert_with(|| Shares::new(0, self.share));
        // On a link that has its part, a host can have the place of another host there.
        of.resize(mine + free);
        let other = of.enter(host, channel);
        if of.is_empty() {
            self.links.remove(&link);
        }
        if let Some(other) = other? {
            self.owners.remove(&other);
            lost = Some(other);
        }
        self.owners.insert(channel, link);
        Ok(lost)
    }

    /// Returns the link for which a channel has its place.
    pub(super) fn owner(&self, channel: &SourceGroup) -> Option<LinkId> {
        self.owners.get(channel).copied()
    }

    /// Notes that a channel carries packets.
    pub(super) fn renew(&mut self, channel: SourceGroup) {
        if let Some(of) = self.owners.get(&channel).and_then(|link| self.links.get_mut(link)) {
            of.renew(channel);
        }
    }

    /// Gives up the place of a channel, if it has one.
    pub(super) fn leave(&mut self, channel: SourceGroup) {
        let Some(link) = self.owners.remove(&channel) else { return };
        let Some(of) = self.links.get_mut(&link) else { return };
        of.leave(channel);
        if of.is_empty() {
            self.links.remove(&link);
        }
    }
}
