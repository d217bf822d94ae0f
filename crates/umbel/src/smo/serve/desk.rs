//! Answers requests: those for the same bytes together by multicast, all others alone.
//!
//! ```text
//!               ┌────────── a group: same path, same range ──────────┐
//!  request ───▶ │ Looking ─found─▶ Gathering ─window over─▶ Sending   │ ─▶ one master, FIN
//!               └────┬─────────────────┬─────────────────────────────┘
//!                    │ not there,      │ nobody else asked
//!                    ▼ small           ▼
//!                  alone: each on its connection, which may ask again
//! ```
//!
//! A client that asks while a group is [sending](Stage::Sending) joins it as long as the engine
//! holds the stream from its beginning. Otherwise it is answered alone, as is who held up others
//! before (`parted.rs`).

mod fair;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::host::Io;
use umbel_engine::shares::{Origin, Shares};
use umbel_engine::smo::{ChildId, MasterId, Source, SourceCommand, Stream};
use umbel_wire::Channel;

use self::fair::{Lent, Opening};
use super::clients::{Client, Clients, Next};
use super::deliveries::{Deliveries, Progress};
use super::http::request::{Request, Status};
use super::http::response::{Document, Response};
use super::library::{Library, News, Reading};
use super::parted::Parted;
use crate::bounds::{SMO_DOCUMENTS, SMO_STREAMS};

type Machine<'a> = dyn Io<Source> + 'a;

/// Form of requests, and how long others that ask the same are waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rules {
    /// By HTTP.
    Web {
        /// Time at which something is multicast, from the first request for it on.
        start: Start,
        /// Shorter bodies are answered alone and at once.
        smallest: u64,
    },
    /// Each connection asks for the one file, of which the bytes alone are sent.
    File(Start),
    /// All connections share one stream without a known end, each from where it is.
    Live(Start),
}

/// Time at which a multicast begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Number of receivers that are enough.
    pub receivers: usize,
    /// Or this long after the first.
    pub wait: Option<Duration>,
}

/// Clients that asked for the same.
#[derive(Debug)]
struct Group {
    members: BTreeMap<ChildId, Request>,
    /// The host of all who have been members, while it is only one.
    origin: Option<Origin>,
    since: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The library looks for the document.
    Looking,
    /// Others may join.
    Gathering { reading: Reading, response: Response },
    /// All are served.
    Sending(MasterId),
}

/// Purpose of a reading, until it is found.
#[derive(Debug)]
enum Purpose {
    Group(Request),
    Alone(ChildId, Request),
}

/// Everything about requests.
pub(crate) struct Desk<L> {
    library: Lent<L>,
    rules: Rules,
    pub(super) clients: Clients,
    pub(super) parted: Parted,
    pub(super) deliveries: Deliveries,
    groups: BTreeMap<Request, Group>,
    member_of: BTreeMap<ChildId, Request>,
    looking: BTreeMap<Reading, Purpose>,
    readings: u64,
    /// Channel of the first stream.
    channel: Channel,
    /// Streams that the engine has.
    masters: BTreeSet<MasterId>,
    /// Of these, those that only one host receives.
    streams_of_one: Shares<MasterId>,
    /// Time at which the first receiver of a live stream came, until it begins.
    first: Option<Instant>,
    began: bool,
    /// Responses begun, those of a group counted once for each member.
    pub(super) answers: u64,
    /// Of these, those by multicast.
    pub(super) together: u64,
}

impl<L: Library> Desk<L> {
    /// Creates a desk for an engine whose streams hold `buffer` bytes.
    pub(super) fn new(library: L, rules: Rules, channel: Channel, buffer: usize) -> Desk<L> {
        Desk {
            library: Lent { library, open: SMO_DOCUMENTS.shares() },
            rules,
            clients: Clients::new(),
            parted: Parted::default(),
            deliveries: Deliveries::new(buffer),
            groups: BTreeMap::new(),
            member_of: BTreeMap::new(),
            looking: BTreeMap::new(),
            readings: 0,
            channel,
            masters: BTreeSet::new(),
            streams_of_one: SMO_STREAMS.shares(),
            first: None,
            began: false,
            answers: 0,
            together: 0,
        }
    }

    /// Returns the number of streams that are multicast.
    pub(super) fn streams(&self) -> usize {
        let sending = self.groups.values().filter(|group| matches!(group.stage, Stage::Sending(_)));
        sending.count() + usize::from(self.began)
    }

    /// Returns whether everybody who came has been served and is gone.
    pub(super) fn is_done(&self) -> bool {
        self.answers > 0 && self.clients.is_empty()
    }

    /// Returns the time at which the next group is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let gathering = |group: &&Group| matches!(group.stage, Stage::Gathering { .. });
        let due = self.groups.values().filter(gathering).filter_map(|group| self.due(group));
        due.chain(self.live_due()).min()
    }

    pub(super) fn connected(&mut self, io: &mut Machine<'_>, child: ChildId, peer: SocketAddr) {
        let mut client = Client::new(peer, io.now());
        let asks = matches!(self.rules, Rules::Web { .. });
        (client.busy, client.closes) = (!asks, !asks);
        self.clients.insert(child, client);
        match self.rules {
            Rules::Web { .. } => {}
            Rules::File(_) => self.ask(io, child, any_file()),
            Rules::Live(_) => {
                (self.answers, self.together) = (self.answers + 1, self.together + 1);
                self.first.get_or_insert(io.now());
                self.begin_live(io);
            }
        }
    }

    pub(super) fn received(&mut self, io: &mut Machine<'_>, child: ChildId, bytes: &Bytes) {
        let _ = io.command(SourceCommand::Consumed { child, bytes: bytes.len() });
        let Some(client) = self.clients.get_mut(&child) else { return };
        if !matches!(self.rules, Rules::Web { .. }) {
            return;
        }
        if client.hear(bytes) {
            self.advance(io, child);
        } else {
            let _ = io.command(SourceCommand::Abort { child });
        }
    }

    pub(super) fn received_end(&mut self, io: &mut Machine<'_>, child: ChildId) {
        if let Some(client) = self.clients.get_mut(&child) {
            client.done = true;
            self.advance(io, child);
        }
    }

    /// Forgets a connection that has ended.
    pub(super) fn gone(&mut self, io: &mut Machine<'_>, child: ChildId) -> Option<SocketAddr> {
        let client = self.clients.remove(&child)?;
        self.deliveries.end(&mut self.library, Stream::Child(child));
        if let Some(key) = self.member_of.remove(&child)
            && let Some(group) = self.groups.get_mut(&key)
        {
            group.members.remove(&child);
            if group.members.is_empty() {
                self.dissolve(io, &key);
            }
        }
        Some(client.peer)
    }

    /// Handles an answer of the library.
    pub(super) fn news(&mut self, io: &mut Machine<'_>, news: News) {
        match news {
            News::Found { reading, document } => self.found(io, reading, &document),
            News::Bytes { reading, bytes } => {
                let progress = self.deliveries.read(io, &mut self.library, reading, bytes);
                self.follow(io, progress);
            }
            News::Gap { reading } => {
                if let Some(Stream::Master(master)) = self.deliveries.stream(reading) {
                    let _ = io.command(SourceCommand::Gap { master });
                }
                self.deliveries.read_again(&mut self.library, reading);
            }
            News::Failed { reading, reason } => {
                tracing::warn!("cannot read on: {reason}");
                if let Some(to) = self.deliveries.stream(reading) {
                    self.deliveries.end(&mut self.library, to);
                    self.follow(io, Progress::Broken(to));
                }
            }
        }
    }

    pub(super) fn writable(&mut self, io: &mut Machine<'_>, to: Stream) {
        let progress = self.deliveries.writable(io, &mut self.library, to);
        self.follow(io, progress);
    }

    /// Handles that everyone has all of a stream, or is gone.
    pub(super) fn drained(&mut self, master: MasterId) {
        self.masters.remove(&master);
        self.streams_of_one.leave(master);
        let is_it = |group: &Group| matches!(group.stage, Stage::Sending(own) if own == master);
        let key = self.groups.iter().find(|(_, group)| is_it(group)).map(|(key, _)| key.clone());
        if let Some(group) = key.and_then(|key| self.groups.remove(&key)) {
            for child in group.members.keys() {
                self.member_of.remove(child);
            }
        }
    }

    /// Begins what is due, and ends connections that ask for nothing.
    pub(super) fn wake(&mut self, io: &mut Machine<'_>) {
        let now = io.now();
        self.begin_live(io);
        let due = self.groups.iter().filter(|(_, group)| self.is_due(group, now));
        let due: Vec<Request> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.begin(io, &key);
        }
        let late = self.clients.iter_mut().filter(|(_, client)| client.is_late(now));
        for (child, client) in late {
            client.busy = true;
            let _ = io.command(SourceCommand::Finish { to: Stream::Child(*child) });
        }
    }

    /// Begins the live stream if it is due.
    fn begin_live(&mut self, io: &mut Machine<'_>) {
        if let Rules::Live(start) = self.rules
            && !self.began
            && (self.clients.len() >= start.receivers
                || self.live_due().is_some_and(|at| at <= io.now()))
        {
            self.began = true;
            let to = Stream::Master(MasterId::FIRST);
            self.deliveries.begin(&mut self.library, 0, to, 0..u64::MAX);
        }
    }

    /// Begins to send to a group if that is due. Looks at no other, so that a request costs the
    /// same whatever the number of connections.
    fn begin_if_due(&mut self, io: &mut Machine<'_>, key: &Request) {
        if self.groups.get(key).is_some_and(|group| self.is_due(group, io.now())) {
            self.begin(io, key);
        }
    }

    fn is_due(&self, group: &Group, now: Instant) -> bool {
        matches!(group.stage, Stage::Gathering { .. })
            && (self.due(group).is_some_and(|due| due <= now) || self.is_full(group))
    }

    /// Returns when a live stream begins, if too few receivers come.
    fn live_due(&self) -> Option<Instant> {
        match self.rules {
            Rules::Live(start) if !self.began => Some(self.first? + start.wait?),
            _ => None,
        }
    }

    fn due(&self, group: &Group) -> Option<Instant> {
        let wait = match self.rules {
            Rules::Web { start, .. } | Rules::File(start) | Rules::Live(start) => start.wait,
        };
        wait.map(|wait| group.since + wait)
    }

    fn is_full(&self, group: &Group) -> bool {
        match self.rules {
            Rules::Web { start, .. } | Rules::File(start) => group.members.len() >= start.receivers,
            Rules::Live(_) => false,
        }
    }

    /// Handles the next request of a client.
    fn advance(&mut self, io: &mut Machine<'_>, child: ChildId) {
        let Some(client) = self.clients.get_mut(&child) else { return };
        match client.next() {
            Next::Nothing => {}
            Next::Request(request) => self.ask(io, child, request),
            Next::Refused(refusal) => {
                let response = Response::status(refusal.status(), false, true);
                self.answer(io, child, None, response);
            }
            Next::End => {
                client.busy = true;
                let _ = io.command(SourceCommand::Finish { to: Stream::Child(child) });
            }
        }
    }

    fn ask(&mut self, io: &mut Machine<'_>, child: ChildId, request: Request) {
        let shares = self.clients.get(&child).is_some_and(|client| {
            !client.was_answered() && !self.parted.has(io.now(), client.peer.ip())
        });
        if request.head_only || !shares {
            return self.serve_alone(io, child, &request);
        }
        let origin = self.origin(child);
        let key = Request { keep_alive: false, ..request.clone() };
        let Some(group) = self.groups.get_mut(&key) else {
            let group = Group {
                members: BTreeMap::from([(child, request.clone())]),
                origin,
                since: io.now(),
                stage: Stage::Looking,
            };
            self.groups.insert(key.clone(), group);
            self.member_of.insert(child, key.clone());
            let purpose = Purpose::Group(key);
            return self.look(io, child, &request, purpose);
        };
        if let Stage::Sending(master) = group.stage {
            if io.command(SourceCommand::Attach { child, master }).is_err() {
                return self.serve_alone(io, child, &request);
            }
            self.answers += 1;
            self.together += 1;
        }
        group.members.insert(child, request);
        self.member_of.insert(child, key.clone());
        if group.origin.is_some() && group.origin != origin {
            group.origin = None;
            self.keep(&key);
        }
        self.begin_if_due(io, &key);
    }

    fn look(&mut self, io: &mut Machine<'_>, child: ChildId, request: &Request, purpose: Purpose) {
        self.readings += 1;
        let reading = self.readings;
        self.looking.insert(reading, purpose);
        let Some(origin) = self.origin(child) else {
            return self.found(io, reading, &Err(Status::Unavailable));
        };
        match self.library.open.enter(origin, reading) {
            Ok(None) => {}
            Ok(Some(lost)) => self.take_away(io, lost),
            Err(_) => return self.found(io, reading, &Err(Status::Unavailable)),
        }
        self.library.find(reading, &request.path);
    }

    fn serve_alone(&mut self, io: &mut Machine<'_>, child: ChildId, request: &Request) {
        let purpose = Purpose::Alone(child, request.clone());
        self.look(io, child, request, purpose);
    }

    fn found(
        &mut self,
        io: &mut Machine<'_>,
        reading: Reading,
        document: &Result<Document, Status>,
    ) {
        match self.looking.remove(&reading) {
            None => self.library.close(reading),
            Some(Purpose::Alone(child, request)) => {
                self.found_alone(io, reading, child, &request, document);
            }
            Some(Purpose::Group(key)) => self.found_for_group(io, reading, &key, document),
        }
    }

    fn found_alone(
        &mut self,
        io: &mut Machine<'_>,
        reading: Reading,
        child: ChildId,
        request: &Request,
        document: &Result<Document, Status>,
    ) {
        let closes = self.clients.get(&child).is_none_or(|client| client.closes);
        let response = match document {
            Ok(document) => self.response(request, document, closes),
            Err(Status::MovedPermanently) => Response::to_directory(request, closes),
            Err(status) => {
                let closes = closes || *status == Status::Unavailable;
                Response::status(*status, request.head_only, closes)
            }
        };
        self.answer(io, child, Some(reading), response);
    }

    fn found_for_group(
        &mut self,
        io: &mut Machine<'_>,
        reading: Reading,
        key: &Request,
        document: &Result<Document, Status>,
    ) {
        let Some(group) = self.groups.get_mut(key) else { return self.library.close(reading) };
        let alone = match (document, self.rules) {
            (Err(_), _) => true,
            (Ok(_), Rules::File(_) | Rules::Live(_)) => false,
            (Ok(document), Rules::Web { smallest, .. }) => {
                let body = Response::to(key, document, true).body;
                body.end - body.start < smallest.max(1)
            }
        };
        if !alone && let Ok(document) = document {
            let response = respond(self.rules, key, document, true);
            group.stage = Stage::Gathering { reading, response };
            if group.origin.is_none() {
                self.keep(key);
            }
            return self.begin_if_due(io, key);
        }
        self.library.close(reading);
        for (child, request) in self.leave(key) {
            match document {
                Err(_) => self.found_alone(io, reading, child, &request, document),
                Ok(_) => self.serve_alone(io, child, &request),
            }
        }
    }

    fn response(&self, request: &Request, document: &Document, closes: bool) -> Response {
        respond(self.rules, request, document, closes)
    }

    /// Begins to multicast to a group.
    fn begin(&mut self, io: &mut Machine<'_>, key: &Request) {
        let Some(Group { members, origin, .. }) = self.groups.get(key) else { return };
        let single = members.len() == 1 && matches!(self.rules, Rules::Web { .. });
        let origin = *origin;
        let master = match if single { Opening::None } else { self.open(io, origin) } {
            Opening::Open(master) => Some(master),
            Opening::Later => return,
            Opening::None => None,
        };
        let Some(group) = self.groups.get_mut(key) else { return };
        let stage = std::mem::replace(&mut group.stage, Stage::Looking);
        let Stage::Gathering { reading, response } = stage else { return };
        let Some(master) = master else {
            self.library.close(reading);
            for (child, request) in self.leave(key) {
                self.serve_alone(io, child, &request);
            }
            return;
        };
        group.stage = Stage::Sending(master);
        let attach = |(child, _): &(ChildId, Request)| {
            io.command(SourceCommand::Attach { child: *child, master }).is_ok()
        };
        let (members, others) = std::mem::take(&mut group.members).into_iter().partition(attach);
        group.members = members;
        let told: Vec<ChildId> = group.members.keys().copied().collect();
        for child in told {
            self.log(child, &response, "together");
        }
        let Some(group) = self.groups.get_mut(key) else { return };
        self.answers += group.members.len() as u64;
        self.together += group.members.len() as u64;
        let to = Stream::Master(master);
        if !response.head.is_empty() {
            let _ = io.command(SourceCommand::Write { to, bytes: response.head });
        }
        self.deliveries.begin(&mut self.library, reading, to, response.body.clone());
        if response.body.is_empty() {
            self.deliveries.end(&mut self.library, to);
            self.follow(io, Progress::Done(to));
        }
        if self.groups.get(key).is_some_and(|group| group.members.is_empty()) {
            self.dissolve(io, key);
        }
        for (child, request) in others {
            self.member_of.remove(&child);
            self.serve_alone(io, child, &request);
        }
    }

    /// Takes a group apart. Returns its members.
    fn leave(&mut self, key: &Request) -> BTreeMap<ChildId, Request> {
        let members = self.groups.remove(key).map(|group| group.members).unwrap_or_default();
        for child in members.keys() {
            self.member_of.remove(child);
        }
        members
    }

    /// Ends a group whose last member has left.
    fn dissolve(&mut self, io: &mut Machine<'_>, key: &Request) {
        match self.groups.remove(key).map(|group| group.stage) {
            Some(Stage::Gathering { reading, .. }) => self.library.close(reading),
            Some(Stage::Sending(master)) => {
                let to = Stream::Master(master);
                self.deliveries.end(&mut self.library, to);
                let _ = io.command(SourceCommand::Finish { to });
            }
            Some(Stage::Looking) | None => {}
        }
    }

    /// Logs a request with its answer, as servers of the Web do.
    fn log(&self, child: ChildId, response: &Response, way: &str) {
        let Some(client) = self.clients.get(&child) else { return };
        let asked = client.asked();
        if !asked.is_empty() {
            let (peer, bytes) = (client.peer, response.body.end - response.body.start);
            tracing::info!("{peer} \"{asked}\" {} {bytes} bytes {way}", response.code());
        }
    }

    /// Answers a client alone.
    fn answer(
        &mut self,
        io: &mut Machine<'_>,
        child: ChildId,
        reading: Option<Reading>,
        response: Response,
    ) {
        let to = Stream::Child(child);
        self.log(child, &response, "alone");
        let Response { head, body } = response;
        let written = self.clients.contains_key(&child)
            && (head.is_empty() || io.command(SourceCommand::Write { to, bytes: head }).is_ok());
        match reading {
            Some(reading) if written && !body.is_empty() => {
                self.answers += 1;
                self.deliveries.begin(&mut self.library, reading, to, body);
            }
            reading => {
                if let Some(reading) = reading {
                    self.library.close(reading);
                }
                if written {
                    self.answers += 1;
                    self.follow(io, Progress::Done(to));
                } else {
                    // It does not take its answers, but asks for more.
                    let _ = io.command(SourceCommand::Abort { child });
                }
            }
        }
    }

    fn follow(&mut self, io: &mut Machine<'_>, progress: Progress) {
        match progress {
            Progress::Goes | Progress::Unwanted(_) => {}
            Progress::Done(to @ Stream::Master(_)) => {
                let _ = io.command(SourceCommand::Finish { to });
            }
            Progress::Done(to @ Stream::Child(child)) => {
                let Some(client) = self.clients.get_mut(&child) else { return };
                if client.closes {
                    let _ = io.command(SourceCommand::Finish { to });
                } else {
                    client.answered(io.now());
                    self.advance(io, child);
                }
            }
            // The length was promised: only the end of the connection tells the truth.
            Progress::Broken(Stream::Child(child)) => {
                let _ = io.command(SourceCommand::Abort { child });
            }
            Progress::Broken(to @ Stream::Master(master)) => {
                self.cut_off(io, master);
                let _ = io.command(SourceCommand::Finish { to });
            }
        }
    }
}

fn respond(rules: Rules, request: &Request, document: &Document, closes: bool) -> Response {
    match rules {
        Rules::Web { .. } => Response::to(request, document, closes),
        Rules::File(_) | Rules::Live(_) => Response { head: Bytes::new(), body: 0..document.len },
    }
}

/// Returns what a connection asks for where there is only one file.
fn any_file() -> Request {
    Request {
        path: "/".to_owned(),
        head_only: false,
        range: None,
        if_range: None,
        if_none_match: None,
        if_modified_since: None,
        keep_alive: false,
    }
}
