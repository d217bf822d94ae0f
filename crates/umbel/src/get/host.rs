//! What the client's engine asks of the rest of the client, and what it is told.

use std::sync::Arc;
use std::time::{self, Duration};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use crossbeam_channel::{Receiver as Inbox, Sender as Outbox};
use umbel_engine::repository::receiver::{Held, ReceiverCommandError, ReceiverStats};
use umbel_engine::repository::{Receiver, ReceiverCommand, ReceiverEvent};
use umbel_engine::units::Rate;
use umbel_engine::{Engine, Instant, SessionId};
use umbel_net::driver::{Host, Input, Io, Mailbox};
use umbel_net::group::Group;
use umbel_net::interface::{Family, Interface};
use umbel_net::session::{ClientError, ClientEvent, ClientSession, ConnectOptions};
use umbel_net::udp::{self, JoinError, ReceiverOptions, SenderOptions};
use umbel_store::sink::{self, DiskSink, HeldParts, SinkEvent};
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Channel, Toi};

use super::items::Items;
use super::progress::{Observer, Snapshot};
use super::unicast::Streams;
use super::{GetOptions, Summary};

/// Pieces of bulk streams that may wait for the engine's thread.
const BULK_LINE: usize = 64;
/// First and longest pause before a session is opened again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// What comes from the client's other threads.
#[derive(Debug)]
enum Outer {
    Session(u64, ClientEvent),
    Sink(SinkEvent),
}

/// The other threads' end.
#[derive(Clone, Debug)]
pub(super) struct Outside {
    mailbox: Mailbox<ReceiverCommand>,
    line: Outbox<Outer>,
    bulk: Outbox<(u64, u64, Option<Bytes>)>,
}

/// The engine thread's end.
#[derive(Debug)]
pub(super) struct Inside {
    line: Inbox<Outer>,
    bulk: Inbox<(u64, u64, Option<Bytes>)>,
}

impl Outside {
    pub(super) fn new(mailbox: Mailbox<ReceiverCommand>) -> (Outside, Inside) {
        let (line, line_in) = crossbeam_channel::unbounded();
        let (bulk, bulk_in) = crossbeam_channel::bounded(BULK_LINE);
        (Outside { mailbox, line, bulk }, Inside { line: line_in, bulk: bulk_in })
    }

    pub(super) fn sink_event(&self, event: SinkEvent) {
        self.put(Outer::Sink(event));
    }

    fn put(&self, event: Outer) {
        if self.line.send(event).is_ok() {
            self.mailbox.put(Input::Nudge);
        }
    }

    /// Begins to open a session. What becomes of it is told under its number.
    pub(super) fn open_session(
        &self,
        options: &GetOptions,
        number: u64,
    ) -> Result<ClientSession, ClientError> {
        let outside = self.clone();
        ClientSession::start(&options.url, &ConnectOptions::default(), move |event| match event {
            ClientEvent::Message(bytes) => {
                outside.mailbox.put(Input::Message(SessionId(number), bytes));
            }
            // Waits while the disk is behind, which slows the server down in turn.
            ClientEvent::Bulk { stream, bytes } => outside.put_bulk(number, stream, Some(bytes)),
            ClientEvent::BulkEnd { stream, .. } => outside.put_bulk(number, stream, None),
            event => outside.put(Outer::Session(number, event)),
        })
    }

    fn put_bulk(&self, number: u64, stream: u64, bytes: Option<Bytes>) {
        if self.bulk.send((number, stream, bytes)).is_ok() {
            self.mailbox.put(Input::Nudge);
        }
    }
}

/// The client's engine.
type Client = Receiver<DiskSink>;

/// The client around its engine.
pub(super) struct GetHost {
    options: GetOptions,
    observer: Arc<dyn Observer>,
    outside: Outside,
    inside: Inside,
    session: Option<ClientSession>,
    number: u64,
    /// The server has answered at least once.
    known: bool,
    connected: bool,
    started: time::Instant,
    retry_at: Option<time::Instant>,
    retry_pause: Duration,
    last_error: Option<ClientError>,
    local: Option<std::net::IpAddr>,
    items: Items,
    query: u32,
    /// What is missing of each item is asked for by itself.
    hold: bool,
    streams: Streams,
    unicast: bool,
    dropped_here: u64,
    stats: ReceiverStats,
    control_group: bool,
    fatal: Option<anyhow::Error>,
    finished: bool,
}

impl GetHost {
    pub(super) fn new(
        options: GetOptions,
        observer: Arc<dyn Observer>,
        outside: Outside,
        inside: Inside,
        session: Result<ClientSession, ClientError>,
    ) -> GetHost {
        let (session, fatal) = match session {
            Ok(session) => (Some(session), None),
            Err(error) => (None, Some(anyhow!(error))),
        };
        GetHost {
            options,
            observer,
            outside,
            inside,
            session,
            number: 0,
            known: false,
            connected: false,
            started: time::Instant::now(),
            retry_at: None,
            retry_pause: RETRY.0,
            last_error: None,
            local: None,
            items: Items::default(),
            query: 0,
            hold: false,
            streams: Streams::default(),
            unicast: false,
            dropped_here: 0,
            stats: ReceiverStats::default(),
            control_group: false,
            fatal,
            finished: false,
        }
    }

    /// Closes the session and gives what came of it all.
    pub(super) fn finish(mut self) -> anyhow::Result<Summary> {
        if let Some(session) = self.session.take() {
            session.close(Duration::from_millis(500));
        }
        if let Some(error) = self.fatal {
            return Err(error);
        }
        let stats = self.stats;
        Ok(Summary {
            items: self.items.done,
            already_there: self.items.already_there,
            bytes: self.items.received_bytes,
            resumed_bytes: self.items.resumed_bytes,
            seconds: self.started.elapsed().as_secs_f64(),
            packets: stats.packets,
            heard: stats.heard,
            lost: stats.lost,
            dropped_here: self.dropped_here,
            unicast_blocks: stats.unicast_blocks,
            control_group: self.control_group,
            naks: stats.naks,
            failures: self.items.failures,
            interrupted: !self.finished,
        })
    }

    fn fail(&mut self, error: anyhow::Error) {
        self.fatal.get_or_insert(error);
    }

    fn command(&mut self, now: Instant, engine: &mut Client, command: ReceiverCommand) {
        if let Err(error) = engine.handle_command(now, command) {
            Host::<Client>::refused(self, error);
        }
    }

    fn on_session_event(&mut self, now: Instant, engine: &mut Client, event: ClientEvent) {
        match event {
            ClientEvent::Connected { local, .. } => {
                self.connected = true;
                self.known = true;
                self.retry_pause = RETRY.0;
                self.local = Some(local.ip());
            }
            ClientEvent::Disconnected { reason, retryable } => {
                self.on_disconnected(now, engine, reason, retryable);
            }
            ClientEvent::Message(_) | ClientEvent::Bulk { .. } | ClientEvent::BulkEnd { .. } => {}
        }
    }

    /// Says what is wanted; what is said before the server is reached waits for it.
    fn greet(&mut self, now: Instant, engine: &mut Client) {
        let session = SessionId(self.number);
        self.command(now, engine, ReceiverCommand::Connected { session });
        self.query += 1;
        let patterns = self.options.patterns.clone();
        // What is held must be known before anything is asked for.
        self.hold = self.may_hold_something();
        let (query, hold) = (self.query, self.hold);
        self.command(now, engine, ReceiverCommand::Request { query, patterns, hold });
    }

    /// Whether anything of an earlier run or session may be on the disk.
    fn may_hold_something(&self) -> bool {
        let empty = std::fs::read_dir(&self.options.output)
            .is_ok_and(|mut entries| entries.next().is_none());
        !empty
    }

    fn on_disconnected(
        &mut self,
        now: Instant,
        engine: &mut Client,
        reason: ClientError,
        retryable: bool,
    ) {
        self.connected = false;
        self.session = None;
        self.streams.clear();
        self.unicast = false;
        self.command(now, engine, ReceiverCommand::Disconnected);
        for toi in self.items.interrupted() {
            engine.sink_mut().cancel(toi);
        }
        let patience = self.options.retry_for.unwrap_or(Duration::MAX);
        let give_up = !retryable || !self.known || self.started.elapsed() > patience;
        if give_up {
            return self.fail(anyhow!(reason));
        }
        self.observer.note(&format!("{reason}; trying again"));
        self.last_error = Some(reason);
        self.retry_at = Some(time::Instant::now() + self.retry_pause);
        self.retry_pause = (self.retry_pause * 2).min(RETRY.1);
    }

    fn reconnect_if_due(&mut self, now: Instant, engine: &mut Client) {
        if self.retry_at.is_none_or(|at| at > time::Instant::now()) {
            return;
        }
        self.retry_at = None;
        self.number += 1;
        match self.outside.open_session(&self.options, self.number) {
            Ok(session) => {
                self.session = Some(session);
                self.greet(now, engine);
            }
            Err(error) => self.fail(anyhow!(error)),
        }
    }

    fn take_item(&mut self, now: Instant, engine: &mut Client, info: ItemInfo) {
        let (toi, oti, requested) = (info.toi, info.oti, !self.hold);
        let done = ReceiverCommand::Done { toi };
        if self.items.is_underway(toi) {
            return;
        }
        if self.items.is_settled(&info) {
            if requested {
                self.command(now, engine, done);
            }
            return;
        }
        match engine.sink_mut().add(&info) {
            Ok(sink::Held::AlreadyThere) => {
                self.items.was_there(&info);
                self.observer.already_there(&info.name);
                if requested {
                    self.command(now, engine, done);
                }
            }
            Ok(sink::Held::Parts(parts)) => {
                let held = Held::from(&parts);
                // Later sessions find what this run itself has written.
                if self.number == 0 {
                    self.items.resumed_bytes += held_bytes(&parts, oti.symbol_len);
                }
                self.items.begin(info);
                let accept = ReceiverCommand::Accept { toi, oti, held, requested };
                if let Err(error) = engine.handle_command(now, accept) {
                    engine.sink_mut().cancel(toi);
                    self.fail_item(toi, &error.to_string());
                }
            }
            Err(error) => {
                let reason = error.to_string();
                self.items.refuse(&info, &reason);
                self.observer.failed(&info.name, &reason);
                if requested {
                    self.command(now, engine, ReceiverCommand::Cancel { toi });
                }
            }
        }
    }

    /// Takes what the session's and the sink's threads tell.
    fn hear(&mut self, now: Instant, engine: &mut Client) {
        while let Ok(event) = self.inside.line.try_recv() {
            match event {
                Outer::Session(number, event) if number == self.number => {
                    self.on_session_event(now, engine, event);
                }
                Outer::Session(..) => {}
                Outer::Sink(event) => self.on_sink_event(now, engine, event),
            }
        }
    }

    fn fail_item(&mut self, toi: Toi, reason: &str) {
        if let Some(name) = self.items.fail(toi, reason) {
            self.observer.failed(&name, reason);
        }
    }

    fn on_sink_event(&mut self, now: Instant, engine: &mut Client, event: SinkEvent) {
        match event {
            SinkEvent::BlockRestored { .. } => {}
            SinkEvent::Progress { toi, restored, .. } => self.items.restored(toi, restored),
            SinkEvent::RestoreFailed { block, .. } => {
                self.command(now, engine, ReceiverCommand::RestoreFailed { block });
            }
            SinkEvent::ItemDone { toi, name, path, size } => {
                if self.items.is_underway(toi) {
                    self.items.finish(toi);
                    self.observer.item(&name, &path, size);
                    self.command(now, engine, ReceiverCommand::Done { toi });
                }
            }
            SinkEvent::DigestMismatch { toi } => {
                if let Some(item) = self.items.get_mut(toi) {
                    item.digests.clear();
                    let name = item.info.name.clone();
                    self.observer.note(&format!("{name}: damaged on the way; finding out where"));
                    self.command(now, engine, ReceiverCommand::AskDigests { toi });
                }
            }
            SinkEvent::BlocksDropped { toi, blocks } => {
                self.command(now, engine, ReceiverCommand::BadBlocks { toi, blocks });
            }
            SinkEvent::ItemFailed { toi, error } => {
                self.fail_item(toi, &error.to_string());
                self.command(now, engine, ReceiverCommand::Cancel { toi });
            }
        }
    }

    /// Keeps blocks that came on the session, as far as there is room.
    fn store_unicast(&mut self, now: Instant, engine: &mut Client) {
        loop {
            while let Some((block, bytes)) = self.streams.next() {
                if !self.items.is_underway(block.toi) {
                    continue;
                }
                if !engine.sink_mut().store_unicast(block, &bytes) {
                    self.streams.put_back(block, bytes);
                    return;
                }
                self.command(now, engine, ReceiverCommand::UnicastBlock { block });
            }
            let Ok((number, stream, bytes)) = self.inside.bulk.try_recv() else { return };
            match bytes {
                _ if number != self.number => {}
                Some(bytes) => self.streams.push(stream, &bytes),
                None => self.streams.end(stream),
            }
        }
    }

    fn open_receiver(&mut self, io: &mut Io, channel: Channel, rate_bits_per_s: u64) {
        let opened = self.interface(channel).and_then(|interface| {
            let options = ReceiverOptions {
                rate: Rate::from_bits_per_s(rate_bits_per_s),
                discard: self.options.discard,
                ..ReceiverOptions::default()
            };
            let family = Family::of(channel.group);
            Ok(udp::Receiver::open(channel.port, family, &interface, &options)?)
        });
        match opened {
            Ok(receiver) => io.receiver = Some(receiver),
            Err(error) => {
                // Without multicast there still is unicast.
                self.observer.note(&format!("no multicast: {error:#}"));
                io.receiver = None;
            }
        }
    }

    /// Joins the group in which the server announces. Where that does not work, announcements go
    /// on coming on the session.
    fn join_control(&mut self, now: Instant, engine: &mut Client, io: &mut Io, channel: Channel) {
        let joined = self.interface(channel).and_then(|interface| {
            let options = SenderOptions::new(Family::of(channel.group));
            Ok(Group::open(channel, &interface, &options, self.outside.mailbox.clone())?)
        });
        match joined {
            Ok(group) => {
                io.group = Some(group);
                self.command(now, engine, ReceiverCommand::JoinControl);
            }
            Err(error) => tracing::info!("announcements on the session: {error:#}"),
        }
    }

    fn interface(&self, channel: Channel) -> anyhow::Result<Interface> {
        if let Some(name) = &self.options.interface {
            return Ok(Interface::resolve(name)?);
        }
        let local = self.local.filter(|local| Family::of(*local) == Family::of(channel.group));
        match (local, channel.source) {
            (Some(local), _) => Ok(Interface::resolve(&local.to_string())?),
            (None, Some(source)) => Ok(Interface::for_peer(source)?),
            (None, None) => Err(anyhow!("no interface is known for {channel}"))
                .context("name one with --interface"),
        }
    }

    fn on_fallback(&mut self, io: &Io, silent: Duration) {
        self.unicast = true;
        self.observer.fallback(silent, None);
        let Some(receiver) = &io.receiver else { return };
        let (interface, joined) = (receiver.interface().clone(), receiver.joined().to_vec());
        let observer = self.observer.clone();
        // The doctor takes a second or two, which the engine has not.
        let diagnose = move || {
            if let Some(finding) =
                joined.first().and_then(|channel| crate::doctor::quick(&interface, channel))
            {
                observer.fallback(silent, Some(&finding.to_string()));
            }
        };
        if let Err(error) = std::thread::Builder::new().spawn(diagnose) {
            tracing::warn!("no thread for the doctor: {error}");
        }
    }
}

/// Bytes that the sink holds, as blocks and as symbols.
fn held_bytes(parts: &HeldParts, symbol_len: u16) -> u64 {
    let blocks = (0..parts.partition().blocks()).filter(|&block| parts.is_restored(block));
    let restored: u64 = blocks
        .map(|block| parts.partition().block_range(block))
        .map(|range| range.end - range.start)
        .sum();
    let symbols: u64 = parts.partial_blocks().map(|(_, block)| u64::from(block.count())).sum();
    restored + symbols * u64::from(symbol_len)
}

impl Host<Client> for GetHost {
    fn post(&mut self, _session: SessionId, message: Bytes) {
        if let Some(session) = &self.session {
            // A session that has ended tells so by itself.
            let _ = session.send(message);
        }
    }

    fn event(&mut self, now: Instant, engine: &mut Client, io: &mut Io, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Welcome { channel, rate_bits_per_s, control, .. } => {
                // Messages do not come the same way as the session's own events: that it is
                // open, and on which address, was told before and may not have been heard.
                self.hear(now, engine);
                self.open_receiver(io, channel, rate_bits_per_s);
                if let Some(control) = control {
                    self.join_control(now, engine, io, control);
                }
            }
            ReceiverEvent::Refused { reason } | ReceiverEvent::Failed { reason, .. } => {
                self.fail(anyhow!(reason));
            }
            ReceiverEvent::Page { query, items, next, .. } if query == self.query => {
                for info in items {
                    self.take_item(now, engine, info);
                }
                self.items.complete_list |= next.is_none();
            }
            ReceiverEvent::Gone { toi, reason } => {
                engine.sink_mut().cancel(toi);
                self.fail_item(toi, &reason);
            }
            ReceiverEvent::Digests { toi, first_block, digests, more } => {
                let Some(item) = self.items.get_mut(toi) else { return };
                item.digests.truncate(first_block as usize);
                item.digests.extend(digests);
                if !more {
                    let digests = std::mem::take(&mut item.digests);
                    engine.sink_mut().check_blocks(toi, digests);
                }
            }
            ReceiverEvent::Fallback { silent } => self.on_fallback(io, silent),
            ReceiverEvent::MulticastBack => {
                self.unicast = false;
                self.observer.note("multicast works again");
            }
            // The sink notices by itself what is complete, and verifies it. Pages of an earlier
            // session's request and probes are nobody's.
            ReceiverEvent::Received { .. }
            | ReceiverEvent::Page { .. }
            | ReceiverEvent::ProbePacket { .. }
            | ReceiverEvent::Probed { .. } => {}
        }
    }

    fn woken(&mut self, now: Instant, engine: &mut Client, _io: &mut Io) {
        self.hear(now, engine);
        self.store_unicast(now, engine);
        self.finished |= self.items.all_settled() && engine.outstanding() == 0;
        self.stats = engine.stats();
        self.control_group = engine.hears_control();
    }

    fn tick(&mut self, now: Instant, engine: &mut Client, io: &mut Io) {
        if self.number == 0 && self.query == 0 {
            self.greet(now, engine);
        }
        self.reconnect_if_due(now, engine);
        self.store_unicast(now, engine);
        self.finished |= self.items.all_settled() && engine.outstanding() == 0;
        self.stats = engine.stats();
        self.control_group = engine.hears_control();
        if let Some(receiver) = &mut io.receiver {
            self.dropped_here = receiver.drops().kernel;
        }
        tracing::trace!(
            "{:?}; dropped: {}; here {}",
            self.stats,
            engine.drops(),
            self.dropped_here
        );
        let (items, items_done) = self.items.counts();
        self.observer.progress(&Snapshot {
            items,
            items_done,
            bytes: self.items.bytes,
            bytes_done: self.items.bytes_done,
            received: self.stats.bytes,
            loss: self.stats.loss(),
            complete_list: self.items.complete_list,
            unicast: self.unicast,
            connected: self.connected,
        });
    }

    fn overran(&mut self, now: Instant, engine: &mut Client, datagrams: u64) {
        let packets = u32::try_from(datagrams).unwrap_or(u32::MAX);
        self.command(now, engine, ReceiverCommand::Overrun { packets });
    }

    fn join_failed(&mut self, error: JoinError) -> Result<(), JoinError> {
        self.observer.note(&format!("no multicast: {error}"));
        Ok(())
    }

    fn refused(&mut self, error: ReceiverCommandError) {
        tracing::debug!("{error}");
    }

    fn goes_on(&self) -> bool {
        self.fatal.is_none() && !self.finished
    }
}
