//! The source.
//!
//! A layer's units become packets when its pace lets them. A block of units is sent as they come.
//! It is closed when it is full, or some time after its first unit, and its repairs follow:
//!
//! ```text
//!            Unit               first unit               k units, or its time is over
//!  (none) ────────▶ queued ───▶ (pace) ───▶ open block ──────────────────────────────▶ repairs
//!                     │
//!                     └─ too old, or too many wait ──▶ dropped
//! ```

mod audience;
mod layer;
mod object;

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use umbel_wire::Parsed;
use umbel_wire::rlm::{MAX_NAME, Message, channels};

use self::audience::Audience;
use self::layer::Layer;
use self::object::Sending;
use super::api::{
    ConfigError, LayerStats, MAX_UNIT, SourceCommand, SourceCommandError, SourceStats,
};
use super::config::SourceConfig;
use super::drops::{DropReason, Drops};
use super::signing::Signing;
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};

/// Sends the layers of a stream, each on its channel and at its pace.
#[derive(Debug)]
pub struct Source {
    config: SourceConfig,
    layers: Vec<Layer>,
    /// Layer that is polled first.
    turn: usize,
    /// `None` in experiments with the paper, which has no signatures.
    signing: Option<Signing>,
    audience: Audience,
    memberships: VecDeque<Membership>,
    drops: Drops,
}

impl Source {
    /// Creates a source that has sent nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the number of layers, a channel or the numbers of symbols are out of
    /// range.
    pub fn new(config: SourceConfig) -> Result<Source, ConfigError> {
        let count = config.layers.len();
        if count == 0 || count > usize::from(RateClass::LAYERS) {
            return Err(ConfigError::Layers(count));
        }
        for fec in config.layers.iter().filter_map(|layer| layer.fec) {
            let (source_symbols, repair_symbols) = (fec.source_symbols, fec.repair_symbols);
            let in_range = (1..=254).contains(&source_symbols)
                && source_symbols.checked_add(repair_symbols).is_some();
            if !in_range {
                return Err(ConfigError::Fec { source_symbols, repair_symbols });
            }
        }
        let channels = channels(config.base, count as u8).filter(|_| config.base.source.is_some());
        let channels = channels.ok_or(ConfigError::Base(count))?;
        let layers = (0..).zip(channels).zip(&config.layers);
        let layers = layers.map(|(place, layer)| Layer::new(&config, place, layer.fec));
        Ok(Source {
            layers: layers.collect(),
            turn: 0,
            signing: None,
            audience: Audience::new(&config),
            memberships: config.control.map(Membership::Join).into_iter().collect(),
            drops: Drops::default(),
            config,
        })
    }

    /// Signs all packets from now on. They are
    /// [68 bytes](umbel_wire::rlm::SignedHeader::LEN) longer for it.
    #[must_use]
    pub fn signed(self, signing: Signing) -> Source {
        Source { signing: Some(signing), ..self }
    }

    /// Returns the counters.
    pub fn stats(&self) -> SourceStats {
        let layers: Vec<LayerStats> = self.layers.iter().map(Layer::stats).collect();
        SourceStats { layers, ..self.audience.stats() }
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    fn on_datagram(&mut self, now: Instant, datagram: Datagram<'_>) -> Result<(), DropReason> {
        let Address::Channel(channel) = datagram.by else { return Err(DropReason::Unexpected) };
        let is_control = |control: umbel_wire::Channel| {
            (control.group, control.port) == (channel.group, channel.port)
        };
        if !self.config.control.is_some_and(is_control) {
            return Err(DropReason::Unexpected);
        }
        let from = channel.source.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        if !self.audience.admits(now, from) {
            return Err(DropReason::Flood);
        }
        match Message::parse(datagram.payload) {
            Ok(Parsed::Message { message, .. }) => {
                self.audience.hear(now, message, datagram.payload.len())
            }
            Ok(Parsed::UnknownType(_)) => Err(DropReason::Unexpected),
            Err(_) => Err(DropReason::Malformed),
        }
    }

    /// Returns the state of a layer.
    fn layer(&mut self, layer: u8) -> Result<&mut Layer, SourceCommandError> {
        let layers = self.layers.len();
        let no_such = SourceCommandError::NoSuchLayer { layer, layers };
        self.layers.get_mut(usize::from(layer)).ok_or(no_such)
    }

    fn push_object(
        &mut self,
        layer: u8,
        name: String,
        body: bytes::Bytes,
    ) -> Result<(), SourceCommandError> {
        if name.len() > MAX_NAME {
            return Err(SourceCommandError::LongName(name.len()));
        }
        let (room, symbol_len) = (self.config.queue_object_bytes, self.config.symbol_len.max(1));
        let copies = self.config.head_copies;
        let fec = self.config.layers.get(usize::from(layer)).and_then(|layer| layer.fec);
        let queue = self.layer(layer)?;
        let held = queue.object_bytes();
        if held.saturating_add(body.len()) > room {
            return Err(SourceCommandError::Full { held, room });
        }
        let toi = queue.next_toi();
        let object = Sending::new(toi, name, body, (symbol_len, copies), fec)
            .map_err(|_| SourceCommandError::Full { held, room })?;
        queue.push_object(object);
        Ok(())
    }
}

impl Engine for Source {
    type Command = SourceCommand;
    type CommandError = SourceCommandError;
    type Event = std::convert::Infallible;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if let Err(reason) = self.on_datagram(now, datagram) {
            self.drops.count(reason);
        }
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: SourceCommand,
    ) -> Result<(), SourceCommandError> {
        match command {
            SourceCommand::Unit { body, .. } if body.len() > MAX_UNIT => {
                Err(SourceCommandError::TooLong(body.len()))
            }
            SourceCommand::Unit { layer, body } => {
                self.layer(layer)?.push_unit(now, body);
                Ok(())
            }
            SourceCommand::Object { layer, name, body } => self.push_object(layer, name, body),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.layers.iter_mut().for_each(|layer| layer.on_timeout(now));
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.memberships.pop_front()
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let count = self.layers.len();
        for turn in 0..count {
            let number = (self.turn + turn) % count;
            let class = RateClass::Layer(number as u8);
            let layer = &mut self.layers[number];
            while buf.has_room(class)
                && let Some((head, body)) =
                    layer.poll(now, self.signing.as_mut(), |len| buf.admits(len))
            {
                buf.push(head.bytes(), body);
            }
            if !buf.is_empty() {
                self.turn = number + 1;
                let to = Address::Channel(layer.channel);
                return Some(Transmit { class, ..Transmit::control(to) });
            }
        }
        None
    }

    fn wants(&self, class: RateClass) -> bool {
        match class {
            RateClass::Layer(layer) => {
                self.layers.get(usize::from(layer)).is_some_and(Layer::wants)
            }
            RateClass::Control | RateClass::SelfClocked | RateClass::Data => false,
        }
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.layers.iter().filter_map(Layer::next_timeout).min()
    }
}
