//! A source's knowledge of its receivers.

use std::net::IpAddr;

use umbel_wire::Tsi;
use umbel_wire::rlm::{Loss, Message};

use crate::bounds::STREAM_CONTROL;
use crate::bucket::HostLimiter;
use crate::census::Census;
use crate::rlm::api::SourceStats;
use crate::rlm::config::{CONTROL_HOSTS, SessionConfig, SourceConfig};
use crate::rlm::drops::DropReason;
use crate::rlm::receiver::before;
use crate::session_pacing::{Group, SessionPacer};
use crate::shares::Origin;
use crate::{Instant, RateClass};

/// Counts the receivers by what they say in the control group.
#[derive(Debug)]
pub(super) struct Audience {
    tsi: Tsi,
    layers: usize,
    config: SessionConfig,
    limiter: HostLimiter<Origin>,
    census: Census<(u8, Loss)>,
    /// Only its interval is used.
    pacer: SessionPacer,
    experiments: u64,
}

impl Audience {
    pub(super) fn new(config: &SourceConfig) -> Audience {
        Audience {
            tsi: config.tsi,
            layers: config.layers.len(),
            config: config.session,
            limiter: HostLimiter::new(
                STREAM_CONTROL.of_host(),
                CONTROL_HOSTS,
                config.control_limit,
            ),
            census: Census::default(),
            pacer: SessionPacer::new(config.session.pace()),
            experiments: 0,
        }
    }

    /// Returns whether one more message of a host is handled.
    pub(super) fn admits(&mut self, now: Instant, from: IpAddr) -> bool {
        self.limiter.take(now, Origin::of(from))
    }

    /// Takes a message of this length.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        message: Message,
        len: usize,
    ) -> Result<(), DropReason> {
        let (Message::JoinExperiment { tsi, .. } | Message::Session { tsi, .. }) = message;
        if tsi != self.tsi {
            return Err(DropReason::OtherSession);
        }
        match message {
            Message::JoinExperiment { .. } => self.experiments += 1,
            Message::Session { receiver, level: 0, .. } => self.census.forget(receiver),
            Message::Session { receiver, level, loss, .. } => {
                self.pacer.average(len);
                self.census.heard(now, receiver, (level, loss));
            }
        }
        let members = Group { members: self.census.others(), sources: 0, is_source: false };
        let silence = self.pacer.interval(members) * self.config.silent_intervals;
        self.census.forget_silent(before(now, silence));
        Ok(())
    }

    /// Returns the counters, but for those of layers.
    pub(super) fn stats(&self) -> SourceStats {
        let mut at_level = vec![0; self.layers.min(RateClass::LAYERS.into())];
        for &(level, _) in self.census.said() {
            if let Some(count) = at_level.get_mut(usize::from(level).wrapping_sub(1)) {
                *count += self.census.weight();
            }
        }
        SourceStats {
            receivers: self.census.others(),
            at_level,
            worst_loss: self.census.said().map(|&(_, loss)| loss).max().unwrap_or_default(),
            experiments: self.experiments,
            layers: Vec::new(),
        }
    }
}
