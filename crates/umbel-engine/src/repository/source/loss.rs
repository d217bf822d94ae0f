//! Estimates of what clients lose.

/// An estimate forgets what lies more packets back than this.
const MEMORY: f64 = 1024.0;
/// What is supposed of a new client counts as much as so many packets of its own.
const SUPPOSED: f64 = 20.0;
/// By how much an estimate falls with a transmission that is not complained of…
const DECAY: f64 = 0.1;
/// …if it has at least so many packets; less with fewer.
const TELLING_PACKETS: f64 = 256.0;

/// What is known of the share of packets that a client loses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    share: f64,
    /// How many packets say so; none are asked where the application knows.
    packets: Option<f64>,
}

impl Loss {
    /// Of a client of which nothing was heard, where others lose this share.
    pub(super) const fn supposed(share: f64) -> Loss {
        Loss { share, packets: Some(SUPPOSED) }
    }

    /// Known to the application. What is not a number is no loss.
    pub(super) fn known(share: f64) -> Loss {
        Loss { share: if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }, packets: None }
    }

    /// The share, 0 to 1.
    pub(super) const fn share(&self) -> f64 {
        self.share
    }

    /// So many packets came, so many did not.
    pub(super) fn hear(&mut self, received: u32, lost: u32) {
        let heard = f64::from(received) + f64::from(lost);
        if let Some(packets) = self.packets.as_mut().filter(|_| heard > 0.0) {
            let before = packets.min(MEMORY);
            self.share = (self.share * before + f64::from(lost)) / (before + heard);
            *packets = before + heard;
        }
    }

    /// The client did not complain of so many packets, and error correction may be why. Less is
    /// supposed from now on; what is then lacking raises the estimate again.
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
