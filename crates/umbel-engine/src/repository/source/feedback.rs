//! NAKs: what clients say at the end of a transmission.

use std::collections::BTreeSet;

use umbel_wire::Toi;
use umbel_wire::repository::Need;

use super::loss::Loss;
use super::transmission::Repair;
use super::{Source, SourceEvent};
use crate::repository::drops::DropReason;
use crate::repository::missing::Missing;
use crate::repository::policy::Policy;
use crate::symbols::SymbolSource;
use crate::{Instant, SessionId};

impl<S: SymbolSource> Source<S> {
    /// A client says what a transmission left missing [Repository §3.2.3].
    pub(super) fn on_nak(
        &mut self,
        now: Instant,
        session: SessionId,
        transmission: u32,
        toi: Toi,
        need: &Need,
        (received, lost): (u32, u32),
    ) {
        self.stats.naks += 1;
        self.note_loss(session, received, lost);
        if let Some(running) = self.queue.iter_mut().find(|t| t.id == transmission) {
            // Too early: the client thinks that the transmission is over. It hears when it is.
            running.nudged.insert(session);
            return self.drops.count(DropReason::StaleNak);
        }
        let Some(item) = self.items.get_mut(&toi) else {
            return self.drops.count(DropReason::NotWanted);
        };
        let Some(demand) = item.demands.get_mut(&session) else {
            return self.drops.count(DropReason::NotWanted);
        };
        let missing = Missing::from_need(need, &item.partition);
        let symbols = missing.symbols(&item.partition);
        let ended = self.ended.get(&(toi, transmission));
        let gather_until = ended.map(|ended| ended.gather_until);
        if symbols > 0 {
            let joins = self.config.join_repairs && self.repairs.contains_key(&toi);
            let honoured = match self.config.policy {
                Policy::Auto => false,
                Policy::HandSet(policy) => policy.accepts(symbols) || joins,
            };
            match gather_until {
                Some(due) if self.config.policy == Policy::Auto => {
                    self.gathering.add(toi, session, &missing, due);
                }
                Some(due) if honoured => {
                    let repair = self.repairs.entry(toi).or_insert_with(|| Repair {
                        missing: Missing::default(),
                        participants: BTreeSet::new(),
                        due,
                    });
                    repair.missing.merge(&missing);
                    repair.participants.insert(session);
                }
                _ => {
                    demand.missing.merge(&missing);
                    let missing = &item.demands[&session].missing;
                    let symbols = item.outstanding(missing, self.config.reschedule_whole);
                    self.schedule(now, session, toi, symbols);
                }
            }
        }
        self.on_answer(now, session, toi);
    }

    /// A client has said what it lacks of an item, or that it lacks nothing. When all have, the
    /// retransmission need not wait for more.
    pub(super) fn on_answer(&mut self, now: Instant, session: SessionId, toi: Toi) {
        let mut waiting = false;
        for ended in self.ended.range_mut((toi, 0)..=(toi, u32::MAX)).map(|(_, e)| e) {
            ended.unanswered.remove(&session);
            waiting |= !ended.unanswered.is_empty() && ended.gather_until > now;
        }
        if waiting || self.config.gather_fully {
            return;
        }
        if let Some(repair) = self.repairs.get_mut(&toi) {
            repair.due = repair.due.min(now);
        }
        for (session, missing) in self.gathering.take(toi).unwrap_or_default() {
            self.lack(now, session, toi, &missing);
        }
    }

    /// Changes the channel's rate if clients cannot take it, or can again.
    pub(super) fn review_rate(&mut self, now: Instant) {
        if !self.throttle.is_due(now) {
            return;
        }
        let served = self.clients.values().filter(|c| c.unicast.len() < c.wanted.len()).count();
        let (sent, next) = (self.stats.packets, self.next_transmission);
        if let Some(rate) = self.throttle.review(now, served, sent, next) {
            self.events.push_back(SourceEvent::Rate { rate });
        }
    }

    /// Estimates a client's loss from what it tells [Repository §3.1].
    pub(super) fn note_loss(&mut self, session: SessionId, received: u32, lost: u32) {
        self.usual_loss.hear(received, lost);
        self.change_loss(session, |loss| loss.hear(received, lost));
    }

    /// The application knows a client's loss: it is estimated no longer.
    pub(super) fn know_loss(&mut self, session: SessionId, share: f64) {
        self.change_loss(session, |loss| *loss = Loss::known(share));
    }

    /// Lets the loss estimates of a transmission's clients fall; what they then lack raises them
    /// again.
    pub(super) fn doubt_losses(&mut self, clients: &BTreeSet<SessionId>, packets: u32) {
        for &session in clients {
            self.change_loss(session, |loss| loss.doubt(packets));
        }
    }

    fn change_loss(&mut self, session: SessionId, change: impl FnOnce(&mut Loss)) {
        if let Some(client) = self.clients.get_mut(&session) {
            let before = client.loss;
            change(&mut client.loss);
            if client.loss != before {
                self.scheduler.set_fill(session, 1.0 - client.loss.share());
            }
        }
    }
}
