//! The shares of new data and fetched blocks in the rate.

/// Most packets by which fetches or new data may be ahead of their share.
const BALANCE: f64 = 256.0;

/// The shares of fetched blocks in the rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// Share of all fetched blocks.
    fetched: f64,
    /// Share of those without credit.
    without_credit: f64,
    /// Number of packets that fetches may send before new data do; below 0 the other way round.
    balance: f64,
    /// Number of packets that may be sent to those without credit before others.
    slack: f64,
}

impl Shares {
    pub(super) fn new(fetched: f64, without_credit: f64) -> Shares {
        let fetched = fetched.clamp(0.0, 1.0);
        Shares { fetched, without_credit, balance: 0.0, slack: 0.0 }
    }

    /// Returns whether fetched blocks go before new data. `with_credit` tells whether some are for
    /// a host with credit.
    pub(super) fn fetched_first(&self, with_credit: bool) -> bool {
        self.balance > 0.0 && (with_credit || self.slack > 0.0)
    }

    /// Notes packets of new data.
    pub(super) fn on_new(&mut self, packets: usize) {
        self.balance = (self.balance + self.fetched * packets as f64).min(BALANCE);
        self.slack = (self.slack + self.without_credit * packets as f64).min(BALANCE);
    }

    /// Notes packets of fetched blocks, for hosts with or without credit.
    pub(super) fn on_fetched(&mut self, packets: usize, with_credit: bool) {
        if !with_credit {
            self.slack = (self.slack - packets as f64).max(-BALANCE);
        }
        let owed = (1.0 - self.fetched) * packets as f64;
        self.balance = (self.balance - owed).max(-BALANCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetched_blocks_get_their_share_and_those_without_credit_less_of_it() {
        let mut shares = Shares::new(0.5, 0.25);
        assert!(!shares.fetched_first(true), "nothing new was sent");
        shares.on_new(8);
        assert!(shares.fetched_first(true) && shares.fetched_first(false));
        shares.on_fetched(2, false);
        assert!(shares.fetched_first(true) && !shares.fetched_first(false));
        shares.on_fetched(6, true);
        assert!(!shares.fetched_first(true));
    }
}
