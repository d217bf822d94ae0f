//! Impairment of frames that cross a link in one direction.

use std::fmt;
use std::time::Duration;

use umbel_engine::units::{ByteCount, Rate};

/// Capacity of a link with a rate, beyond which it drops the newest frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// At most this many bytes of frames.
    Bytes(ByteCount),
    /// At most this many frames.
    Packets(u32),
}

impl Queue {
    pub(crate) fn holds_nothing(self) -> bool {
        matches!(self, Queue::Bytes(ByteCount(0)) | Queue::Packets(0))
    }
}

impl Default for Queue {
    /// Returns 100 frames.
    fn default() -> Queue {
        Queue::Packets(100)
    }
}

/// Treatment of one direction of a link. By default frames are not changed.
///
/// Frames keep their order unless `reorder` is set. Jitter stretches and shrinks the intervals
/// between them, but does not swap them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairment {
    /// Serialisation rate, counted over whole Ethernet frames (14 bytes of header, no
    /// preamble); `None` is unlimited.
    pub rate: Option<Rate>,
    /// Propagation time.
    pub delay: Duration,
    /// Each frame's delay is uniform in `delay ± jitter`, never negative.
    pub jitter: Duration,
    /// Share of frames lost in the long run, 0 to 1.
    pub loss: f64,
    /// Mean stay in the bad state of the Gilbert–Elliott model, in frames, at least 1. Unless the
    /// two shares below say otherwise everything is lost in the bad state and nothing in the good
    /// one: it is the mean length of a run of losses, and 1 is independent loss.
    pub loss_burst: Option<f64>,
    /// Share of frames lost in the good state, 0 to `loss`; default 0.
    pub loss_good: Option<f64>,
    /// Share of frames lost in the bad state, `loss` to 1; default 1.
    pub loss_bad: Option<f64>,
    /// Share of frames held back by `reorder_by`, so that later ones overtake them.
    pub reorder: f64,
    /// Time for which a reordered frame is held back; default half the delay, at least 1 ms.
    pub reorder_by: Option<Duration>,
    /// Share of frames delivered twice.
    pub duplicate: f64,
    /// Share of frames in which one payload bit is flipped, with the checksum left wrong.
    pub corrupt: f64,
    /// Share of frames in which one payload bit is flipped and the UDP or TCP checksum repaired, so
    /// that only an end-to-end check notices.
    pub corrupt_silently: f64,
    /// Bound of the queue in front of the rate; without a rate nothing waits.
    pub queue: Queue,
}

/// Treatment of packets on the link of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Access {
    /// Direction from the host into the network.
    pub up: Impairment,
    /// Direction from the network to the host.
    pub down: Impairment,
}

impl Access {
    /// Creates a link with the same impairment in both directions.
    pub fn both(impairment: Impairment) -> Access {
        Access { up: impairment, down: impairment }
    }
}

/// A model of loss with a good and a bad state, by the shares of frames that change the state or
/// are lost in it [Elliott, "Estimates of error rates for codes on burst-noise channels", 1963].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoStates {
    /// Probabilities, at each frame, of leaving the good and the bad state.
    pub change: [f64; 2],
    /// Shares lost in the good and in the bad state.
    pub loss: [f64; 2],
}

impl Impairment {
    /// Returns the model of loss, if losses depend on each other.
    pub fn two_states(&self) -> Option<TwoStates> {
        let burst = self.loss_burst?;
        if self.loss_good.is_none() && self.loss_bad.is_none() {
            if burst <= 1.0 || self.loss <= 0.0 || self.loss >= 1.0 {
                return None;
            }
            // More than a whole step in one frame counts as one step.
            let to_bad = self.loss / (burst * (1.0 - self.loss));
            return Some(TwoStates { change: [to_bad.min(1.0), 1.0 / burst], loss: [0.0, 1.0] });
        }
        let (good, bad) = (self.loss_good.unwrap_or(0.0), self.loss_bad.unwrap_or(1.0));
        // Share of the frames that meet the bad state.
        let share = (self.loss - good) / (bad - good);
        let to_bad = if share < 1.0 { share / (burst * (1.0 - share)) } else { 1.0 };
        let to_good = if share < 1.0 { 1.0 / burst } else { 0.0 };
        Some(TwoStates { change: [to_bad, to_good], loss: [good, bad] })
    }

    /// Creates an impairment that changes no frame.
    pub fn none() -> Impairment {
        Impairment::default()
    }

    /// Sets the probability with which each frame is lost.
    #[must_use]
    pub fn loss(self, loss: f64) -> Impairment {
        Impairment { loss, ..self }
    }

    /// Sets the rate.
    #[must_use]
    pub fn rate(self, rate: Rate) -> Impairment {
        Impairment { rate: Some(rate), ..self }
    }

    /// Sets the delay.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Impairment {
        Impairment { delay, ..self }
    }

    /// Sets the bound of the queue in front of the rate.
    #[must_use]
    pub fn queue(self, queue: Queue) -> Impairment {
        Impairment { queue, ..self }
    }

    /// Returns whether every frame passes at once and unchanged.
    pub fn is_none(&self) -> bool {
        let Impairment { loss_burst, loss_good, loss_bad, queue, .. } = *self;
        *self == Impairment { loss_burst, loss_good, loss_bad, queue, ..Impairment::none() }
    }
}

impl fmt::Display for Impairment {
    /// Lists the impairments, like `rate 10.0 Mbit/s, delay 20ms, loss 5%`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(rate) = self.rate {
            let queue = match self.queue {
                Queue::Bytes(bytes) => bytes.to_string(),
                Queue::Packets(packets) => format!("{packets} packets"),
            };
            parts.push(format!("rate {rate}, queue {queue}"));
        }
        for (name, time) in [("delay", self.delay), ("jitter", self.jitter)] {
            if !time.is_zero() {
                parts.push(format!("{name} {time:?}"));
            }
        }
        for (name, share) in [
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
            ("corrupt silently", self.corrupt_silently),
        ] {
            if share > 0.0 {
                parts.push(format!("{name} {}%", (share * 1e6).round() / 1e4));
            }
        }
        if let Some(burst) = self.loss_burst.filter(|_| self.loss > 0.0) {
            parts.push(format!("in bursts of {burst}"));
            for (state, share) in [("good", self.loss_good), ("bad", self.loss_bad)] {
                if let Some(share) = share {
                    let percent = (share * 1e6).round() / 1e4;
                    parts.push(format!("loss {percent}% in the {state} state"));
                }
            }
        }
        if parts.is_empty() { f.write_str("none") } else { f.write_str(&parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impairment_reads_like_its_settings() {
        assert_eq!(Impairment::none().to_string(), "none");
        let rate = Rate::from_bits_per_s(10_000_000);
        let impairment = Impairment { rate, ..Impairment::none().loss(0.05) };
        let impairment = impairment.delay(Duration::from_millis(20));
        assert_eq!(
            impairment.to_string(),
            "rate 10.0 Mbit/s, queue 100 packets, delay 20ms, loss 5%"
        );
        let states = (Some(0.01), Some(0.5));
        let (loss_good, loss_bad) = states;
        let bursts =
            Impairment { loss_burst: Some(4.0), loss_good, loss_bad, ..Impairment::none() };
        assert!(bursts.is_none());
        assert_eq!(
            bursts.loss(0.05).to_string(),
            "loss 5%, in bursts of 4, loss 1% in the good state, loss 50% in the bad state"
        );
    }
}
