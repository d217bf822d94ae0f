//! Computes how long a receiver lets datagrams gather before it looks again.
//!
//! A dense stream would wake its receiver for every few datagrams, and each wake-up costs more than
//! the datagrams do. Network cards moderate their interrupts for the same reason. A receiver that
//! has emptied its socket therefore looks away for up to [`MAX_PAUSE`], unless the stream is thin
//! or its buffer could fill meanwhile. After one pause it waits for the socket itself, so that the
//! end of a stream is noticed at most one pause late.

use std::time::Duration;

use umbel_engine::Instant;

/// The longest pause, which is the longest wait of a datagram in a dense stream.
pub const MAX_PAUSE: Duration = Duration::from_millis(1);

/// Pauses that would gather fewer datagrams than this are not worth their delay.
const MIN_GATHERED: u64 = 6;

/// Minimum time over which the density of the stream is measured.
const WINDOW: Duration = Duration::from_millis(2);

/// Silence after which a stream is measured from scratch.
const SILENCE: Duration = Duration::from_millis(20);

/// Divisor of the buffer's size. A pause may fill one such part of it.
const SHARE_OF_BUFFER: u64 = 4;

/// Measures the density of a stream. It has no clock. The caller passes the time.
#[derive(Clone, Debug, Default)]
pub struct Gather {
    window_start: Instant,
    counted: u64,
    last: Instant,
    pause: Duration,
}

impl Gather {
    /// Records that `datagrams` datagrams were there at `now`. `room` is the number that the buffer
    /// holds.
    ///
    /// Returns the pause to make if there are no more, or zero for a thin stream.
    pub fn heard(&mut self, now: Instant, datagrams: usize, room: u64) -> Duration {
        if now - self.last >= SILENCE {
            self.window_start = now;
            self.counted = 0;
            self.pause = Duration::ZERO;
        }
        self.last = now;
        self.counted += datagrams as u64;
        let elapsed = now - self.window_start;
        if elapsed >= WINDOW {
            self.pause = self.pause_at(elapsed, room);
            self.window_start = now;
            self.counted = 0;
        }
        self.pause
    }

    /// Returns the pause for a stream that brings the counted datagrams in each period of
    /// `elapsed`.
    fn pause_at(&self, elapsed: Duration, room: u64) -> Duration {
        let expected = |time: Duration| {
            let part = u128::from(self.counted) * time.as_nanos() / elapsed.as_nanos().max(1);
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let gathered = expected(MAX_PAUSE);
        let most = room / SHARE_OF_BUFFER;
        if gathered.min(most) < MIN_GATHERED {
            Duration::ZERO
        } else if gathered <= most {
            MAX_PAUSE
        } else {
            MAX_PAUSE.mul_f64(most as f64 / gathered as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `datagrams` every `every` for 20 ms. Returns the last pause.
    fn stream(room: u64, datagrams: usize, every: Duration) -> Duration {
        let mut gather = Gather::default();
        let mut now = Instant::from_nanos(1_000_000_000);
        let end = now + Duration::from_millis(20);
        let mut pause = Duration::ZERO;
        while now < end {
            pause = gather.heard(now, datagrams, room);
            now += every;
        }
        pause
    }

    #[test]
    fn a_thin_stream_is_never_kept_waiting() {
        assert_eq!(stream(1000, 1, Duration::from_millis(1)), Duration::ZERO);
        assert_eq!(stream(1000, 5, Duration::from_millis(1)), Duration::ZERO);
    }

    #[test]
    fn a_dense_stream_is_looked_at_once_a_millisecond() {
        assert_eq!(stream(1000, 2, Duration::from_micros(100)), MAX_PAUSE);
        assert_eq!(stream(1000, 60, Duration::from_millis(1)), MAX_PAUSE);
    }

    #[test]
    fn a_pause_fills_no_more_than_a_part_of_the_buffer() {
        // 100 datagrams a millisecond, and room for 100: a quarter of a millisecond.
        let pause = stream(100, 10, Duration::from_micros(100));
        assert!((200..=260).contains(&pause.as_micros()), "{pause:?}");
        assert_eq!(stream(20, 10, Duration::from_micros(100)), Duration::ZERO);
        assert_eq!(stream(0, 10, Duration::from_micros(100)), Duration::ZERO);
    }

    #[test]
    fn a_single_burst_after_silence_is_no_stream() {
        let mut gather = Gather::default();
        let now = Instant::from_nanos(1_000_000_000);
        assert_eq!(gather.heard(now, 500, 1000), Duration::ZERO);
        assert_eq!(gather.heard(now + Duration::from_millis(1), 1, 1000), Duration::ZERO);
        assert_eq!(gather.heard(now + Duration::from_secs(1), 500, 1000), Duration::ZERO);
    }
}
