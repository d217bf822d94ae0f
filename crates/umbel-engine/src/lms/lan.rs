//! Election of the replier of a multi-access LAN [LMS §III-D].
//!
//! The paper leaves the mechanism open. Here the receiver with the least cost wins, the one with
//! the lowest address among equals. It announces itself periodically, and the others watch it.
//!
//! ```text
//!             nobody better heard of
//!  ┌─ Listening ──────────────────────▶ Replier ◀─────────────┐
//!  │      ▲                                │ a better one     │ its offer is much better
//!  │ a better one                          ▼ announces itself │
//!  └──────┼────────────────────────────▶ Member ──────────────┘
//!         └────────────────────────────────┘
//!            silence, withdrawal, or requests without an answer
//! ```
//!
//! Only the replier advertises to the router. A member asks the replier, which answers on the LAN.
//! If the replier is missing the unit as well, its own request brings a repair for the whole LAN.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::config::LanConfig;
use crate::Instant;

/// A member offers itself when its cost is below this share of the replier's.
const MUCH_BETTER: f64 = 0.7;
/// Number of announcements that may be missed.
const MISSED: u32 = 3;

/// A receiver's state in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits for a replier to announce itself, or becomes the replier.
    Listening { until: Instant },
    /// It is the replier.
    Replier,
    /// Another receiver is the replier.
    Member { replier: SocketAddr, cost: u32, until: Instant },
}

/// The election, as seen by one receiver.
#[derive(Clone, Debug)]
pub(super) struct Lan {
    config: LanConfig,
    /// This receiver's own address.
    address: IpAddr,
    state: State,
    announce_at: Option<Instant>,
}

impl Lan {
    /// Joins the election. `share`, from 0 to 1, spreads receivers that begin together.
    pub(super) fn new(now: Instant, config: LanConfig, share: f64) -> Lan {
        let until = now + config.every.mul_f64(share.clamp(0.0, 1.0));
        let address = config.address;
        Lan { config, address, state: State::Listening { until }, announce_at: None }
    }

    /// Returns whether this receiver is the replier.
    pub(super) fn is_replier(&self) -> bool {
        self.state == State::Replier
    }

    /// Returns the replier, if it is another receiver.
    pub(super) fn replier(&self) -> Option<SocketAddr> {
        match self.state {
            State::Member { replier, .. } => Some(replier),
            State::Listening { .. } | State::Replier => None,
        }
    }

    fn silence(&self) -> Duration {
        self.config.every * MISSED
    }

    /// Handles another receiver's announcement or withdrawal; `own` is this receiver's cost.
    /// Returns whether this receiver has ceased to be the replier.
    pub(super) fn on_announced(
        &mut self,
        now: Instant,
        from: SocketAddr,
        cost: Option<u32>,
        own: Option<u32>,
    ) -> bool {
        let is_known = self.replier().is_some_and(|replier| replier.ip() == from.ip());
        let Some(cost) = cost else {
            if is_known {
                self.listen(now, Duration::ZERO);
            }
            return false;
        };
        let until = now + self.silence();
        let theirs = State::Member { replier: from, cost, until };
        let is_better = own.is_none_or(|own| (cost, from.ip()) < (own, self.address));
        match self.state {
            State::Replier if is_better => {
                self.state = theirs;
                self.announce_at = None;
                return true;
            }
            // This announcement tells the other that it is not needed.
            State::Replier => self.announce_at = Some(now),
            State::Listening { .. } if is_better => self.state = theirs,
            State::Listening { .. } => self.stand(now),
            State::Member { .. } if is_known => {
                self.state = theirs;
                let is_much_better = |own: u32| f64::from(own) < f64::from(cost) * MUCH_BETTER;
                if own.is_some_and(is_much_better) {
                    self.stand(now);
                }
            }
            State::Member { replier, cost: known, .. } => {
                if (cost, from.ip()) < (known, replier.ip()) {
                    self.state = theirs;
                }
            }
        }
        false
    }

    /// Starts a new election because the replier does not answer, unless it announces itself soon.
    pub(super) fn on_no_answer(&mut self, now: Instant, share: f64) {
        if matches!(self.state, State::Member { .. }) {
            self.listen(now, self.config.every.mul_f64(share.clamp(0.0, 1.0)));
        }
    }

    fn listen(&mut self, now: Instant, wait: Duration) {
        self.state = State::Listening { until: now + wait };
        self.announce_at = None;
    }

    fn stand(&mut self, now: Instant) {
        self.state = State::Replier;
        self.announce_at = Some(now);
    }

    /// Does the work that is due. Returns whether an announcement is due. `own` is this receiver's
    /// cost, without which it cannot be the replier.
    pub(super) fn on_timeout(&mut self, now: Instant, own: Option<u32>) -> bool {
        if matches!(self.state, State::Member { until, .. } if until <= now) {
            self.listen(now, Duration::ZERO);
        }
        if matches!(self.state, State::Listening { until } if until <= now) {
            if own.is_some() {
                self.stand(now);
            } else {
                self.listen(now, self.config.every);
            }
        }
        let is_due = self.announce_at.is_some_and(|at| at <= now);
        if is_due {
            self.announce_at = Some(now + self.config.every);
        }
        is_due && self.is_replier()
    }

    /// Returns the time of the next [`on_timeout`](Lan::on_timeout).
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Listening { until } | State::Member { until, .. } => Some(until),
            State::Replier => self.announce_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    fn host(n: u8) -> SocketAddr {
        ([10, 0, 0, n], 7702).into()
    }

    fn lan(n: u8) -> Lan {
        let channel =
            umbel_wire::Channel { source: None, group: "224.0.0.200".parse().unwrap(), port: 7702 };
        Lan::new(ms(0), LanConfig::new(channel, host(n).ip()), 0.1)
    }

    #[test]
    fn one_that_hears_nobody_becomes_the_replier_and_says_so_again_and_again() {
        let mut lan = lan(1);
        assert!(!lan.on_timeout(ms(49), Some(5)));
        assert!(lan.on_timeout(ms(50), Some(5)) && lan.is_replier());
        assert_eq!(lan.next_timeout(), Some(ms(550)));
        assert!(lan.on_timeout(ms(550), Some(5)));
    }

    #[test]
    fn the_cheaper_one_wins_and_among_equals_the_lower_address() {
        let mut lan = lan(2);
        lan.on_timeout(ms(50), Some(5));
        assert!(!lan.on_announced(ms(60), host(3), Some(5), Some(5)));
        assert!(lan.is_replier() && lan.on_timeout(ms(60), Some(5)), "it answers");
        assert!(lan.on_announced(ms(70), host(1), Some(5), Some(5)));
        assert_eq!(lan.replier(), Some(host(1)));
        lan.on_announced(ms(80), host(9), Some(2), Some(5));
        assert_eq!(lan.replier(), Some(host(9)));
    }

    #[test]
    fn silence_and_withdrawal_bring_a_new_election() {
        let mut lan = lan(2);
        lan.on_announced(ms(0), host(1), Some(1), Some(5));
        assert!(!lan.on_timeout(ms(1_499), Some(5)));
        assert!(lan.on_timeout(ms(1_500), Some(5)) && lan.is_replier());
        lan.on_announced(ms(1_600), host(1), Some(1), Some(5));
        lan.on_announced(ms(1_700), host(1), None, Some(5));
        assert!(lan.on_timeout(ms(1_700), Some(5)) && lan.is_replier());
    }

    #[test]
    fn one_without_an_offer_never_becomes_the_replier() {
        let mut lan = lan(1);
        for n in 0..100 {
            assert!(!lan.on_timeout(ms(n * 50), None) && !lan.is_replier());
        }
        assert!(lan.next_timeout().unwrap() > ms(99 * 50));
    }

    #[test]
    fn a_much_better_member_takes_over() {
        let mut lan = lan(2);
        lan.on_announced(ms(0), host(1), Some(10), Some(20));
        lan.on_announced(ms(500), host(1), Some(10), Some(8));
        assert!(!lan.is_replier());
        lan.on_announced(ms(1_000), host(1), Some(10), Some(5));
        assert!(lan.is_replier());
    }
}
