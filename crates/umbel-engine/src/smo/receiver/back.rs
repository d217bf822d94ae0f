//! Segments of a receiver: SYN, the data of the back channel, FIN. It goes back N after a time-out
//! [RFC 9293 §3.8].

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use umbel_wire::tcp::Seq;

use super::config::ReceiverConfig;

/// Progress by an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It acknowledges nothing new.
    None,
    /// It acknowledges something, and more is outstanding.
    Some,
    /// It acknowledges everything.
    All,
    /// It acknowledges what was never sent.
    FarAhead,
}

/// The next segment that occupies sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) seq: Seq,
    pub(super) bytes: Range<usize>,
    pub(super) is_fin: bool,
}

/// The sending half of the connection, from the ISS on.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) una: Seq,
    pub(super) nxt: Seq,
    /// The greatest `nxt` so far.
    max: Seq,
    /// The source's window.
    pub(super) window: u32,
    pub(super) rto: Duration,
    transmissions: u8,
    /// Whether one byte may exceed a closed window.
    is_probing: bool,
    pub(super) is_finished: bool,
    fin_acked: bool,
    /// Data from `una` on.
    data: VecDeque<u8>,
}

impl Outgoing {
    /// Creates the sending half, with SYN outstanding.
    pub(super) fn new(iss: Seq, config: &ReceiverConfig) -> Outgoing {
        Outgoing {
            una: iss,
            nxt: iss,
            max: iss,
            window: 0,
            rto: config.initial_rto,
            transmissions: 0,
            is_probing: false,
            is_finished: false,
            fin_acked: false,
            data: VecDeque::new(),
        }
    }

    /// Notes that SYN was sent.
    pub(super) fn on_syn(&mut self) {
        self.nxt = self.una.plus(1);
        self.max = self.nxt;
    }

    /// Notes that SYN was acknowledged after this RTT, which is unknown if SYN was sent again
    /// [RFC 6298 §2.2].
    pub(super) fn on_syn_acked(&mut self, rtt: Option<Duration>, config: &ReceiverConfig) {
        self.una = self.nxt;
        let rto = rtt.map_or(config.initial_rto, |rtt| rtt * 3);
        self.rto = rto.clamp(config.rto.0, config.rto.1.max(config.rto.0));
        self.transmissions = 0;
    }

    /// Returns whether the segment that is outstanding was sent once only.
    pub(super) fn is_first(&self) -> bool {
        self.transmissions == 0
    }

    /// Returns whether anything is outstanding, or waits for the window.
    pub(super) fn is_busy(&self) -> bool {
        self.nxt != self.una || !self.data.is_empty()
    }

    /// Returns whether FIN was acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.fin_acked
    }

    /// Returns the room for data.
    pub(super) fn room(&self, config: &ReceiverConfig) -> usize {
        config.send_buffer.saturating_sub(self.data.len())
    }

    /// Appends data.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.data.extend(bytes);
    }

    /// Processes an acknowledgement number.
    pub(super) fn on_ack(&mut self, ack: Seq) -> Progress {
        let new = ack.since(self.una);
        if ack.since(self.max) > 0 {
            return Progress::FarAhead;
        }
        if new <= 0 {
            return Progress::None;
        }
        let bytes = (new as usize).min(self.data.len());
        self.fin_acked |= new as usize > bytes;
        self.data.drain(..bytes);
        self.una = ack;
        if self.nxt.is_before(ack) {
            self.nxt = ack;
        }
        self.transmissions = 0;
        if self.is_busy() { Progress::Some } else { Progress::All }
    }

    /// Returns the next segment that may be sent, at most `mss` bytes of it.
    pub(super) fn next(&self, mss: usize, config: &ReceiverConfig) -> Option<Part> {
        let sent = self.nxt.since(self.una) as usize;
        let window = self.window.min(config.in_flight).max(u32::from(self.is_probing)) as usize;
        let end = self.data.len().min(window).min(sent.saturating_add(mss));
        let is_fin = self.is_finished && !self.fin_acked && end == self.data.len() && sent <= end;
        (sent < end || is_fin).then_some(Part { seq: self.nxt, bytes: sent..end, is_fin })
    }

    /// Copies the bytes of a part and notes that it is sent. Returns whether it was sent before.
    pub(super) fn send(&mut self, part: &Part, out: &mut Vec<u8>) -> bool {
        out.extend(self.data.range(part.bytes.clone()));
        let is_again = self.nxt.is_before(self.max);
        self.nxt = self.nxt.plus(part.bytes.len() as u32 + u32::from(part.is_fin));
        if self.max.is_before(self.nxt) {
            self.max = self.nxt;
        }
        self.is_probing = false;
        is_again
    }

    /// Goes back to what is not acknowledged, after a time-out. Returns whether the source has to
    /// be given up.
    pub(super) fn on_timeout(&mut self, config: &ReceiverConfig) -> bool {
        // A closed window is probed as long as the source answers.
        if self.window > 0 || self.nxt != self.una {
            self.transmissions += 1;
        }
        self.is_probing = self.window == 0;
        self.nxt = self.una;
        self.rto = (self.rto * 2).min(config.rto.1);
        self.transmissions >= config.transmissions
    }
}
