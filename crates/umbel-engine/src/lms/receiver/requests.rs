//! Requests: a receiver's own, and those of others that it answers as a replier.
//!
//! The losses, the replier, the LAN and those who wait have the state. Each request concerns
//! several of them, so this stands apart.

use std::net::SocketAddr;

use umbel_wire::lms::{Request, UnitSet, limits};

use super::{Due, Receiver};
use crate::Instant;
use crate::chance::uniform;
use crate::lms::drops::DropReason;
use crate::lms::lan::Lan;
use crate::lms::replier::{RepairTo, reply_to};
use crate::reliable::ReceiveWindow;

impl Receiver {
    /// Sends the requests that are due.
    pub(super) fn send_due_requests(&mut self, now: Instant) {
        let Some(tsi) = self.tsi else { return };
        let Receiver { losses, config, rtt, random, .. } = self;
        let due = losses.due(now, config, rtt, || uniform(random));
        // Only every other one: the replier may be there, and only far behind many losses.
        let failed_after = self.config.failed_after;
        let has_failed =
            |number: u8| number.checked_sub(failed_after).is_some_and(|beyond| beyond % 2 == 1);
        if due.iter().any(|request| has_failed(request.number)) {
            let share = self.share();
            if let Some(lan) = &mut self.lan {
                lan.on_no_answer(now, share);
            }
        }
        for request in due {
            let replier_failed = has_failed(request.number);
            let request = Request {
                channel: self.config.channel,
                tsi,
                units: request.units,
                number: request.number,
                requestor: None,
                turning_point: None,
                replier_failed,
                unicast_reply: self.config.two_step,
                hops: 0,
            };
            let to = self.ask_whom(replier_failed).unwrap_or(self.source);
            self.stats.requests += 1;
            self.due.push_back(Due::Request(to, request));
        }
    }

    /// Returns the replier of the LAN, if it is another receiver and did not fail.
    pub(super) fn ask_whom(&self, replier_failed: bool) -> Option<SocketAddr> {
        self.lan.as_ref().and_then(Lan::replier).filter(|_| !replier_failed)
    }

    /// Handles a request steered here by a router, or sent by a member of the LAN to its replier.
    pub(super) fn on_request(&mut self, now: Instant, request: &Request, from: SocketAddr) {
        if request.channel != self.config.channel || self.tsi.is_some_and(|tsi| tsi != request.tsi)
        {
            return self.drops.count(DropReason::OtherSession);
        }
        if request.hops >= limits::HOPS {
            return self.drops.count(DropReason::Hops);
        }
        self.stats.requests_heard += 1;
        for sequence in request.units.iter() {
            self.serve(now, sequence, request, from);
        }
    }

    fn serve(&mut self, now: Instant, sequence: u64, request: &Request, from: SocketAddr) {
        let known = self.window.as_ref().map_or(0, ReceiveWindow::known);
        if self.replier.keeps(sequence) {
            let to = match (&self.config.lan, request.turning_point) {
                // Only members of the LAN send requests without a turning point.
                (Some(lan), None) if self.lan.is_some() => RepairTo::Channel(lan.channel),
                _ => reply_to(request, from),
            };
            self.answer(now, sequence, request.number, to);
        } else if self.losses.contains(sequence) {
            if let Some(place) = request.turning_point
                && !self.waiting.remember(sequence, place, request.number)
            {
                return self.drops.count(DropReason::OverLimit);
            }
            self.drops.count(DropReason::AlreadyAsked);
        } else if self.replier.is_far_ahead(sequence, known) && self.window.is_some() {
            self.drops.count(DropReason::FarAhead);
        } else {
            self.pass_on(sequence, request, from);
        }
    }

    pub(super) fn answer(&mut self, now: Instant, sequence: u64, number: u8, to: RepairTo) {
        let rtt = self.rtt.smoothed();
        match self.replier.answer(now, sequence, number, to, rtt) {
            Ok(repair) => self.due.push_back(Due::Repair(repair)),
            Err(reason) => self.drops.count(reason),
        }
    }

    /// Passes a request on upstream, where a host answers to the same turning point: proxy DMCAST
    /// [LMS §III-F].
    fn pass_on(&mut self, sequence: u64, request: &Request, from: SocketAddr) {
        self.stats.proxied += 1;
        let request = Request {
            units: UnitSet::one(sequence),
            requestor: Some(request.requestor.unwrap_or(from)),
            hops: request.hops + 1,
            ..*request
        };
        self.due.push_back(Due::Request(self.source, request));
    }
}
