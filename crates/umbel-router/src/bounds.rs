//! Bounds of what hosts and routers can fill at a router.

use umbel_engine::bounds::{Bound, RateBound, Row, Share, WhenFull};
use umbel_engine::bucket::Limit;

/// Reason why hosts on a link are not told apart further.
const ADDRESSES: &str = "a host has one for each address that it takes on its link";

/// Channels.
pub(crate) const TREES: Bound = Bound {
    what: "channels of `router`; those that carry nothing go first",
    all: 8192,
    of_host: Share::Of(256),
    full: WhenFull::Links,
    test: "control::tests::hostile::hosts_of_one_link_keep_no_host_of_another_link_from_joining",
};

/// Channels known by their packets.
pub(crate) const HEARD: Bound = Bound {
    what: "channels of `router` that nobody has joined, but whose packets came",
    all: 1024,
    of_host: Share::Of(256),
    full: WhenFull::Links,
    test: "control::tests::membership::a_host_that_sends_to_channels_without_end_leaves_others_theirs",
};

/// Hosts on a link.
pub(crate) const HOSTS: Bound = Bound {
    what: "members on one interface of `router`",
    all: 1024,
    of_host: Share::None(ADDRESSES),
    full: WhenFull::Refused,
    test: "",
};

/// Groups on a link.
pub(crate) const GROUPS: Bound = Bound {
    what: "groups of IGMP or MLD on one interface of `router`",
    all: 1024,
    of_host: Share::Of(64),
    full: WhenFull::Greediest,
    test: "control::tests::hostile::hosts_that_name_many_channels_keep_no_other_host_of_their_link_from_joining",
};

/// Sources on a link.
pub(crate) const SOURCES: Bound = Bound {
    what: "sources of IGMP or MLD on one interface of `router`",
    all: 16_384,
    of_host: Share::Of(256),
    full: WhenFull::Greediest,
    test: "control::tests::hostile::hosts_that_name_many_channels_keep_no_other_host_of_their_link_from_joining",
};

/// PIM neighbours on a link.
pub(crate) const NEIGHBOURS: Bound = Bound {
    what: "neighbours of PIM on one interface of `router`",
    all: 64,
    of_host: Share::None(ADDRESSES),
    full: WhenFull::Told("a stranger gives way to a router that was named or is a gateway"),
    test: "",
};

/// Messages of IGMP and MLD.
pub(crate) const REPORTS: RateBound = RateBound {
    what: "messages of IGMP and MLD by one interface of `router`; members have their own",
    all: Limit { per_s: 2000, burst: 4000 },
    of_host: Share::Of(Limit { per_s: 50, burst: 200 }),
    full: WhenFull::Refused,
    test: "control::tests::hostile::a_host_that_floods_costs_no_other_host_a_report",
};

/// Messages of PIM of strangers.
pub(crate) const STRANGERS: RateBound = RateBound {
    what: "messages of PIM of strangers by one interface of `router`; neighbours have 200 a second",
    all: Limit { per_s: 10, burst: 100 },
    of_host: Share::Of(Limit { per_s: 1, burst: 5 }),
    full: WhenFull::Refused,
    test: "control::tests::hostile::a_host_that_floods_costs_no_router_a_message",
};

/// Answers to Hellos.
pub(crate) const HELLO_ANSWERS: RateBound = RateBound {
    what: "answers to new neighbours by one interface of `router`; named ones and gateways have all",
    all: Limit { per_s: 10, burst: 20 },
    of_host: Share::Of(Limit { per_s: 1, burst: 10 }),
    full: WhenFull::Told("it waits for the next Hello"),
    test: "control::tests::hostile::a_storm_of_routers_costs_no_gateway_an_answer",
};

/// Datagrams of LMS.
pub(crate) const LMS_DATAGRAMS: RateBound = RateBound {
    what: "datagrams of LMS by one interface of `router`; who sent something of use has its own",
    all: Limit { per_s: 50_000, burst: 5_000 },
    of_host: Share::Of(Limit { per_s: 2_000, burst: 1_000 }),
    full: WhenFull::Refused,
    test: "daemon::senders::a_host_that_sends_without_end_takes_its_share_and_another_is_heard",
};

/// Hosts that have sent something of use for LMS.
pub(crate) const LMS_KNOWN: Bound = Bound {
    what: "hosts with an allowance of LMS of their own at `router`",
    all: 8192,
    of_host: Share::All,
    full: WhenFull::Told("who is idle for a minute goes, then one of the link with most"),
    test: "daemon::senders::who_has_long_been_silent_gives_way_and_no_link_takes_all_places",
};

/// Branches with credit, and offers by reports.
pub(crate) const LMS_BRANCHES: Bound = Bound {
    what: "branches of channels for whose repairs `router` has credit, and offers of repliers",
    all: 16_384,
    of_host: Share::All,
    full: WhenFull::Links,
    test: "shares::places::a_host_that_fills_its_link_leaves_others_of_the_link_their_places",
};

/// The bounds of this crate.
pub fn rows() -> Vec<Row> {
    let places =
        [&TREES, &HEARD, &HOSTS, &GROUPS, &SOURCES, &NEIGHBOURS, &LMS_KNOWN, &LMS_BRANCHES];
    let rates = [&REPORTS, &STRANGERS, &HELLO_ANSWERS, &LMS_DATAGRAMS];
    places.map(Row::from).into_iter().chain(rates.map(Row::from)).collect()
}
