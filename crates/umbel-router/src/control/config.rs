//! Every constant of the control plane.

use std::net::IpAddr;
use std::time::Duration;

use umbel_engine::bucket::Limit;

use crate::bounds::{
    GROUPS, HEARD, HELLO_ANSWERS, HOSTS, NEIGHBOURS, REPORTS, SOURCES, STRANGERS, TREES,
};

/// Constants of the control plane. The defaults are those of the RFCs.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlConfig {
    /// Constants of membership.
    pub membership: MembershipConfig,
    /// Constants of PIM.
    pub pim: PimConfig,
    /// Bounds of the tables.
    pub bounds: Bounds,
    /// Time for which a channel is known that nobody has named, but whose packets arrived: the
    /// Keepalive_Period of [RFC 7761 §4.11].
    pub heard_lifetime: Duration,
}

/// Constants of IGMP and MLD [RFC 3376 §8, RFC 3810 §9].
#[derive(Clone, Debug, PartialEq)]
pub struct MembershipConfig {
    /// Interval between general queries.
    pub query_interval: Duration,
    /// Time within which hosts answer general queries.
    pub query_response: Duration,
    /// Time within which hosts answer the first queries after a start. It is shorter than
    /// [`query_response`](MembershipConfig::query_response), so that forwarding resumes soon.
    pub startup_response: Duration,
    /// Number of losses that are survived, plus one; 1 to 7.
    pub robustness: u8,
    /// Time within which hosts answer whether they want what another has left, and interval between
    /// such queries.
    pub last_member_interval: Duration,
    /// Whether a leave takes effect at once if no other host is known to want the same. Otherwise,
    /// and while hosts are not yet known, members are asked first [RFC 3376 §A.2].
    pub fast_leave: bool,
    /// Messages of IGMP and MLD that one host may send.
    pub messages_per_host: Limit,
    /// Messages of hosts that are no members, that may come by one interface.
    pub messages_of_newcomers: Limit,
}

impl MembershipConfig {
    /// Returns the time after which a host that is not heard is no member [RFC 3376 §8.4].
    pub(crate) fn member_lifetime(&self, robustness: u8, interval: Duration) -> Duration {
        interval * u32::from(robustness) + self.query_response
    }

    /// Returns the time after which a silent querier is gone [RFC 3376 §8.5].
    pub(crate) fn querier_lifetime(&self, robustness: u8, interval: Duration) -> Duration {
        interval * u32::from(robustness) + self.query_response / 2
    }

    /// Returns the time for which members are asked whether they want what another has left
    /// [RFC 3376 §8.8.1].
    pub(crate) fn last_member_time(&self) -> Duration {
        self.last_member_interval * u32::from(self.robustness)
    }
}

/// A neighbour that was configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedNeighbour {
    /// Its address.
    pub address: IpAddr,
    /// Name of the interface on which it is, if its address does not tell.
    pub interface: Option<String>,
}

/// Constants of PIM [RFC 7761 §4.11]. It is spoken on links with neighbours that were named, and on
/// those through which unicast routes lead on.
#[derive(Clone, Debug, PartialEq)]
pub struct PimConfig {
    /// Names of the interfaces on which it is not spoken.
    pub passive: Vec<String>,
    /// The neighbours on some links. On these no other router is believed.
    pub neighbours: Vec<NamedNeighbour>,
    /// Interval between Hellos.
    pub hello_interval: Duration,
    /// Time for which neighbours believe a Hello, in whole seconds.
    pub hello_holdtime: Duration,
    /// Greatest random delay of the first Hello on an interface. Trees wait for it, so that it is
    /// shorter than the 5 s of [RFC 7761 §4.11].
    pub triggered_hello_delay: Duration,
    /// Answers to new neighbours on one interface that were not named and are no gateway.
    pub hello_answers: Limit,
    /// Hellos of one neighbour. Each may concern all trees.
    pub hellos_per_neighbour: Limit,
    /// Messages of one neighbour, each of which may concern some two hundred channels.
    pub messages_per_neighbour: Limit,
    /// Messages of one host that is no neighbour.
    pub messages_per_stranger: Limit,
    /// Messages of all hosts that are no neighbours, that may come by one interface.
    pub messages_of_strangers: Limit,
    /// Priority for becoming the designated router.
    pub dr_priority: u32,
    /// Interval between refreshes of joins.
    pub join_interval: Duration,
    /// Greatest random time after which a new join is said once more. If both are lost, it waits
    /// for the refresh.
    pub join_repeat: Duration,
    /// Times that a prune is said again: the first time after `join_repeat`, then each time after
    /// twice as long. If all are lost, the channel goes on until the join ends.
    pub prune_repeats: u8,
    /// Time for which joins hold, in whole seconds.
    pub join_holdtime: Duration,
    /// Time after the last packet of a channel on a link for which it is believed that another
    /// router forwards there. The kernel tells of packets every 3 s.
    pub seen_lifetime: Duration,
    /// Expected delay of a link, until neighbours say more.
    pub propagation_delay: Duration,
    /// Time within which another router may override a prune, until neighbours say more.
    pub override_interval: Duration,
    /// Preference of this router's unicast routes in Asserts; lower is better.
    pub assert_preference: u32,
    /// Time after which the loser of an Assert forwards again if it hears no more.
    pub assert_time: Duration,
    /// Time before the end of its state at which the winner of an Assert says it again.
    pub assert_override_interval: Duration,
    /// Shortest time between two Asserts of one channel on one interface. Every packet that arrives
    /// there would cause one.
    pub assert_gap: Duration,
}

/// Bounds of the tables. When one is full, the link and the host that have most give way to those
/// that have less; other input beyond a bound is dropped. Both are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Interfaces.
    pub interfaces: usize,
    /// Hosts on one interface.
    pub hosts: usize,
    /// Groups that hosts on one interface have joined.
    pub groups: usize,
    /// Groups that one host has joined.
    pub groups_of_host: usize,
    /// Channels that one host has named, or of which its packets alone are known.
    pub channels_of_host: usize,
    /// Sources that one host has named for one group.
    pub sources_of_host: usize,
    /// Sources that all hosts on one interface have named, for all groups together.
    pub sources: usize,
    /// Channels.
    pub trees: usize,
    /// Of these, the most that are known only by their packets, since no host has named them.
    pub heard: usize,
    /// PIM neighbours on one interface.
    pub neighbours: usize,
}

impl Default for Bounds {
    /// Tens of megabytes at most.
    fn default() -> Bounds {
        Bounds {
            interfaces: 256,
            hosts: HOSTS.all,
            groups: GROUPS.all,
            groups_of_host: GROUPS.most_of_host(),
            channels_of_host: SOURCES.most_of_host(),
            sources_of_host: 64,
            sources: SOURCES.all,
            trees: TREES.all,
            heard: HEARD.all,
            neighbours: NEIGHBOURS.all,
        }
    }
}

impl Default for MembershipConfig {
    fn default() -> MembershipConfig {
        MembershipConfig {
            query_interval: Duration::from_secs(125),
            query_response: Duration::from_secs(10),
            startup_response: Duration::from_secs(1),
            robustness: 2,
            last_member_interval: Duration::from_secs(1),
            fast_leave: true,
            messages_per_host: REPORTS.of_host(),
            messages_of_newcomers: REPORTS.all,
        }
    }
}

impl Default for PimConfig {
    fn default() -> PimConfig {
        PimConfig {
            passive: Vec::new(),
            neighbours: Vec::new(),
            hello_interval: Duration::from_secs(30),
            hello_holdtime: Duration::from_secs(105),
            triggered_hello_delay: Duration::from_millis(100),
            hello_answers: HELLO_ANSWERS.all,
            hellos_per_neighbour: HELLO_ANSWERS.of_host(),
            messages_per_neighbour: Limit { per_s: 200, burst: 2000 },
            messages_per_stranger: STRANGERS.of_host(),
            messages_of_strangers: STRANGERS.all,
            dr_priority: 1,
            join_interval: Duration::from_mins(1),
            join_repeat: Duration::from_millis(500),
            prune_repeats: 4,
            join_holdtime: Duration::from_secs(210),
            seen_lifetime: Duration::from_secs(10),
            propagation_delay: Duration::from_millis(500),
            override_interval: Duration::from_millis(2500),
            assert_preference: 1,
            assert_time: Duration::from_mins(3),
            assert_override_interval: Duration::from_secs(3),
            assert_gap: Duration::from_secs(1),
        }
    }
}

impl Default for ControlConfig {
    fn default() -> ControlConfig {
        ControlConfig {
            membership: MembershipConfig::default(),
            pim: PimConfig::default(),
            bounds: Bounds::default(),
            heard_lifetime: Duration::from_secs(210),
        }
    }
}
