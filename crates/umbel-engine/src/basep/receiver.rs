//! The receiver.

use std::collections::VecDeque;

use bytes::Bytes;
use umbel_wire::Parsed;
use umbel_wire::basep::Message;

use super::api::{ReceiverEvent, ReceiverStats};
use super::{DropReason, Drops, ReceiverConfig};
use crate::reliable::{ReceiveWindow, Refused};
use crate::{Address, Datagram, Engine, Instant, Membership, Transmit, TransmitBuf};

/// Greatest number of acknowledgements that wait to be sent. Packets beyond it are not
/// acknowledged, and come again.
const ACKS: usize = 1024;

/// Receives the packets of one source in order, and acknowledges each.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    window: ReceiveWindow,
    /// The last packet, once it is known.
    last: Option<u64>,
    acks: VecDeque<u64>,
    membership: Option<Membership>,
    events: VecDeque<ReceiverEvent>,
    stats: ReceiverStats,
    drops: Drops,
}

impl Receiver {
    /// Creates a receiver that joins the channel.
    pub fn new(config: ReceiverConfig) -> Receiver {
        Receiver {
            config,
            window: ReceiveWindow::new(0, config.window),
            last: None,
            acks: VecDeque::new(),
            membership: Some(Membership::Join(config.channel)),
            events: VecDeque::new(),
            stats: ReceiverStats::default(),
            drops: Drops::default(),
        }
    }

    /// Returns the receiver's counters.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns whether everything was delivered.
    pub fn is_complete(&self) -> bool {
        self.last.is_some_and(|last| last < self.window.next())
    }

    fn on_data(&mut self, sequence: u64, last: bool, again: bool, payload: &[u8]) {
        let contradicts = match self.last {
            Some(end) => sequence > end || last && sequence < end,
            None => {
                last && self.window.known().checked_sub(1).is_some_and(|known| sequence < known)
            }
        };
        if contradicts {
            return self.drops.count(DropReason::Contradiction);
        }
        if self.acks.len() >= ACKS {
            return self.drops.count(DropReason::OverLimit);
        }
        match self.window.insert(sequence, Bytes::copy_from_slice(payload)) {
            Ok(()) => {
                self.stats.packets += 1;
                self.stats.repaired += u64::from(again);
            }
            // Its ACK may have been lost.
            Err(Refused::Duplicate(_) | Refused::BeforeHorizon { .. }) => {
                self.drops.count(DropReason::Duplicate);
            }
            Err(Refused::NoRoom(_)) => return self.drops.count(DropReason::NoRoom),
            Err(Refused::FarAhead { .. }) => return self.drops.count(DropReason::FarAhead),
        }
        if last {
            self.last = Some(sequence);
        }
        self.acks.push_back(sequence);
        let was_complete = self.is_complete();
        while let Some((sequence, payload)) = self.window.poll_delivery() {
            self.events.push_back(ReceiverEvent::Packet { sequence, payload });
        }
        if self.is_complete() && !was_complete {
            self.events.push_back(ReceiverEvent::Complete);
        }
    }
}

impl Engine for Receiver {
    type Command = std::convert::Infallible;
    type CommandError = std::convert::Infallible;
    type Event = ReceiverEvent;

    fn handle_datagram(&mut self, _now: Instant, datagram: Datagram<'_>) {
        if datagram.by != Address::Channel(self.config.channel) {
            return self.drops.count(DropReason::Unexpected);
        }
        match Message::parse(datagram.payload) {
            Ok(Parsed::Message { message, .. }) => match message {
                Message::Data { sequence, last, again, payload } => {
                    self.on_data(sequence, last, again, payload);
                }
                _ => self.drops.count(DropReason::Unexpected),
            },
            Ok(Parsed::UnknownType(_)) => self.drops.count(DropReason::Unexpected),
            Err(_) => self.drops.count(DropReason::Malformed),
        }
    }

    fn handle_command(
        &mut self,
        _now: Instant,
        command: Self::Command,
    ) -> Result<(), Self::CommandError> {
        match command {}
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_membership(&mut self) -> Option<Membership> {
        self.membership.take()
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let channel = self.config.channel;
        let source = channel.source?;
        let sequence = self.acks.pop_front()?;
        let message = if self.is_complete() {
            Message::GotIt { channel, sequence }
        } else {
            Message::Ack { channel, sequence }
        };
        let mut head = Vec::new();
        message.emit(&mut head);
        buf.push(&head, Bytes::new());
        self.stats.acks += 1;
        Some(Transmit::control(Address::Host((source, channel.port).into())))
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
