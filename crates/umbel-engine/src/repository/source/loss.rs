//! Estimates of the clients' losses.

/// Packets after which an estimate forgets.
const MEMORY: f64 = 1024.0;
/// Weight of a new client's assumed loss, in packets.
const SUPPOSED: f64 = 20.0;
/// Fall of an estimate after a transmission without a complaint…
const DECAY: f64 = 0.1;
/// …of at least this number of packets. Shorter transmissions lower it by less.
const TELLING_PACKETS: f64 = 256.0;

/// Estimated share of packets that a client loses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    share: f64,
    /// Number of packets behind the estimate. `None` if the application knows the share.
    packets: Option<f64>,
}

impl Loss {
    /// Creates the estimate for a client not heard yet, where others lose this share.
    pub(super) const fn supposed(share: f64) -> Loss {
        Loss { share, packets: Some(SUPPOSED) }
    }

    /// Creates an estimate that is known to the application. NaN counts as no loss.
    pub(super) fn known(share: f64) -> Loss {
        Loss { share: if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }, packets: None }
    }

    /// Returns the share, 0 to 1.
    pub(super) const fn share(&self) -> f64 {
        self.share
    }

    /// Records packets that were received and lost.
    pub(super) fn hear(&mut self, received: u32, lost: u32) {
        let heard = f64::from(received) + f64::from(lost);
        if let Some(packets) = self.packets.as_mut().filter(|_| heard > 0.0) {
            let before = packets.min(MEMORY);
            self.share = (self.share * before + f64::from(lost)) / (before + heard);
            *packets = before + heard;
        }
    }

    /// Lowers the estimate after this number of packets without a complaint, which error correction
    /// may explain. Symbols found missing later raise it again.
    pub(super) fn doubt(&mut self, packets: u32) {
        if self.packets.is_some() {
            self.share *= 1.0 - DECAY * (f64::from(packets) / TELLING_PACKETS).min(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_goes_from_what_is_supposed_to_what_is_heard() {
        let mut loss = Loss::supposed(0.5);
        loss.hear(0, 0);
        assert_eq!(loss, Loss::supposed(0.5));
        loss.hear(80, 0);
        assert!((loss.share() - 0.1).abs() < 1e-9, "{loss:?}");
        loss.hear(100_000, 0);
        for _ in 0..10 {
            loss.hear(900, 100);
        }
        assert!((loss.share() - 0.1).abs() < 0.001, "{loss:?}");
    }

    #[test]
    fn an_estimate_falls_while_nobody_complains() {
        let mut loss = Loss::supposed(0.2);
        loss.doubt(128);
        assert!((loss.share() - 0.19).abs() < 1e-9);
        (0..100).for_each(|_| loss.doubt(10_000));
        assert!(loss.share() < 0.001);
    }

    #[test]
    fn what_is_known_does_not_change() {
        let mut loss = Loss::known(0.3);
        loss.hear(0, 1000);
        loss.doubt(1000);
        assert_eq!(loss, Loss::known(0.3));
        assert_eq!(Loss::known(f64::NAN), Loss::known(0.0));
        assert_eq!(Loss::known(7.0), Loss::known(1.0));
    }
}
