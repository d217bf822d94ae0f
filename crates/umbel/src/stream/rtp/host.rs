//! Handles what comes to the ports of RTP: each packet becomes a unit of its layer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::host::{Host, Io, Trouble};
use umbel_engine::rlm::{Source, SourceCommand};
use umbel_wire::rtp::{MAX_PARTS, PART_HEAD, parts};

use super::intake::{Intake, Refusal};
use super::sockets::Backlog;
use super::{Lane, RtpSnapshot, RtpSummary};
use crate::stream::StreamObserver;
use crate::stream::on_air::{OnAir, Totals};

/// Time without a packet of a layer after which the user is told.
const STALL: Duration = Duration::from_secs(3);

/// Input of the source's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// A datagram that came to the port of a layer.
    Packet {
        /// The layer.
        layer: u8,
        /// The datagram.
        bytes: Bytes,
    },
    /// The user ends the stream.
    Interrupt,
}

/// A layer's sender.
#[derive(Debug)]
struct Sender {
    lane: Lane,
    intake: Intake,
    /// Time of its last packet, and whether the user knows that none came since.
    heard: Instant,
    told_stall: bool,
    told_fast: bool,
    /// Number of its next packet that is sent in parts.
    cut: u16,
}

/// Notes that the user has heard already, each once.
#[derive(Debug, Default)]
struct Told {
    not_rtp: bool,
    other_type: bool,
    other_source: bool,
    too_long: bool,
    cut: bool,
    behind: bool,
}

/// The host of a source of RTP.
pub(crate) struct RtpHost {
    observer: Arc<dyn StreamObserver<RtpSnapshot>>,
    air: OnAir,
    senders: Vec<Sender>,
    /// Most bytes of a unit.
    most: usize,
    backlog: Arc<Backlog>,
    begun: Option<Instant>,
    told: Told,
    summary: RtpSummary,
}

type Machine<'a> = dyn Io<Source> + 'a;

impl RtpHost {
    /// Creates the host of a source with these layers. A unit has at most `most` bytes.
    pub(crate) fn new(
        lanes: &[Lane],
        most: usize,
        backlog: Arc<Backlog>,
        observer: Arc<dyn StreamObserver<RtpSnapshot>>,
    ) -> RtpHost {
        let longest = most.saturating_sub(PART_HEAD) * usize::from(MAX_PARTS);
        let sender = |lane: &Lane| Sender {
            lane: *lane,
            intake: Intake::new(lane.payload_type, longest.max(most)),
            heard: Instant::EPOCH,
            told_stall: false,
            told_fast: false,
            cut: 0,
        };
        RtpHost {
            observer,
            air: OnAir::new(lanes.iter().map(|lane| lane.pace)),
            senders: lanes.iter().map(sender).collect(),
            most,
            backlog,
            begun: None,
            told: Told::default(),
            summary: RtpSummary::default(),
        }
    }

    /// Returns the result so far.
    pub(crate) fn summary(&self) -> RtpSummary {
        let Totals { packets, bytes, repairs, dropped } = self.air.totals();
        RtpSummary {
            packets,
            bytes,
            repairs,
            dropped: self.backlog.refused() + dropped,
            experiments: self.air.experiments(),
            ..self.summary.clone()
        }
    }

    fn on_packet(&mut self, io: &mut Machine<'_>, layer: u8, bytes: Bytes) {
        let now = io.now();
        let Some(sender) = self.senders.get_mut(usize::from(layer)) else { return };
        match sender.intake.take(now, &bytes) {
            Ok(replaced) => {
                sender.heard = now;
                let number = layer + 1;
                if std::mem::take(&mut sender.told_stall) {
                    self.observer.note(&format!("packets of layer {number} arrive again"));
                }
                if replaced {
                    let line = format!("layer {number} comes from another sender (SSRC) now");
                    self.observer.note(&line);
                }
                let begun = *self.begun.get_or_insert(now);
                self.summary.seconds = (now - begun).as_secs_f64();
                self.summary.taken += 1;
                self.send(io, layer, bytes);
            }
            Err(refusal) => self.on_refusal(layer, refusal),
        }
    }

    /// Sends a packet, in parts if it is too long for a unit.
    fn send(&mut self, io: &mut Machine<'_>, layer: u8, packet: Bytes) {
        let units = if packet.len() <= self.most {
            vec![packet]
        } else {
            let cut = &mut self.senders[usize::from(layer)].cut;
            *cut = cut.wrapping_add(1);
            let units: Vec<Bytes> =
                parts(&packet, *cut, self.most).into_iter().map(Bytes::from).collect();
            if !std::mem::replace(&mut self.told.cut, true) {
                self.observer.note(&format!(
                    "layer {} has packets of {} bytes, which are sent in {} parts, since {} fit one",
                    layer + 1,
                    packet.len(),
                    units.len(),
                    self.most
                ));
            }
            units
        };
        for body in units {
            // No unit is too long, and the layer is there.
            if let Err(error) = io.command(SourceCommand::Unit { layer, body }) {
                tracing::warn!("a packet is not sent: {error}");
            }
        }
    }

    fn on_refusal(&mut self, layer: u8, refusal: Refusal) {
        let number = layer + 1;
        let (told, line) = match refusal {
            Refusal::Rtcp => return self.summary.rtcp += 1,
            Refusal::Repeated => return self.summary.repeated += 1,
            Refusal::NotRtp => (
                &mut self.told.not_rtp,
                format!("what comes to the port of layer {number} is no RTP"),
            ),
            Refusal::OtherType(payload_type) => {
                let line = format!(
                    "layer {number} comes with payload type {payload_type}, which the session \
                     description does not give it: give the description that its sender writes"
                );
                (&mut self.told.other_type, line)
            }
            Refusal::OtherSource => {
                let line = format!(
                    "two senders (SSRC) send to the port of layer {number}: the first one is heard"
                );
                (&mut self.told.other_source, line)
            }
            Refusal::TooLong(len) => {
                let line = format!(
                    "layer {number} has packets of {len} bytes, and {} fit: lower those of the \
                     sender (ffmpeg: `?pkt_size=1200` in its URL), or raise --mtu",
                    self.senders[usize::from(layer)].intake.most()
                );
                (&mut self.told.too_long, line)
            }
        };
        self.summary.refused += 1;
        if !std::mem::replace(told, true) {
            self.observer.note(&line);
        }
    }

    /// Reports layers that send nothing, or more than their rate.
    fn look(&mut self, now: Instant) {
        for (number, sender) in (1..).zip(&mut self.senders) {
            if now - sender.heard >= STALL && !sender.told_stall {
                sender.told_stall = true;
                self.observer.note(&format!("no packets of layer {number} come from its sender"));
            }
            let dropped = self.air.layers().get(number - 1).map_or(0, |layer| layer.dropped);
            if dropped > 0 && !sender.told_fast {
                sender.told_fast = true;
                self.observer.note(&format!(
                    "layer {number} sends more than its rate of {}, and packets are dropped: raise \
                     --layers or --headroom, or let its encoder keep to its rate (ffmpeg: -maxrate, \
                     -bufsize)",
                    sender.lane.rate
                ));
            }
        }
        if self.backlog.refused() > 0 && !std::mem::replace(&mut self.told.behind, true) {
            self.observer.note("packets come faster than this machine handles them");
        }
        if let Some(line) = self.air.take_trouble() {
            self.observer.note(&line);
        }
    }

    fn snapshot(&self) -> RtpSnapshot {
        RtpSnapshot {
            air: self.air.snapshot(),
            taken: self.summary.taken,
            refused: self.summary.refused,
            dropped: self.backlog.refused() + self.air.totals().dropped,
            stalled: self.senders.iter().any(|sender| sender.told_stall),
        }
    }
}

impl Host<Source> for RtpHost {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        for sender in &mut self.senders {
            sender.heard = now;
        }
        self.air.start(io);
    }

    fn event(&mut self, _io: &mut Machine<'_>, event: std::convert::Infallible) {
        match event {}
    }

    fn input(&mut self, io: &mut Machine<'_>, input: Input) {
        match input {
            Input::Packet { layer, bytes } => {
                self.backlog.leave();
                self.on_packet(io, layer, bytes);
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
        self.look(now);
        self.observer.progress(&self.snapshot());
    }

    fn trouble(&mut self, _io: &mut Machine<'_>, trouble: Trouble) {
        self.air.on_trouble(trouble);
    }
}
