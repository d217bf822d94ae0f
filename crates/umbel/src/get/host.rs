//! The client around its engine.

mod compared;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use umbel_engine::host::{Host, Io, Piece, PortSpec, SessionNews, Trouble};
use umbel_engine::repository::receiver::{Brought, ReceiverCommandError, ReceiverStats};
use umbel_engine::repository::{Receiver, ReceiverCommand, ReceiverEvent};
use umbel_engine::symbols::SymbolSink;
use umbel_engine::units::{Rate, counted, rate_text};
use umbel_engine::{Address, Instant, SessionId};
use umbel_store::sink::{NameOutcome, SinkEvent};
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Channel, Digest, Toi};

use super::Summary;
use super::progress::{Observer, Snapshot};
use super::store::{Added, ItemStore};
use super::unicast::Streams;
use super::version::ListDigest;
use crate::endpoint::{Items, READING_BACK};

/// First and longest pause before a session is opened again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Number of times that the server is asked again because files changed while they were fetched, and
/// the first and the longest pause before it.
const ROUNDS: u32 = 8;
const ROUND_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));

/// Interval at which progress is reported, and retries are made of blocks that waited for room.
const TICK: Duration = Duration::from_millis(100);

/// Input of the client's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// News of a session.
    Session(SessionNews),
    /// An event of the sink.
    Sink(SinkEvent),
    /// The store has compared this item with what it has.
    Compared(Toi),
    /// The user interrupts the reception.
    Interrupt,
}

/// Request of a client, and how long it tries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    /// Glob patterns; empty for everything.
    pub(crate) patterns: Vec<String>,
    /// Time for which to retry when the server does not answer. `None`: forever, once it has
    /// answered before.
    pub(crate) retry_for: Option<Duration>,
}

/// The client around its engine.
pub(crate) struct GetHost<S> {
    ask: Ask,
    observer: Arc<dyn Observer>,
    store: S,
    /// Number of the session; the first is 0.
    session: SessionId,
    /// Whether the server has answered at least once.
    known: bool,
    connected: bool,
    started: Instant,
    ended: Instant,
    retry_at: Option<Instant>,
    retry_pause: Duration,
    /// Time at which the server is asked again for what changed.
    ask_again_at: Option<Instant>,
    items: Items,
    query: u32,
    /// Number of items in the list so far, and its digest.
    listed: u64,
    version: ListDigest,
    /// Whether the missing parts of each item are asked for separately.
    hold: bool,
    /// Channels of multicast data and of announcements.
    channels: [Option<Channel>; 2],
    streams: Streams,
    /// Pieces of streams that wait for the disk. Meanwhile the server sends no more.
    pieces: VecDeque<(u64, Option<Piece>)>,
    unicast: bool,
    dropped_here: u64,
    stats: ReceiverStats,
    control_group: bool,
    sealed: bool,
    fatal: Option<anyhow::Error>,
    finished: bool,
}

impl<S: ItemStore> GetHost<S> {
    pub(crate) fn new(ask: Ask, observer: Arc<dyn Observer>, store: S) -> GetHost<S> {
        let items = Items::asked_for(&ask.patterns);
        GetHost {
            ask,
            observer,
            store,
            session: SessionId(0),
            known: false,
            connected: false,
            started: Instant::EPOCH,
            ended: Instant::EPOCH,
            retry_at: None,
            retry_pause: RETRY.0,
            ask_again_at: None,
            items,
            query: 0,
            listed: 0,
            version: ListDigest::default(),
            hold: false,
            channels: [None; 2],
            streams: Streams::default(),
            pieces: VecDeque::new(),
            unicast: false,
            dropped_here: 0,
            stats: ReceiverStats::default(),
            control_group: false,
            sealed: false,
            fatal: None,
            finished: false,
        }
    }

    /// Returns the summary, or the error that ended everything.
    pub(crate) fn finish(self) -> anyhow::Result<Summary> {
        if let Some(error) = self.fatal {
            return Err(error);
        }
        let stats = self.stats;
        Ok(Summary {
            items: self.items.done,
            already_there: self.items.already_there,
            bytes: self.items.received_bytes,
            resumed_bytes: self.items.resumed_bytes,
            seconds: (self.ended - self.started).as_secs_f64(),
            packets: stats.packets,
            heard: stats.heard,
            lost: stats.lost,
            dropped_here: self.dropped_here,
            unicast_blocks: stats.unicast_blocks,
            damaged_blocks: stats.damaged_blocks,
            control_group: self.control_group,
            sealed: self.sealed,
            naks: stats.naks,
            vanished: self.items.vanished.clone(),
            left_out: self.items.left_out,
            removed: 0,
            differing: self.items.differing,
            rounds: self.items.round + 1,
            digest: self.version.digest().to_string(),
            failures: self.items.into_failures(),
            interrupted: !self.finished,
        })
    }

    /// Returns whether the loop has ended.
    #[cfg(test)]
    pub(crate) fn has_ended(&self) -> bool {
        self.finished || self.fatal.is_some()
    }

    /// Returns the result so far.
    #[cfg(test)]
    pub(crate) fn outcome(&self) -> Result<u64, String> {
        let failures = self.items.failures.iter();
        let mut failed: Vec<String> =
            failures.map(|failure| format!("{}: {}", failure.name, failure.reason)).collect();
        failed.extend(self.fatal.iter().map(ToString::to_string));
        if failed.is_empty() { Ok(self.items.done) } else { Err(failed.join("; ")) }
    }

    /// Fails because nothing can be received at all.
    fn fail(&mut self, reason: impl Into<String>) {
        self.fatal.get_or_insert_with(|| anyhow!(reason.into()));
    }

    fn fail_item(&mut self, toi: Toi, reason: &str) {
        if let Some(name) = self.items.fail(toi, reason) {
            self.observer.failed(&name, reason);
        }
    }

    fn snapshot(&self) -> Snapshot {
        let (items, items_done) = self.items.counts();
        Snapshot {
            items,
            items_done,
            bytes: self.items.bytes(),
            bytes_done: self.items.bytes_done,
            received: self.stats.bytes,
            loss: self.stats.loss(),
            complete_list: self.items.complete_list,
            unicast: self.unicast,
            connected: self.connected,
        }
    }
}

/// The host's access to its machine.
type Machine<'a, S> = dyn Io<Receiver<<S as ItemStore>::Sink>> + 'a;

/// Sends a command; a refusal of it changes nothing.
fn tell<K: SymbolSink>(io: &mut dyn Io<Receiver<K>>, command: ReceiverCommand) {
    if let Err(error) = io.command(command) {
        tracing::debug!("{error}");
    }
}

impl<S: ItemStore> GetHost<S> {
    /// Opens a session and sends the request. Messages sent before the server is reached wait for
    /// it.
    fn connect(&mut self, io: &mut Machine<'_, S>) {
        let session = self.session;
        if let Err(error) = io.open(PortSpec::Session { session }) {
            return self.fail(error.0);
        }
        tell(io, ReceiverCommand::Connected { session });
        self.ask_again_at = None;
        self.request(io);
    }

    /// Asks for the items.
    fn request(&mut self, io: &mut Machine<'_, S>) {
        self.query += 1;
        (self.listed, self.version) = (0, ListDigest::default());
        self.store.begin_list();
        // The parts that are present must be known before anything is asked for.
        self.hold = self.store.may_hold_something();
        let (query, patterns, hold) = (self.query, self.ask.patterns.clone(), self.hold);
        tell(io, ReceiverCommand::Request { query, patterns, hold });
    }

    fn reconnect_if_due(&mut self, io: &mut Machine<'_, S>) {
        let now = io.now();
        if self.retry_at.take_if(|at| *at <= now).is_some() {
            self.session.0 += 1;
            self.connect(io);
        }
    }

    /// Asks again for a release that changed while it was fetched. Returns whether that helps.
    fn ask_again_later(&mut self, now: Instant) -> bool {
        if self.ask_again_at.is_some() || self.retry_at.is_some() {
            return true;
        }
        let round = self.items.round;
        if round >= ROUNDS {
            for failure in self.items.give_up_gone() {
                self.observer.failed(&failure.name, &failure.reason);
            }
            return false;
        }
        if round == 0 {
            self.observer.note("files changed at the server meanwhile: fetching the new ones");
        }
        let pause = ROUND_PAUSE.0 * 2_u32.pow(round);
        self.ask_again_at = Some(now + pause.min(ROUND_PAUSE.1));
        true
    }

    fn ask_again_if_due(&mut self, io: &mut Machine<'_, S>) {
        let now = io.now();
        if self.connected && self.ask_again_at.take_if(|at| *at <= now).is_some() {
            self.items.begin_again();
            self.request(io);
        }
    }

    fn on_session(&mut self, io: &mut Machine<'_, S>, news: SessionNews) {
        if news.session() != self.session {
            return;
        }
        match news {
            SessionNews::Opened { .. } => {
                tracing::info!("connected");
                (self.connected, self.known) = (true, true);
                self.retry_pause = RETRY.0;
            }
            SessionNews::Message { session, message } => io.message(session, &message),
            SessionNews::Bulk { stream, piece, .. } => {
                self.pieces.push_back((stream, piece));
                self.take_pieces(io);
            }
            SessionNews::Closed { reason, retryable, .. } => {
                self.on_closed(io, &reason, retryable);
            }
        }
    }

    fn on_closed(&mut self, io: &mut Machine<'_, S>, reason: &str, retryable: bool) {
        self.connected = false;
        io.close(&Address::Session(self.session));
        self.streams.clear();
        self.pieces.clear();
        self.unicast = false;
        tell(io, ReceiverCommand::Disconnected);
        for toi in self.items.interrupted() {
            self.store.cancel(toi);
        }
        let patience = self.ask.retry_for.unwrap_or(Duration::MAX);
        if !retryable || !self.known || io.now() - self.started > patience {
            return self.fail(reason);
        }
        self.observer.note(&format!("{reason}; trying again"));
        self.retry_at = Some(io.now() + self.retry_pause);
        self.retry_pause = (self.retry_pause * 2).min(RETRY.1);
    }

    fn take_item(&mut self, io: &mut Machine<'_, S>, info: ItemInfo) {
        let (toi, oti, requested) = (info.toi, info.oti, !self.hold);
        self.version.add(&info);
        self.items.offered(&info);
        self.store.list(&info.name);
        if self.items.is_underway(toi) {
            return;
        }
        if self.items.is_settled(&info) {
            if requested {
                tell(io, ReceiverCommand::Done { toi });
            }
            return;
        }
        if info.digest == Digest([0; 32]) {
            // It could not be read any more when it was asked for.
            self.items.begin(info);
            self.items.withdraw(toi, "the server cannot read it any more");
            if requested {
                tell(io, ReceiverCommand::Cancel { toi });
            }
            return;
        }
        match self.store.add(&info) {
            Ok(Added::AlreadyThere) => {
                self.items.was_there(&info);
                self.observer.already_there(&info.name);
            }
            Ok(Added::Directory | Added::OtherName) => {}
            Ok(Added::Link(path)) => {
                self.items.made(&info);
                self.observer.item(&info.name, &path, 0);
            }
            Ok(Added::LeftOut) => self.items.leave_out(&info),
            Ok(Added::Differs) => self.items.differs(&info),
            Ok(Added::AsksDigests) => {
                self.items.begin(info);
                return tell(io, ReceiverCommand::AskDigests { toi });
            }
            Ok(Added::Parts(held, bytes)) => {
                self.items.begin(info);
                return self.accept(io, (toi, oti), (held, bytes), requested);
            }
            Err(reason) => {
                self.items.refuse(&info, &reason);
                self.observer.failed(&info.name, &reason);
                if requested {
                    tell(io, ReceiverCommand::Cancel { toi });
                }
                return;
            }
        }
        if requested {
            tell(io, ReceiverCommand::Done { toi });
        }
    }

    /// Gives files their other names.
    fn name_files(&mut self) {
        for named in self.store.name_files() {
            self.items.named(&named);
            match &named.result {
                Ok(NameOutcome::WasThere) => self.observer.already_there(&named.name),
                Ok(NameOutcome::Made(path)) => self.observer.item(&named.name, path, 0),
                Err(error) => self.observer.failed(&named.name, &error.to_string()),
            }
        }
    }

    fn on_sink(&mut self, io: &mut Machine<'_, S>, event: SinkEvent) {
        match event {
            SinkEvent::BlockRestored { .. } => {}
            SinkEvent::Progress { toi, restored, .. } => self.items.restored(toi, restored),
            SinkEvent::RestoreFailed { block, .. } => {
                tell(io, ReceiverCommand::RestoreFailed { block });
            }
            SinkEvent::ReadingBack { .. } => self.observer.note(READING_BACK),
            SinkEvent::ItemDone { toi, name, path, size } => {
                if self.items.is_underway(toi) {
                    self.items.finish(toi);
                    self.observer.item(&name, &path, size);
                    tell(io, ReceiverCommand::Done { toi });
                }
            }
            SinkEvent::ItemAppeared { toi } => {
                if let Some(name) = self.items.appeared(toi) {
                    self.observer.already_there(&name);
                    tell(io, ReceiverCommand::Done { toi });
                }
            }
            SinkEvent::DigestMismatch { toi } => {
                if let Some(item) = self.items.get_mut(toi) {
                    item.digests.clear();
                    let name = item.info.name.clone();
                    self.observer.note(&format!("{name}: damaged on the way; finding out where"));
                    tell(io, ReceiverCommand::AskDigests { toi });
                }
            }
            SinkEvent::BlocksDropped { toi, blocks } => {
                tell(io, ReceiverCommand::BadBlocks { toi, blocks });
            }
            SinkEvent::ItemFailed { toi, error } => {
                self.fail_item(toi, &error.to_string());
                tell(io, ReceiverCommand::Cancel { toi });
            }
        }
    }

    /// Hands blocks that came on the session to the engine, as far as there is room.
    fn take_pieces(&mut self, io: &mut Machine<'_, S>) {
        loop {
            while let Some((block, content)) = self.streams.next() {
                let command = ReceiverCommand::UnicastBlock { block, content: content.clone() };
                if let Err(ReceiverCommandError::NoRoom(_)) = io.command(command) {
                    return self.streams.put_back(block, content);
                }
            }
            match self.pieces.pop_front() {
                Some((stream, Some(piece))) => self.streams.push(stream, &piece.bytes),
                Some((stream, None)) => self.streams.end(stream),
                None => return,
            }
        }
    }

    fn on_welcome(
        &mut self,
        io: &mut Machine<'_, S>,
        (data, rate): (Channel, Option<Rate>),
        control: Option<Channel>,
    ) {
        for channel in self.channels.iter_mut().filter_map(Option::take) {
            io.close(&Address::Channel(channel));
        }
        self.channels = [Some(data), control];
        if let Err(error) = io.open(PortSpec::Channel { channel: data, rate }) {
            // Without multicast there still is unicast.
            self.observer.note(&format!("no multicast: {error}"));
        }
        let Some(channel) = control else { return };
        match io.open(PortSpec::Group { channel }) {
            Ok(()) => tell(io, ReceiverCommand::JoinControl),
            Err(error) => tracing::info!("announcements on the session: {error}"),
        }
    }

    /// Ends the loop when all is done or nothing more can be done.
    fn settle(&mut self, io: &mut Machine<'_, S>) {
        let outstanding = io.engine().outstanding();
        if self.items.all_settled() && outstanding == 0 {
            let waits = self.items.misses_versions() && self.ask_again_later(io.now());
            if !waits && !self.finished {
                self.name_files();
                self.finished = true;
            }
        }
        if self.finished || self.fatal.is_some() {
            self.end(io);
        }
    }

    fn end(&mut self, io: &mut Machine<'_, S>) {
        self.stats = io.engine().stats();
        self.control_group = io.engine().hears_control();
        self.ended = io.now();
        io.stop();
    }
}

impl<S: ItemStore> Host<Receiver<S::Sink>> for GetHost<S> {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_, S>) {
        self.started = io.now();
        io.wake_at(Some(io.now()));
        self.connect(io);
        self.settle(io);
    }

    fn input(&mut self, io: &mut Machine<'_, S>, input: Input) {
        match input {
            Input::Session(news) => self.on_session(io, news),
            Input::Sink(event) => {
                self.on_sink(io, event);
                self.take_pieces(io);
            }
            Input::Compared(toi) => self.on_compared(io, toi),
            Input::Interrupt => return self.end(io),
        }
        self.settle(io);
    }

    fn event(&mut self, io: &mut Machine<'_, S>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Welcome { channel, rate_bits_per_s, control, sealed, .. } => {
                self.sealed = sealed;
                let rate = rate_text(rate_bits_per_s);
                tracing::info!("data comes on {channel}, at most {rate}");
                self.on_welcome(io, (channel, Rate::from_bits_per_s(rate_bits_per_s)), control);
            }
            // The list changed at the server, which has forgotten how it was.
            ReceiverEvent::Failed { query, reason } if query == self.query && self.listed > 0 => {
                if !self.ask_again_later(io.now()) {
                    self.fail(reason);
                }
            }
            // Everything has vanished.
            ReceiverEvent::Failed { query, .. }
                if query == self.query && self.items.round > 0 && self.items.misses_versions() =>
            {
                self.items.complete_list();
            }
            ReceiverEvent::Refused { reason } | ReceiverEvent::Failed { reason, .. } => {
                self.fail(reason);
            }
            ReceiverEvent::Page { query, total, .. }
                if query == self.query && self.refuses_list(total).is_some() =>
            {
                self.fail(self.refuses_list(total).unwrap_or_default());
            }
            ReceiverEvent::Page { query, items, total, next } if query == self.query => {
                self.listed += items.len() as u64;
                for info in items {
                    self.take_item(io, info);
                }
                if next.is_none() {
                    self.items.complete_list();
                    self.items.left_out = total.saturating_sub(self.listed);
                    let (items, there) = self.items.counts();
                    let items = counted(items, "item");
                    tracing::info!("the list is complete: {items}, {there} already there");
                }
            }
            ReceiverEvent::Gone { toi, reason } => {
                self.store.cancel(toi);
                if let Some(name) = self.items.withdraw(toi, &reason) {
                    tracing::info!("{name}: {reason}");
                }
            }
            ReceiverEvent::Digests { toi, first_block, digests, more } => {
                let Some(item) = self.items.get_mut(toi) else { return };
                item.digests.truncate(first_block as usize);
                item.digests.extend(digests);
                if !more {
                    let digests = std::mem::take(&mut item.digests);
                    self.store.check_blocks(toi, digests);
                }
            }
            ReceiverEvent::Fallback { brought, packet_len } => {
                self.unicast = true;
                self.observer.fallback(&brought, None);
                if let Some(cause) = too_long(&brought, packet_len) {
                    self.observer.fallback(&brought, Some(&cause));
                }
            }
            ReceiverEvent::Aside { carries_bits_per_s, rate_bits_per_s } => {
                self.unicast = true;
                let rate = |bits| {
                    Rate::from_bits_per_s(bits).map_or("nothing".to_owned(), |r| r.to_string())
                };
                self.observer.note(&format!(
                    "the path to this machine carries {}, the others take {}: the rest comes by \
                     unicast",
                    rate(carries_bits_per_s),
                    rate(rate_bits_per_s)
                ));
            }
            ReceiverEvent::MulticastBack => {
                self.unicast = false;
                self.observer.note("multicast works again");
            }
            // Pages of an earlier session's request, and probes, are ignored.
            ReceiverEvent::Page { .. }
            | ReceiverEvent::ProbePacket { .. }
            | ReceiverEvent::Probed { .. } => {}
        }
        self.settle(io);
    }

    fn wake(&mut self, io: &mut Machine<'_, S>) {
        io.wake_at(Some(io.now() + TICK));
        self.reconnect_if_due(io);
        self.ask_again_if_due(io);
        self.take_pieces(io);
        self.stats = io.engine().stats();
        let drops = io.engine().drops().to_string();
        tracing::trace!("{:?}; dropped: {drops}; here {}", self.stats, self.dropped_here);
        self.observer.progress(&self.snapshot());
        self.settle(io);
    }

    fn trouble(&mut self, io: &mut Machine<'_, S>, trouble: Trouble) {
        match trouble {
            Trouble::Overrun { datagrams } => {
                self.dropped_here += datagrams;
                let packets = u32::try_from(datagrams).unwrap_or(u32::MAX);
                tell(io, ReceiverCommand::Overrun { packets });
            }
            Trouble::NotJoined { reason, .. } => {
                self.observer.note(&format!("no multicast: {reason}"));
            }
            Trouble::NotSent { reason } => tracing::debug!("{reason}"),
        }
    }
}

/// Returns a line that says so if only packets came that are shorter than those of data.
fn too_long(brought: &Brought, packet_len: Option<u16>) -> Option<String> {
    let full = packet_len.filter(|&full| brought.packets > 0 && brought.longest < full.into())?;
    Some(format!(
        "no packet of {full} bytes has come, but some of up to {}: a link on the way has a smaller \
         MTU, so that `umbel serve` needs `--mtu`",
        brought.longest
    ))
}
