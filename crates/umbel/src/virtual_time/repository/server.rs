//! Surroundings of a server.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::chance::generator;
use umbel_engine::host::SessionNews;
use umbel_engine::repository::{
    ControlConfig, SealConfig, Source, SourceCommand, SourceConfig, symbol_digest,
};
use umbel_engine::symbols::BlockId;
use umbel_engine::units::Rate;
use umbel_engine::{Instant, SessionId};
use umbel_fec::Partition;
use umbel_sim::random::below;
use umbel_sim::{
    Context, Destination, EngineHost, HostConfig, Kind, NodeId, Outside, Packet, channel,
};
use umbel_wire::alc::DataHeader;
use umbel_wire::repository::{ControlKey, GroupSecret, Need, UnicastBlock};
use umbel_wire::{Oti, Scheme, Toi, Tsi};

use super::super::draws;
use super::super::later::Later;
use super::content::{Catalog, SYMBOL, Symbols};
use super::sessions::Frame;
use crate::serve::host::{Input, ServeHost, Staff};
use crate::serve::librarian::Question;
use crate::serve::prober::Burst;
use crate::serve::status::Report;

/// Numbers of the groups of a server's channels.
pub(super) const DATA: u32 = 1;
pub(super) const CONTROL: u32 = 2;
/// Round trip time of sessions, as the server measures it.
const RTT: Duration = Duration::from_millis(20);

pub(super) type Server = EngineHost<Source<Symbols>, ServeHost<Desk>, Around>;

/// Answers from the catalog, after a while.
#[derive(Debug)]
pub(super) struct Desk {
    catalog: Arc<Catalog>,
    random: Xoshiro256PlusPlus,
    out: Out,
    streams: u64,
    unicast_bytes: u64,
}

/// Output of the desk.
#[derive(Clone, Debug, Default)]
struct Out {
    answers: Later<SourceCommand>,
    /// Pieces of streams: client, item, stream, bytes.
    bulk: Later<(SessionId, Toi, u64, Option<Bytes>)>,
    closes: Later<(SessionId, String)>,
    bursts: Later<Burst>,
}

impl Desk {
    fn answer(&mut self, command: SourceCommand) {
        let wait = Duration::from_micros(below(&mut self.random, 30_000));
        self.out.answers.put(wait, command);
    }

    fn page(&mut self, session: SessionId, query: u32, patterns: &[String], wanted: bool) {
        let items = self.catalog.matching(patterns);
        let total = items.len() as u64;
        if items.is_empty() {
            let reason = "nothing matches".to_owned();
            return self.answer(SourceCommand::Failed { session, query, reason });
        }
        // Two pages, as for large catalogs.
        let (first, second) = items.split_at(items.len() / 2);
        let page = |items: &[_], next| SourceCommand::Page {
            session,
            query,
            items: items.to_vec(),
            total,
            next,
            wanted,
        };
        let wait = Duration::from_micros(below(&mut self.random, 30_000));
        self.out.answers.put(wait, page(first, Some(1)));
        self.out.answers.put(wait, page(second, None));
    }
}

impl Staff for Desk {
    type Symbols = Symbols;

    fn ask(&mut self, question: Question) {
        match question {
            Question::List { session, query, patterns, .. } => {
                self.page(session, query, &patterns, false);
            }
            Question::Request { session, query, patterns, hold } => {
                self.page(session, query, &patterns, !hold);
            }
            Question::Digests { session, toi } => {
                let digests = self.catalog.block_digests(toi);
                let (first_block, more) = (0, false);
                self.answer(SourceCommand::Digests { session, toi, first_block, digests, more });
            }
            Question::SymbolDigests { session, toi, key, symbols } => {
                let block = BlockId { toi, sbn: symbols.block };
                let first_esi = symbols.first_esi;
                let esis = first_esi..first_esi + symbols.count;
                let digest = |(esi, symbol): (u32, Bytes)| symbol_digest(&key, block, esi, &symbol);
                let digests = self.catalog.symbols(block, esis).map(digest).collect();
                self.answer(SourceCommand::SymbolDigests { session, block, first_esi, digests });
            }
            Question::Rescan => {}
        }
    }

    fn item(&self, toi: Toi) -> Option<(String, Oti)> {
        self.catalog.info(toi).map(|info| (info.name.clone(), info.oti))
    }

    fn serve_unicast(&mut self, session: SessionId, toi: Toi, need: Need) {
        self.stop_unicast(session, toi);
        let Some((_, oti)) = self.item(toi) else { return };
        let Ok(cut) = Partition::new(&oti) else { return };
        let blocks: Vec<u32> = match need {
            Need::Whole => (0..cut.blocks()).collect(),
            Need::Symbols(runs) => {
                runs.iter().flat_map(|run| run.first_block..run.first_block + run.blocks).collect()
            }
            Need::Exact(runs) => runs.iter().map(|run| run.block).collect(),
        };
        let stream = self.streams;
        self.streams += 1;
        let mut after = RTT;
        for block in blocks {
            let content = self.catalog.block(toi, block).unwrap_or_default();
            let head = UnicastBlock { toi, block, len: content.len() as u32 };
            let piece = [&head.emit()[..], &content].concat();
            self.unicast_bytes += content.len() as u64;
            // Blocks come in two pieces.
            let cut = piece.len() / 2;
            for half in [&piece[..cut], &piece[cut..]] {
                let piece = Some(Bytes::copy_from_slice(half));
                self.out.bulk.put(after, (session, toi, stream, piece));
                after += Duration::from_millis(3);
            }
        }
        self.out.bulk.put(after, (session, toi, stream, None));
    }

    fn stop_unicast(&mut self, session: SessionId, toi: Toi) {
        self.out.bulk.retain(|(whose, what, ..)| (*whose, *what) != (session, toi));
    }

    fn unicast_bytes(&self) -> u64 {
        self.unicast_bytes
    }

    fn burst(&mut self, burst: Burst) {
        self.out.bursts.put(Duration::from_millis(1), burst);
    }

    fn draw_secret(&mut self) -> Result<GroupSecret, String> {
        // Randomness may be missing for a while.
        if below(&mut self.random, 4) == 0 {
            return Err("no randomness".to_owned());
        }
        Ok(GroupSecret(std::array::from_fn(|_| below(&mut self.random, 256) as u8)))
    }

    fn close(&mut self, session: SessionId, reason: &str) {
        self.out.closes.put(Duration::from_millis(100), (session, reason.to_owned()));
    }

    fn bar(&mut self, _session: SessionId) {}

    fn remote(&self, session: SessionId) -> Option<String> {
        Some(session.0.to_string())
    }

    fn rtt(&self, _session: SessionId) -> Option<Duration> {
        Some(RTT)
    }

    fn tidy(&mut self) {}
}

/// Carries sessions and the desk's output.
#[derive(Debug)]
pub(super) struct Around {
    out: Out,
    ready: Later<()>,
    tsi: Tsi,
    /// Sessions by client and the client's number.
    sessions: BTreeMap<(NodeId, u64), SessionId>,
    clients: BTreeMap<SessionId, (NodeId, u64)>,
    opened: u64,
    news: VecDeque<SessionNews>,
}

impl Around {
    /// Returns the number of open sessions.
    pub(super) fn sessions(&self) -> usize {
        self.clients.len()
    }

    fn tell(&self, context: &mut Context<'_>, session: SessionId, frame: &Frame) {
        if let Some((node, number)) = self.clients.get(&session) {
            context.send_message(*node, frame.emit(*number));
        }
    }

    fn forget(&mut self, session: SessionId, reason: String) {
        if let Some(client) = self.clients.remove(&session) {
            self.sessions.remove(&client);
            self.news.push_back(SessionNews::Closed { session, reason, retryable: false });
        }
    }

    /// Sends a burst of probe packets on the data channel.
    fn probe(&self, context: &mut Context<'_>, burst: Burst) {
        let node = context.node();
        let group = context.group(Some(node), DATA);
        for index in 0..burst.packets.min(16) {
            let header = DataHeader {
                tsi: self.tsi,
                toi: Toi::PROBE,
                transmission: burst.probe,
                index,
                stamp: umbel_wire::reception::ChannelStamp::default(),
                scheme: Scheme::NoCode,
                sbn: 0,
                esi: index,
            };
            let head = header.emit().unwrap();
            let payload = Bytes::from([&head[..], &[0; 32]].concat());
            context.send(Packet::new(node, Destination::Group(group), Kind::Data, payload));
        }
        let Burst { session, probe, packets, .. } = burst;
        let answer = SourceCommand::Probed { session, probe, packets: packets.min(16) };
        self.out.answers.put(RTT, answer);
    }
}

impl Outside<Input> for Around {
    fn send(&mut self, context: &mut Context<'_>, session: SessionId, message: Bytes) {
        self.tell(context, session, &Frame::Message(message));
    }

    fn message(&mut self, _context: &mut Context<'_>, from: NodeId, message: Bytes) {
        let (number, frame) = Frame::parse(&message);
        let known = self.sessions.get(&(from, number)).copied();
        match (frame, known) {
            (Frame::Open, None) => {
                self.opened += 1;
                let session = SessionId(self.opened);
                self.sessions.insert((from, number), session);
                self.clients.insert(session, (from, number));
                self.news.push_back(SessionNews::Opened {
                    session,
                    remote: umbel_sim::address_of(from).into(),
                    rtt: RTT,
                });
            }
            (Frame::Message(message), Some(session)) => {
                self.news.push_back(SessionNews::Message { session, message });
            }
            (Frame::Close(reason), Some(session)) => self.forget(session, reason),
            _ => {}
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Option<Input> {
        let now = context.now();
        while let Some((session, _, stream, piece)) = self.out.bulk.take(now) {
            self.tell(context, session, &Frame::Bulk(stream, piece));
        }
        while let Some(burst) = self.out.bursts.take(now) {
            self.probe(context, burst);
        }
        while let Some((session, reason)) = self.out.closes.take(now) {
            self.tell(context, session, &Frame::Close(reason.clone()));
            self.forget(session, reason);
        }
        if let Some(news) = self.news.pop_front() {
            return Some(Input::Session(news));
        }
        if let Some(answer) = self.out.answers.take(now) {
            return Some(Input::Answer(answer));
        }
        self.ready.take(now).map(|()| Input::Answer(SourceCommand::SymbolsReady))
    }

    fn next(&self) -> Option<Instant> {
        let Out { answers, bulk, closes, bursts } = &self.out;
        let lines = [answers.next(), bulk.next(), closes.next(), bursts.next(), self.ready.next()];
        lines.into_iter().flatten().min()
    }
}

/// Creates a server of these items on this node.
pub(super) fn server(
    node: NodeId,
    catalog: &Arc<Catalog>,
    seed: u64,
    (control, slow_one_in): (bool, u64),
    seal: Option<SealConfig>,
) -> Server {
    let number = u64::from(node.0);
    let rate = Rate::from_bits_per_s(1_000_000).unwrap();
    let tsi = Tsi(1 + node.0);
    let mut config = SourceConfig::new(tsi, channel(Some(node), DATA), rate);
    config.packet_len = usize::from(SYMBOL) + DataHeader::LEN;
    let key = ControlKey([node.0 as u8; 32]);
    let group = channel(None, CONTROL + node.0);
    config.control = control.then_some(ControlConfig { channel: group, key });
    config.seal = seal;
    let (out, ready) = (Out::default(), Later::default());
    let desk = Desk {
        catalog: catalog.clone(),
        random: draws(seed, 1_000 + number),
        out: out.clone(),
        streams: 0,
        unicast_bytes: 0,
    };
    let symbols =
        Symbols::new(catalog.clone(), ready.clone(), draws(seed, 2_000 + number), slow_one_in);
    let around = Around {
        out,
        ready,
        tsi,
        sessions: BTreeMap::new(),
        clients: BTreeMap::new(),
        opened: 0,
        news: VecDeque::new(),
    };
    let host = ServeHost::new(desk, Arc::new(Mutex::new(Report::default())));
    let host_config = HostConfig { rate: Some(rate), ..HostConfig::default() };
    EngineHost::with_outside(
        Source::new(config, generator(seed), symbols),
        host,
        around,
        host_config,
    )
}
