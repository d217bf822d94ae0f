//! A receiver's part in LMS: requestor, and replier if a router makes it one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use rand_core::Rng as _;
use umbel_wire::lms::{Message, Request, limits};
use umbel_wire::tmtp::EsiSet;
use umbel_wire::{Channel, Tsi};

use super::dmcasts::{Dmcasts, Requestor};
use super::{lacks_of, units_for};
use crate::Instant;
use crate::bucket::{Limit, Limiter};
use crate::chance::Generator;
use crate::lms::config::Cost;
use crate::lms::replier::RepairTo;
use crate::recovery::distance::Distance;
use crate::recovery::reception::Reception;
use crate::recovery::{Debts, Stock, Unfounded};
use crate::tmtp::DropReason;

/// Time between advertisements. Routers forget an offer after 7 s.
const ADVERTISE_EVERY: Duration = Duration::from_secs(2);
/// Time after the first one. It doubles, since the channel's tree may not have grown to here yet.
const ADVERTISE_FIRST: Duration = Duration::from_millis(250);
/// Round trips to the source, and their deviations, after which a request is repeated. Most helpers
/// are nearer than the source. One that is farther ignores what crosses its answer.
const TIMEOUT_RTTS: f64 = 1.25;
const TIMEOUT_DEVIATIONS: u32 = 2;
/// Bounds of that time. Hosts that are busy answer late.
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// Number of requests without an answer after which every other one says that the replier failed
/// [LMS §III-C].
const FAILED_AFTER: u8 = 2;
/// Most requests a second, and at once. Routers let 10,000 a second pass from an interface.
const REQUESTS: Limit = Limit { per_s: 4_000, burst: 500 };
/// Most requests of others that are passed on a second, and at once.
const PASSED_ON: Limit = Limit { per_s: 2_000, burst: 200 };

/// Time for which a request for a block waits of which this node has not heard yet, and how often
/// it does so. The requestor may just be ahead: data and requests wait in different queues.
const HOLD: Duration = Duration::from_millis(3);
const HOLDS: u8 = 4;
/// Most requests that wait so.
const MOST_HELD: usize = 1024;

/// A request for a block of which this node has not heard yet.
#[derive(Clone, Copy, Debug)]
struct Held {
    until: Instant,
    /// The host that sent it.
    from: SocketAddr,
    /// Times that it may wait again.
    left: u8,
    request: Request,
}

/// A receiver's part in LMS.
#[derive(Debug)]
pub(crate) struct Helper {
    channel: Channel,
    feed: Tsi,
    /// Destination of requests: the source, at the port of the channel.
    source: SocketAddr,
    cost: Cost,
    pub(crate) dmcasts: Dmcasts,
    distance: Distance,
    advertise_at: Option<Instant>,
    advertise_step: Duration,
    advertised: bool,
    requests: Limiter,
    passed_on: Limiter,
    /// Requests that wait, in order.
    held: VecDeque<Held>,
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    requests_sent: u64,
}

impl Helper {
    /// Creates the part of a receiver of this channel, whose source is at `source`.
    pub(crate) fn new(
        (channel, feed): (Channel, Tsi),
        source: SocketAddr,
        cost: Cost,
        mut random: Generator,
    ) -> Helper {
        let mut secret = [0; 32];
        random.fill_bytes(&mut secret);
        let channel = Channel { source: Some(source.ip()), ..channel };
        let source = SocketAddr::new(source.ip(), channel.port);
        Helper {
            channel,
            feed,
            source,
            cost,
            dmcasts: Dmcasts::new(channel, feed, secret),
            distance: Distance::new(feed, source, random),
            advertise_at: None,
            advertise_step: ADVERTISE_FIRST,
            advertised: false,
            requests: Limiter::new(REQUESTS),
            passed_on: Limiter::new(PASSED_ON),
            held: VecDeque::new(),
            outbox: VecDeque::new(),
            requests_sent: 0,
        }
    }

    /// Begins, now that the source has taken this receiver in.
    pub(crate) fn start(&mut self, now: Instant) {
        self.distance.start(now);
        if matches!(self.cost, Cost::Fixed(_)) {
            self.advertise_at.get_or_insert(now);
        }
    }

    /// Withdraws the offer to be a replier.
    pub(crate) fn stop(&mut self) {
        if std::mem::take(&mut self.advertised) {
            self.say(&Message::Advertisement { channel: self.channel, cost: None });
        }
        self.distance.stop();
        self.advertise_at = None;
    }

    /// Returns the number of requests sent.
    pub(crate) fn requests_sent(&self) -> u64 {
        self.requests_sent
    }

    /// Returns the time within which the answer to a request should have come.
    pub(crate) fn timeout(&self) -> Duration {
        let (least, most) = TIMEOUT;
        let rtt = self.distance.rtt();
        let time = rtt.smoothed().mul_f64(TIMEOUT_RTTS) + rtt.deviation() * TIMEOUT_DEVIATIONS;
        time.clamp(least, most)
    }

    /// Returns the cost that is offered now.
    fn cost(&self) -> Option<u32> {
        match self.cost {
            Cost::Fixed(cost) => cost,
            Cost::Latency | Cost::LatencyAndLoss { .. } => {
                let rtt = self.distance.rtt().measured()?.as_micros();
                Some(u32::try_from(rtt).unwrap_or(u32::MAX))
            }
        }
    }

    /// Sends a message towards the source.
    fn say(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        self.outbox.push_back((self.source, bytes));
    }

    /// Requests symbols of a block for the `number`th time; `None` are all. Symbols beyond the
    /// allowance are requested the next time.
    pub(crate) fn request(
        &mut self,
        now: Instant,
        block: u32,
        symbols: Option<EsiSet>,
        number: u8,
    ) {
        let beyond = number.checked_sub(FAILED_AFTER);
        for units in units_for(block, symbols) {
            if !self.requests.take(now) {
                return;
            }
            let request = Request {
                channel: self.channel,
                tsi: self.feed,
                units,
                number: number.max(1),
                requestor: None,
                turning_point: None,
                replier_failed: beyond.is_some_and(|beyond| beyond % 2 == 1),
                unicast_reply: false,
                hops: 0,
            };
            self.requests_sent += 1;
            self.say(&Message::Request(request));
        }
    }

    /// Handles a message that came to this node alone, other than a repair.
    ///
    /// # Errors
    ///
    /// If it is discarded.
    pub(crate) fn on_message(
        &mut self,
        now: Instant,
        (from, message): (SocketAddr, &Message<'_>),
        held: (&Reception, &impl Stock),
    ) -> Result<(), DropReason> {
        match *message {
            Message::Request(request) => self.on_request(now, (from, &request), HOLDS, held),
            Message::Pong { tsi, nonce } if tsi == self.feed => {
                if let Some(waited) = self.dmcasts.points.on_pong(now, from, nonce) {
                    for request in &waited {
                        // It is as if it came now, whatever becomes of it.
                        let _ = self.on_request(now, (from, request), HOLDS, held);
                    }
                    return Ok(());
                }
                self.distance.on_pong(now, nonce)?;
                self.dmcasts.set_rtt(self.distance.rtt().smoothed());
                self.advertise_at.get_or_insert(now);
                Ok(())
            }
            Message::Solicit { channel } if channel == self.channel => {
                if self.advertised {
                    self.advertise_at = Some(now);
                }
                Ok(())
            }
            Message::Pong { .. } | Message::Solicit { .. } => Err(DropReason::OtherSession),
            _ => Err(DropReason::Unexpected),
        }
    }

    fn on_request(
        &mut self,
        now: Instant,
        (from, request): (SocketAddr, &Request),
        left: u8,
        (reception, stock): (&Reception, &impl Stock),
    ) -> Result<(), DropReason> {
        if (request.channel, request.tsi) != (self.channel, self.feed) {
            return Err(DropReason::OtherSession);
        }
        // A router stamps what it steers to a replier.
        let place = request.turning_point.ok_or(DropReason::Unexpected)?;
        if !self.dmcasts.points.admit(now, (place.router, from), request)? {
            return Ok(());
        }
        let asker = Requestor { to: RepairTo::Subtree(place), number: request.number };
        let (mut result, mut beyond, mut early) = (Ok(()), false, false);
        for (block, lack) in lacks_of(request.units) {
            match self.dmcasts.ask(now, &asker, block, lack, stock) {
                // Symbols that it is missing too it has asked for, with an answer that goes at
                // least as far [LMS §II-F]. The rest is asked for further up [LMS §III-F].
                Err(Unfounded::NotLacking) => {
                    early |= block >= reception.known();
                    beyond |= reception.is_complete(block);
                }
                owed => result = result.and(owed),
            }
        }
        if early && left > 0 && self.held.len() < MOST_HELD {
            let (until, request) = (now + HOLD, *request);
            self.held.push_back(Held { until, from, left: left - 1, request });
        } else if beyond || early {
            self.pass_on(now, request)?;
        }
        Ok(result?)
    }

    /// Answers requests that have waited.
    pub(crate) fn handle_timeout(&mut self, now: Instant, held: (&Reception, &impl Stock)) {
        while let Some(Held { from, left, request, .. }) =
            self.held.pop_front_if(|held| held.until <= now)
        {
            // A request that was answered before counts as late now.
            let _ = self.on_request(now, (from, &request), left, held);
        }
    }

    /// Passes a request on upstream, where a host answers to the same turning point: proxy DMCAST
    /// [LMS §III-F].
    fn pass_on(&mut self, now: Instant, request: &Request) -> Result<(), DropReason> {
        if request.hops >= limits::HOPS || !self.passed_on.take(now) {
            return Err(DropReason::OverLimit);
        }
        self.say(&Message::Request(Request { hops: request.hops + 1, ..*request }));
        Ok(())
    }

    /// Returns when there is something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let held = self.held.front().map(|held| held.until);
        [self.distance.next(), self.advertise_at, held].into_iter().flatten().min()
    }

    /// Returns the next message, where it goes, and whether routers are to look at it.
    pub(crate) fn poll_message(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>, bool)> {
        self.outbox.extend(self.distance.poll(now));
        self.outbox.extend(std::iter::from_fn(|| self.dmcasts.points.poll_ping()));
        if self.advertise_at.is_some_and(|at| at <= now) {
            self.advertise_at = Some(now + self.advertise_step);
            self.advertise_step = (self.advertise_step * 2).min(ADVERTISE_EVERY);
            if let Some(cost) = self.cost() {
                self.advertised = true;
                self.say(&Message::Advertisement { channel: self.channel, cost: Some(cost) });
            }
        }
        let (to, bytes) = self.outbox.pop_front()?;
        let alert = Message::is_for_routers(&bytes);
        Some((to, bytes, alert))
    }
}
