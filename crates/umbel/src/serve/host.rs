//! The server around its engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use umbel_engine::host::{Host, Io, SessionNews, Trouble};
use umbel_engine::repository::{Source, SourceCommand, SourceEvent};
use umbel_engine::symbols::SymbolSource;
use umbel_engine::units::Rate;
use umbel_engine::{Instant, RateClass, SessionId};
use umbel_wire::repository::{GroupSecret, Need};
use umbel_wire::{Oti, Toi};

use super::librarian::Question;
use super::prober::Burst;
use super::status::{ClientReport, Report};
use crate::endpoint::pace::LimitReport;

/// Interval at which round trip times are looked up.
const RTT_EVERY: Duration = Duration::from_secs(1);

/// Interval at which the status is published.
const TICK: Duration = Duration::from_millis(100);

/// Input of the server's host.
#[derive(Debug)]
pub(crate) enum Input {
    /// News of a session.
    Session(SessionNews),
    /// An answer of the staff to the engine.
    Answer(SourceCommand),
    /// Ends the loop.
    Stop,
}

/// The staff of a server's engine, which does the slow work. It answers by the engine's mailbox.
pub(crate) trait Staff {
    /// The source of the engine's symbols.
    type Symbols: SymbolSource;

    /// Sends a question to the librarian.
    fn ask(&mut self, question: Question);

    /// Looks up an item's name and how it is divided into blocks.
    fn item(&self, toi: Toi) -> Option<(String, Oti)>;

    /// Returns whether people count an item as one: a directory is kept along with its files.
    fn counts(&self, _toi: Toi) -> bool {
        true
    }

    /// Sends what a client needs of an item on its session.
    fn serve_unicast(&mut self, session: SessionId, toi: Toi, need: Need);

    /// Stops sending an item on a session.
    fn stop_unicast(&mut self, session: SessionId, toi: Toi);

    /// Returns the bytes sent on sessions.
    fn unicast_bytes(&self) -> u64;

    /// Takes note of the bytes sent by multicast, whose share of the rate unicast leaves free.
    fn make_way(&self, _multicast_bytes: u64) {}

    /// Sends a burst of probe packets.
    fn burst(&mut self, burst: Burst);

    /// Draws the secret of a group key, which nobody can predict.
    ///
    /// # Errors
    ///
    /// One line that says why the system gives no randomness.
    fn draw_secret(&mut self) -> Result<GroupSecret, String>;

    /// Closes a session.
    fn close(&mut self, session: SessionId, reason: &str);

    /// Forgets the questions of a session that is over.
    fn forget(&mut self, _session: SessionId) {}

    /// Lets the address of a session that showed a wrong token wait for its next one.
    fn bar(&mut self, session: SessionId);

    /// Returns a client's address.
    fn remote(&self, session: SessionId) -> Option<String>;

    /// Returns the current round trip time of a client.
    fn rtt(&self, session: SessionId) -> Option<Duration>;

    /// Drops sessions that are over.
    fn tidy(&mut self);
}

/// The server around its engine.
#[derive(Debug)]
pub(crate) struct ServeHost<T> {
    staff: T,
    report: Arc<Mutex<Report>>,
    delivered: u64,
    satisfied: u64,
    next_rtts: Instant,
    /// Whether the engine waits for the secret of a group key.
    secret_wanted: bool,
    /// Reason why packets could not leave since the last published status.
    trouble: Option<String>,
    /// Clients whose paths carry less than the channel's rate, and what they carry.
    aside: BTreeMap<SessionId, Rate>,
}

impl<T: Staff> ServeHost<T> {
    pub(crate) fn new(staff: T, report: Arc<Mutex<Report>>) -> ServeHost<T> {
        ServeHost {
            staff,
            report,
            delivered: 0,
            satisfied: 0,
            next_rtts: Instant::EPOCH,
            secret_wanted: false,
            trouble: None,
            aside: BTreeMap::new(),
        }
    }

    /// Returns the rate that a client's path carries, if it gets its items apart because of that.
    fn aside_of(&self, session: SessionId, by_unicast: usize) -> Option<u64> {
        self.aside.get(&session).filter(|_| by_unicast > 0).map(|carries| carries.bits_per_s())
    }

    fn publish(&mut self, now: Instant, source: &Source<T::Symbols>) {
        let stats = source.stats();
        self.staff.make_way(stats.bytes);
        let clients = source
            .clients()
            .map(|(session, status)| ClientReport {
                session: session.0,
                address: self.staff.remote(session),
                wanted: status.wanted,
                by_unicast: status.by_unicast,
                loss: status.loss,
                rtt_ms: status.rtt.as_secs_f64() * 1e3,
                aside_bits_per_s: self.aside_of(session, status.by_unicast),
            })
            .collect();
        let report = Report {
            clients,
            rate_bits_per_s: source.rate().bits_per_s(),
            limit: source.limit().map(|(limit, since)| {
                LimitReport::new(&limit, now.since(since), |who| self.staff.remote(*who))
            }),
            pending_items: source.pending_items(),
            packets: stats.packets,
            bytes: stats.bytes,
            transmissions: stats.transmissions,
            repairs: stats.repairs,
            key_changes: source.key_changes(),
            naks: stats.naks,
            clients_on_control: source.clients_on_control(),
            control_repairs: source.control_stats().map_or(0, |(stats, _)| stats.repairs_sent),
            control_forged: source.control_stats().map_or(0, |(_, forged)| forged),
            delivered: self.delivered,
            satisfied: self.satisfied,
            unicast_bytes: self.staff.unicast_bytes(),
            drops: source.drops().to_string(),
            trouble: self.trouble.take(),
        };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// The host's access to its machine.
type Machine<'a, T> = dyn Io<Source<<T as Staff>::Symbols>> + 'a;

/// Sends a command that is never refused.
fn tell<S: SymbolSource>(io: &mut dyn Io<Source<S>>, command: SourceCommand) {
    let Ok(()) = io.command(command);
}

impl<T: Staff> ServeHost<T> {
    /// Draws the secret that the engine waits for. Tries again later if there is no randomness;
    /// meanwhile the key is not changed.
    fn draw_secret(&mut self, io: &mut Machine<'_, T>) {
        if !self.secret_wanted {
            return;
        }
        match self.staff.draw_secret() {
            Ok(secret) => {
                self.secret_wanted = false;
                tell(io, SourceCommand::Secret(secret));
            }
            Err(reason) => tracing::warn!("the group key is not changed: {reason}"),
        }
    }
}

impl<T: Staff> Host<Source<T::Symbols>> for ServeHost<T> {
    type Input = Input;

    fn start(&mut self, io: &mut Machine<'_, T>) {
        io.wake_at(Some(io.now()));
    }

    fn input(&mut self, io: &mut Machine<'_, T>, input: Input) {
        match input {
            Input::Session(SessionNews::Opened { session, remote, rtt }) => {
                tell(io, SourceCommand::SessionOpened { session, remote, rtt });
            }
            Input::Session(SessionNews::Message { session, message }) => {
                io.message(session, &message);
            }
            Input::Session(SessionNews::Closed { session, .. }) => {
                self.staff.forget(session);
                self.aside.remove(&session);
                tell(io, SourceCommand::SessionClosed { session });
            }
            // Clients send none.
            Input::Session(SessionNews::Bulk { .. }) => {}
            Input::Answer(command) => tell(io, command),
            Input::Stop => io.stop(),
        }
    }

    fn event(&mut self, io: &mut Machine<'_, T>, event: SourceEvent) {
        match event {
            SourceEvent::List { session, query, patterns, cursor, limit } => {
                self.staff.ask(Question::List { session, query, patterns, cursor, limit });
            }
            SourceEvent::Request { session, query, patterns, hold } => {
                self.staff.ask(Question::Request { session, query, patterns, hold });
            }
            SourceEvent::Lookup { session, toi, need } => {
                let answer = match self.staff.item(toi) {
                    Some((_, oti)) => SourceCommand::Want { session, toi, oti, need },
                    None => SourceCommand::NoSuchItem { session, toi },
                };
                tell(io, answer);
            }
            SourceEvent::ServeUnicast { session, toi, need } => {
                self.staff.serve_unicast(session, toi, need);
            }
            SourceEvent::StopUnicast { session, toi } => self.staff.stop_unicast(session, toi),
            SourceEvent::Digests { session, toi } => {
                self.staff.ask(Question::Digests { session, toi });
            }
            SourceEvent::SymbolDigests { session, toi, key, symbols } => {
                self.staff.ask(Question::SymbolDigests { session, toi, key, symbols });
            }
            SourceEvent::Probe { session, probe, packets, packet_len, rate_bits_per_s } => {
                let burst = Burst { session, probe, packets, packet_len, rate_bits_per_s };
                self.staff.burst(burst);
            }
            SourceEvent::DrawSecret => {
                self.secret_wanted = true;
                self.draw_secret(io);
            }
            SourceEvent::CloseSession { session, reason, guess } => {
                if guess {
                    self.staff.bar(session);
                }
                self.staff.close(session, &reason);
            }
            SourceEvent::Delivered { toi, .. } => {
                self.delivered += u64::from(self.staff.counts(toi));
            }
            SourceEvent::ItemLost { toi, reason } => {
                let name = self.staff.item(toi).map(|(name, _)| name);
                tracing::warn!("{}: {reason}", name.unwrap_or_default());
                // The next client should be offered the current content.
                self.staff.ask(Question::Rescan);
            }
            SourceEvent::Rate { rate } => io.set_pace(RateClass::Data, Some(rate)),
            SourceEvent::Aside { session, carries } => {
                self.aside.insert(session, carries);
            }
            SourceEvent::Satisfied { session, after } => {
                self.satisfied += 1;
                tracing::info!("session {} has all it wanted after {after:?}", session.0);
            }
        }
    }

    fn wake(&mut self, io: &mut Machine<'_, T>) {
        let now = io.now();
        io.wake_at(Some(now + TICK));
        self.draw_secret(io);
        if now >= self.next_rtts {
            self.next_rtts = now + RTT_EVERY;
            let sessions: Vec<SessionId> =
                io.engine().clients().map(|(session, _)| session).collect();
            for session in sessions {
                if let Some(rtt) = self.staff.rtt(session) {
                    tell(io, SourceCommand::SessionRtt { session, rtt });
                }
            }
            self.staff.tidy();
        }
        self.publish(now, io.engine());
    }

    fn trouble(&mut self, _io: &mut Machine<'_, T>, trouble: Trouble) {
        match trouble {
            Trouble::NotSent { reason } | Trouble::NotJoined { reason, .. } => {
                self.trouble = Some(reason);
            }
            // Members of the control group repair losses.
            Trouble::Overrun { .. } => {}
        }
    }
}
