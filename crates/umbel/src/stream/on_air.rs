//! State of every source of a stream, whatever its content: the paces of its layers, what they
//! send, and what keeps packets from leaving.

use std::time::Duration;

use serde::Serialize;
use umbel_engine::host::{Io, Trouble};
use umbel_engine::rlm::{LayerStats, Source, SourceStats};
use umbel_engine::units::Rate;
use umbel_engine::{Instant, RateClass};

/// Interval of progress reports.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Time over which rates are measured, in seconds.
const WINDOW_S: f64 = 1.0;

/// Progress of one layer.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LayerSnapshot {
    /// Rate of UDP payload in the last second, in bits per second.
    pub rate_bits_per_s: u64,
    /// Most of it.
    pub limit_bits_per_s: u64,
    /// Packets that waited too long, and were not sent.
    pub dropped: u64,
}

/// Progress of a source, whatever it sends.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AirSnapshot {
    /// The layers, the base first.
    pub layers: Vec<LayerSnapshot>,
    /// Number of receivers, estimated from what they say in the control group.
    pub receivers: u64,
    /// Number of receivers at each level from 1 on, estimated.
    pub at_level: Vec<u64>,
    /// Greatest loss of which a receiver last told, 0 to 1.
    pub worst_loss: f64,
    /// Join-experiments heard.
    pub experiments: u64,
    /// Reason why packets cannot leave, if there is one.
    pub trouble: Option<String>,
}

/// Sums over the layers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Packets sent, repairs included.
    pub(super) packets: u64,
    /// Bytes of UDP payload sent.
    pub(super) bytes: u64,
    pub(super) repairs: u64,
    pub(super) dropped: u64,
}

/// A source that sends.
#[derive(Debug)]
pub(super) struct OnAir {
    paces: Vec<Rate>,
    stats: SourceStats,
    /// Start of the window in which rates are measured, and the bytes of each layer then.
    since: Instant,
    bytes: Vec<u64>,
    rates: Vec<u64>,
    trouble: Option<String>,
    told_trouble: bool,
}

impl OnAir {
    /// Creates a source whose layers have these paces, the base first.
    pub(super) fn new(paces: impl Iterator<Item = Rate>) -> OnAir {
        let paces: Vec<Rate> = paces.collect();
        OnAir {
            stats: SourceStats::default(),
            since: Instant::EPOCH,
            bytes: vec![0; paces.len()],
            rates: vec![0; paces.len()],
            paces,
            trouble: None,
            told_trouble: false,
        }
    }

    /// Sets the paces, and the time of the first [`tick`](OnAir::tick).
    pub(super) fn start(&mut self, io: &mut dyn Io<Source>) {
        for (layer, pace) in (0..).zip(&self.paces) {
            io.set_pace(RateClass::Layer(layer), Some(*pace));
        }
        self.since = io.now();
        io.wake_at(Some(self.since + TICK));
    }

    /// Looks at what was sent, and sets the time of the next look.
    pub(super) fn tick(&mut self, io: &mut dyn Io<Source>) {
        let now = io.now();
        io.wake_at(Some(now + TICK));
        self.stats = io.engine().stats();
        let passed = (now - self.since).as_secs_f64();
        if passed < WINDOW_S {
            return;
        }
        let bytes: Vec<u64> = self.stats.layers.iter().map(|layer| layer.bytes).collect();
        let per_s =
            |(now, before): (&u64, &u64)| ((now - before) as f64 * 8.0 / passed).round() as u64;
        self.rates = bytes.iter().zip(&self.bytes).map(per_s).collect();
        (self.since, self.bytes) = (now, bytes);
    }

    /// Ends the loop. The statistics until now stay known.
    pub(super) fn stop(&mut self, io: &mut dyn Io<Source>) {
        self.stats = io.engine().stats();
        io.stop();
    }

    /// Notes what keeps packets from leaving.
    pub(super) fn on_trouble(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::NotSent { reason } | Trouble::NotJoined { reason, .. } => {
                self.trouble = Some(reason);
            }
            // Receivers repeat what they say in the control group.
            Trouble::Overrun { .. } => {}
        }
    }

    /// Returns, once, the line that tells the user of it.
    pub(super) fn take_trouble(&mut self) -> Option<String> {
        let trouble = self.trouble.as_ref().filter(|_| !self.told_trouble)?;
        self.told_trouble = true;
        Some(format!("packets do not leave: {trouble}"))
    }

    /// Returns what the layers had sent at the last look.
    pub(super) fn layers(&self) -> &[LayerStats] {
        &self.stats.layers
    }

    /// Returns the join-experiments that were heard until the last look.
    pub(super) fn experiments(&self) -> u64 {
        self.stats.experiments
    }

    /// Returns whether nothing waited at the last look.
    pub(super) fn is_idle(&self) -> bool {
        self.layers().iter().all(|layer| layer.waiting == 0)
    }

    pub(super) fn totals(&self) -> Totals {
        self.layers().iter().fold(Totals::default(), |sum, layer| Totals {
            packets: sum.packets + layer.packets,
            bytes: sum.bytes + layer.bytes,
            repairs: sum.repairs + layer.repairs,
            dropped: sum.dropped + layer.dropped,
        })
    }

    pub(super) fn snapshot(&self) -> AirSnapshot {
        let rates = self.paces.iter().zip(&self.rates).zip(self.layers());
        let layers = rates.map(|((pace, &rate), stats)| LayerSnapshot {
            rate_bits_per_s: rate,
            limit_bits_per_s: pace.bits_per_s(),
            dropped: stats.dropped,
        });
        AirSnapshot {
            layers: layers.collect(),
            receivers: self.stats.receivers,
            at_level: self.stats.at_level.clone(),
            worst_loss: f64::from(self.stats.worst_loss.thousandths()) / 1e3,
            experiments: self.stats.experiments,
            trouble: self.trouble.clone(),
        }
    }
}
