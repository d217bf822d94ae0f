//! Held files of one layer, whether they are in the playlist for players or not.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_store::hls::{FileName, Media};

/// Files of a layer that are kept until a playlist names them, and most bytes of these.
pub(super) const FILES: usize = 40;
const BYTES: usize = 64 << 20;

/// Held files of a layer.
#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) playlist: Media,
    /// Time at which a playlist first named each segment.
    pub(super) named: BTreeMap<u64, Instant>,
    pub(super) files: BTreeMap<FileName, Bytes>,
    order: VecDeque<FileName>,
    bytes: usize,
}

impl Layer {
    /// Returns whether a segment is held with all that a player needs.
    pub(super) fn has(&self, number: u64) -> bool {
        self.playlist.segment(number).is_some_and(|segment| {
            let init = segment.init.as_ref();
            self.files.contains_key(&segment.name)
                && init.is_none_or(|init| self.files.contains_key(init))
        })
    }

    /// Takes the newest playlist.
    pub(super) fn list(&mut self, now: Instant, media: Media) {
        self.named.retain(|&number, _| number >= media.first);
        for (number, _) in media.numbered() {
            self.named.entry(number).or_insert(now);
        }
        self.playlist = media;
    }

    /// Keeps a file, for which the oldest ones make room.
    pub(super) fn keep(&mut self, name: FileName, body: Bytes) {
        self.bytes += body.len();
        match self.files.insert(name.clone(), body) {
            Some(old) => self.bytes -= old.len(),
            None => self.order.push_back(name),
        }
        let init = self.playlist.segments.last().and_then(|segment| segment.init.clone());
        while (self.order.len() > FILES || self.bytes > BYTES) && self.order.len() > 2 {
            let Some(oldest) = self.order.pop_front() else { break };
            if Some(&oldest) == init.as_ref() {
                self.order.push_back(oldest);
            } else if let Some(body) = self.files.remove(&oldest) {
                self.bytes -= body.len();
            }
        }
    }
}
