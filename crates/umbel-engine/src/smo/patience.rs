//! Time by which a child's probes wait longer than two round trips.
//!
//! A receiver may delay an acknowledgement, on Linux by 40 ms or more. It acknowledges with a
//! second segment at once [RFC 9293 §3.8.6.3], but not if its card merges segments, or if it is
//! configured to acknowledge rarely. Its probes would be in vain again and again [RFC 8985 §7.2].

use std::time::Duration;

/// Acknowledgements in time that make up for a probe in vain.
const IN_TIME: u8 = 8;
/// Greatest number of probes in vain that count.
const MOST: u8 = 3;
/// Patience after the first. Each of the others doubles it, up to 40 ms.
const FIRST: Duration = Duration::from_millis(10);

/// Patience with a child.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience(u8);

impl Patience {
    /// Returns the time that is added to that of a probe.
    pub(super) fn time(self) -> Duration {
        match self.0.div_ceil(IN_TIME) {
            0 => Duration::ZERO,
            count => FIRST * (1 << (count - 1)),
        }
    }

    /// Notes a probe that found nothing lost: the acknowledgement was late.
    pub(super) fn on_vain(&mut self) {
        self.0 = (self.0 + IN_TIME).min(MOST * IN_TIME);
    }

    /// Notes the answer to a question that nothing was lost. The acknowledgement was late, or lost
    /// itself.
    pub(super) fn on_asked_in_vain(&mut self) {
        self.0 = (self.0 + IN_TIME / 2).min(MOST * IN_TIME);
    }

    /// Notes an acknowledgement that came in half of the time before a probe.
    pub(super) fn on_time(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }

    /// Notes a probe that found a loss.
    pub(super) fn on_loss(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_with_probes_in_vain_and_shrinks_with_answers_in_time() {
        let mut patience = Patience::default();
        let mut ms = Vec::new();
        for _ in 0..4 {
            ms.push(patience.time().as_millis());
            patience.on_vain();
        }
        assert_eq!((ms, patience.time()), (vec![0, 10, 20, 40], Duration::from_millis(40)));
        (0..8).for_each(|_| patience.on_time());
        assert_eq!(patience.time(), Duration::from_millis(20));
        (0..3).for_each(|_| patience.on_asked_in_vain());
        assert_eq!(patience.time(), Duration::from_millis(40));
        patience.on_loss();
        patience.on_time();
        assert_eq!(patience.time(), Duration::ZERO);
    }
}
