//! Turns packets that come when they come into pictures that are shown at their rate.
//!
//! Packets are decoded as they come; the decoder holds each back for a moment, so that reordering
//! and layers on different ways do not show. Pictures are taken from it at the stream's rate. Where
//! nothing came, the picture before is shown again.

use std::time::Duration;

use umbel_engine::Instant;
use umbel_video::{Decoder, DecoderConfig, Frame, y4m};

use super::host::ScreenStats;

/// Share of a picture that is known before anything is shown.
const KNOWN: f64 = 0.95;
/// Time after the first packet at which pictures are shown, whatever is known of them.
const FIRST: Duration = Duration::from_secs(1);
/// Pictures without a packet after which the decoder waits no longer for late ones.
const PAUSE: u64 = 4;
/// Pictures by which showing may be late before the clock is set anew.
const LATE: u32 = 8;

/// A decoder with a clock.
pub(crate) struct Playout {
    decoder: Decoder,
    interval: Duration,
    /// Time of the first packet.
    begun: Option<Instant>,
    /// Time of the next picture.
    next: Option<Instant>,
    /// Packets since the last picture, and pictures since the last packet.
    fresh: u64,
    stale: u64,
    stats: ScreenStats,
}

impl Playout {
    /// Creates a playout of pictures of this size and rate, of the codec's stream of this number.
    /// Packets of a picture wait for late ones until `delay` more pictures have begun.
    pub(crate) fn new(header: y4m::Header, stream: u16, delay: u32) -> Playout {
        let config = DecoderConfig { stream, reorder_frames: delay };
        Playout {
            decoder: Decoder::new(header.size, config),
            interval: Duration::from_secs_f64(1.0 / header.rate.per_s()),
            begun: None,
            next: None,
            fresh: 0,
            stale: 0,
            stats: ScreenStats::default(),
        }
    }

    /// Takes a packet.
    pub(crate) fn unit(&mut self, now: Instant, layer: u8, body: &[u8]) {
        if self.decoder.push(layer, body).is_err() {
            self.stats.refused += 1;
            return;
        }
        self.fresh += 1;
        if self.next.is_none() {
            let begun = *self.begun.get_or_insert(now);
            if now - begun >= FIRST || self.decoder.known_share() >= KNOWN {
                self.next = Some(now);
            }
        }
    }

    /// Returns the time at which the next picture is due. `None` before the first packets.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns the picture that is due, if one is.
    pub(crate) fn show(&mut self, now: Instant) -> Option<&Frame> {
        let due = self.next.filter(|due| *due <= now)?;
        let next = due + self.interval;
        let late = now > next + self.interval * LATE;
        self.next = Some(if late { now + self.interval } else { next });
        if self.fresh == 0 {
            self.stats.repeated += 1;
            self.stale += 1;
            if self.stale == PAUSE {
                self.decoder.flush();
            }
        } else {
            self.stale = 0;
        }
        self.fresh = 0;
        self.stats.shown += 1;
        Some(self.decoder.picture())
    }

    /// Returns the counters.
    pub(crate) fn stats(&self) -> ScreenStats {
        ScreenStats { useless: self.decoder.counts().useless, ..self.stats }
    }
}
