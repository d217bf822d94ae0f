//! A receiver's knowledge of the source and its feed.

use std::time::Duration;

use umbel_wire::tmtp::{End, FeedInfo};

use crate::Instant;
use crate::tmtp::config::Shape;
use crate::tmtp::drops::DropReason;

/// Silence of the source after which the receiver joins its groups again, and another time after
/// each further one. A switch may have forgotten the membership, or the network card may be
/// another.
const SILENCE: Duration = Duration::from_mins(1);
/// Silence after which the source is gone for a receiver that is done or has given up.
const SILENCE_DONE: Duration = Duration::from_secs(5);

/// The source as heartbeats, beacons and data show it.
#[derive(Debug, Default)]
pub(super) struct SourceWatch {
    feed: Option<FeedInfo>,
    end: Option<End>,
    /// A beacon or heartbeat said that all blocks before this were sent. It may have overtaken the
    /// data, so it is believed only from this time on.
    hearsay: Option<(u32, Instant)>,
    /// Time at which the source was last heard on the data channel.
    heard: Option<Instant>,
    /// Number of [`SILENCE`]s since then that were noticed.
    silences: u32,
    gone: bool,
}

impl SourceWatch {
    /// Returns what the feed is, once it is known.
    pub(super) fn feed(&self) -> Option<FeedInfo> {
        self.feed
    }

    /// Returns where the feed ends, once it is known.
    pub(super) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Returns whether the source has closed the feed or was silent for too long.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Notes a packet of the data channel.
    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard = Some(now);
        self.silences = 0;
    }

    /// Returns whether nothing came by the data channel for a while, so that others are asked how
    /// the source is.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.heard.is_none_or(|heard| now.since(heard) >= SILENCE_DONE)
    }

    /// Learns what the feed is. Returns whether that is news.
    ///
    /// # Errors
    ///
    /// If it contradicts the announcement.
    pub(super) fn learn_feed(&mut self, feed: FeedInfo, shape: Shape) -> Result<bool, DropReason> {
        let told = Shape {
            id: feed.source,
            source: feed.address,
            symbol_len: feed.symbol_len,
            block_symbols: feed.block_symbols,
            fec: feed.fec,
            manifest: feed.manifest,
        };
        if told != shape {
            return Err(DropReason::ForgedSource);
        }
        Ok(self.feed.replace(feed).is_none())
    }

    /// Notes that all blocks before `sent` were sent, of which `known` are known. That is believed
    /// after `overtaking`.
    pub(super) fn note_sent(&mut self, now: Instant, sent: u32, known: u32, overtaking: Duration) {
        let (before, at) = self.hearsay.unwrap_or((known, now + overtaking));
        if sent > before {
            self.hearsay = Some((sent, at));
        }
    }

    /// Returns how many blocks were sent, by hearsay that is to be believed now.
    pub(super) fn take_sent(&mut self, now: Instant) -> Option<u32> {
        self.hearsay.take_if(|(_, at)| *at <= now).map(|(sent, _)| sent)
    }

    /// Learns where the feed ends. Returns whether that is news. A source may fail after it has
    /// said where the feed ends, which changes nothing for a receiver that is `complete`.
    pub(super) fn learn_end(&mut self, end: Option<&End>, complete: bool) -> bool {
        let news = end.filter(|end| match &self.end {
            None => true,
            Some(known) => known.failed.is_none() && end.failed.is_some() && !complete,
        });
        if news.is_some() {
            self.end = news.cloned();
        }
        news.is_some()
    }

    /// Notes that the source is gone. Returns whether that is news.
    pub(super) fn close(&mut self) -> bool {
        !std::mem::replace(&mut self.gone, true)
    }

    /// Returns when the source will have been silent for long. A receiver that is not finished has
    /// `patience` with it.
    pub(super) fn silent_at(&self, patience: Option<Duration>) -> Option<Instant> {
        let heard = self.heard.filter(|_| !self.gone)?;
        let wait = patience.map_or(SILENCE_DONE, |patience| {
            SILENCE.saturating_mul(self.silences + 1).min(patience)
        });
        Some(heard + wait)
    }

    /// Notices that the source is silent. Returns for how long it has been so if there is still
    /// patience with it.
    pub(super) fn on_silence(
        &mut self,
        now: Instant,
        patience: Option<Duration>,
    ) -> Option<Duration> {
        let silence = now.since(self.heard?);
        self.silences = (silence.as_nanos() / SILENCE.as_nanos()).try_into().unwrap_or(u32::MAX);
        patience.filter(|patience| silence < *patience).map(|_| silence)
    }

    /// Returns when [`take_sent`](SourceWatch::take_sent) has something.
    pub(super) fn hearsay_at(&self) -> Option<Instant> {
        self.hearsay.map(|(_, at)| at)
    }
}
