//! The members of one group on one link, each tracked by itself [RFC 3376 §A.2].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use umbel_engine::Instant;
use umbel_wire::membership::{Offer, RecordType, Version};

/// A source that a host wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) until: Instant,
    pub(super) offer: Option<Offer>,
}

/// A wish for all sources but some.
#[derive(Clone, Debug)]
pub(super) struct AnySource {
    pub(super) except: BTreeSet<IpAddr>,
    pub(super) until: Instant,
}

/// The sources of a group that one host wants.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Version that the host spoke last.
    pub(super) version: Version,
    pub(super) sources: BTreeMap<IpAddr, Wanted>,
    pub(super) any: Option<AnySource>,
}

/// Changes that a record makes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Sources that the host wants, as it says.
    pub(super) wanted: Vec<IpAddr>,
    /// Sources that it no longer wants. They are still there.
    pub(super) left: Vec<IpAddr>,
    /// Whether what it wants of unnamed sources has changed.
    pub(super) any: bool,
    /// Whether it no longer wants unnamed sources. The wish is still there.
    pub(super) left_any: bool,
    /// Number of sources for which there was no room.
    pub(super) refused: usize,
}

impl Member {
    pub(super) fn new(version: Version) -> Member {
        Member { version, sources: BTreeMap::new(), any: None }
    }

    pub(super) fn wants(&self, source: IpAddr) -> bool {
        self.sources.contains_key(&source)
            || self.any.as_ref().is_some_and(|any| !any.except.contains(&source))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.any.is_none()
    }

    /// Returns the number of entries that it takes.
    pub(super) fn len(&self) -> usize {
        self.sources.len() + self.any.as_ref().map_or(0, |any| 1 + any.except.len())
    }

    fn want(&mut self, named: &[IpAddr], until: Instant, room: usize, change: &mut Change) {
        for &source in named {
            if let Some(wanted) = self.sources.get_mut(&source) {
                wanted.until = until;
            } else if self.sources.len() < room {
                self.sources.insert(source, Wanted { until, offer: None });
            } else {
                change.refused += 1;
                continue;
            }
            change.wanted.push(source);
        }
    }

    /// Takes in a record. `room` bounds the number of sources.
    pub(super) fn hear(
        &mut self,
        kind: RecordType,
        named: &[IpAddr],
        until: Instant,
        room: usize,
    ) -> Change {
        let mut change = Change::default();
        match kind {
            // Also a host that wants any source says which of those in question it wants
            // [RFC 3376 §5.2].
            RecordType::IsInclude => self.want(named, until, room, &mut change),
            RecordType::ToInclude => {
                let is_left = |source: &&IpAddr| !named.contains(source);
                change.left = self.sources.keys().filter(is_left).copied().collect();
                change.left_any = self.any.is_some();
                self.want(named, until, room, &mut change);
            }
            RecordType::IsExclude | RecordType::ToExclude => {
                let except: BTreeSet<IpAddr> = named.iter().copied().take(room).collect();
                change.refused = named.len().saturating_sub(room);
                change.left = self.sources.keys().copied().filter(|s| except.contains(s)).collect();
                change.any = true;
                self.any = Some(AnySource { except, until });
            }
            RecordType::Allow => match &mut self.any {
                Some(any) => {
                    any.except.retain(|source| !named.contains(source));
                    change.any = true;
                }
                None => self.want(named, until, room, &mut change),
            },
            RecordType::Block => {
                change.left =
                    self.sources.keys().copied().filter(|source| named.contains(source)).collect();
                if let Some(any) = &mut self.any {
                    for source in named {
                        if any.except.len() < room {
                            any.except.insert(*source);
                        }
                    }
                    change.any = true;
                }
            }
        }
        change
    }

    /// Returns the time of its next expiry.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let sources = self.sources.values().map(|wanted| wanted.until);
        sources.chain(self.any.as_ref().map(|any| any.until)).min()
    }
}

/// The sources that members are being asked about, since others have left.
#[derive(Clone, Debug, Default)]
pub(super) struct Asking {
    /// Whether the group as a whole is in question.
    pub(super) group: bool,
    pub(super) sources: BTreeSet<IpAddr>,
    /// Number of queries still to be sent.
    pub(super) left: u8,
}

/// The members of one group on one link.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) members: BTreeMap<IpAddr, Member>,
    pub(super) asking: Option<Asking>,
}

impl Group {
    pub(super) fn wants(&self, source: IpAddr) -> bool {
        self.members.values().any(|member| member.wants(source))
    }

    /// Returns the sources that members have named, ascending.
    pub(super) fn sources(&self) -> BTreeSet<IpAddr> {
        self.members.values().flat_map(|member| member.sources.keys()).copied().collect()
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.members.values().filter_map(Member::next_expiry).min()
    }

    /// Lowers the time until which sources are wanted, and that of unnamed ones if `any` is set.
    pub(super) fn lower(&mut self, sources: &BTreeSet<IpAddr>, any: bool, until: Instant) {
        for member in self.members.values_mut() {
            for (source, wanted) in &mut member.sources {
                if sources.contains(source) {
                    wanted.until = wanted.until.min(until);
                }
            }
            if any && let Some(any) = &mut member.any {
                any.until = any.until.min(until);
            }
        }
    }

    /// Returns whether a source is wanted by somebody beyond a time.
    pub(super) fn is_confirmed(&self, source: IpAddr, beyond: Instant) -> bool {
        self.members
            .values()
            .any(|member| member.sources.get(&source).is_some_and(|wanted| wanted.until > beyond))
    }

    /// Returns whether unnamed sources are wanted by somebody beyond a time.
    pub(super) fn is_any_confirmed(&self, beyond: Instant) -> bool {
        let confirmed = |member: &Member| member.any.as_ref().is_some_and(|any| any.until > beyond);
        self.members.values().any(confirmed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    /// Does to a member what its host's records would do to a router that acts at once.
    fn told(member: &mut Member, kind: RecordType, named: &[IpAddr]) -> [bool; 3] {
        let change = member.hear(kind, named, Instant::from_nanos(9), 64);
        change.left.iter().for_each(|source| {
            member.sources.remove(source);
        });
        if change.left_any {
            member.any = None;
        }
        [1, 2, 3].map(|host| member.wants(a(host)))
    }

    #[test]
    fn what_a_host_wants_follows_from_its_records() {
        use RecordType::{Allow, Block, IsExclude, IsInclude, ToExclude, ToInclude};
        let mut member = Member::new(Version::Igmp3);
        for (kind, named, wants) in [
            (Allow, vec![a(1)], [true, false, false]),
            (Allow, vec![a(2)], [true, true, false]),
            (Block, vec![a(1)], [false, true, false]),
            // An answer to a query of one source says nothing of others [RFC 3376 §5.2].
            (IsInclude, vec![a(3)], [false, true, true]),
            (ToInclude, vec![a(1)], [true, false, false]),
            (ToExclude, vec![], [true, true, true]),
            (Block, vec![a(2)], [true, false, true]),
            (Allow, vec![a(2)], [true, true, true]),
            (IsExclude, vec![a(3)], [true, true, false]),
            (ToInclude, vec![], [false, false, false]),
        ] {
            assert_eq!(told(&mut member, kind, &named), wants, "{kind:?} {named:?}");
        }
        assert!(member.is_empty());
        assert_eq!(member.len(), 0);
    }

    #[test]
    fn no_more_sources_are_kept_than_there_is_room_for() {
        let mut member = Member::new(Version::Igmp3);
        let named: Vec<IpAddr> = (0..9).map(a).collect();
        let change = member.hear(RecordType::Allow, &named, Instant::EPOCH, 4);
        assert_eq!((change.refused, member.len()), (5, 4));
        let change = member.hear(RecordType::ToExclude, &named, Instant::EPOCH, 4);
        assert_eq!((change.refused, change.left.len()), (5, 4));
        assert_eq!(member.any.as_ref().map(|any| any.except.len()), Some(4));
        member.hear(RecordType::Block, &named, Instant::EPOCH, 4);
        assert_eq!(member.any.as_ref().map(|any| any.except.len()), Some(4));
    }
}
