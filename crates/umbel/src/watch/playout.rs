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
/// Pictures by which showing may be late before the clock is reset.
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

#[cfg(test)]
mod tests {
    use umbel_video::clips::{Clip, Kind};
    use umbel_video::{Encoder, EncoderConfig, FrameRate, Size};

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    /// Creates a playout at ten pictures a second, and the packets of some pictures for it.
    fn playout(pictures: u64) -> (Playout, Vec<Vec<Vec<u8>>>) {
        let (size, rate) = (Size::new(64, 48).unwrap(), FrameRate::new(10, 1).unwrap());
        let config = EncoderConfig { layer_bits_per_s: vec![500_000], ..Default::default() };
        let mut encoder = Encoder::new(size, rate, config).unwrap();
        let clip = Clip::new(Kind::Pan, size, 1);
        let mut encode = |number| {
            let packets = encoder.encode(number, &clip.frame(number)).unwrap();
            packets.into_iter().map(|packet| packet.bytes).collect()
        };
        let packets = (1..=pictures).map(&mut encode).collect();
        (Playout::new(y4m::Header { size, rate }, 0, 1), packets)
    }

    #[test]
    fn pictures_are_shown_at_their_rate_once_most_is_known() {
        let (mut playout, packets) = playout(30);
        assert_eq!((playout.next(), playout.show(at(0))), (None, None));
        let mut shown = Vec::new();
        for (number, packets) in (0..).zip(packets) {
            for packet in packets {
                playout.unit(at(number * 100), 0, &packet);
            }
            for ms in (number * 100..number * 100 + 100).step_by(10) {
                shown.extend(playout.show(at(ms)).map(|_| ms));
            }
        }
        assert!(shown[0] <= 1_000, "{shown:?}");
        assert!(shown.windows(2).all(|two| two[1] - two[0] == 100), "{shown:?}");
        let stats = playout.stats();
        assert_eq!((stats.refused, stats.repeated), (0, 0), "{stats:?}");
    }

    #[test]
    fn where_nothing_comes_the_picture_before_is_shown_again_and_again() {
        let (mut playout, packets) = playout(30);
        for (number, packets) in (0..).zip(packets) {
            for packet in packets {
                playout.unit(at(number * 50), 0, &packet);
            }
        }
        let first = playout.next().unwrap();
        let last = playout.show(first).unwrap().clone();
        for n in 1..=10 {
            let picture = playout.show(first + Duration::from_millis(100) * n).unwrap();
            // No more packets come, so units that waited for late ones are decoded.
            assert!(n < 4 || *picture != last);
        }
        assert_eq!(playout.stats().repeated, 10);
    }

    #[test]
    fn a_clock_that_falls_far_behind_leaves_pictures_out() {
        let (mut playout, packets) = playout(20);
        for packet in packets.iter().flatten() {
            playout.unit(at(0), 0, packet);
        }
        playout.unit(at(1_000), 0, &packets[19][0]);
        assert!(playout.show(at(1_000)).is_some());
        // 59 pictures were due meanwhile.
        assert!(playout.show(at(7_000)).is_some());
        assert!(playout.show(at(7_000)).is_none());
        assert!(playout.show(at(7_100)).is_some());
    }

    #[test]
    fn what_is_no_packet_of_the_stream_is_refused() {
        let (mut playout, packets) = playout(1);
        playout.unit(at(0), 0, b"");
        playout.unit(at(0), 1, &packets[0][0]);
        assert_eq!(playout.stats().refused, 2);
        assert_eq!(playout.next(), None);
    }
}
