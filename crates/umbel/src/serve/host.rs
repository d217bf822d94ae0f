//! What the server's engine asks of the rest of the server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::Sender;
use umbel_engine::repository::{Source, SourceCommand, SourceEvent};
use umbel_engine::{Engine, Instant, SessionId};
use umbel_net::driver::{Host, Io, Mailbox};
use umbel_net::session::SessionHandle;
use umbel_store::{BlockReader, Repository};

use super::courier::Couriers;
use super::librarian::{self, Question};
use super::prober::{Burst, ProbeChannel, Prober};
use super::status::{ClientReport, Report};

/// Round trip times are looked up this often.
const RTT_EVERY: Duration = Duration::from_secs(1);

/// The server around its engine.
#[derive(Debug)]
pub(super) struct ServeHost {
    repository: Repository,
    sessions: SessionHandle,
    questions: Sender<Question>,
    couriers: Couriers,
    prober: Prober,
    report: Arc<Mutex<Report>>,
    delivered: u64,
    satisfied: u64,
    next_rtts: Instant,
}

impl ServeHost {
    pub(super) fn start(
        repository: &Repository,
        sessions: SessionHandle,
        mailbox: Mailbox<SourceCommand>,
        report: Arc<Mutex<Report>>,
        probe_channel: ProbeChannel,
        rescan: Duration,
    ) -> std::io::Result<ServeHost> {
        Ok(ServeHost {
            questions: librarian::start(repository.clone(), mailbox.clone(), rescan)?,
            couriers: Couriers::new(sessions.clone(), repository.content(), mailbox.clone()),
            prober: Prober::start(probe_channel, mailbox)?,
            repository: repository.clone(),
            sessions,
            report,
            delivered: 0,
            satisfied: 0,
            next_rtts: Instant::EPOCH,
        })
    }

    fn ask(&self, question: Question) {
        // The librarian ends with the server only.
        let _ = self.questions.send(question);
    }

    fn publish(&mut self, source: &Source<BlockReader>, io: &mut Io) {
        let stats = source.stats();
        let clients = source
            .clients()
            .map(|(session, status)| ClientReport {
                session: session.0,
                address: self.sessions.remote(session).map(|address| address.to_string()),
                wanted: status.wanted,
                by_unicast: status.by_unicast,
                loss: status.loss,
                rtt_ms: status.rtt.as_secs_f64() * 1e3,
            })
            .collect();
        let report = Report {
            clients,
            rate_bits_per_s: source.rate().bits_per_s(),
            pending_items: source.pending_items(),
            packets: stats.packets,
            bytes: stats.bytes,
            transmissions: stats.transmissions,
            repairs: stats.repairs,
            naks: stats.naks,
            clients_on_control: source.clients_on_control(),
            control_repairs: source.control_stats().map_or(0, |(stats, _)| stats.repairs_sent),
            control_forged: source.control_stats().map_or(0, |(_, forged)| forged),
            delivered: self.delivered,
            satisfied: self.satisfied,
            unicast_bytes: self.couriers.bytes(),
            drops: source.drops().to_string(),
            trouble: io.transient_error.take().map(|error| error.to_string()),
        };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

impl Host<Source<BlockReader>> for ServeHost {
    fn post(&mut self, session: SessionId, message: Bytes) {
        // A session that has ended is told to the engine by its own event.
        let _ = self.sessions.send(session, message);
    }

    fn event(
        &mut self,
        now: Instant,
        source: &mut Source<BlockReader>,
        io: &mut Io,
        event: SourceEvent,
    ) {
        match event {
            SourceEvent::List { session, query, patterns, cursor, limit } => {
                self.ask(Question::List { session, query, patterns, cursor, limit });
            }
            SourceEvent::Request { session, query, patterns, hold } => {
                self.ask(Question::Request { session, query, patterns, hold });
            }
            SourceEvent::Lookup { session, toi, need } => {
                let answer = match self.repository.catalog().get(toi) {
                    Some(item) => SourceCommand::Want { session, toi, oti: item.oti(), need },
                    None => SourceCommand::NoSuchItem { session, toi },
                };
                let Ok(()) = source.handle_command(now, answer);
            }
            SourceEvent::ServeUnicast { session, toi, need } => {
                self.couriers.serve(session, toi, need);
            }
            SourceEvent::StopUnicast { session, toi } => self.couriers.stop(session, toi),
            SourceEvent::Digests { session, toi } => self.ask(Question::Digests { session, toi }),
            SourceEvent::Probe { session, probe, packets, packet_len, rate_bits_per_s } => {
                let burst = Burst { session, probe, packets, packet_len, rate_bits_per_s };
                self.prober.burst(burst);
            }
            SourceEvent::CloseSession { session, reason } => self.sessions.close(session, &reason),
            SourceEvent::Delivered { .. } => self.delivered += 1,
            SourceEvent::ItemLost { toi, reason } => {
                let name = self.repository.catalog().get(toi).map(|item| item.name().to_owned());
                tracing::warn!("{}: {reason}", name.unwrap_or_default());
                // The next client should be offered what is there now.
                self.ask(Question::Rescan);
            }
            SourceEvent::Rate { rate } => {
                if let Some((_, pacer)) = &mut io.sender {
                    pacer.set_rate(Some(rate), now);
                }
            }
            SourceEvent::Satisfied { session, after } => {
                self.satisfied += 1;
                tracing::info!("session {} has all it wanted after {after:?}", session.0);
            }
        }
    }

    fn tick(&mut self, now: Instant, source: &mut Source<BlockReader>, io: &mut Io) {
        if now >= self.next_rtts {
            self.next_rtts = now + RTT_EVERY;
            let sessions: Vec<SessionId> = source.clients().map(|(session, _)| session).collect();
            for session in sessions {
                if let Some(rtt) = self.sessions.rtt(session) {
                    let update = SourceCommand::SessionRtt { session, rtt };
                    let Ok(()) = source.handle_command(now, update);
                }
            }
            self.couriers.tidy();
        }
        self.publish(source, io);
    }
}
