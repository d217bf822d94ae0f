//! Packets and what became of them, by the rate at which they were sent.

use umbel_wire::reception::ReceptionReport;

use super::config::loss::{
    BINS, DEVIATIONS, FLOOR_PACKETS, FORGET_AFTER, HOPELESS, LEAST_EVENTS, LEAST_NOISE,
    MOST_SPREAD, SAME_RATE, SPAN, SURE, TOLERATED,
};

/// Packets and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Packets, and those that were lost.
    pub(super) all: f64,
    pub(super) lost: f64,
    /// Those lost at the end of a batch, and the gaps that the others make.
    pub(super) tails: f64,
    pub(super) gaps: f64,
    /// Seconds over which they were sent.
    pub(super) time: f64,
}

impl Tally {
    pub(super) fn of(report: &ReceptionReport) -> Tally {
        let tails = report.tails.min(report.lost);
        Tally {
            all: f64::from(report.received) + f64::from(report.lost),
            lost: f64::from(report.lost),
            tails: f64::from(tails),
            gaps: f64::from(report.gaps.min(report.lost - tails)),
            time: report.sent_over.as_secs_f64(),
        }
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.all += other.all;
        self.lost += other.lost;
        self.tails += other.tails;
        self.gaps += other.gaps;
        self.time += other.time;
    }

    /// Counts less, so that the oldest are forgotten.
    pub(super) fn weigh(&mut self, by: f64) {
        for part in [&mut self.all, &mut self.lost, &mut self.tails, &mut self.gaps, &mut self.time]
        {
            *part *= by;
        }
    }

    /// Counts as so many packets at most.
    pub(super) fn keep(&mut self, packets: f64) {
        if self.all > packets {
            self.weigh(packets / self.all);
        }
    }

    pub(super) fn share(&self) -> f64 {
        if self.all > 0.0 { self.lost / self.all } else { 0.0 }
    }

    /// Returns the packets sent in a second.
    pub(super) fn rate(&self) -> f64 {
        self.all / self.time.max(1e-9)
    }

    /// Returns the factor by which the number of lost packets varies more than if each were lost
    /// alone. For loss in bursts of mean length b, packets in a row are correlated with 1 - 1/b(1-p).
    pub(super) fn spread(&self) -> f64 {
        let burst = (self.lost - self.tails + 1.0) / (self.gaps + 1.0);
        (2.0 * burst * (1.0 - self.share()) - 1.0).clamp(1.0, MOST_SPREAD)
    }

    /// Returns by how many standard deviations more is lost than of `old`.
    pub(super) fn deviations(&self, old: &Tally) -> f64 {
        if self.all < 1.0 || old.all < 1.0 {
            return 0.0;
        }
        let mut both = *self;
        both.add(old);
        let share = both.share().clamp(LEAST_NOISE, 1.0 - LEAST_NOISE);
        let variance = both.spread() * share * (1.0 - share) * (1.0 / self.all + 1.0 / old.all);
        (self.share() - old.share()) / variance.sqrt()
    }

    /// Returns whether clearly more is lost than of `old`.
    pub(super) fn is_more(&self, old: &Tally) -> bool {
        self.is_more_by(old, DEVIATIONS)
    }

    pub(super) fn is_more_by(&self, old: &Tally, deviations: f64) -> bool {
        let events = self.gaps + self.tails;
        old.all > 0.0
            && (events >= LEAST_EVENTS || self.share() > HOPELESS)
            && self.share() > old.share() + TOLERATED
            && self.deviations(old) > deviations
    }

    /// Returns whether most of what is lost are the ends of batches.
    pub(super) fn is_by_batches(&self) -> bool {
        self.lost >= 10.0 && self.tails > self.lost * 0.6
    }

    /// Returns how unlikely it is that a share of them is lost: half of chi squared.
    pub(super) fn misfit(&self, share: f64) -> f64 {
        let share = share.clamp(LEAST_NOISE, 1.0 - LEAST_NOISE);
        (self.share() - share).powi(2) * self.all / (2.0 * share * (1.0 - share))
    }
}

/// Packets by the rate at which they were sent, the slowest first.
///
/// What is lost at a rate s is 1 - (1 - f) · min(1, c / s), where f is the share that is lost at any
/// rate, and c the limit. Both are fitted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Model {
    pub(super) bins: [Tally; BINS],
    pub(super) used: usize,
}

impl Model {
    pub(super) fn bins(&self) -> &[Tally] {
        &self.bins[..self.used]
    }

    pub(super) fn add(&mut self, seen: &Tally) {
        let rate = seen.rate();
        let passed = (seen.all / (8.0 * FLOOR_PACKETS)).min(seen.time / FORGET_AFTER).min(1.0);
        let mut used = 0;
        for n in 0..self.used {
            let mut bin = self.bins[n];
            bin.weigh(1.0 - passed);
            if bin.all >= 1.0 {
                self.bins[used] = bin;
                used += 1;
            }
        }
        self.used = used;
        let same =
            |bin: &&mut Tally| bin.rate() < rate * SAME_RATE && rate < bin.rate() * SAME_RATE;
        if let Some(bin) = self.bins[..used].iter_mut().find(same) {
            bin.add(seen);
            bin.keep(FLOOR_PACKETS * bin.spread());
        } else if used == BINS {
            // The slowest two become one.
            self.bins[1].add(&{ self.bins[0] });
            self.bins[0] = *seen;
        } else {
            self.bins[used] = *seen;
            self.used += 1;
        }
        self.bins[..self.used].sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    }

    /// Returns the packets at no more than a rate.
    pub(super) fn up_to(&self, rate: f64) -> Tally {
        let mut sum = Tally::default();
        for bin in self.bins().iter().filter(|bin| bin.rate() <= rate) {
            sum.add(bin);
        }
        sum
    }

    pub(super) fn fastest(&self) -> f64 {
        self.bins().last().map_or(0.0, Tally::rate)
    }

    /// Returns how badly a limit fits, with the loss at any rate that fits it best.
    pub(super) fn misfit(&self, limit: f64) -> f64 {
        let passes = |bin: &Tally| (limit / bin.rate()).min(1.0);
        let delivered: f64 = self.bins().iter().map(|bin| bin.all - bin.lost).sum();
        let carried: f64 = self.bins().iter().map(|bin| bin.all * passes(bin)).sum();
        let kept = (delivered / carried.max(1.0)).min(1.0);
        self.bins().iter().map(|bin| bin.misfit(1.0 - kept * passes(bin))).sum()
    }

    /// Returns how much likelier it is that there is a certain limit than that there is none.
    pub(super) fn evidence(&self, limit: f64) -> f64 {
        let spread = self.up_to(f64::INFINITY).spread();
        (self.misfit(f64::INFINITY) - self.misfit(limit)) / spread
    }

    /// Returns the likeliest limit, if it is much likelier than the one that is known, or than that
    /// there is none.
    pub(super) fn limit(&self, known: f64) -> Option<f64> {
        let mut best = None;
        let mut evidence = SURE + if known.is_finite() { self.evidence(known) } else { 0.0 };
        for first in 0..self.used {
            // The packets from here on were faster than the limit.
            let (mut below, mut above) = (Tally::default(), Tally::default());
            self.bins[..first].iter().for_each(|bin| below.add(bin));
            self.bins[first..self.used].iter().for_each(|bin| above.add(bin));
            if first == 0 && self.fastest() < self.bins[0].rate() * SPAN
                || above.share() < below.share() + TOLERATED
            {
                continue;
            }
            let delivered = above.rate() * (1.0 - above.share());
            let limit = delivered / (1.0 - below.share()).max(0.1);
            let found = self.evidence(limit);
            if found > evidence {
                (best, evidence) = (Some(limit), found);
            }
        }
        best
    }
}
