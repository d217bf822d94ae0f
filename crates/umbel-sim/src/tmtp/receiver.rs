//! Host of a receiver.

use std::convert::Infallible;

use umbel_engine::host::{Host, Io};
use umbel_engine::tmtp::{self, ReceiverCommand, ReceiverEvent};
use umbel_engine::units::Rate;
use umbel_engine::{Instant, RateClass};
use umbel_wire::tmtp::{End, Refusal};

use super::{Feed, FeedSink, host_config, node_of_id};
use crate::EngineHost;

/// Host that runs a receiver.
pub type ReceiverHost = EngineHost<tmtp::Receiver<FeedSink>, Receiver>;

/// Joins, wants everything, reports when it has everything, and leaves.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    repair_rate: Option<Rate>,
    follows: bool,
    leave_at: Option<Instant>,
    is_leaving: bool,
    joined: u32,
    orphaned: u32,
    elected: u32,
    end: Option<End>,
    completed: Option<Instant>,
    gone: u32,
    evicted: u32,
    refused: Option<Refusal>,
    source_gone: Option<Instant>,
    left: Option<Instant>,
}

impl Receiver {
    /// Creates a host that joins the group when it starts.
    pub fn host(self, feed: &Feed, config: tmtp::ReceiverConfig) -> ReceiverHost {
        let draws = feed.draws(node_of_id(config.node.id));
        let sink = FeedSink::new(config.shape.symbol_len);
        let engine = tmtp::Receiver::new(config, draws, sink);
        let config = host_config(self.repair_rate);
        EngineHost::new(engine, self, config)
    }

    /// Sets the rate of the receiver's repairs, before it has a host. By default they leave at
    /// once.
    pub fn repair_at(&mut self, rate: Rate) {
        self.repair_rate = Some(rate);
    }

    /// Makes repairs go no faster than the source sends, as congestion control finds it.
    pub fn follow_source(&mut self) {
        self.follows = true;
    }

    /// Makes the receiver leave the group at this time. Then the host is off the network.
    pub fn leave_at(&mut self, at: Instant) {
        self.leave_at = Some(at);
    }

    /// Returns how often the receiver found a parent.
    pub fn joined(&self) -> u32 {
        self.joined
    }

    /// Returns how often the receiver lost its parent.
    pub fn orphaned(&self) -> u32 {
        self.orphaned
    }

    /// Returns how often the receiver became the manager of its subnet.
    pub fn elected(&self) -> u32 {
        self.elected
    }

    /// Returns the end of the feed, if it is known.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Returns the time when the receiver had everything, if it has.
    pub fn completed(&self) -> Option<Instant> {
        self.completed
    }

    /// Returns the number of blocks that were not available.
    pub fn gone(&self) -> u32 {
        self.gone
    }

    /// Returns how often the parent gave up the receiver.
    pub fn evicted(&self) -> u32 {
        self.evicted
    }

    /// Returns the reason of the last refusal, if there was one.
    pub fn refused(&self) -> Option<Refusal> {
        self.refused
    }

    /// Returns the time when the source was gone, or had deleted the group.
    pub fn source_gone(&self) -> Option<Instant> {
        self.source_gone
    }

    /// Returns the time when the receiver had left.
    pub fn left(&self) -> Option<Instant> {
        self.left
    }

    fn set_timer(&self, io: &mut dyn Io<tmtp::Receiver<FeedSink>>) {
        io.wake_at(self.leave_at);
    }
}

fn tell(io: &mut dyn Io<tmtp::Receiver<FeedSink>>, command: ReceiverCommand) {
    let told = io.command(command);
    assert_eq!(told, Ok(()), "commands come in an order that makes sense");
}

impl Host<tmtp::Receiver<FeedSink>> for Receiver {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<tmtp::Receiver<FeedSink>>) {
        tell(io, ReceiverCommand::Join);
        tell(io, ReceiverCommand::Want { from: 0, skip: Vec::new() });
        self.set_timer(io);
    }

    fn event(&mut self, io: &mut dyn Io<tmtp::Receiver<FeedSink>>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Joined { .. } => self.joined += 1,
            ReceiverEvent::Orphaned => self.orphaned += 1,
            ReceiverEvent::BecameManager => self.elected += 1,
            ReceiverEvent::Refused(why) => self.refused = Some(why),
            ReceiverEvent::NotListed => self.refused = Some(Refusal::NotAdmitted),
            ReceiverEvent::Evicted => self.evicted += 1,
            ReceiverEvent::End(end) => self.end = Some(end),
            ReceiverEvent::Complete => {
                self.completed.get_or_insert(io.now());
                if !self.is_leaving {
                    tell(io, ReceiverCommand::Done { failed: None });
                }
            }
            ReceiverEvent::Gone(run) => self.gone = self.gone.saturating_add(run.count),
            ReceiverEvent::SourceGone => self.source_gone = Some(io.now()),
            ReceiverEvent::Left => {
                self.left = Some(io.now());
                // The host stops when the engine has sent everything that it had to send.
                io.wake_at(Some(io.now()));
            }
            ReceiverEvent::SourceRate(rate) if self.follows => {
                let most = self.repair_rate.unwrap_or(rate);
                io.set_pace(RateClass::Data, Some(rate.min(most)));
            }
            ReceiverEvent::Feed(_)
            | ReceiverEvent::SourceRate(_)
            | ReceiverEvent::Started { .. }
            | ReceiverEvent::StoppedManaging
            | ReceiverEvent::WrongRepairs { .. }
            | ReceiverEvent::ByUnicast { .. }
            | ReceiverEvent::ByMulticast
            | ReceiverEvent::SourceSilent(_) => {}
        }
    }

    fn wake(&mut self, io: &mut dyn Io<tmtp::Receiver<FeedSink>>) {
        let now = io.now();
        if self.left.is_some() {
            return io.stop();
        }
        if self.leave_at.take_if(|at| *at <= now).is_some() {
            self.is_leaving = true;
            tell(io, ReceiverCommand::Leave);
        }
        self.set_timer(io);
    }
}
