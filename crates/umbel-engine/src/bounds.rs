//! Bounds of what strangers can fill, each declared once: how many there are, the share that one
//! host has, and what happens when it is taken.
//!
//! The page `docs/reference/bounds.md` is made of these, so that it cannot say anything else. A
//! bound that somebody else's messages fill belongs here. One that is per session, message or item
//! does not: it is a share already.

use std::fmt;

use crate::bucket::{HostLimiter, Limit};
use crate::shares::{Budget, Shares};

/// What happens when all is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The host that has most gives up what it used longest ago for a host that has fewer.
    Greediest,
    /// The link that has most gives way to other links, and on a link the host that has most to
    /// other hosts.
    Links,
    /// What is over its host's share is refused, and where all is taken, what comes next.
    Refused,
    /// What nobody used for longest is forgotten.
    Oldest,
    /// Something else.
    Told(&'static str),
}

impl fmt::Display for WhenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhenFull::Greediest => "the host with most gives one up",
            WhenFull::Links => "the link with most gives one up, there the host with most",
            WhenFull::Refused => "the next is refused",
            WhenFull::Oldest => "the one used longest ago goes",
            WhenFull::Told(words) => words,
        })
    }
}

/// The share of one host in a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share<T> {
    /// So much. A network of IPv6, if hosts are told apart by it, has four times as much.
    Of(T),
    /// All, as long as nobody else wants any.
    All,
    /// As much as it leaves free for others.
    AsMuchAsIsLeft,
    /// No share: it is one number for everybody, for this reason.
    None(&'static str),
}

/// A bound on a number of things.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// What is bounded.
    pub what: &'static str,
    /// Most of all hosts together.
    pub all: usize,
    /// Most of one host.
    pub of_host: Share<usize>,
    /// What happens when all is taken.
    pub full: WhenFull,
    /// The test in which one host tries to take ten times as much.
    pub test: &'static str,
}

impl Bound {
    /// Returns the most that one host can have.
    pub const fn most_of_host(&self) -> usize {
        match self.of_host {
            Share::Of(most) => most,
            Share::AsMuchAsIsLeft => self.all / 2,
            Share::All | Share::None(_) => self.all,
        }
    }

    /// Creates the places.
    pub fn shares<K: Copy + Ord>(&self) -> Shares<K> {
        Shares::new(self.all, self.most_of_host())
    }

    /// Creates a budget.
    pub fn budget(&self) -> Budget {
        Budget::new(self.all)
    }
}

/// A bound on how often something happens.
#[derive(Clone, Copy, Debug)]
pub struct RateBound {
    /// What is bounded.
    pub what: &'static str,
    /// For all hosts together.
    pub all: Limit,
    /// For one host.
    pub of_host: Share<Limit>,
    /// What is beyond the bound of all.
    pub full: WhenFull,
    /// The test in which one host tries ten times as often.
    pub test: &'static str,
}

impl RateBound {
    /// Returns the limit of one host.
    pub const fn of_host(&self) -> Limit {
        match self.of_host {
            Share::Of(limit) => limit,
            Share::All | Share::AsMuchAsIsLeft | Share::None(_) => self.all,
        }
    }

    /// Creates a limiter that tells so many hosts apart.
    pub fn limiter<K: Copy + Ord>(&self, hosts: usize) -> HostLimiter<K> {
        HostLimiter::new(self.of_host(), hosts, self.all)
    }
}

/// A line of the page of bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What is bounded.
    pub what: &'static str,
    /// Most of all hosts.
    pub all: String,
    /// Most of one host, or why it has no share.
    pub of_host: Result<String, &'static str>,
    /// What happens when all is taken.
    pub full: String,
    /// The test that tries it.
    pub test: &'static str,
}

fn row<T: Copy>(
    what: &'static str,
    (all, of_host): (T, Share<T>),
    full: WhenFull,
    test: &'static str,
    amount: impl Fn(T) -> String,
) -> Row {
    let of_host = match of_host {
        Share::Of(most) => Ok(amount(most)),
        Share::All => Ok("all that nobody else wants".to_owned()),
        Share::AsMuchAsIsLeft => Ok("as much as it leaves free".to_owned()),
        Share::None(reason) => Err(reason),
    };
    Row { what, all: amount(all), of_host, full: full.to_string(), test }
}

/// Writes a number with commas; many bytes in their unit.
fn number(value: usize) -> String {
    if value >= 1 << 20 && value.is_multiple_of(1 << 20) {
        return format!("{} MiB", value >> 20);
    }
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl From<&Bound> for Row {
    fn from(of: &Bound) -> Row {
        row(of.what, (of.all, of.of_host), of.full, of.test, number)
    }
}

impl From<&RateBound> for Row {
    fn from(of: &RateBound) -> Row {
        let rate = |limit: Limit| {
            let [per_s, burst] = [limit.per_s, limit.burst].map(|it| number(it as usize));
            format!("{per_s} a second, {burst} at once")
        };
        row(of.what, (of.all, of.of_host), of.full, of.test, rate)
    }
}

/// Receivers whose reports set the pace of a feed.
pub(crate) const REPORTERS: Bound = Bound {
    what: "receivers that set the pace of a feed",
    all: 1 << 14,
    of_host: Share::Of(64),
    full: WhenFull::Greediest,
    test: "tmtp::source::pace::a_host_has_a_share_of_the_places",
};

/// Members of a node of a feed.
pub(crate) const MEMBERS: Bound = Bound {
    what: "members of one node of a feed",
    all: 4096,
    of_host: Share::Of(256),
    full: WhenFull::Told("others go to another node"),
    test: "tmtp::tree::tests::hostile::one_host_does_not_take_all_places",
};

/// Pairs that a node of an open feed makes.
pub(crate) const JOINS: RateBound = RateBound {
    what: "joins that a node of an open feed answers; each takes some 50 µs",
    all: Limit { per_s: 1_000, burst: 1_000 },
    of_host: Share::Of(Limit { per_s: 50, burst: 50 }),
    full: WhenFull::Refused,
    test: "tmtp::authentic::tests::ten_times_as_many_requests_and_signatures_cost_no_more",
};

/// Answers to reports without a cookie.
pub(crate) const COOKIES: RateBound = RateBound {
    what: "answers of a feed's source to reports without a cookie",
    all: Limit { per_s: 2_000, burst: 2_000 },
    of_host: Share::Of(Limit { per_s: 64, burst: 64 }),
    full: WhenFull::Refused,
    test: "tmtp::source::pace::one_host_that_asks_for_cookies_keeps_nobody_from_getting_one",
};

/// Questions about digests that wait.
pub(crate) const DIGESTS: Bound = Bound {
    what: "questions about a feed's digests that wait",
    all: 1024,
    of_host: Share::Of(64),
    full: WhenFull::Refused,
    test: "tmtp::source::digests::a_host_that_asks_without_end_leaves_others_their_turn",
};

/// Receivers of a feed that multicast does not reach.
pub(crate) const BY_UNICAST: Bound = Bound {
    what: "receivers of a feed that get it by unicast",
    all: 256,
    of_host: Share::Of(16),
    full: WhenFull::Refused,
    test: "tmtp::source::unicast::one_host_has_a_share_of_the_lines",
};

/// Routers that have returned a cookie.
pub(crate) const ROUTERS: Bound = Bound {
    what: "routers that a node of a feed sends repairs to",
    all: 1024,
    of_host: Share::Of(4),
    full: WhenFull::Greediest,
    test: "recovery::lms::points::a_host_that_names_many_routers_makes_few_pings_and_takes_nothing_from_others",
};

/// Requests of LMS that no router has steered.
pub(crate) const UNSTEERED: RateBound = RateBound {
    what: "requests to a feed's source that no router has steered",
    all: Limit { per_s: 20_000, burst: 2_000 },
    of_host: Share::Of(Limit { per_s: 4_000, burst: 500 }),
    full: WhenFull::Refused,
    test: "tmtp::source::help::a_host_that_asks_without_end_leaves_others_their_allowance",
};

/// Answers to pings.
pub(crate) const PONGS: RateBound = RateBound {
    what: "answers of a feed's source to pings",
    all: Limit { per_s: 1_000, burst: 1_000 },
    of_host: Share::Of(Limit { per_s: 20, burst: 20 }),
    full: WhenFull::Refused,
    test: "tmtp::source::help::a_host_that_asks_without_end_leaves_others_their_allowance",
};

/// Signatures that a node of an open feed checks.
pub(crate) const CHECKS: RateBound = RateBound {
    what: "signatures of others that a node of an open feed checks",
    all: Limit { per_s: 5_000, burst: 1_000 },
    of_host: Share::None("who forged an address would silence its owner with less"),
    full: WhenFull::Told("what comes in any millisecond is checked in proportion"),
    test: "tmtp::authentic::tests::signatures_are_checked_so_often_and_a_flood_leaves_others_their_share",
};

/// Channels of which a router with LMS has state, and services.
pub(crate) const LMS_CHANNELS: Bound = Bound {
    what: "channels, and services, of which LMS in a router keeps state",
    all: 4096,
    of_host: Share::All,
    full: WhenFull::Links,
    test: "lms::tests::router::a_host_that_names_channels_without_end_takes_no_others_place",
};

/// Answers of a router with LMS to pings.
pub(crate) const ROUTER_PONGS: RateBound = RateBound {
    what: "answers of a router to pings of LMS",
    all: Limit { per_s: 2_000, burst: 1_000 },
    of_host: Share::Of(Limit { per_s: 20, burst: 50 }),
    full: WhenFull::Refused,
    test: "lms::tests::router::a_host_that_pings_without_end_takes_no_others_answer",
};

/// Requests that a router with LMS passes on.
pub(crate) const STEERED: RateBound = RateBound {
    what: "requests of a channel by one interface that a router steers",
    all: Limit { per_s: 10_000, burst: 2_000 },
    of_host: Share::None(
        "a router keeps nothing of who asks; five hosts fill it, as each is limited before",
    ),
    full: WhenFull::Refused,
    test: "",
};

/// DMCASTs of a channel.
pub(crate) const DMCASTS: RateBound = RateBound {
    what: "repairs of a channel that a router takes",
    all: Limit { per_s: 20_000, burst: 2_000 },
    of_host: Share::None("only answers to what was steered count"),
    full: WhenFull::Refused,
    test: "",
};

/// Messages of the control group of a stream.
pub(crate) const STREAM_CONTROL: RateBound = RateBound {
    what: "messages in the control group of a stream",
    all: Limit { per_s: 200, burst: 400 },
    of_host: Share::Of(Limit { per_s: 10, burst: 40 }),
    full: WhenFull::Refused,
    test: "rlm::tests::hostile::one_host_that_talks_without_end_silences_nobody",
};

/// Wrong signatures of a stream that a receiver looks at. Chosen: four times the rate of an attack
/// that docs/security.md expects, and about a quarter of a core.
pub(crate) const WRONG_SIGNATURES: RateBound = RateBound {
    what: "wrong signatures of a stream that a receiver looks at",
    all: Limit { per_s: 4_000, burst: 4_000 },
    of_host: Share::None("all come under the address of the source"),
    full: WhenFull::Told("packets are lost in proportion"),
    test: "",
};

/// Connections of `smo serve`.
pub(crate) const SMO_CONNECTIONS: Bound = Bound {
    what: "connections of `smo serve`",
    all: 10_000,
    of_host: Share::All,
    full: WhenFull::Greediest,
    test: "smo::tests::crowds::a_host_with_all_connections_gives_them_up_for_other_hosts",
};

/// Bytes held for children of `smo serve` that are served alone.
pub(crate) const SMO_ALONE: Bound = Bound {
    what: "bytes that `smo serve` holds for those it serves alone",
    all: 256 << 20,
    of_host: Share::Of(64 << 20),
    full: WhenFull::Told("each has 64 KiB and a read, and half of what is left"),
    test: "smo::tests::crowds::a_host_that_reads_nothing_holds_a_share_of_the_memory",
};

/// Half-open connections of `smo serve`.
pub(crate) const SMO_HALF_OPEN: Bound = Bound {
    what: "half-open connections of `smo serve`; of 8,000 a second under forged addresses each has 8 s",
    all: 65_536,
    of_host: Share::Of(4_096),
    full: WhenFull::Oldest,
    test: "smo::tests::seeds::a_host_that_opens_connections_without_end_has_its_share",
};

/// RSTs and the like of `smo serve`.
pub(crate) const SMO_STRAYS: RateBound = RateBound {
    what: "answers of `smo serve` to segments of no connection",
    all: Limit { per_s: 1_000, burst: 1_000 },
    of_host: Share::None("nobody needs one"),
    full: WhenFull::Refused,
    test: "",
};

/// The bounds of the engines.
pub fn rows() -> Vec<Row> {
    let places = [
        &MEMBERS,
        &REPORTERS,
        &DIGESTS,
        &BY_UNICAST,
        &ROUTERS,
        &LMS_CHANNELS,
        &SMO_CONNECTIONS,
        &SMO_ALONE,
        &SMO_HALF_OPEN,
    ];
    let rates = [
        &JOINS,
        &COOKIES,
        &UNSTEERED,
        &PONGS,
        &CHECKS,
        &ROUTER_PONGS,
        &STEERED,
        &DMCASTS,
        &STREAM_CONTROL,
        &WRONG_SIGNATURES,
        &SMO_STRAYS,
    ];
    places.map(Row::from).into_iter().chain(rates.map(Row::from)).collect()
}
