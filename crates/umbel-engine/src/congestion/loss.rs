//! Tells loss at a path's limit from loss at any rate.
//!
//! What is lost at random is the same share at any rate: who sends more delivers more. At a limit
//! without a queue, a policer or a short buffer, the same rate is delivered whatever is sent. More
//! loss than before is therefore put on *trial*: the rate falls to what was delivered, and the loss
//! there decides. If it falls to what it was, there is a limit. If it stays, it is random, and
//! the rate returns.
//!
//! How many packets decide follows from how they are lost. Loss in bursts varies more than loss of
//! single packets, by a factor that the number of gaps tells.

use super::config::loss::{
    CREEP, DEVIATIONS, DISMISSED, EXPECTED, FLOOR_PACKETS, HOPELESS, MOST_BUCKET, PASSES, PATIENCE,
    RARE, SAME_RATE, SURE, SURELY, TOLERATED, WINDOW,
};
use super::tally::{Model, Tally};

/// What loss shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Finding {
    /// Nothing new.
    Nothing,
    /// More was lost than at lower rates: it seems that the path carries only so many packets a
    /// second.
    Limit(f64),
    /// What seemed to be a limit was loss at any rate: so many packets a second were no fault.
    Random(f64),
    /// The path carries more than the limit.
    More(f64),
}

/// More loss than before at a rate that was carried. It is examined at a lower rate.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The packets that were lost.
    high: Tally,
    /// The packets before them.
    floor: Tally,
    /// Limit that they show, in packets a second.
    limit: f64,
    /// What was sent since at lower rates.
    low: Tally,
}

/// The loss of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    /// Packets of late.
    model: Model,
    /// The newest, all at about the same rate.
    recent: Tally,
    trial: Option<Trial>,
    /// Rate of the last packets.
    last_rate: f64,
    /// Rate that loss limits, in packets a second.
    limit: Option<f64>,
    /// Packets that were faster than that.
    above: Tally,
    /// Rate that the path is known to carry without a limit.
    verified: f64,
    /// Packets beyond the limit that are under way through a bucket or queue that cannot be seen,
    /// and the number of them that it is known to take.
    beyond: f64,
    bucket: f64,
    /// Whether it is known that loss at lower rates is less.
    is_sure: bool,
    /// Whether a queue shows when the path is at its limit, before anything is lost.
    shows_queue: bool,
    /// Whether the limit cost the ends of batches.
    by_batches: bool,
    /// The rates of late at which nothing was lost, and the seconds for which they lasted.
    carried: [(f64, f64); 8],
}

impl Loss {
    /// Returns the share of packets that is lost at any rate.
    pub(super) fn floor(&self) -> f64 {
        self.below_limit().share()
    }

    /// Returns whether loss is examined.
    pub(super) fn on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Returns the limit that loss shows without a queue that is seen, in packets a second.
    pub(super) fn limit(&self) -> Option<f64> {
        self.limit
    }

    /// Returns the rate up to which no limit is seen, in packets a second.
    pub(super) fn verified(&self) -> f64 {
        self.verified
    }

    /// Returns whether it seems that there is a limit.
    pub(super) fn is_doubtful(&self) -> bool {
        let mut model = self.model;
        model.add(&self.recent);
        self.trial.is_some() || model.evidence(model.fastest() * 0.75) > 0.0
    }

    /// Forgets what batches cost, since they are smaller now.
    pub(super) fn forget_batches(&mut self) {
        self.begin_at(self.verified);
    }

    /// Forgets all but that the path carries so many packets a second.
    pub(super) fn begin_at(&mut self, rate: f64) {
        *self = Loss { verified: rate, ..Loss::default() };
    }

    /// Returns whether a limit is taken for one though little is known.
    pub(super) fn is_unsure(&self) -> bool {
        self.limit.is_some() && !self.is_sure
    }

    /// Notes that a queue showed that the path was at its limit, before anything was lost.
    pub(super) fn on_queue(&mut self) {
        self.shows_queue = true;
    }

    /// Returns whether what the limit cost were the ends of batches.
    pub(super) fn is_by_batches(&self) -> bool {
        self.by_batches
    }

    /// Returns whether the path seems to carry a rate, in packets a second.
    pub(super) fn carries(&self, rate: f64) -> bool {
        let mut model = self.model;
        model.add(&self.recent);
        self.trial.is_none() && model.evidence(rate * SURELY) < 0.0
    }

    /// Returns the share of packets that a limit costs now, where a queue shows the limit.
    pub(super) fn excess(&self, seen: &Tally) -> f64 {
        let mut floor = self.below_limit();
        if floor.all == 0.0 {
            // Nothing is known of loss at any rate: the queue explains it.
            floor = Tally { all: WINDOW, ..Tally::default() };
        }
        let excess = (seen.share() - floor.share()) / (1.0 - floor.share()).max(0.1);
        if seen.all > 0.0 && seen.is_more(&floor) { excess.max(0.0) } else { 0.0 }
    }

    /// Returns whether more is lost than at any rate, if chance seldom does that.
    pub(super) fn is_unusual(&self, seen: &Tally) -> bool {
        let floor = self.below_limit();
        seen.lost > 0.0 && (floor.share() < RARE || seen.deviations(&floor) > EXPECTED)
    }

    /// Forgets the limit: a queue shows it, or the path has changed.
    pub(super) fn forget_limit(&mut self) {
        self.limit = None;
        self.trial = None;
        self.above = Tally::default();
        self.beyond = 0.0;
    }

    /// Takes a report on packets that met no queue that can be seen.
    pub(super) fn hear(&mut self, seen: &Tally) -> Finding {
        let seen = *seen;
        let rate = seen.rate();
        // Some of the packets may have been sent at the rate before, which did to them what is seen.
        let is_steady = (self.last_rate * 0.94..self.last_rate * 1.06).contains(&rate);
        self.last_rate = rate;
        if self.trial.is_some() {
            if !is_steady {
                return Finding::Nothing;
            }
            return self.examine(&seen);
        }
        if let Some(limit) = self.limit {
            self.beyond = (self.beyond + (rate - limit) * seen.time).max(0.0);
            if rate > limit * 1.05 && is_steady {
                return self.hear_above(&seen, limit);
            }
        }
        let last = self.recent.rate();
        if self.recent.all > 0.0 && !(last / SAME_RATE..last * SAME_RATE).contains(&rate) {
            self.settle();
        }
        self.recent.add(&seen);
        let before = self.limit.map_or(rate * SAME_RATE, |limit| limit * 1.03);
        let patience = if self.shows_queue { PATIENCE } else { 1.0 };
        let changed = self.model.fastest() * SAME_RATE >= rate
            && self.recent.is_more_by(&self.model.up_to(before), DEVIATIONS * patience);
        if changed {
            return self.suspect(self.recent, self.model.up_to(before));
        }
        if self.limit.is_none() {
            if self.recent.all >= 16.0 * self.recent.spread() && self.recent.share() > HOPELESS {
                return self.suspect(self.recent, Tally::default());
            }
            let mut model = self.model;
            model.add(&self.recent);
            if let Some(limit) = model.limit(f64::INFINITY)
                && self.recent.share() > model.up_to(limit).share() + TOLERATED
            {
                let enough = self.recent.all >= 8.0;
                let high = if enough { self.recent } else { model.bins[model.used - 1] };
                return self.suspect(high, model.up_to(limit));
            }
            let is_first = self.model.used == 0;
            if is_first || rate > self.verified && model.evidence(rate * PASSES) < -SURE {
                self.verified = rate;
            }
        }
        if self.recent.all >= WINDOW * self.recent.spread() * patience * patience {
            self.settle();
        }
        Finding::Nothing
    }

    /// Returns the packets at rates that the path carries.
    fn below_limit(&self) -> Tally {
        self.model.up_to(self.limit.map_or(f64::INFINITY, |limit| limit * 1.03))
    }

    /// Takes the newest packets into the model.
    fn settle(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        if let Some(limit) = self.limit
            && recent.rate() > limit * 0.94
        {
            // A little loss is the sign that the limit is reached, and not more.
            let calm = self.model.up_to(limit * 0.93);
            if calm.all > WINDOW * calm.spread() {
                let excess = recent.share() - calm.share();
                let weight = (recent.all / WINDOW).min(1.0);
                self.limit =
                    Some(limit * (1.0 + CREEP * (0.01 - excess).clamp(-0.1, 0.02) * weight));
            }
        }
        self.model.add(&recent);
        if let Some(limit) = self.limit
            && let Some(lower) = self.model.limit(limit)
            && lower < limit * 0.97
        {
            self.limit = Some(lower);
        }
        self.carried.rotate_right(1);
        self.carried[0] = (recent.rate(), recent.time);
    }

    /// Puts the loss of the newest packets on trial. `floor` are those before.
    fn suspect(&mut self, high: Tally, floor: Tally) -> Finding {
        self.recent = Tally::default();
        let limit = limit_by(&high, floor.share());
        self.trial = Some(Trial { high, floor, limit, low: Tally::default() });
        Finding::Limit(limit)
    }

    fn examine(&mut self, seen: &Tally) -> Finding {
        let Some(mut trial) = self.trial.take() else { return Finding::Nothing };
        if seen.rate() > trial.high.rate() * 0.95 {
            // These were under way when the loss was seen.
            trial.high.add(seen);
            trial.high.keep(FLOOR_PACKETS);
            if trial.floor.all > 0.0 && !trial.high.is_more_by(&trial.floor, DISMISSED) {
                // It was chance.
                self.model.add(&trial.high);
                self.limit = None;
                self.verified = trial.high.rate();
                return Finding::Random(self.verified);
            }
            trial.limit = limit_by(&trial.high, trial.floor.share());
            self.trial = Some(trial);
            return Finding::Limit(trial.limit);
        }
        trial.low.add(seen);
        let mut model = Model::default();
        model.add(&trial.high);
        model.add(&trial.low);
        let evidence = model.evidence(trial.limit);
        if evidence > SURE {
            self.accept(&trial);
            Finding::Nothing
        } else if evidence < -SURE {
            if trial.low.is_more(&trial.high) || trial.low.share() > HOPELESS {
                return self.examine_lower(trial);
            }
            let rate = trial.high.rate();
            if trial.low.is_by_batches() && !self.by_batches {
                // So much was delivered, with these batches.
                self.accept(&trial);
                return Finding::Nothing;
            }
            self.model = model;
            self.limit = None;
            self.verified = rate;
            Finding::Random(rate)
        } else {
            let none = Tally { lost: trial.low.all * trial.floor.share(), ..trial.low };
            if trial.low.is_more(&none) && trial.low.share() < trial.high.share() * 0.9 {
                return self.examine_lower(trial);
            }
            if trial.low.all > WINDOW + 2.0 * trial.high.all {
                // Only more of the high rate would tell. A probe does.
                let bucket = self.bucket;
                self.accept(&trial);
                (self.is_sure, self.bucket) = (false, bucket);
            } else {
                self.trial = Some(trial);
            }
            Finding::Nothing
        }
    }

    /// Goes on with a lower limit: a bucket had let packets through.
    fn examine_lower(&mut self, mut trial: Trial) -> Finding {
        trial.high = trial.low;
        trial.low = Tally::default();
        trial.limit = limit_by(&trial.high, trial.floor.share());
        self.trial = Some(trial);
        Finding::Limit(trial.limit)
    }

    /// Takes the limit of a trial for certain.
    fn accept(&mut self, trial: &Trial) {
        self.by_batches = trial.high.is_by_batches();
        self.confirm(trial.limit);
        // What passed before the limit showed says nothing of loss at any rate.
        self.model = Model::default();
        self.model.add(&trial.high);
        self.model.add(&trial.low);
    }

    /// Takes a limit for certain.
    fn confirm(&mut self, limit: f64) {
        let mut passed = self.beyond;
        if self.limit.is_none() {
            for (rate, time) in self.carried {
                if rate < limit * 1.02 {
                    break;
                }
                passed += (rate - limit) * time;
            }
        }
        // What passed while the path carried more was no bucket.
        self.bucket = self.bucket.max(passed).min(limit * MOST_BUCKET);
        self.carried = Default::default();
        self.limit = Some(limit);
        self.is_sure = true;
        self.shows_queue = false;
        self.above = Tally::default();
        self.beyond = self.bucket;
    }

    /// Takes packets that were faster than the limit.
    fn hear_above(&mut self, seen: &Tally, limit: f64) -> Finding {
        self.above.add(seen);
        let above = self.above;
        let floor = self.below_limit();
        if above.is_more_by(&floor, EXPECTED) {
            self.above = Tally::default();
            self.model.add(&above);
            self.by_batches = above.is_by_batches();
            let weight = above.all / (above.all + WINDOW * above.spread());
            let limit = limit + (limit_by(&above, floor.share()) - limit) * weight;
            self.limit = Some(limit);
            let passed = self.beyond - (above.rate() - limit) * above.time;
            self.bucket = self.bucket.max(passed).min(limit * MOST_BUCKET);
            return Finding::Limit(limit);
        }
        let mut both = floor;
        both.add(&above);
        let by_limit = 1.0 - limit * (1.0 - floor.share()) / above.rate();
        let some = f64::midpoint(floor.share(), by_limit);
        let passes = (above.misfit(some) - above.misfit(floor.share())) / both.spread();
        if passes > SURE && self.beyond >= self.bucket * 2.0 {
            self.verified = above.rate();
            self.model.add(&above);
            self.forget_limit();
            return Finding::More(self.verified);
        }
        self.above.keep(WINDOW * above.spread() * 4.0);
        Finding::Nothing
    }
}

/// Returns the limit that packets above it show, of which `floor` is lost at any rate.
fn limit_by(high: &Tally, floor: f64) -> f64 {
    high.rate() * (1.0 - high.share()) / (1.0 - floor).max(0.1)
}

#[cfg(test)]
impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tally =
            |tally: &Tally| format!("{:.0}:{:.0}/{:.0}", tally.rate(), tally.lost, tally.all);
        let model = |model: &Model| model.bins().iter().map(tally).collect::<Vec<_>>().join(" ");
        write!(
            f,
            "model {} recent {} verified {:.0} limit {:?} beyond {:.0} bucket {:.0} above {}",
            model(&self.model),
            tally(&self.recent),
            self.verified,
            self.limit.map(|limit| limit as u64),
            self.beyond,
            self.bucket,
            tally(&self.above)
        )?;
        let Some(trial) = &self.trial else { return Ok(()) };
        let (high, low) = (tally(&trial.high), tally(&trial.low));
        write!(f, " TRIAL {high} {low} limit {:.0} floor {}", trial.limit, tally(&trial.floor))
    }
}
