//! Membership on a link: the router's side of IGMP and MLD [RFC 3376 §6, RFC 3810 §7].
//!
//! Each host is tracked by itself [RFC 3376 §A.2]. Hence a leave takes effect at once if nobody
//! else wants the same ([`fast_leave`](super::config::MembershipConfig::fast_leave)), as soon as
//! all hosts have been heard. Hosts of older versions are tolerated: they want any source. Since
//! they keep silent when another answers, they are always asked before a group ends.
//!
//! # Scope and limitations
//!
//! Groups of the range for source-specific multicast have no members that want any source
//! [RFC 4604 §2.2.1]; such wishes are counted as drops. Queries are not repeated with the Suppress
//! flag for sources that are confirmed meanwhile.

mod group;
mod querier;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use umbel_engine::Instant;
use umbel_engine::bucket::{HostLimiter, Limiters};
use umbel_wire::Channel;
use umbel_wire::membership::{Message, Offer, Query, Record, RecordType, Report, Version};

use self::group::{Asking, Change, Group, Member};
use self::querier::Querier;
use super::addresses;
use super::api::{CostHeard, SourceGroup};
use super::config::ControlConfig;
use super::drops::DropReason;
use super::status::{MemberStatus, QuerierStatus};
use super::work::{LinkId, Timer, Work};

/// Sources that fit a query of 576 bytes, which every link carries.
const SOURCES_PER_QUERY: usize = 30;

/// Membership on a link.
#[derive(Debug)]
pub(super) struct Membership {
    link: LinkId,
    /// The router's own address.
    me: IpAddr,
    querier: Querier,
    /// Whether there is no other multicast router on the link.
    is_alone: bool,
    groups: BTreeMap<IpAddr, Group>,
    /// Hosts that are members.
    hosts: BTreeMap<IpAddr, Host>,
    /// Entries of all members.
    len: usize,
    /// Allowances of members and of the querier: of each.
    members: Limiters<IpAddr>,
    /// Those of other hosts: of each, and of all together.
    newcomers: HostLimiter<IpAddr>,
}

/// The places that a member has.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    groups: usize,
    /// Entries of all its groups.
    entries: usize,
}

impl Membership {
    /// Begins to ask who wants what.
    pub(super) fn start(
        now: Instant,
        link: LinkId,
        me: IpAddr,
        config: &ControlConfig,
        work: &mut Work,
    ) -> Membership {
        let of_host = config.membership.messages_per_host;
        Membership {
            link,
            me,
            querier: Querier::start(now, link, &config.membership, work),
            is_alone: true,
            groups: BTreeMap::new(),
            hosts: BTreeMap::new(),
            len: 0,
            members: Limiters::new(of_host, config.bounds.hosts + 1),
            newcomers: HostLimiter::new(
                of_host,
                config.bounds.hosts,
                config.membership.messages_of_newcomers,
            ),
        }
    }

    /// Notes whether there are other multicast routers on the link.
    pub(super) fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
    }

    /// Returns the members that have named the channel's source.
    pub(super) fn who_names(&self, channel: &SourceGroup) -> impl Iterator<Item = IpAddr> {
        let members = self.groups.get(&channel.group).into_iter().flat_map(|of| &of.members);
        members
            .filter(|(_, member)| member.sources.contains_key(&channel.source))
            .map(|(host, _)| *host)
    }

    /// Returns whether a member wants a channel, by name or as one of any source.
    pub(super) fn wants(&self, channel: &SourceGroup) -> bool {
        self.groups.get(&channel.group).is_some_and(|group| group.wants(channel.source))
    }

    /// Returns the router that asks.
    pub(super) fn querier(&self) -> IpAddr {
        self.querier.other().unwrap_or(self.me)
    }

    /// Marks all channels that members want as changed.
    pub(super) fn touch_all(&self, work: &mut Work) {
        for (&address, group) in &self.groups {
            let channels = group.sources().into_iter();
            work.changed.extend(channels.map(|source| SourceGroup { group: address, source }));
            work.changed_groups.insert(address);
        }
    }

    /// Ends all memberships, since the link is gone.
    pub(super) fn end(&mut self, work: &mut Work) {
        self.touch_all(work);
        for (&address, group) in &self.groups {
            for (&host, member) in &group.members {
                for (&source, wanted) in &member.sources {
                    let channel = SourceGroup { group: address, source };
                    withdraw(work, self.link, host, channel, wanted.offer);
                }
            }
        }
        self.groups.clear();
        self.hosts.clear();
        self.len = 0;
    }

    /// Takes in a message of a host or router that is on the link.
    pub(super) fn on_message(
        &mut self,
        now: Instant,
        from: IpAddr,
        message: Message,
        config: &ControlConfig,
        work: &mut Work,
    ) {
        if !self.admits(now, from) {
            work.drop(DropReason::Flood);
            return;
        }
        match message {
            // Of switches that ask on behalf of nobody [RFC 4541 §2.1.1].
            Message::Query(_) if from.is_unspecified() => {}
            Message::Query(query) => self.on_query(now, from, &query, config, work),
            Message::Report(report) => self.on_report(now, from, &report, config, work),
            Message::OldReport { version, group } => {
                let (kind, sources) = (RecordType::IsExclude, Vec::new());
                let record = Record { kind, group, sources };
                self.on_record(now, (from, version), &record, config, work);
            }
            Message::Leave { group, .. } => self.on_old_leave(now, group, config, work),
        }
    }

    fn on_query(
        &mut self,
        now: Instant,
        from: IpAddr,
        query: &Query,
        config: &ControlConfig,
        work: &mut Work,
    ) {
        self.querier.on_query(now, (from, self.me), query, &config.membership, work);
        let is_the_querier = self.querier.other() == Some(from);
        let is_asked = !query.suppress && is_the_querier;
        let Some(address) = query.group.filter(|_| is_asked) else { return };
        // The last member query time of the querier [RFC 3376 §6.6.1].
        let queries = match query.robustness {
            0 => config.membership.robustness,
            robustness => robustness,
        };
        let until = now + query.max_response * u32::from(queries);
        if let Some(group) = self.groups.get_mut(&address) {
            let sources: BTreeSet<IpAddr> = match query.sources.as_slice() {
                [] => group.sources(),
                sources => sources.iter().copied().collect(),
            };
            group.lower(&sources, query.sources.is_empty(), until);
            self.wait_for_expiry(address, work);
        }
    }

    fn on_report(
        &mut self,
        now: Instant,
        from: IpAddr,
        report: &Report,
        config: &ControlConfig,
        work: &mut Work,
    ) {
        let version = match from {
            IpAddr::V4(_) => Version::Igmp3,
            IpAddr::V6(_) => Version::Mld2,
        };
        for record in &report.records {
            self.on_record(now, (from, version), record, config, work);
            let includes = matches!(
                record.kind,
                RecordType::IsInclude | RecordType::ToInclude | RecordType::Allow
            );
            if let Some(offer) = report.offer.filter(|_| includes) {
                self.on_offer(from, record, offer, work);
            }
        }
    }

    /// Returns whether a host may send one more message. Nobody takes anything from members.
    fn admits(&mut self, now: Instant, from: IpAddr) -> bool {
        let is_known = self.hosts.contains_key(&from) || self.querier.other() == Some(from);
        if is_known { self.members.take(now, from) } else { self.newcomers.take(now, from) }
    }

    fn on_record(
        &mut self,
        now: Instant,
        (from, version): (IpAddr, Version),
        record: &Record,
        config: &ControlConfig,
        work: &mut Work,
    ) {
        let address = record.group;
        // Every host is a member of these, and no router forwards them [RFC 3376 §6].
        if !addresses::is_routable_group(address) {
            return;
        }
        let wants_any = matches!(record.kind, RecordType::IsExclude | RecordType::ToExclude);
        if wants_any && addresses::is_source_specific(address) {
            work.drop(DropReason::AnySource);
            return;
        }
        let wants = wants_any || (record.kind != RecordType::Block && !record.sources.is_empty());
        let is_member = self.is_member(address, from)
            || (wants && self.add(address, from, version, config, work));
        if !is_member {
            return;
        }
        let until = self.querier.member_until(now, &config.membership);
        let bounds = &config.bounds;
        let wanted = record.sources.len().min(bounds.sources_of_host);
        let entries = |host: &Host| host.entries;
        while self.len + wanted > bounds.sources && self.make_room(from, entries, work) {}
        let held = self.hosts.get(&from).copied().unwrap_or_default().entries;
        let free = bounds.sources.saturating_sub(self.len);
        let free = free.min(bounds.channels_of_host.saturating_sub(held));
        let Some(group) = self.groups.get_mut(&address) else { return };
        let Some(member) = group.members.get_mut(&from) else { return };
        let before = member.len();
        let room = bounds.sources_of_host.min(before + free);
        member.version = version;
        let change = member.hear(record.kind, &record.sources, until, room);
        let after = member.len();
        self.count(from, before, after);
        (0..change.refused).for_each(|_| work.drop(DropReason::SourcesOverLimit));
        let channel = |source: &IpAddr| SourceGroup { group: address, source: *source };
        work.changed.extend(change.wanted.iter().map(channel));
        if change.any {
            work.changed_groups.insert(address);
        }
        self.on_left(now, address, from, &change, config, work);
        self.wait_for_expiry(address, work);
    }

    fn is_member(&self, address: IpAddr, host: IpAddr) -> bool {
        self.groups.get(&address).is_some_and(|group| group.members.contains_key(&host))
    }

    /// Makes a host a member of a group, if there is room.
    fn add(
        &mut self,
        address: IpAddr,
        from: IpAddr,
        version: Version,
        config: &ControlConfig,
        work: &mut Work,
    ) -> bool {
        let bounds = &config.bounds;
        if !self.hosts.contains_key(&from) && self.hosts.len() >= bounds.hosts {
            work.drop(DropReason::HostsOverLimit);
            return false;
        }
        let is_full = self.groups.len() >= bounds.groups && !self.groups.contains_key(&address);
        let host = self.hosts.get(&from).copied().unwrap_or_default();
        if host.groups >= bounds.groups_of_host
            || (is_full && !self.make_room(from, |host| host.groups, work))
        {
            work.drop(DropReason::GroupsOverLimit);
            return false;
        }
        let is_full = self.len >= bounds.sources;
        if host.entries >= bounds.channels_of_host
            || (is_full && !self.make_room(from, |host| host.entries, work))
        {
            work.drop(DropReason::SourcesOverLimit);
            return false;
        }
        self.hosts.entry(from).or_default().groups += 1;
        let group = self.groups.entry(address).or_default();
        group.members.insert(from, Member::new(version));
        true
    }

    /// Has the host that has most of something give up a group for a host that has less: one whose
    /// channels carry nothing, if it has such. Returns whether one did.
    fn make_room(
        &mut self,
        newcomer: IpAddr,
        places: impl Fn(&Host) -> usize,
        work: &mut Work,
    ) -> bool {
        let mine = self.hosts.get(&newcomer).map_or(0, &places);
        let greediest = self.hosts.iter().max_by_key(|(_, host)| places(host));
        let Some((&greediest, _)) = greediest.filter(|(_, host)| places(host) > mine + 1) else {
            return false;
        };
        let carries = |group: IpAddr, member: &Member| {
            let mut sources = member.sources.keys();
            sources.any(|&source| work.live.contains(&SourceGroup { group, source }))
        };
        let groups = self.groups.iter();
        let groups = groups.filter_map(|(group, of)| Some((*group, of.members.get(&greediest)?)));
        let least = groups
            .min_by_key(|(group, member)| (carries(*group, member), member.next_expiry(), *group));
        let Some((group, member)) = least else { return false };
        let left = member.sources.keys().copied().collect();
        let change = Change { left, left_any: member.any.is_some(), ..Change::default() };
        work.drop(DropReason::GaveWay);
        self.remove(group, greediest, &change, work);
        true
    }

    /// Notes that a member has other entries than before.
    fn count(&mut self, host: IpAddr, before: usize, after: usize) {
        self.len = self.len + after - before;
        if let Some(host) = self.hosts.get_mut(&host) {
            host.entries = host.entries + after - before;
        }
    }

    /// Does what follows when a host no longer wants something: it is no member any more, or
    /// others are asked.
    fn on_left(
        &mut self,
        now: Instant,
        address: IpAddr,
        from: IpAddr,
        change: &Change,
        config: &ControlConfig,
        work: &mut Work,
    ) {
        if change.left.is_empty() && !change.left_any {
            return;
        }
        let membership = &config.membership;
        // A host without an address speaks for others, too.
        let is_known = self.querier.is_settled(now) && !from.is_unspecified();
        let at_once = membership.fast_leave && is_known;
        // Other routers may not know the members, and wait for the querier to ask.
        if self.querier.other().is_none() && !(at_once && self.is_alone) {
            let sources = change.left.iter().copied().collect();
            self.ask(now, address, &sources, change.left_any, config, work);
        }
        if at_once {
            self.remove(address, from, change, work);
        }
    }

    /// Ends what a member no longer wants.
    fn remove(&mut self, address: IpAddr, from: IpAddr, change: &Change, work: &mut Work) {
        let Some(group) = self.groups.get_mut(&address) else { return };
        let Some(member) = group.members.get_mut(&from) else { return };
        let before = member.len();
        for &source in &change.left {
            let channel = SourceGroup { group: address, source };
            if let Some(wanted) = member.sources.remove(&source) {
                withdraw(work, self.link, from, channel, wanted.offer);
            }
            work.changed.insert(channel);
        }
        if change.left_any {
            member.any = None;
            work.changed_groups.insert(address);
        }
        let after = member.len();
        self.count(from, before, after);
        self.clean(address, work);
    }

    /// Forgets members that want nothing, and the group if it has none.
    fn clean(&mut self, address: IpAddr, work: &mut Work) {
        let Some(group) = self.groups.get_mut(&address) else { return };
        let hosts = &mut self.hosts;
        group.members.retain(|from, member| {
            if member.is_empty()
                && let Some(host) = hosts.get_mut(from)
            {
                host.groups = host.groups.saturating_sub(1);
            }
            !member.is_empty()
        });
        hosts.retain(|_, host| host.groups > 0);
        if group.members.is_empty() {
            self.groups.remove(&address);
            work.timers.cancel(Timer::Members(self.link, address));
            work.timers.cancel(Timer::LastMember(self.link, address));
        }
    }

    /// Handles an IGMPv2 host's Leave Group, or an `MLDv1` host's Done.
    fn on_old_leave(
        &mut self,
        now: Instant,
        address: IpAddr,
        config: &ControlConfig,
        work: &mut Work,
    ) {
        let is_old = |member: &Member| !member.version.has_sources();
        let has_old =
            self.groups.get(&address).is_some_and(|group| group.members.values().any(is_old));
        // Members of older versions keep silent if another answers, so all are asked after any
        // leave.
        if has_old && self.querier.other().is_none() {
            self.ask(now, address, &BTreeSet::new(), true, config, work);
        }
    }

    /// Asks who still wants these sources, or any source.
    fn ask(
        &mut self,
        now: Instant,
        address: IpAddr,
        sources: &BTreeSet<IpAddr>,
        any: bool,
        config: &ControlConfig,
        work: &mut Work,
    ) {
        let Some(group) = self.groups.get_mut(&address) else { return };
        group.lower(sources, any, now + config.membership.last_member_time());
        let asking = group.asking.get_or_insert_with(Asking::default);
        asking.group |= any;
        asking.sources.extend(sources);
        asking.left = config.membership.robustness.max(1);
        self.wait_for_expiry(address, work);
        self.on_last_member(now, address, config, work);
    }

    /// Sends the next query about what others have left.
    pub(super) fn on_last_member(
        &mut self,
        now: Instant,
        address: IpAddr,
        config: &ControlConfig,
        work: &mut Work,
    ) {
        let Some(group) = self.groups.get_mut(&address) else { return };
        let Some(mut asking) = group.asking.take() else { return };
        // Hosts that have answered meanwhile stay members.
        let soon = now + config.membership.last_member_time();
        asking.sources.retain(|source| !group.is_confirmed(*source, soon));
        asking.group &= !group.is_any_confirmed(soon);
        if asking.left == 0 || (asking.sources.is_empty() && !asking.group) {
            return;
        }
        asking.left -= 1;
        let sources: Vec<IpAddr> = asking.sources.iter().copied().collect();
        let is_group = asking.group;
        group.asking = Some(asking);
        let interval = config.membership.last_member_interval;
        let mut ask = |sources| {
            self.querier.ask(Some(address), sources, interval, &config.membership, work);
        };
        if is_group {
            ask(Vec::new());
        }
        sources.chunks(SOURCES_PER_QUERY).for_each(|some| ask(some.to_vec()));
        work.timers.set(Timer::LastMember(self.link, address), now + interval);
    }

    fn on_offer(&mut self, from: IpAddr, record: &Record, offer: Offer, work: &mut Work) {
        let group = self.groups.get_mut(&record.group);
        let Some(member) = group.and_then(|group| group.members.get_mut(&from)) else { return };
        for &source in &record.sources {
            let Some(wanted) = member.sources.get_mut(&source) else { continue };
            let channel = SourceGroup { group: record.group, source };
            let moved = |before: &Offer| {
                (before.channel_port, before.host_port) != (offer.channel_port, offer.host_port)
            };
            let before = wanted.offer.take_if(|before| moved(before));
            withdraw(work, self.link, from, channel, before);
            if offer.cost.is_some() || wanted.offer.is_some() {
                work.costs.push_back(cost_heard(self.link, from, channel, offer));
            }
            wanted.offer = Some(offer).filter(|offer| offer.cost.is_some());
        }
    }

    /// Asks, or takes over from a silent querier.
    pub(super) fn on_querier(&mut self, now: Instant, config: &ControlConfig, work: &mut Work) {
        self.querier.on_time(now, &config.membership, work);
    }

    /// Forgets members of a group whose time is over.
    pub(super) fn on_expiry(&mut self, now: Instant, address: IpAddr, work: &mut Work) {
        let Some(group) = self.groups.get_mut(&address) else { return };
        for (&from, member) in &mut group.members {
            let before = member.len();
            for (source, wanted) in member.sources.extract_if(.., |_, wanted| wanted.until <= now) {
                let channel = SourceGroup { group: address, source };
                withdraw(work, self.link, from, channel, wanted.offer);
                work.changed.insert(channel);
            }
            if member.any.take_if(|any| any.until <= now).is_some() {
                work.changed_groups.insert(address);
            }
            let gone = before - member.len();
            self.len -= gone;
            if let Some(host) = self.hosts.get_mut(&from) {
                host.entries -= gone;
            }
        }
        self.clean(address, work);
        self.wait_for_expiry(address, work);
    }

    /// Sets the timer for the next expiry in a group. It is not moved if it rings early.
    fn wait_for_expiry(&self, address: IpAddr, work: &mut Work) {
        let timer = Timer::Members(self.link, address);
        let next = self.groups.get(&address).and_then(Group::next_expiry);
        match next {
            Some(at) => work.timers.lower(timer, at),
            None => work.timers.cancel(timer),
        }
    }

    /// Returns who asks, and who wants what.
    pub(super) fn status(&self, now: Instant) -> (QuerierStatus, Vec<MemberStatus>) {
        let querier = QuerierStatus {
            address: self.querier(),
            is_me: self.querier.other().is_none(),
            older: self.querier.older().map(|(from, version)| (from, version.name().to_owned())),
        };
        let mut members = Vec::new();
        for (&group, of) in &self.groups {
            for (&host, member) in &of.members {
                let until = member.sources.values().map(|wanted| wanted.until);
                let until = until.chain(member.any.as_ref().map(|any| any.until)).max();
                members.push(MemberStatus {
                    group,
                    host,
                    version: member.version.name().to_owned(),
                    sources: member.sources.keys().copied().collect(),
                    any_source_but: (member.any.as_ref())
                        .map(|any| any.except.iter().copied().collect()),
                    cost: member.sources.values().find_map(|wanted| wanted.offer?.cost),
                    expires_in_s: until.unwrap_or(now).since(now).as_secs(),
                });
            }
        }
        (querier, members)
    }
}

fn cost_heard(link: LinkId, host: IpAddr, channel: SourceGroup, offer: Offer) -> CostHeard {
    CostHeard {
        channel: Channel {
            source: Some(channel.source),
            group: channel.group,
            port: offer.channel_port,
        },
        interface: link.interface,
        host: SocketAddr::new(host, offer.host_port),
        cost: offer.cost,
    }
}

/// Withdraws an offer that no longer stands.
fn withdraw(
    work: &mut Work,
    link: LinkId,
    host: IpAddr,
    channel: SourceGroup,
    offer: Option<Offer>,
) {
    if let Some(offer) = offer {
        let offer = Offer { cost: None, ..offer };
        work.costs.push_back(cost_heard(link, host, channel, offer));
    }
}
