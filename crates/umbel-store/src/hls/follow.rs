//! Changes of a playlist that is being written.

use super::playlist::{Media, Segment};

/// Follows the playlist of one rendition. It takes only what a writer that goes on can have
/// written: numbers never fall [RFC 8216 §6.2.2].
#[derive(Debug, Default)]
pub struct Follower {
    /// First number and end of the last playlist that was taken.
    last: Option<(u64, u64)>,
}

/// Additions to a playlist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fresh {
    /// New segments with their numbers.
    pub segments: Vec<(u64, Segment)>,
    /// Number of segments that came and went between two looks.
    pub missed: u64,
}

/// Reason why a playlist is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// The number of the first segment fell.
    #[error("its media sequence fell from {from} to {to}, as if its writer was restarted")]
    Fell {
        /// Number before.
        from: u64,
        /// Number now.
        to: u64,
    },
    /// Segments at the end are gone.
    #[error("it shrank: it ended before segment {from}, and now before {to}")]
    Shrank {
        /// End before.
        from: u64,
        /// End now.
        to: u64,
    },
}

impl Follower {
    /// Takes the playlist as it is now. Of the first one, the last segment counts as new: what is
    /// older is no longer live.
    ///
    /// # Errors
    ///
    /// If no writer that goes on can have written it. It is as if it had not been read.
    pub fn take(&mut self, media: &Media) -> Result<Fresh, FollowError> {
        let (first, end) = (media.first, media.end());
        let next = match self.last {
            Some((from, _)) if first < from => {
                return Err(FollowError::Fell { from, to: first });
            }
            Some((_, from)) if end < from => return Err(FollowError::Shrank { from, to: end }),
            Some((_, next)) => next,
            None if media.segments.is_empty() => return Ok(Fresh::default()),
            None => end - 1,
        };
        self.last = Some((first, end));
        let new = media.numbered().filter(|&(number, _)| number >= next);
        let segments = new.map(|(number, segment)| (number, segment.clone())).collect();
        Ok(Fresh { segments, missed: first.saturating_sub(next) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::FileName;
    use super::*;

    fn media(first: u64, count: u64) -> Media {
        let segment = |number| Segment {
            name: FileName::parse(&format!("{number}.ts")).unwrap(),
            duration: Duration::from_secs(1),
            init: None,
            discontinuity: false,
            gap: false,
            date: None,
        };
        let segments = (first..first + count).map(segment).collect();
        Media { target_s: 1, first, segments, ..Media::default() }
    }

    fn numbers(fresh: &Fresh) -> Vec<u64> {
        fresh.segments.iter().map(|(number, _)| *number).collect()
    }

    #[test]
    fn only_the_last_segment_of_the_first_playlist_is_new() {
        let mut follower = Follower::default();
        assert_eq!(follower.take(&media(0, 0)), Ok(Fresh::default()));
        assert_eq!(numbers(&follower.take(&media(7, 5)).unwrap()), [11]);
        assert_eq!(follower.take(&media(7, 5)), Ok(Fresh::default()));
        assert_eq!(numbers(&follower.take(&media(8, 6)).unwrap()), [12, 13]);
    }

    #[test]
    fn segments_between_two_looks_are_missed() {
        let mut follower = Follower::default();
        follower.take(&media(0, 3)).unwrap();
        let fresh = follower.take(&media(10, 2)).unwrap();
        assert_eq!((numbers(&fresh), fresh.missed), (vec![10, 11], 7));
    }

    #[test]
    fn numbers_that_fall_are_refused_and_what_goes_on_is_followed_again() {
        let mut follower = Follower::default();
        follower.take(&media(5, 4)).unwrap();
        assert_eq!(follower.take(&media(0, 9)), Err(FollowError::Fell { from: 5, to: 0 }));
        assert_eq!(follower.take(&media(6, 1)), Err(FollowError::Shrank { from: 9, to: 7 }));
        assert_eq!(numbers(&follower.take(&media(6, 4)).unwrap()), [9]);
    }
}
