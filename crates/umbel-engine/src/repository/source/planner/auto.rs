//! The policy `auto` chooses each transmission and its size from the clients' missing symbols and
//! losses.
//!
//! Each transmission is a decision of its own. The scheduler chooses the item. Its gain rule also
//! names the clients that the transmission should satisfy, and thus the number of symbols of each
//! block. The symbols count as delivered to every listener until NAKs say otherwise.
//!
//! NAKs of an item are gathered, and return the blocks that they name to the scheduler. A repair is
//! a short burst like any other. A large item goes out in segments, and another item that gains
//! more comes in between.
//!
//! A share of the channel goes to the oldest request, whatever it gains, so that no client waits
//! forever: see [`SourceConfig::oldest_share`].
//!
//! [`SourceConfig::oldest_share`]: crate::repository::config::SourceConfig::oldest_share

use umbel_wire::Toi;

use super::gathering::Gathering;
use super::{Desk, Lack};
use crate::repository::scheduler::{Aim, Target};
use crate::repository::source::transmission::{Purpose, Transmission};
use crate::repository::source::wanted::Wanted;
use crate::{Instant, SessionId};

/// The planner of the policy `auto`.
#[derive(Debug)]
pub(in crate::repository::source) struct Auto {
    oldest_share: f64,
    /// Packets owed to the oldest request.
    oldest_credit: f64,
    /// NAKs that wait for others.
    gathering: Gathering,
}

impl Auto {
    pub(super) fn new(oldest_share: f64) -> Auto {
        Auto { oldest_share, oldest_credit: 0.0, gathering: Gathering::default() }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.gathering.next_due()
    }

    /// Plans the transmission that gains the most, or, in its turn, the one for the oldest request.
    pub(super) fn plan(&mut self, desk: &mut Desk<'_>) -> Option<Transmission> {
        let now = desk.now;
        while let Some((toi, needs)) = self.gathering.take_due(now) {
            for (session, missing) in needs {
                desk.wanted.lack(now, (session, toi), &missing, false);
            }
        }
        let best = desk.wanted.scheduler.choose(now)?;
        let oldest = desk.wanted.scheduler.oldest().filter(|_| self.oldest_credit > 0.0);
        let toi = oldest.unwrap_or(best);
        let aim = match oldest {
            Some(_) => Aim::Oldest,
            None if desk.wanted.get(toi)?.partition.blocks() > 1 => Aim::Nearest,
            None => Aim::Best,
        };
        let targets = desk.wanted.scheduler.targets(toi, aim);
        let transmission = plan_for(desk, toi, &targets)?;
        let packets = f64::from(transmission.packets);
        match aim {
            Aim::Oldest => self.oldest_credit -= packets * (1.0 - self.oldest_share),
            _ => self.oldest_credit += packets * self.oldest_share,
        }
        let blocks: Vec<u32> = transmission.plan().iter().map(|run| run.block).collect();
        for &session in &transmission.participants {
            desk.wanted.expect(now, session, toi, &blocks);
        }
        Some(transmission)
    }

    pub(super) fn on_nak(&mut self, now: Instant, wanted: &mut Wanted, lack: Lack) {
        let Lack { session, toi, missing, gather_until } = lack;
        match gather_until {
            Some(due) => self.gathering.add(toi, session, &missing, due),
            None => wanted.lack(now, (session, toi), &missing, false),
        }
    }

    pub(super) fn on_all_answered(&mut self, now: Instant, wanted: &mut Wanted, toi: Toi) {
        for (session, missing) in self.gathering.take(toi).unwrap_or_default() {
            wanted.lack(now, (session, toi), &missing, false);
        }
    }

    pub(super) fn forget(&mut self, session: SessionId, toi: Toi) {
        self.gathering.forget(toi, session);
    }

    pub(super) fn forget_item(&mut self, toi: Toi) {
        self.gathering.take(toi);
    }
}

/// Plans the first blocks that these clients are missing, up to one segment.
fn plan_for(desk: &mut Desk<'_>, toi: Toi, targets: &[Target]) -> Option<Transmission> {
    let item = desk.wanted.get_mut(toi)?;
    let limit = desk.segments.packets(item.demands.len());
    let mut audience = item.audience(targets);
    let first = audience.next_block(0)?;
    let repair = audience.is_repair(first);
    let mut plan = Vec::new();
    let (mut packets, mut end) = (0, first);
    let mut next = Some(first);
    while let Some(block) = next.filter(|_| packets < limit) {
        // A NAK reports on the whole run of blocks. Between a repair and the blocks sent for the
        // first time lie blocks whose answers are still awaited.
        if block > end && audience.is_repair(block) != repair {
            break;
        }
        packets += audience.plan_block(block, &mut plan);
        end = block + 1;
        next = audience.next_block(end);
    }
    let purpose = if repair { Purpose::Repair } else { Purpose::Pass };
    let participants = item.who_lack(first..end);
    Some(Transmission::new((toi, item.oti), purpose, (first..end, plan), participants))
}
