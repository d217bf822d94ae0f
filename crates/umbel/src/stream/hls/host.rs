//! Handles the steps of a ladder: what of it is sent when.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::rlm::{Source, SourceCommand};
use umbel_store::hls::FileName;

use super::ladder::Rung;
use super::recent::Recent;
use super::{HlsSnapshot, HlsSummary};
use crate::stream::StreamObserver;
use crate::stream::on_air::{OnAir, TICK, Totals};

/// Interval at which receivers that come late get what they need before any segment, and see that a
/// silent source is there.
const CAROUSEL: Duration = Duration::from_secs(2);
/// Time without a segment after which the user is told.
const STALL: Duration = Duration::from_secs(20);
/// Time that the last packets may take to leave.
const LAST_PACKETS: Duration = Duration::from_secs(15);
/// Backlog of a layer, in seconds of its rate, at which the user is told.
const BEHIND_S: u64 = 4;

/// Input of the source's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// A rendition goes on.
    Step(Step),
    /// Something is not followed, or missing.
    Refused {
        /// Note for the user, unless it was told before.
        line: Option<String>,
    },
    /// No more comes.
    Ended {
        /// Reason why it broke off, if it did.
        failed: Option<String>,
    },
    /// The user ends the stream.
    Interrupt,
}

/// A file as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) name: FileName,
    pub(crate) body: Bytes,
}

/// A step of a rendition.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) layer: u8,
    /// The new segment, unless it is missing or there is none.
    pub(crate) segment: Option<Item>,
    /// Files that players must have before it.
    pub(crate) init: Option<Item>,
    /// The playlist with it.
    pub(crate) playlist: Item,
}

/// A layer's files that are sent again and again.
#[derive(Debug, Default)]
struct Carousel {
    init: Option<Item>,
    playlist: Option<Item>,
    /// Time at which they were sent.
    sent: Option<Instant>,
}

/// The host of a ladder's source.
pub(crate) struct HlsHost {
    observer: Arc<dyn StreamObserver<HlsSnapshot>>,
    air: OnAir,
    rungs: Vec<Rung>,
    master: Item,
    recent: Option<Arc<Recent>>,
    carousels: Vec<Carousel>,
    begun: Option<Instant>,
    ending: Option<Instant>,
    /// Time of the last segment, and whether the user knows that none came since.
    fresh_at: Instant,
    told_stall: bool,
    told_behind: bool,
    summary: HlsSummary,
}

type Machine<'a> = dyn Io<Source> + 'a;

impl HlsHost {
    /// Creates the host of a source with these layers.
    pub(crate) fn new(
        rungs: Vec<Rung>,
        master: Item,
        recent: Option<Arc<Recent>>,
        observer: Arc<dyn StreamObserver<HlsSnapshot>>,
    ) -> HlsHost {
        HlsHost {
            observer,
            master,
            recent,
            carousels: rungs.iter().map(|_| Carousel::default()).collect(),
            begun: None,
            ending: None,
            fresh_at: Instant::EPOCH,
            told_stall: false,
            told_behind: false,
            air: OnAir::new(rungs.iter().map(|rung| rung.pace)),
            rungs,
            summary: HlsSummary::default(),
        }
    }

    /// Returns the result so far.
    pub(crate) fn summary(&self) -> HlsSummary {
        let Totals { packets, bytes: sent_bytes, repairs, .. } = self.air.totals();
        HlsSummary {
            packets,
            sent_bytes,
            repairs,
            experiments: self.air.experiments(),
            ..self.summary.clone()
        }
    }

    fn on_step(&mut self, io: &mut Machine<'_>, step: Step) {
        let now = io.now();
        let begun = *self.begun.get_or_insert(now);
        self.summary.seconds = (now - begun).as_secs_f64();
        (self.fresh_at, self.told_stall) = (now, false);
        let Step { layer, segment, init, playlist } = step;
        let Some(carousel) = self.carousels.get_mut(usize::from(layer)) else { return };
        let name = |item: &Option<Item>| item.as_ref().map(|item| item.name.clone());
        let other_init = name(&init) != name(&carousel.init);
        (carousel.init, carousel.playlist) = (init, Some(playlist.clone()));
        if other_init || carousel.sent.is_none_or(|sent| now - sent >= CAROUSEL) {
            self.send_heads(io, layer);
        }
        if let Some(segment) = segment {
            self.summary.segments += 1;
            self.summary.bytes += segment.body.len() as u64;
            if !self.send(io, layer, &segment) {
                self.refused(Some(format!("{} is left out: too much waits already", segment.name)));
            }
        }
        self.send(io, layer, &playlist);
    }

    /// Sends what receivers need before any segment.
    fn send_heads(&mut self, io: &mut Machine<'_>, layer: u8) {
        let carousel = &mut self.carousels[usize::from(layer)];
        carousel.sent = Some(io.now());
        let init = carousel.init.clone();
        let master = self.master.clone();
        for item in init.into_iter().chain([master]) {
            self.send(io, layer, &item);
        }
    }

    /// Sends a file. Returns whether there was room.
    fn send(&mut self, io: &mut Machine<'_>, layer: u8, item: &Item) -> bool {
        if let Some(recent) = &self.recent {
            recent.keep(item);
        }
        let (name, body) = (item.name.as_str().to_owned(), item.body.clone());
        let sent = io.command(SourceCommand::Object { layer, name, body });
        sent.inspect_err(|error| tracing::debug!("{} is not sent: {error}", item.name)).is_ok()
    }

    fn refused(&mut self, line: Option<String>) {
        self.summary.refused += 1;
        if let Some(line) = line {
            self.observer.note(&line);
        }
    }

    /// Sends the playlists of silent layers again.
    fn turn(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        for layer in 0..self.carousels.len() {
            let idle = self.air.layers().get(layer).is_some_and(|layer| layer.waiting == 0);
            let carousel = &self.carousels[layer];
            let due = carousel.sent.is_some_and(|sent| now - sent >= CAROUSEL);
            let playlist = carousel.playlist.clone().filter(|_| idle && due);
            if let Some(playlist) = playlist {
                self.send_heads(io, layer as u8);
                self.send(io, layer as u8, &playlist);
            }
        }
    }

    fn look_behind(&mut self) {
        for (layer, (rung, stats)) in self.rungs.iter().zip(self.air.layers()).enumerate() {
            let waiting = stats.waiting as u64 * u64::from(rung.packet_len) * 8;
            if waiting > BEHIND_S * rung.pace.bits_per_s() && !self.told_behind {
                self.told_behind = true;
                self.observer.note(&format!(
                    "rendition {} has more to send than its BANDWIDTH says, so that it comes \
                     later and later: raise --headroom, or let the encoder keep to its rate",
                    layer + 1
                ));
            }
        }
    }

    fn snapshot(&self) -> HlsSnapshot {
        HlsSnapshot {
            air: self.air.snapshot(),
            segments: self.summary.segments,
            refused: self.summary.refused,
            stalled: self.told_stall,
        }
    }
}

impl Host<Source> for HlsHost {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_>) {
        self.fresh_at = io.now();
        self.air.start(io);
    }

    fn event(&mut self, _io: &mut Machine<'_>, event: std::convert::Infallible) {
        match event {}
    }

    fn input(&mut self, io: &mut Machine<'_>, input: Input) {
        match input {
            Input::Step(step) => self.on_step(io, step),
            Input::Refused { line } => self.refused(line),
            Input::Ended { failed } => {
                self.summary.failure = failed;
                self.ending = Some(io.now());
            }
            Input::Interrupt => {
                self.summary.interrupted = true;
                self.air.stop(io);
            }
        }
    }

    fn wake(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        self.air.tick(io);
        if let Some(since) = self.ending {
            if self.air.is_idle() && now - since >= TICK * 2 || now - since >= LAST_PACKETS {
                io.stop();
            }
        } else {
            self.turn(io);
            self.look_behind();
            if now - self.fresh_at >= STALL && !self.told_stall {
                self.told_stall = true;
                self.observer.note("the ladder no longer grows");
            }
        }
        if let Some(line) = self.air.take_trouble() {
            self.observer.note(&line);
        }
        self.observer.progress(&self.snapshot());
    }

    fn trouble(&mut self, _io: &mut Machine<'_>, trouble: Trouble) {
        self.air.on_trouble(trouble);
    }
}
