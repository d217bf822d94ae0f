//! The policy `auto`: what is sent next, and how much of it, follows from what clients lack and
//! lose.
//!
//! Each transmission is a decision of its own. The scheduler chooses the item; its gain rule also
//! says whom the transmission should satisfy, and with it how many symbols of each block are
//! sent. They count as delivered to everyone who listens, until NAKs say otherwise. NAKs of an
//! item are gathered, and put what they name back to the scheduler: a repair is a short burst
//! like any other. A large item goes out in segments [`SourceConfig::segment`], and another item
//! that gains more comes in between.
//!
//! A share of the channel goes to the oldest request, whatever it gains, so that no client waits
//! for ever: see [`SourceConfig::oldest_share`].
//!
//! [`SourceConfig::segment`]: crate::repository::config::SourceConfig::segment
//! [`SourceConfig::oldest_share`]: crate::repository::config::SourceConfig::oldest_share

use umbel_wire::Toi;

use super::Source;
use super::transmission::{Purpose, Transmission};
use crate::repository::missing::Missing;
use crate::repository::scheduler::{Aim, Target};
use crate::symbols::SymbolSource;
use crate::{Instant, SessionId};

impl<S: SymbolSource> Source<S> {
    /// Plans the transmission that gains the most, or, in its turn, the one for the oldest
    /// request.
    pub(super) fn plan_auto(&mut self, now: Instant) -> Option<Transmission> {
        while let Some((toi, needs)) = self.gathering.take_due(now) {
            for (session, missing) in needs {
                self.lack(now, session, toi, &missing);
            }
        }
        let best = self.scheduler.choose(now)?;
        let oldest = self.scheduler.oldest().filter(|_| self.oldest_credit > 0.0);
        let toi = oldest.unwrap_or(best);
        let aim = match oldest {
            Some(_) => Aim::Oldest,
            None if self.items.get(&toi)?.partition.blocks() > 1 => Aim::Nearest,
            None => Aim::Best,
        };
        let targets = self.scheduler.targets(toi, aim);
        let transmission = self.plan_for(toi, &targets)?;
        let packets = f64::from(transmission.packets);
        match aim {
            Aim::Oldest => self.oldest_credit -= packets * (1.0 - self.config.oldest_share),
            _ => self.oldest_credit += packets * self.config.oldest_share,
        }
        let blocks: Vec<u32> = transmission.plan().iter().map(|run| run.block).collect();
        for &session in &transmission.participants {
            self.expect(now, session, toi, &blocks);
        }
        Some(transmission)
    }

    /// Plans the first blocks that these clients lack, as much as one segment takes.
    fn plan_for(&mut self, toi: Toi, targets: &[Target]) -> Option<Transmission> {
        let limit = self.segment_packets(toi);
        let item = self.items.get_mut(&toi)?;
        let mut audience = item.audience(targets);
        let first = audience.next_block(0)?;
        let repair = audience.is_repair(first);
        let mut plan = Vec::new();
        let (mut packets, mut end) = (0, first);
        let mut next = Some(first);
        while let Some(block) = next.filter(|_| packets < limit) {
            // A NAK tells of the whole run of blocks. Between a repair and what is sent for the
            // first time lie blocks of which the answers are still awaited.
            if block > end && audience.is_repair(block) != repair {
                break;
            }
            packets += audience.plan_block(block, &mut plan);
            end = block + 1;
            next = audience.next_block(end);
        }
        let (what, participants) = ((toi, item.oti), item.who_lack(first..end));
        let purpose = if repair { Purpose::Repair } else { Purpose::Pass };
        let id = self.take_transmission_id();
        let mut transmission = Transmission::new(id, what, purpose, first..end, plan);
        transmission.participants = participants;
        Some(transmission)
    }

    /// Takes it that a client will have these blocks, until it says otherwise.
    pub(super) fn expect(&mut self, now: Instant, session: SessionId, toi: Toi, blocks: &[u32]) {
        let Some(item) = self.items.get_mut(&toi) else { return };
        let Some(demand) = item.demands.get_mut(&session) else { return };
        for &block in blocks {
            demand.missing.clear(block..block + 1);
        }
        let symbols = demand.missing.symbols(&item.partition);
        self.schedule(now, session, toi, symbols);
    }

    /// A transmission is over. Who has all of an item says so, with what it lost; who got only
    /// some blocks of it may have been saved by error correction.
    pub(super) fn finish_auto(&mut self, transmission: &Transmission) {
        let item = self.items.get(&transmission.toi);
        if item.is_some_and(|item| item.partition.blocks() > 1) {
            self.doubt_losses(&transmission.participants, transmission.packets);
        }
    }

    /// A client lacks this, too.
    pub(super) fn lack(&mut self, now: Instant, session: SessionId, toi: Toi, missing: &Missing) {
        let Some(item) = self.items.get_mut(&toi) else { return };
        let Some(demand) = item.demands.get_mut(&session) else { return };
        demand.missing.merge(missing);
        let symbols = demand.missing.symbols(&item.partition);
        self.schedule(now, session, toi, symbols);
    }
}
