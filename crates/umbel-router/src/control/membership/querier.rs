//! Querier election: the router with the lowest address asks [RFC 3376 §6.6.2, RFC 3810 §7.6.2].
//!
//! ```text
//!              a lower address asks
//!   Querier ─────────────────────────▶ Other
//!      ▲                                 │
//!      └─────── it is silent ◀───────────┘
//! ```

use std::net::IpAddr;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_wire::membership::{Query, Version};

use super::super::api::Family;
use super::super::config::MembershipConfig;
use super::super::work::{Due, LinkId, Timer, Work};

/// The querier of a link, and its constants.
#[derive(Debug)]
pub(super) struct Querier {
    link: LinkId,
    /// The router that asks; `None` if this one does.
    other: Option<IpAddr>,
    /// First queries still to be sent after a start.
    startup_left: u8,
    /// The querier's robustness variable.
    robustness: u8,
    /// The querier's interval.
    interval: Duration,
    /// General queries since the start, of any router, that are still to be waited for.
    unsettled: u8,
    /// Time at which the answers to the last of them are in.
    settled_at: Instant,
    /// A router of an older version that asks here, and its version. Hosts follow it, and can no
    /// longer name sources.
    older: Option<(IpAddr, Version)>,
}

impl Querier {
    /// Begins to ask.
    pub(super) fn start(
        now: Instant,
        link: LinkId,
        config: &MembershipConfig,
        work: &mut Work,
    ) -> Querier {
        let mut querier = Querier {
            link,
            other: None,
            startup_left: config.robustness.max(1),
            robustness: config.robustness,
            interval: config.query_interval,
            unsettled: config.robustness.max(1),
            settled_at: now,
            older: None,
        };
        querier.on_time(now, config, work);
        querier
    }

    pub(super) fn other(&self) -> Option<IpAddr> {
        self.other
    }

    pub(super) fn older(&self) -> Option<(IpAddr, Version)> {
        self.older
    }

    /// Returns whether every member has been heard, even if one message in a row was lost, so that
    /// a leave can be trusted.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        self.unsettled == 0 && now >= self.settled_at
    }

    /// Notes that all hosts answer within this time.
    fn on_general_query(&mut self, now: Instant, max_response: Duration) {
        if self.unsettled > 0 {
            self.unsettled -= 1;
            self.settled_at = self.settled_at.max(now + max_response);
        }
    }

    /// Returns the time until which a host that was just heard is a member: as long as the querier
    /// says, and long enough for this router to take over.
    pub(super) fn member_until(&self, now: Instant, config: &MembershipConfig) -> Instant {
        let own = config.member_lifetime(config.robustness, config.query_interval);
        now + config.member_lifetime(self.robustness, self.interval).max(own)
    }

    /// Asks, or takes over.
    pub(super) fn on_time(&mut self, now: Instant, config: &MembershipConfig, work: &mut Work) {
        if self.other.take().is_some() {
            (self.robustness, self.interval) = (config.robustness, config.query_interval);
            self.older = None;
        }
        let is_startup = self.startup_left > 0;
        self.startup_left = self.startup_left.saturating_sub(1);
        let max_response = if is_startup { config.startup_response } else { config.query_response };
        self.ask(None, Vec::new(), max_response, config, work);
        self.on_general_query(now, max_response);
        // The startup query interval [RFC 3376 §8.6].
        let next = if self.startup_left > 0 { self.interval / 4 } else { self.interval };
        work.timers.set(Timer::Querier(self.link), now + next);
    }

    /// Sends a query.
    pub(super) fn ask(
        &self,
        group: Option<IpAddr>,
        sources: Vec<IpAddr>,
        max_response: Duration,
        config: &MembershipConfig,
        work: &mut Work,
    ) {
        let version = if self.link.family == Family::Ipv4 { Version::Igmp3 } else { Version::Mld2 };
        let (robustness, interval) = (config.robustness, self.interval);
        let suppress = false;
        let query = Query { version, group, sources, max_response, suppress, robustness, interval };
        work.due.push_back(Due::Query(self.link, query));
    }

    /// Takes in another router's query.
    pub(super) fn on_query(
        &mut self,
        now: Instant,
        (from, me): (IpAddr, IpAddr),
        query: &Query,
        config: &MembershipConfig,
        work: &mut Work,
    ) {
        if !query.version.has_sources() {
            self.older = Some((from, query.version));
        } else if self.older.is_some_and(|(older, _)| older == from) {
            self.older = None;
        }
        if query.group.is_none() {
            self.on_general_query(now, query.max_response);
        }
        if from >= me {
            return;
        }
        self.other = Some(from);
        self.startup_left = 0;
        // The querier's own constants hold for all routers [RFC 3376 §4.1.6, §4.1.7].
        if query.robustness > 0 {
            self.robustness = query.robustness;
        }
        if !query.interval.is_zero() {
            self.interval = query.interval;
        }
        // One that asks less often than this router would asks in vain.
        let own = config.querier_lifetime(config.robustness, config.query_interval);
        let lifetime = config.querier_lifetime(self.robustness, self.interval).min(own);
        work.timers.set(Timer::Querier(self.link), now + lifetime);
    }
}
