//! Estimate of a group's size, by a sample of bounded size.

use std::collections::{BTreeMap, BTreeSet};

use crate::Instant;

/// Greatest number of members in the sample. The estimate is mostly off by a sixteenth at most.
const MOST: usize = 256;

/// Estimates the number of other members, and what they last said. Small groups are counted. For
/// large ones a sample is kept of the members whose hash ends in `zero_bits` zero bits
/// [RFC 2762 §3].
#[derive(Clone, Debug)]
pub(crate) struct Census<T = ()> {
    zero_bits: u32,
    sample: BTreeMap<u64, (Instant, T)>,
    by_heard: BTreeSet<(Instant, u64)>,
}

impl<T> Default for Census<T> {
    fn default() -> Census<T> {
        Census { zero_bits: 0, sample: BTreeMap::new(), by_heard: BTreeSet::new() }
    }
}

impl<T> Census<T> {
    /// Notes that a member was heard, and what it said. O(log n) except for the rare halving of the
    /// sample.
    pub(crate) fn heard(&mut self, now: Instant, member: u64, said: T) {
        if !self.samples(member) {
            return;
        }
        if let Some((before, _)) = self.sample.insert(member, (now, said)) {
            self.by_heard.remove(&(before, member));
        }
        self.by_heard.insert((now, member));
        while self.sample.len() > MOST {
            self.zero_bits += 1;
            let out: Vec<u64> =
                self.sample.keys().copied().filter(|&member| !self.samples(member)).collect();
            for member in out {
                self.forget(member);
            }
        }
    }

    /// Forgets a member that has left.
    pub(crate) fn forget(&mut self, member: u64) {
        if let Some((heard, _)) = self.sample.remove(&member) {
            self.by_heard.remove(&(heard, member));
        }
    }

    /// Forgets members not heard since `since`.
    pub(crate) fn forget_silent(&mut self, since: Instant) {
        while let Some(&(heard, member)) = self.by_heard.first()
            && heard < since
        {
            self.by_heard.pop_first();
            self.sample.remove(&member);
        }
        // A group that has shrunk is sampled more densely from now on.
        if self.sample.len() < MOST / 8 {
            self.zero_bits = self.zero_bits.saturating_sub(1);
        }
    }

    /// Returns the approximate number of others.
    pub(crate) fn others(&self) -> u64 {
        self.sample.len() as u64 * self.weight()
    }

    /// Returns what the members of the sample last said. Each stands for as many members as
    /// [`weight`](Census::weight) tells.
    pub(crate) fn said(&self) -> impl Iterator<Item = &T> {
        self.sample.values().map(|(_, said)| said)
    }

    /// Returns the approximate number of members for which one of the sample stands.
    pub(crate) fn weight(&self) -> u64 {
        1 << self.zero_bits.min(40)
    }

    fn samples(&self, member: u64) -> bool {
        mix(member).trailing_zeros() >= self.zero_bits
    }
}

/// Spreads member numbers, which may be consecutive, over all 64 bits: the finalizer of
/// SplitMix64.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn a_small_group_is_counted_and_forgotten() {
        let mut census: Census = Census::default();
        (0..100).for_each(|n| census.heard(at(n), n, ()));
        census.heard(at(500), 3, ());
        assert_eq!(census.others(), 100);
        census.forget(99);
        census.forget_silent(at(90));
        assert_eq!(census.others(), 10);
    }

    #[test]
    fn a_large_group_is_estimated_from_a_small_sample() {
        for count in [1_000_u64, 10_000, 1_000_000] {
            let mut census: Census = Census::default();
            (0..count).for_each(|n| census.heard(at(1), n, ()));
            assert!(census.sample.len() <= MOST && census.by_heard.len() == census.sample.len());
            let error = census.others() as f64 / count as f64 - 1.0;
            assert!(error.abs() < 0.25, "{} instead of {count}", census.others());
        }
    }

    #[test]
    fn a_group_that_shrinks_is_sampled_densely_again() {
        let mut census: Census = Census::default();
        (0..100_000).for_each(|n| census.heard(at(1), n, ()));
        for round in 2..20 {
            (0..40).for_each(|n| census.heard(at(round), n, ()));
            census.forget_silent(at(round));
        }
        assert_eq!(census.others(), 40);
    }
}
