//! Looks items up. Lists, requests and digests wait for the disk, so they are answered on a thread
//! of their own.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use umbel_engine::SessionId;
use umbel_engine::host::Mailbox;
use umbel_engine::repository::SourceCommand;
use umbel_store::Repository;
use umbel_wire::repository::{ItemInfo, limits};
use umbel_wire::{Toi, control};

/// Most items on a page. Items of a request are scheduled page by page.
const PAGE_ITEMS: u32 = 1024;
/// Time for digests after which a page of a request is sent.
const PAGE_TIME: Duration = Duration::from_millis(100);
/// Most digests in one message.
const DIGESTS: u32 = 4096;

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
    /// Check whether the path has changed.
    Rescan,
}

/// Starts the librarian's thread, which ends when the sender is dropped.
pub(super) fn start(
    repository: Repository,
    mailbox: Mailbox<SourceCommand>,
    rescan: Duration,
) -> std::io::Result<Sender<Question>> {
    let (questions, inbox) = crossbeam_channel::unbounded();
    let librarian = Librarian { repository, mailbox };
    std::thread::Builder::new()
        .name("umbel-librarian".to_owned())
        .spawn(move || librarian.run(&inbox, rescan))?;
    Ok(questions)
}

struct Librarian {
    repository: Repository,
    mailbox: Mailbox<SourceCommand>,
}

impl Librarian {
    fn run(&self, inbox: &Receiver<Question>, rescan: Duration) {
        let rescan = if rescan.is_zero() { Duration::MAX } else { rescan };
        let mut next_scan = Instant::now().checked_add(rescan);
        loop {
            let wait = next_scan
                .map_or(Duration::from_hours(1), |at| at.saturating_duration_since(Instant::now()));
            match inbox.recv_timeout(wait) {
                Ok(question) => self.answer(question),
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {}
                Err(crossbeam_channel::RecvTimeoutError::Disconnected) => return,
            }
            if next_scan.is_some_and(|at| at <= Instant::now()) {
                self.answer(Question::Rescan);
                next_scan = Instant::now().checked_add(rescan);
            }
        }
    }

    fn answer(&self, question: Question) {
        match question {
            Question::List { session, query, patterns, cursor, limit } => {
                self.list(session, query, &patterns, cursor, limit);
            }
            Question::Request { session, query, patterns, hold } => {
                self.request(session, query, &patterns, !hold);
            }
            Question::Digests { session, toi } => self.digests(session, toi),
            Question::Rescan => match self.repository.refresh() {
                Ok(changes) if changes.is_empty() => {}
                Ok(changes) => tracing::info!(
                    "{} items added, {} replaced, {} removed",
                    changes.added.len(),
                    changes.replaced.len(),
                    changes.removed.len()
                ),
                Err(error) => tracing::warn!("cannot look for changes: {error}"),
            },
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
                let items = page.items.iter().map(|item| item.info()).collect();
                let (total, next) = (page.total, page.next);
                self.page(session, query, items, (total, next), false);
            }
        }
    }

    /// Answers with all items that match, each with its digest, which may have to be computed.
    fn request(&self, session: SessionId, query: u32, patterns: &[String], wanted: bool) {
        let catalog = self.repository.catalog();
        let mut cursor = 0;
        loop {
            let page = match catalog.select(patterns, cursor, PAGE_ITEMS as usize) {
                Ok(page) => page,
                Err(error) => return self.fail(session, query, error.to_string()),
            };
            if page.total == 0 {
                return self.fail(session, query, nothing(patterns));
            }
            let mut items = Vec::new();
            let mut room = control::MAX_BODY as usize / 2;
            let mut since = Instant::now();
            for item in &page.items {
                let mut info = item.info();
                match catalog.digest(item.toi()) {
                    Ok(digest) => info.digest = digest,
                    Err(error) => {
                        // The client is told as if the item vanished later.
                        tracing::warn!("{}: {error}", item.name());
                        let reason = error.to_string();
                        let toi = item.toi();
                        items.push(info);
                        self.page(
                            session,
                            query,
                            std::mem::take(&mut items),
                            (page.total, Some(1)),
                            wanted,
                        );
                        self.mailbox.put(SourceCommand::Gone { toi, reason });
                        continue;
                    }
                }
                room = room.saturating_sub(info.max_wire_len());
                items.push(info);
                if room == 0 || since.elapsed() > PAGE_TIME {
                    let items = std::mem::take(&mut items);
                    self.page(session, query, items, (page.total, Some(1)), wanted);
                    room = control::MAX_BODY as usize / 2;
                    since = Instant::now();
                }
            }
            self.page(session, query, items, (page.total, page.next), wanted);
            match page.next {
                Some(next) => cursor = next,
                None => return,
            }
        }
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

    fn digests(&self, session: SessionId, toi: Toi) {
        let catalog = self.repository.catalog();
        let partition =
            catalog.get(toi).and_then(|item| umbel_fec::Partition::new(&item.oti()).ok());
        let Some(partition) = partition else {
            return self.mailbox.put(SourceCommand::NoSuchItem { session, toi });
        };
        let blocks = partition.blocks();
        let mut first_block = 0;
        loop {
            let end = blocks.min(first_block + DIGESTS);
            let digests = match catalog.block_digests(toi, first_block..end) {
                Ok(digests) => digests,
                Err(error) => {
                    let reason = error.to_string();
                    return self.mailbox.put(SourceCommand::Gone { toi, reason });
                }
            };
            let more = end < blocks;
            let answer = SourceCommand::Digests { session, toi, first_block, digests, more };
            self.mailbox.put(answer);
            if !more {
                return;
            }
            first_block = end;
        }
    }
}

fn nothing(patterns: &[String]) -> String {
    if patterns.is_empty() {
        return "the server offers nothing".to_owned();
    }
    format!("nothing matches {}: see `umbel ls`", patterns.join(" "))
}
