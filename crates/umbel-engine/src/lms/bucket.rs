//! A bound on how often something may happen.

use std::time::Duration;

use super::config::Allowance;
use crate::Instant;

/// Lets through what an [`Allowance`] permits: a token bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    allowance: Allowance,
    /// When the bucket would be full again if nothing more were taken.
    full_at: Instant,
}

impl Bucket {
    pub(super) fn new(allowance: Allowance) -> Bucket {
        Bucket { allowance, full_at: Instant::EPOCH }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let per_token = Duration::from_secs(1) / self.allowance.per_s.max(1);
        let full_at = self.full_at.max(now) + per_token;
        let allowed = full_at - now <= per_token * self.allowance.burst.max(1);
        if allowed {
            self.full_at = full_at;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = Bucket::new(Allowance { per_s: 10, burst: 3 });
        let taken = |bucket: &mut Bucket, at| (0..10).filter(|_| bucket.take(at)).count();
        assert_eq!(taken(&mut bucket, Instant::EPOCH), 3);
        assert_eq!(taken(&mut bucket, Instant::EPOCH + Duration::from_millis(200)), 2);
        assert_eq!(taken(&mut bucket, Instant::EPOCH + Duration::from_mins(1)), 3);
    }
}
