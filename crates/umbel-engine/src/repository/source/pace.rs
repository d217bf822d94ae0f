//! The rate of the data channel: fixed, or what the paths to the clients carry.
//!
//! Clients that want something from the channel report how its packets arrive, and the
//! [controller](crate::congestion) derives the rate. When the last of them is done, what is known of
//! the paths is forgotten: the next may be others.

use std::time::Duration;

use umbel_wire::reception::{ChannelStamp, ReceptionReport, ReportSchedule};

use crate::chance::Generator;
use crate::congestion::{CongestionConfig, Controller, Event, Limit, PathStatus};
use crate::shares::Origin;
use crate::units::Rate;
use crate::{Instant, SessionId};

/// The rate of the data channel.
#[derive(Debug)]
pub(super) struct Pace {
    /// The rate without a controller.
    fixed: Rate,
    /// Constants of the controller; `None` for a fixed rate.
    config: Option<CongestionConfig>,
    /// Present while clients want something from the channel.
    controller: Option<Controller<SessionId>>,
    /// Number of the next packet on the channel.
    next: u32,
    random: Generator,
}

impl Pace {
    pub(super) fn new(fixed: Rate, config: Option<CongestionConfig>, random: Generator) -> Pace {
        Pace { fixed, config, controller: None, next: 0, random }
    }

    /// Returns the present rate.
    pub(super) fn rate(&self) -> Rate {
        self.controller.as_ref().map_or(self.fixed, Controller::rate)
    }

    /// Returns what limits the rate and since when, if it is not fixed.
    pub(super) fn limit(&self) -> Option<(Limit<SessionId>, Instant)> {
        self.controller.as_ref().map(Controller::limit)
    }

    /// Returns what is known of the path to a client.
    pub(super) fn path(&self, session: SessionId) -> Option<PathStatus> {
        self.controller.as_ref().and_then(|controller| controller.path(&session))
    }

    /// Returns the greatest share of packets that a client's path may lose if it is not flooded. Most
    /// clients report few packets, so that it is more than what they lost of these.
    pub(super) fn most_loss(&self, session: SessionId) -> f64 {
        let path = self.path(session).filter(|path| path.is_known);
        path.map_or(1.0, |path| path.loss * 2.0 + 0.02).min(1.0)
    }

    /// Notes that a client wants something from the channel. Returns when it has to report.
    pub(super) fn join(
        &mut self,
        now: Instant,
        session: SessionId,
        from: Origin,
        rtt: Duration,
    ) -> Option<ReportSchedule> {
        let config = self.config?;
        let random = &mut self.random;
        let controller = self.controller.get_or_insert_with(|| {
            let mut controller = Controller::new(config, Some(rtt), random.clone());
            random.jump();
            controller.start_at(self.next);
            controller
        });
        controller.join(now, session, from);
        Some(controller.schedule(&session))
    }

    /// Returns when a client has to report.
    pub(super) fn schedule(&self, session: SessionId) -> Option<ReportSchedule> {
        self.controller.as_ref().map(|controller| controller.schedule(&session))
    }

    /// Forgets a client that wants nothing more from the channel.
    pub(super) fn forget(&mut self, session: SessionId) {
        if let Some(controller) = &mut self.controller {
            controller.forget(&session);
            if controller.is_empty() {
                self.controller = None;
            }
        }
    }

    /// Takes a client's report.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        session: SessionId,
        from: Origin,
        report: &ReceptionReport,
    ) {
        if let Some(controller) = &mut self.controller {
            controller.hear(now, &session, from, report);
        }
    }

    /// Returns whether another packet may be sent, with `together` others at the same time.
    pub(super) fn may_send(&self, together: usize) -> bool {
        self.controller.as_ref().is_none_or(|controller| {
            let most = controller.most_together().map_or(usize::MAX, |most| most as usize);
            controller.may_send() && together < most
        })
    }

    /// Numbers the next packet, which leaves with `together` others.
    pub(super) fn stamp(&mut self, now: Instant, together: usize) -> ChannelStamp {
        let place = u8::try_from(together).unwrap_or(u8::MAX);
        let stamp = ChannelStamp::new(self.next, now.as_nanos() / 1_000, place);
        self.next = self.next.wrapping_add(1);
        stamp
    }

    /// Notes that packets leave.
    pub(super) fn on_sent(&mut self, now: Instant) {
        if let Some(controller) = &mut self.controller {
            controller.on_sent(now, self.next);
        }
    }

    /// Returns the time at which [`on_timeout`](Pace::on_timeout) is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.controller.as_ref().and_then(Controller::next)
    }

    /// Does what is due.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        if let Some(controller) = &mut self.controller {
            controller.on_timeout(now);
        }
    }

    /// Returns the next news.
    pub(super) fn poll_event(&mut self) -> Option<Event<SessionId>> {
        self.controller.as_mut().and_then(Controller::poll_event)
    }
}
