//! Frame numbers that wrap, jump, or are made up.

use crate::packet::FRAME_BITS;

/// Frames that a packet may be from the newest, either way: 17 s at 30 frames a second.
const NEAR: i64 = 512;

/// Number of packets in a row, near each other and far from the newest, that move the clock.
const BELIEVED: u32 = 8;

const WRAP: i64 = 1 << FRAME_BITS;

/// Knows the newest frame's number, without wrapping. It never goes back.
#[derive(Debug)]
pub(super) struct Clock {
    newest: Option<u64>,
    /// Position of packets that are far from the newest, and how many came in a row.
    elsewhere: Option<(u64, u32)>,
}

/// The number of a packet's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) frame: u64,
    /// The source has restarted, or has been away for long.
    pub(super) restarted: bool,
}

impl Clock {
    pub(super) const fn new() -> Self {
        Self { newest: None, elsewhere: None }
    }

    /// Returns the number of the newest frame, 0 before the first.
    pub(super) fn newest(&self) -> u64 {
        self.newest.unwrap_or(0)
    }

    /// Returns the number of a packet's frame from its low bits; `None` while it is not believed.
    pub(super) fn see(&mut self, low: u32) -> Option<Seen> {
        let Some(newest) = self.newest else {
            // Numbers begin above 0, which is no version, and above all ages.
            let frame = u64::from(low) + (2 * WRAP) as u64;
            self.newest = Some(frame);
            return Some(Seen { frame, restarted: false });
        };
        let near = unwrap(newest, low);
        if near.abs_diff(newest) <= NEAR as u64 {
            self.newest = Some(newest.max(near));
            self.elsewhere = None;
            return Some(Seen { frame: near, restarted: false });
        }
        let times = match self.elsewhere {
            Some((at, times)) if unwrap(at, low).abs_diff(at) <= NEAR as u64 => times + 1,
            _ => 1,
        };
        self.elsewhere = Some((u64::from(low) + WRAP as u64, times));
        if times < BELIEVED {
            return None;
        }
        self.elsewhere = None;
        // Ahead by less than one wrap, whatever the number: versions only grow.
        let ahead = (i64::from(low) - newest as i64).rem_euclid(WRAP) as u64;
        self.newest = Some(newest + ahead);
        Some(Seen { frame: newest + ahead, restarted: true })
    }
}

/// Returns the number with these low bits that is nearest to `near`.
fn unwrap(near: u64, low: u32) -> u64 {
    let ahead = (i64::from(low) - near as i64).rem_euclid(WRAP);
    let ahead = if ahead >= WRAP / 2 { ahead - WRAP } else { ahead };
    near.saturating_add_signed(ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_they_wrap() {
        let mut clock = Clock::new();
        let first = clock.see(0xFF_FFFE).unwrap().frame;
        assert_eq!(clock.see(3).unwrap().frame, first + 5);
        assert_eq!(clock.see(0xFF_FFFF).unwrap().frame, first + 1);
        assert_eq!(clock.newest(), first + 5);
    }

    #[test]
    fn single_packets_from_far_away_move_nothing() {
        let mut clock = Clock::new();
        let first = clock.see(100).unwrap().frame;
        for i in 0..50 {
            assert_eq!(clock.see(500_000), None);
            assert_eq!(clock.see(101 + i).unwrap().frame, first + 1 + u64::from(i));
        }
    }

    #[test]
    fn a_source_that_starts_anew_is_followed() {
        let mut clock = Clock::new();
        let before = clock.see(100_000).unwrap().frame;
        let seen: Vec<_> = (0..10).map(|i| clock.see(i)).collect();
        assert!(seen[..7].iter().all(Option::is_none));
        let restart = seen[7].unwrap();
        assert!(restart.restarted && restart.frame > before);
        assert_eq!(seen[8].unwrap(), Seen { frame: restart.frame + 1, restarted: false });
    }
}
