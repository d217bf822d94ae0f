//! A receiver's knowledge of the source and its feed.

use std::time::Duration;

use umbel_wire::tmtp::{End, FeedInfo};

use crate::Instant;
use crate::tmtp::config::Shape;
use crate::tmtp::drops::DropReason;

/// Silence of the source after which the receiver joins its groups again, and another time after
/// each further one. A switch may have forgotten the membership, or the network card may be
/// another.
const SILENCE: Duration = Duration::from_secs(8);
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
    /// Last epoch of the source that the parent brought, and when.
    epoch: Option<(u64, Instant)>,
    /// Whether the parent said last that the feed is over.
    told_closing: bool,
    /// Time at which the receiver was done, or gave up.
    finished: Option<Instant>,
    /// Number of [`SILENCE`]s since it was heard that were noticed.
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

    /// Notes an epoch of the source in a beacon of the parent. A later one than before shows that
    /// the source lives.
    pub(super) fn on_epoch(&mut self, now: Instant, epoch: u64) {
        if self.epoch.is_none_or(|(known, _)| epoch > known) {
            self.epoch = Some((epoch, now));
        }
    }

    /// Notes whether the parent says that the feed is over. That is believed of it once the source
    /// is silent, also if the parent has left by then.
    pub(super) fn on_told(&mut self, closing: bool) {
        self.told_closing = closing;
    }

    /// Returns the patience with a silent source, which is `usual` unless the feed is said to be
    /// over.
    pub(super) fn patience(&self, usual: Duration) -> Duration {
        if self.told_closing { SILENCE_DONE.min(usual) } else { usual }
    }

    /// Notes that the receiver is done, or has given up. Its last word takes a while.
    pub(super) fn on_finished(&mut self, now: Instant) {
        self.finished = Some(now);
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
    /// `patience` with a source of which its parent hears nothing either. One that is finished listens from then on at least for a while, and to
    /// its parent as well: some heartbeats in a row may be lost.
    pub(super) fn silent_at(&self, patience: Option<Duration>) -> Option<Instant> {
        let heard = self.heard.filter(|_| !self.gone)?;
        let told = self.epoch.map_or(heard, |(_, at)| at.max(heard));
        let Some(patience) = patience else {
            return Some(self.finished.map_or(told, |at| at.max(told)) + SILENCE_DONE);
        };
        let next = SILENCE.saturating_mul(1 << self.silences.min(16));
        Some((heard + next).min(told + patience))
    }

    /// Notices that the source is silent. Returns for how long it has been so if there is still
    /// patience with it.
    pub(super) fn on_silence(
        &mut self,
        now: Instant,
        patience: Option<Duration>,
    ) -> Option<Duration> {
        let heard = self.heard?;
        let told = self.epoch.map_or(heard, |(_, at)| at.max(heard));
        let silence = now.since(heard);
        let silences = silence.as_nanos() / SILENCE.as_nanos();
        self.silences = silences.checked_ilog2().map_or(0, |doubled| doubled + 1);
        patience.filter(|patience| now.since(told) < *patience).map(|_| silence)
    }

    /// Returns when [`take_sent`](SourceWatch::take_sent) has something.
    pub(super) fn hearsay_at(&self) -> Option<Instant> {
        self.hearsay.map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_finished_listens_for_a_while_before_the_source_is_gone() {
        let at = |s| Instant::EPOCH + Duration::from_secs(s);
        let mut source = SourceWatch::default();
        source.on_heard(at(1));
        assert_eq!(source.silent_at(Some(Duration::from_mins(2))), Some(at(9)));
        source.on_finished(at(9));
        assert_eq!(source.silent_at(None), Some(at(14)));
        source.on_heard(at(11));
        assert_eq!(source.silent_at(None), Some(at(16)));
        for (s, epoch, gone) in [(12, 500, 17), (13, 500, 17), (14, 501, 19)] {
            source.on_epoch(at(s), epoch);
            assert_eq!(source.silent_at(None), Some(at(gone)));
        }
    }

    #[test]
    fn a_parent_that_said_that_the_feed_is_over_is_believed_once_the_source_is_silent() {
        let minutes = Duration::from_mins(30);
        let mut source = SourceWatch::default();
        source.on_heard(Instant::EPOCH);
        assert_eq!(source.patience(minutes), minutes);
        source.on_told(true);
        let patience = source.patience(minutes);
        let silent = Instant::EPOCH + SILENCE_DONE;
        assert_eq!(source.silent_at(Some(patience)), Some(silent));
        assert_eq!(source.on_silence(silent, Some(patience)), None);
        source.on_told(false);
        assert_eq!(source.patience(minutes), minutes);
    }
}
