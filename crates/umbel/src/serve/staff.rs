//! The staff of a real server.

use std::time::Duration;

use umbel_engine::SessionId;
use umbel_engine::host::Mailbox;
use umbel_engine::repository::SourceCommand;
use umbel_engine::shares::Origin;
use umbel_engine::units::Rate;
use umbel_net::session::SessionHandle;
use umbel_store::{BlockReader, Repository};
use umbel_wire::repository::{GroupSecret, Need};
use umbel_wire::{Oti, Toi};

use super::courier::Couriers;
use super::host::Staff;
use super::librarian::{self, Librarians, Question};
use super::prober::{Burst, ProbeChannel, Prober};
use crate::endpoint::random;

/// Staff that works on its own threads.
#[derive(Debug)]
pub(super) struct Threads {
    repository: Repository,
    sessions: SessionHandle,
    librarian: Librarians,
    couriers: Couriers,
    prober: Prober,
}

impl Threads {
    pub(super) fn start(
        repository: &Repository,
        sessions: SessionHandle,
        answers: &Mailbox<SourceCommand>,
        probes: ProbeChannel,
        rescan: Duration,
        rate: Rate,
    ) -> std::io::Result<Threads> {
        Ok(Threads {
            librarian: librarian::start(repository.clone(), answers.clone(), rescan)?,
            couriers: Couriers::new(sessions.clone(), repository.content(), answers.clone(), rate),
            prober: Prober::start(probes, answers.clone())?,
            repository: repository.clone(),
            sessions,
        })
    }
}

impl Staff for Threads {
    type Symbols = BlockReader;

    fn ask(&mut self, question: Question) {
        self.librarian.ask(question);
    }

    fn item(&self, toi: Toi) -> Option<(String, Oti)> {
        let item = self.repository.catalog().get(toi)?;
        Some((item.name().to_owned(), item.oti()))
    }

    fn counts(&self, toi: Toi) -> bool {
        let item = self.repository.catalog().get(toi);
        item.is_none_or(|item| !item.kind().is_directory())
    }

    fn serve_unicast(&mut self, session: SessionId, toi: Toi, need: Need) {
        self.couriers.serve(session, toi, need);
    }

    fn stop_unicast(&mut self, session: SessionId, toi: Toi) {
        self.couriers.stop(session, toi);
    }

    fn unicast_bytes(&self) -> u64 {
        self.couriers.bytes()
    }

    fn make_way(&self, multicast_bytes: u64) {
        self.couriers.make_way(multicast_bytes);
    }

    fn burst(&mut self, burst: Burst) {
        // A client that has left needs no answer.
        if let Some(client) = self.sessions.remote(burst.session) {
            self.prober.burst(burst, Origin::of(client.ip()));
        }
    }

    fn draw_secret(&mut self) -> Result<GroupSecret, String> {
        random().map(GroupSecret).map_err(|error| format!("{error:#}"))
    }

    fn close(&mut self, session: SessionId, reason: &str) {
        self.sessions.close(session, reason);
    }

    fn forget(&mut self, session: SessionId) {
        self.librarian.forget(session);
    }

    fn bar(&mut self, session: SessionId) {
        self.sessions.bar(session);
    }

    fn remote(&self, session: SessionId) -> Option<String> {
        self.sessions.remote(session).map(|address| address.to_string())
    }

    fn rtt(&self, session: SessionId) -> Option<Duration> {
        self.sessions.rtt(session)
    }

    fn tidy(&mut self) {
        self.couriers.tidy();
    }
}
