//! Unicast: source blocks on the sessions of clients that multicast does not reach.
//!
//! Each such client has a thread, which waits while the client's stream is full. The engine's
//! thread only hands it the blocks to send. All threads together keep to the rate that the data
//! channel leaves of the server's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use umbel_engine::SessionId;
use umbel_engine::host::Mailbox;
use umbel_engine::repository::SourceCommand;
use umbel_engine::units::Rate;
use umbel_fec::Partition;
use umbel_net::session::SessionHandle;
use umbel_store::Content;
use umbel_wire::Toi;
use umbel_wire::repository::{Need, UnicastBlock};

use super::allowance::Allowance;

/// Idle time after which a courier ends.
const IDLE: Duration = Duration::from_secs(30);

/// Sends blocks to clients that multicast does not reach.
#[derive(Debug)]
pub(super) struct Couriers {
    shared: Arc<Shared>,
    rounds: BTreeMap<SessionId, Arc<Round>>,
}

#[derive(Debug)]
struct Shared {
    sessions: SessionHandle,
    content: Content,
    mailbox: Mailbox<SourceCommand>,
    bytes: AtomicU64,
    allowance: Allowance,
}

/// The jobs of one client's courier.
#[derive(Debug, Default)]
struct Round {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Jobs {
    line: VecDeque<(Toi, Need)>,
    /// The item being sent, unless it was stopped.
    current: Option<Toi>,
    closed: bool,
}

impl Couriers {
    pub(super) fn new(
        sessions: SessionHandle,
        content: Content,
        mailbox: Mailbox<SourceCommand>,
        rate: Rate,
    ) -> Couriers {
        let bytes = AtomicU64::new(0);
        let allowance = Allowance::new(rate, Instant::now());
        Couriers {
            shared: Arc::new(Shared { sessions, content, mailbox, bytes, allowance }),
            rounds: BTreeMap::new(),
        }
    }

    /// Returns the bytes of blocks handed to sessions.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Leaves multicast its share of the rate, given the bytes that it sent since the start.
    pub(super) fn make_way(&self, multicast_bytes: u64) {
        self.shared.allowance.measure(Instant::now(), multicast_bytes);
    }

    /// Sends what a client needs of an item, in place of a transmission of it that is under way.
    pub(super) fn serve(&mut self, session: SessionId, toi: Toi, need: Need) {
        self.stop(session, toi);
        let closed = self.rounds.get(&session).is_none_or(|round| round.lock().closed);
        if closed {
            let round = Arc::new(Round::default());
            self.rounds.insert(session, round.clone());
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new()
                .name("umbel-courier".to_owned())
                .stack_size(256 << 10)
                .spawn(move || shared.run(session, &round));
            if let Err(error) = thread {
                tracing::error!("no thread for unicast to session {}: {error}", session.0);
            }
        }
        if let Some(round) = self.rounds.get(&session) {
            round.lock().line.push_back((toi, need));
            round.changed.notify_one();
        }
    }

    /// Stops the transmission of an item to a client.
    pub(super) fn stop(&mut self, session: SessionId, toi: Toi) {
        if let Some(round) = self.rounds.get(&session) {
            let mut jobs = round.lock();
            jobs.line.retain(|(item, _)| *item != toi);
            jobs.current = jobs.current.filter(|current| *current != toi);
            round.changed.notify_one();
        }
    }

    /// Drops sessions that are over.
    pub(super) fn tidy(&mut self) {
        let sessions = &self.shared.sessions;
        self.rounds.retain(|session, round| {
            let mut jobs = round.lock();
            if sessions.remote(*session).is_none() {
                jobs.closed = true;
                jobs.current = None;
                round.changed.notify_one();
            }
            !jobs.closed
        });
    }
}

impl Drop for Couriers {
    fn drop(&mut self) {
        for round in self.rounds.values() {
            let mut jobs = round.lock();
            jobs.closed = true;
            jobs.current = None;
            round.changed.notify_one();
        }
    }
}

impl Round {
    fn lock(&self) -> std::sync::MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next item to send; `None` ends the courier.
    fn next(&self) -> Option<(Toi, Need)> {
        let jobs = self.lock();
        let (mut jobs, _) = self
            .changed
            .wait_timeout_while(jobs, IDLE, |jobs| jobs.line.is_empty() && !jobs.closed)
            .unwrap_or_else(PoisonError::into_inner);
        match jobs.line.pop_front() {
            Some((toi, need)) if !jobs.closed => {
                jobs.current = Some(toi);
                Some((toi, need))
            }
            _ => {
                jobs.closed = true;
                None
            }
        }
    }

    fn is_wanted(&self, toi: Toi) -> bool {
        self.lock().current == Some(toi)
    }

    /// Waits for this time. Returns whether the item is still wanted then.
    fn rest(&self, toi: Toi, wait: Duration) -> bool {
        let wanted = |jobs: &mut Jobs| jobs.current == Some(toi);
        let waited = self.changed.wait_timeout_while(self.lock(), wait, wanted);
        let (mut jobs, _) = waited.unwrap_or_else(PoisonError::into_inner);
        wanted(&mut jobs)
    }
}

impl Shared {
    fn run(&self, session: SessionId, round: &Round) {
        while let Some((toi, need)) = round.next() {
            if let Err(reason) = self.send(session, round, toi, &need) {
                tracing::info!("unicast of {} to session {} ended: {reason}", toi.0, session.0);
            }
        }
    }

    fn send(&self, session: SessionId, round: &Round, toi: Toi, need: &Need) -> Result<(), String> {
        let item = self.content.catalog().get(toi).ok_or("no such item")?;
        let partition = Partition::new(&item.oti()).map_err(|error| error.to_string())?;
        let mut writer = self.sessions.bulk(session).map_err(|error| error.to_string())?;
        for block in blocks(need, partition.blocks()) {
            if !round.is_wanted(toi) {
                return Err("stopped".to_owned());
            }
            let range = partition.block_range(block);
            let len = (range.end - range.start) as usize;
            let mut bytes = BytesMut::zeroed(UnicastBlock::LEN + len);
            let head = UnicastBlock { toi, block, len: len as u32 };
            bytes[..UnicastBlock::LEN].copy_from_slice(&head.emit());
            let read = self.content.read_at(toi, range.start, &mut bytes[UnicastBlock::LEN..]);
            if let Err(error) = read {
                let reason = error.to_string();
                self.mailbox.put(SourceCommand::Gone { toi, reason: reason.clone() });
                return Err(reason);
            }
            let wait = self.allowance.reserve(Instant::now(), bytes.len() as u64);
            if !round.rest(toi, wait) {
                return Err("stopped".to_owned());
            }
            let bytes: Bytes = bytes.freeze();
            writer.write(bytes).map_err(|error| error.to_string())?;
            self.bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
        writer.finish();
        Ok(())
    }
}

/// Returns the blocks that a need touches, each once, in order.
fn blocks(need: &Need, all: u32) -> Vec<u32> {
    let mut blocks: Vec<u32> = match need {
        Need::Whole => (0..all).collect(),
        Need::Symbols(runs) => runs
            .iter()
            .flat_map(|run| run.first_block..run.first_block.saturating_add(run.blocks).min(all))
            .collect(),
        Need::Exact(runs) => runs.iter().map(|run| run.block).filter(|&b| b < all).collect(),
    };
    blocks.dedup();
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_wire::repository::{NeedRun, SymbolRun};

    #[test]
    fn a_need_names_each_block_once() {
        assert_eq!(blocks(&Need::Whole, 3), [0, 1, 2]);
        let run = |first_block, blocks| NeedRun { first_block, blocks, symbols: 1 };
        assert_eq!(blocks(&Need::Symbols(vec![run(1, 2), run(9, u32::MAX)]), 10), [1, 2, 9]);
        let run = |block, first_esi| SymbolRun { block, first_esi, count: 1 };
        assert_eq!(blocks(&Need::Exact(vec![run(1, 0), run(1, 5), run(12, 0)]), 10), [1]);
    }
}
