//! Rate at which the source sends, by the stamps of its packets.
//!
//! A node's repairs go the same way as the source's packets, to the members of its domain, so they
//! go no faster: the source has found what the paths carry. While the source pauses, what it sent
//! before counts. Of several stretches the fastest does, since the others may have had pauses.

use std::time::Duration;

use umbel_wire::reception::ChannelStamp;

use crate::Instant;
use crate::units::Rate;

/// Least packets and least time of a stretch, by the source's clock.
const STRETCH_PACKETS: i32 = 16;
/// See above.
const STRETCH_US: u32 = 20_000;
/// Number of stretches that count.
const STRETCHES: usize = 8;
/// Pause after which a stretch begins anew.
const PAUSE: Duration = Duration::from_secs(1);
/// Packets that are further behind are no late ones: the stretch began with a forged number.
const MOST_BEHIND: i32 = 1 << 10;
/// Share of a rate by which another differs so little that it is not told.
const SAME: f64 = 0.125;

/// The last stretches of the source's packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Tempo {
    /// First packet of the stretch.
    first: Option<ChannelStamp>,
    /// Arrival of the last packet.
    last: Option<Instant>,
    /// Length of a full packet, in bits.
    packet_bits: f64,
    /// Rates of the last stretches, in bits per second; 0 for none.
    rates: [f64; STRETCHES],
    /// Number of stretches.
    count: usize,
    told: f64,
}

impl Tempo {
    /// Counts a packet of the data channel. Returns the rate of the source if it is another one now.
    #[inline]
    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        stamp: ChannelStamp,
        bytes: usize,
    ) -> Option<Rate> {
        let paused = self.last.replace(now).is_some_and(|last| now.since(last) >= PAUSE);
        self.packet_bits = self.packet_bits.max(bytes as f64 * 8.0);
        let Some(first) = self.first.filter(|_| !paused) else {
            self.first = Some(stamp);
            return None;
        };
        let packets = stamp.number.wrapping_sub(first.number) as i32;
        if packets < -MOST_BEHIND {
            self.first = Some(stamp);
        }
        let us = stamp.us_since(first);
        if packets < STRETCH_PACKETS || us < STRETCH_US {
            return None;
        }
        self.first = Some(stamp);
        let bits_per_s = f64::from(packets) * self.packet_bits / f64::from(us) * 1e6;
        self.rates[self.count % STRETCHES] = bits_per_s;
        self.count += 1;
        self.news()
    }

    fn news(&mut self) -> Option<Rate> {
        let fastest = self.rates.iter().copied().fold(0.0, f64::max);
        if (fastest - self.told).abs() <= self.told * SAME {
            return None;
        }
        self.told = fastest;
        Rate::from_bits_per_s(fastest as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Instant {
        Instant::EPOCH + Duration::from_micros(us)
    }

    /// Sends packets `every_us` microseconds. Returns the last rate that was told.
    fn send(
        tempo: &mut Tempo,
        (from, number): (u64, u32),
        packets: u32,
        every_us: u64,
    ) -> Option<Rate> {
        let mut told = None;
        for n in 0..packets {
            let at = from + u64::from(n) * every_us;
            let stamp = ChannelStamp::new(number.wrapping_add(n), at, 0);
            told = tempo.on_packet(us(at), stamp, 1_250).or(told);
        }
        told
    }

    #[test]
    fn the_rate_follows_the_source_up_at_once_and_down_after_some_stretches() {
        let mut tempo = Tempo::default();
        // 1,250 bytes in 1 ms are 10 Mbit/s.
        let told = send(&mut tempo, (0, u32::MAX - 10), 100, 1_000);
        assert_eq!(told, Rate::from_bits_per_s(10_000_000));
        let told = send(&mut tempo, (100_000, 89), 300, 100);
        assert!(told.is_some_and(|rate| rate.bits_per_s() > 90_000_000), "{told:?}");
        let told = send(&mut tempo, (130_000, 389), 200, 1_000);
        assert_eq!(told, Rate::from_bits_per_s(10_000_000));
    }

    #[test]
    fn a_pause_changes_nothing() {
        let mut tempo = Tempo::default();
        send(&mut tempo, (0, 0), 100, 1_000);
        assert_eq!(send(&mut tempo, (5_000_000, 100), 100, 1_000), None);
    }

    #[test]
    fn a_forged_number_is_one_stretch_and_no_more() {
        let mut tempo = Tempo::default();
        send(&mut tempo, (0, 0), 100, 1_000);
        tempo.on_packet(us(120_000), ChannelStamp::new(1 << 30, 120_000, 0), 1_250);
        let told = send(&mut tempo, (121_000, 121), 400, 1_000);
        assert_eq!(told, Rate::from_bits_per_s(10_000_000));
    }
}
