//! NAKs: what clients say at the end of a transmission.

use std::collections::BTreeSet;

use umbel_wire::Toi;
use umbel_wire::repository::Need;

use super::transmission::Repair;
use super::{Source, SourceEvent};
use crate::repository::drops::DropReason;
use crate::repository::missing::Missing;
use crate::symbols::SymbolSource;
use crate::{Instant, SessionId};

/// Weight of a new sample in a client's loss estimate.
const LOSS_GAIN: f64 = 0.25;
/// By how much a loss estimate falls with a transmission that is not complained of: clients that
/// error correction saves from a NAK do not tell their loss.
const LOSS_DECAY: f64 = 0.1;
/// A transmission of fewer packets says less about loss.
const TELLING_PACKETS: f64 = 256.0;

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
            let honoured = self.config.policy.accepts(symbols) || joins;
            match gather_until {
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
        if !waiting
            && !self.config.gather_fully
            && let Some(repair) = self.repairs.get_mut(&toi)
        {
            repair.due = repair.due.min(now);
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

    /// Estimates a client's loss from what it tells in its NAKs [Repository §3.1].
    fn note_loss(&mut self, session: SessionId, received: u32, lost: u32) {
        let Some(client) = self.clients.get_mut(&session) else { return };
        if client.loss_is_known {
            return;
        }
        let total = u64::from(received) + u64::from(lost);
        if total == 0 {
            return;
        }
        let sample = f64::from(lost) / total as f64;
        let gain = LOSS_GAIN * (total as f64 / TELLING_PACKETS).min(1.0);
        client.loss += gain * (sample - client.loss);
        self.scheduler.set_fill(session, 1.0 - client.loss);
    }

    /// The application knows a client's loss: NAKs no longer change it.
    pub(super) fn know_loss(&mut self, session: SessionId, loss: f64) {
        if let Some(client) = self.clients.get_mut(&session) {
            client.loss = if loss.is_finite() { loss.clamp(0.0, 1.0) } else { 0.0 };
            client.loss_is_known = true;
            self.scheduler.set_fill(session, 1.0 - client.loss);
        }
    }

    /// Lets the loss estimates of a transmission's clients fall; NAKs raise them again.
    pub(super) fn doubt_losses(&mut self, clients: &BTreeSet<SessionId>, packets: u32) {
        let keep = 1.0 - LOSS_DECAY * (f64::from(packets) / TELLING_PACKETS).min(1.0);
        for session in clients {
            let client = self.clients.get_mut(session);
            if let Some(client) = client.filter(|c| c.loss > 0.0 && !c.loss_is_known) {
                client.loss *= keep;
                self.scheduler.set_fill(*session, 1.0 - client.loss);
            }
        }
    }
}
