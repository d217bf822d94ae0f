//! Looks items up. Lists, requests and digests wait for the disk, so they are answered on their own
//! thread. Long answers are given in steps, between which it is the turn of other clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use umbel_engine::SessionId;
use umbel_engine::host::Mailbox;
use umbel_engine::repository::{SourceCommand, symbol_digest};
use umbel_engine::symbols::BlockId;
use umbel_engine::units::counted;
use umbel_store::{Item, Repository};
use umbel_wire::repository::{ItemInfo, SymbolKey, SymbolRun, limits};
use umbel_wire::{Toi, control};

use super::questions::{Job, Next, Questions};

/// Most items on a page. Items of a request are scheduled page by page.
const PAGE_ITEMS: u32 = 1024;
/// Time for digests after which a page of a request is sent.
const PAGE_TIME: Duration = Duration::from_millis(100);
/// Most digests in one message, whose blocks are read in one step.
const DIGESTS: u32 = 512;

/// A question to the librarian.
#[derive(Debug)]
pub(crate) enum Question {
    List {
        session: SessionId,
        query: u32,
        patterns: Vec<String>,
        cursor: u64,
        limit: u32,
    },
    Request {
        session: SessionId,
        query: u32,
        patterns: Vec<String>,
        hold: bool,
    },
    Digests {
        session: SessionId,
        toi: Toi,
    },
    SymbolDigests {
        session: SessionId,
        toi: Toi,
        key: SymbolKey,
        symbols: SymbolRun,
    },
    /// Check whether the path has changed.
    Rescan,
}

impl Question {
    /// Returns the client that asks.
    pub(super) fn session(&self) -> Option<SessionId> {
        match *self {
            Question::List { session, .. }
            | Question::Request { session, .. }
            | Question::Digests { session, .. }
            | Question::SymbolDigests { session, .. } => Some(session),
            Question::Rescan => None,
        }
    }

    /// Returns its patterns.
    pub(super) fn patterns(&self) -> &[String] {
        match self {
            Question::List { patterns, .. } | Question::Request { patterns, .. } => patterns,
            Question::Digests { .. } | Question::SymbolDigests { .. } | Question::Rescan => &[],
        }
    }
}

/// The line to a librarian, whose thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct Librarians {
    questions: Arc<Questions>,
    mailbox: Mailbox<SourceCommand>,
}

impl Librarians {
    /// Asks. A client with too many questions in line gets a refusal.
    pub(super) fn ask(&self, question: Question) {
        let Err(refused) = self.questions.put(question) else { return };
        match refused {
            Question::List { session, query, .. } | Question::Request { session, query, .. } => {
                let reason = "too many questions at once: wait for the answers".to_owned();
                self.mailbox.put(SourceCommand::Failed { session, query, reason });
            }
            Question::Digests { session, toi } => {
                self.mailbox.put(SourceCommand::NoSuchItem { session, toi });
            }
            // The client does without.
            Question::SymbolDigests { .. } | Question::Rescan => {}
        }
    }

    /// Forgets the questions of a client that has left.
    pub(super) fn forget(&self, session: SessionId) {
        self.questions.forget(session);
    }
}

impl Drop for Librarians {
    fn drop(&mut self) {
        self.questions.end();
    }
}

/// Starts the librarian's thread.
pub(super) fn start(
    repository: Repository,
    mailbox: Mailbox<SourceCommand>,
    rescan: Duration,
) -> std::io::Result<Librarians> {
    let questions = Arc::<Questions>::default();
    let line = questions.clone();
    let librarian = Librarian { repository, mailbox: mailbox.clone() };
    std::thread::Builder::new()
        .name("umbel-librarian".to_owned())
        .spawn(move || librarian.run(&line, rescan))?;
    Ok(Librarians { questions, mailbox })
}

struct Librarian {
    repository: Repository,
    mailbox: Mailbox<SourceCommand>,
}

impl Librarian {
    fn run(&self, questions: &Questions, rescan: Duration) {
        let rescan = if rescan.is_zero() { Duration::MAX } else { rescan };
        let mut next_scan = Instant::now().checked_add(rescan);
        loop {
            match questions.next(next_scan) {
                Next::Answer(Job { question, from }) => {
                    let rest = self.answer(&question, from);
                    questions.end_step(rest.map(|from| Job { question, from }));
                }
                Next::Rescan => {
                    self.rescan();
                    next_scan = Instant::now().checked_add(rescan);
                }
                Next::End => return,
            }
        }
    }

    /// Handles a step of an answer. Returns where the rest of it begins, if there is any.
    fn answer(&self, question: &Question, from: u64) -> Option<u64> {
        match *question {
            Question::List { session, query, ref patterns, cursor, limit } => {
                self.list(session, query, patterns, cursor, limit);
                None
            }
            Question::Request { session, query, ref patterns, hold } => {
                self.request(session, query, patterns, from, !hold)
            }
            Question::Digests { session, toi } => self.digests(session, toi, from),
            Question::SymbolDigests { session, toi, ref key, symbols } => {
                self.symbol_digests(session, toi, key, symbols);
                None
            }
            Question::Rescan => None,
        }
    }

    fn rescan(&self) {
        match self.repository.refresh() {
            Ok(changes) if changes.is_empty() => {}
            Ok(changes) => tracing::info!(
                "{} added, {} replaced, {} removed",
                counted(changes.added.len(), "item"),
                changes.replaced.len(),
                changes.removed.len()
            ),
            Err(error) => tracing::warn!("cannot look for changes: {error}"),
        }
    }

    fn fail(&self, session: SessionId, query: u32, reason: String) {
        self.mailbox.put(SourceCommand::Failed { session, query, reason });
    }

    fn list(&self, session: SessionId, query: u32, patterns: &[String], cursor: u64, limit: u32) {
        let limit = limit.clamp(1, PAGE_ITEMS) as usize;
        match self.repository.catalog().select(patterns, cursor, limit) {
            Err(error) => self.fail(session, query, error.to_string()),
            Ok(page) if page.total == 0 => self.fail(session, query, nothing(patterns)),
            Ok(page) => {
                let shown = |item: &Arc<Item>| ItemInfo { holes: None, ..page.info(item) };
                let items = page.items.iter().map(shown).collect();
                let (total, next) = (page.total, page.next);
                self.page(session, query, items, (total, next), false);
            }
        }
    }

    /// Answers with a page of the items that match, each with its digest, which is computed if
    /// necessary. Returns where the next page begins.
    fn request(
        &self,
        session: SessionId,
        query: u32,
        patterns: &[String],
        cursor: u64,
        wanted: bool,
    ) -> Option<u64> {
        let catalog = self.repository.catalog();
        let page = match catalog.select(patterns, cursor, PAGE_ITEMS as usize) {
            Ok(page) if page.total == 0 => Err(nothing(patterns)),
            other => other.map_err(|error| error.to_string()),
        };
        let page = match page {
            Ok(page) => page,
            Err(reason) => {
                self.fail(session, query, reason);
                return None;
            }
        };
        let left_out = if patterns.is_empty() { page.failures } else { 0 };
        let total = page.total + left_out;
        let mut items = Vec::new();
        let mut room = control::MAX_BODY as usize / 2;
        let mut since = Instant::now();
        for item in &page.items {
            // What is read to compute it tells the holes of a device.
            let digest = catalog.digest(item.toi());
            let mut info = page.info(item);
            match digest {
                Ok(digest) => info.digest = digest,
                Err(error) => {
                    // The client is told as if the item vanished later.
                    tracing::warn!("{}: {error}", item.name());
                    let reason = error.to_string();
                    let toi = item.toi();
                    items.push(info);
                    let items = std::mem::take(&mut items);
                    self.page(session, query, items, (total, Some(1)), wanted);
                    self.mailbox.put(SourceCommand::Gone { toi, reason });
                    continue;
                }
            }
            room = room.saturating_sub(info.max_wire_len());
            items.push(info);
            if room == 0 || since.elapsed() > PAGE_TIME {
                let items = std::mem::take(&mut items);
                self.page(session, query, items, (total, Some(1)), wanted);
                room = control::MAX_BODY as usize / 2;
                since = Instant::now();
            }
        }
        self.page(session, query, items, (total, page.next), wanted);
        page.next
    }

    fn page(
        &self,
        session: SessionId,
        query: u32,
        items: Vec<ItemInfo>,
        (total, next): (u64, Option<u64>),
        wanted: bool,
    ) {
        debug_assert!(items.len() <= limits::PAGE_ITEMS);
        self.mailbox.put(SourceCommand::Page { session, query, items, total, next, wanted });
    }

    /// Answers with digests of blocks from one on. Returns where the rest begins.
    fn digests(&self, session: SessionId, toi: Toi, from: u64) -> Option<u64> {
        let catalog = self.repository.catalog();
        let partition =
            catalog.get(toi).and_then(|item| umbel_fec::Partition::new(&item.oti()).ok());
        let Some(partition) = partition else {
            self.mailbox.put(SourceCommand::NoSuchItem { session, toi });
            return None;
        };
        let blocks = partition.blocks();
        let first_block = u32::try_from(from).map_or(blocks, |from| from.min(blocks));
        let end = blocks.min(first_block.saturating_add(DIGESTS));
        let more = end < blocks;
        self.mailbox.put(match catalog.block_digests(toi, first_block..end) {
            Ok(digests) => SourceCommand::Digests { session, toi, first_block, digests, more },
            Err(error) => {
                let reason = error.to_string();
                self.mailbox.put(SourceCommand::Gone { toi, reason });
                return None;
            }
        });
        more.then_some(end.into())
    }
}

impl Librarian {
    fn symbol_digests(&self, session: SessionId, toi: Toi, key: &SymbolKey, symbols: SymbolRun) {
        let block = BlockId { toi, sbn: symbols.block };
        let first_esi = symbols.first_esi;
        let esis = first_esi..first_esi.saturating_add(symbols.count);
        let digest = |esi, symbol: &[u8]| symbol_digest(key, block, esi, symbol);
        self.mailbox.put(match self.repository.catalog().symbol_digests(block, esis, digest) {
            Ok(digests) => SourceCommand::SymbolDigests { session, block, first_esi, digests },
            Err(error) => {
                tracing::debug!("no digests of symbols: {error}");
                SourceCommand::NoSuchItem { session, toi }
            }
        });
    }
}

fn nothing(patterns: &[String]) -> String {
    if patterns.is_empty() {
        return "the server offers nothing".to_owned();
    }
    format!("nothing matches {}: see `umbel ls`", patterns.join(" "))
}
