//! Surroundings of a client.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::chance::generator;
use umbel_engine::host::{Piece, PortError, PortSpec, SessionNews};
use umbel_engine::repository::{Receiver, ReceiverConfig};
use umbel_engine::{Address, Instant, SessionId};
use umbel_sim::random::below;
use umbel_sim::{Context, EngineHost, HostConfig, NodeId, Outside};

use super::super::later::Later;
use super::super::nobody;
use super::super::store::Disk;
use super::sessions::Frame;
use crate::get::host::{Ask, GetHost, Input};

pub(super) type Client = EngineHost<Receiver<Disk>, GetHost<Disk>, Around>;

/// Time that the handshake of a session takes.
const HANDSHAKE: Duration = Duration::from_millis(20);
/// Time after which a server notices that a client is gone.
const IDLE: Duration = Duration::from_secs(15);

/// Fate of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Fate {
    /// Servers to which the URL leads, each from a time on.
    pub(super) servers: BTreeMap<Instant, NodeId>,
    /// Times at which the session is cut.
    pub(super) cuts: VecDeque<Instant>,
    /// Times at which the disk becomes full (`true`) and has room again.
    pub(super) full: VecDeque<(Instant, bool)>,
    /// Time at which the disk stops altering symbols.
    pub(super) heals: Option<Instant>,
}

/// Carries the session and the disk's events.
#[derive(Debug)]
pub(super) struct Around {
    fate: Fate,
    disk: Disk,
    random: Xoshiro256PlusPlus,
    session: Option<(SessionId, NodeId)>,
    /// Time at which the session will be open.
    opened_at: Instant,
    news: Later<Input>,
    /// Frames that leave later.
    frames: Later<(NodeId, Bytes)>,
}

impl Around {
    /// Breaks the session; the server notices later.
    fn cut(&mut self) {
        let Some((session, node)) = self.session.take() else { return };
        let reason = "the connection is lost".to_owned();
        let closed = SessionNews::Closed { session, reason, retryable: true };
        self.news.put(Duration::ZERO, Input::Session(closed));
        self.frames.put(IDLE, (node, Frame::Close(String::new()).emit(session.0)));
    }
}

impl Outside<Input> for Around {
    fn open(&mut self, context: &mut Context<'_>, spec: &PortSpec) -> Result<(), PortError> {
        let PortSpec::Session { session } = *spec else { return Ok(()) };
        let now = context.now();
        let server = self.fate.servers.range(..=now).next_back().map(|(_, node)| *node);
        let unlucky = session != SessionId(0) && below(&mut self.random, 4) == 0;
        let (after, news) = match server {
            Some(node) if !unlucky => {
                self.session = Some((session, node));
                self.opened_at = now + HANDSHAKE;
                context.send_message(node, Frame::Open.emit(session.0));
                (
                    HANDSHAKE,
                    SessionNews::Opened {
                        session,
                        remote: umbel_sim::address_of(node).into(),
                        rtt: HANDSHAKE,
                    },
                )
            }
            _ => {
                let reason = "no answer".to_owned();
                (HANDSHAKE, SessionNews::Closed { session, reason, retryable: true })
            }
        };
        self.news.put(after, Input::Session(news));
        Ok(())
    }

    fn close(&mut self, context: &mut Context<'_>, address: &Address) {
        if let Some((session, node)) = self.session
            && *address == Address::Session(session)
        {
            self.session = None;
            context.send_message(node, Frame::Close(String::new()).emit(session.0));
        }
    }

    fn send(&mut self, context: &mut Context<'_>, session: SessionId, message: Bytes) {
        if let Some((open, node)) = self.session
            && open == session
        {
            context.send_message(node, Frame::Message(message).emit(session.0));
        }
    }

    fn message(&mut self, _context: &mut Context<'_>, from: NodeId, message: Bytes) {
        let (number, frame) = Frame::parse(&message);
        let session = SessionId(number);
        if self.session != Some((session, from)) {
            return;
        }
        let news = match frame {
            Frame::Open => return,
            Frame::Message(message) => SessionNews::Message { session, message },
            Frame::Bulk(stream, piece) => {
                SessionNews::Bulk { session, stream, piece: piece.map(Piece::from) }
            }
            Frame::Close(reason) => {
                self.session = None;
                SessionNews::Closed { session, reason, retryable: false }
            }
        };
        self.news.put(Duration::ZERO, Input::Session(news));
    }

    fn stop(&mut self, context: &mut Context<'_>) {
        if let Some((session, _)) = self.session {
            self.close(context, &Address::Session(session));
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Option<Input> {
        let now = context.now();
        while self.fate.cuts.pop_front_if(|at| *at <= now).is_some() {
            // A server that was never reached is not tried again.
            if now > self.opened_at {
                self.cut();
            }
        }
        while let Some((_, full)) = self.fate.full.pop_front_if(|(at, _)| *at <= now) {
            self.disk.set_full(full);
        }
        if self.fate.heals.take_if(|at| *at <= now).is_some() {
            self.disk.heal();
        }
        while let Some((node, frame)) = self.frames.take(now) {
            context.send_message(node, frame);
        }
        self.news.take(now).or_else(|| self.disk.events().take(now).map(Input::Sink))
    }

    fn next(&self) -> Option<Instant> {
        let Fate { cuts, full, heals, .. } = &self.fate;
        let fate = [cuts.front().copied(), full.front().map(|(at, _)| *at), *heals];
        let lines = [self.news.next(), self.frames.next(), self.disk.events().next()];
        fate.into_iter().chain(lines).flatten().min()
    }
}

/// Creates a client that wants these items.
pub(super) fn client(
    patterns: Vec<String>,
    disk: &Disk,
    fate: Fate,
    random: Xoshiro256PlusPlus,
    seed: u64,
) -> Client {
    let config = ReceiverConfig::default();
    let ask = Ask { patterns, retry_for: None };
    let host = GetHost::new(ask, nobody(), disk.clone());
    let around = Around {
        fate,
        disk: disk.clone(),
        random,
        session: None,
        opened_at: Instant::EPOCH,
        news: Later::default(),
        frames: Later::default(),
    };
    let engine = Receiver::new(config, generator(seed), disk.clone());
    EngineHost::with_outside(engine, host, around, HostConfig::default())
}
