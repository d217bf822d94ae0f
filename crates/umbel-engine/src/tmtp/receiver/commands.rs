//! What the application asks of a receiver.

use umbel_wire::tmtp::{BlockRun, ReceiverState, limits};

use super::{Receiver, Stage};
use crate::symbols::SymbolSink;
use crate::tmtp::api::{ReceiverCommand, ReceiverCommandError, ReceiverEvent};
use crate::tmtp::text::cut;
use crate::{Instant, Membership};

impl<K: SymbolSink> Receiver<K> {
    pub(super) fn on_command(
        &mut self,
        now: Instant,
        command: ReceiverCommand,
    ) -> Result<(), ReceiverCommandError> {
        if let ReceiverCommand::Join = command {
            self.join(now);
            return Ok(());
        }
        let leaving = matches!(self.stage, Stage::Leaving(_) | Stage::Parting);
        let may = matches!(command, ReceiverCommand::Done { .. }) && leaving;
        if self.stage != Stage::Inside && !may {
            return Err(ReceiverCommandError::Outside);
        }
        match command {
            ReceiverCommand::Join => {}
            ReceiverCommand::Want { from, skip } => self.want(now, from, &skip)?,
            ReceiverCommand::Skip(run) => {
                self.reception.skip(run.blocks());
                self.refused = None;
                self.start_asking(now);
            }
            ReceiverCommand::RestoreFailed { block } => self.reopen(now, block)?,
            ReceiverCommand::Room => {
                self.refused = None;
                self.ack_soon(now);
            }
            ReceiverCommand::Overrun { packets } => {
                self.stats.overrun += u64::from(packets);
                self.heard.overrun = self.heard.overrun.saturating_add(packets);
                self.ack_early(now);
            }
            ReceiverCommand::Done { failed } => self.on_done(now, failed),
            ReceiverCommand::Leave => self.leave(now),
        }
        Ok(())
    }

    fn join(&mut self, now: Instant) {
        if self.stage == Stage::Outside {
            self.stage = Stage::Inside;
            self.memberships.push_back(Membership::Join(self.config.node.data));
            self.memberships.push_back(Membership::Join(self.config.node.domain));
            self.tree.join(now);
        }
    }

    fn want(
        &mut self,
        now: Instant,
        from: u32,
        skip: &[BlockRun],
    ) -> Result<(), ReceiverCommandError> {
        if self.wanted.said {
            return Err(ReceiverCommandError::WantedAlready);
        }
        if skip.windows(2).any(|pair| pair[0].end() > pair[1].first) {
            return Err(ReceiverCommandError::Skip);
        }
        self.wanted.said = true;
        let prefix = self.prefix();
        if from > prefix {
            self.reception.skip(prefix..from);
        }
        for run in skip {
            self.reception.skip(run.blocks());
        }
        self.start_asking(now);
        Ok(())
    }

    /// What is wanted is known now: what lacks of it is asked for.
    pub(super) fn start_asking(&mut self, now: Instant) {
        let floor = self.floor();
        if floor < u32::MAX {
            self.asks.restart(floor);
        }
        self.find_gaps(now);
        self.check_complete(now);
        self.ack_soon(now);
    }

    fn reopen(&mut self, now: Instant, block: u32) -> Result<(), ReceiverCommandError> {
        if !self.reception.is_complete(block) {
            return Err(ReceiverCommandError::UnknownBlock(block));
        }
        self.reception.reopen(block);
        self.stats.blocks = self.stats.blocks.saturating_sub(1);
        self.wanted.complete = false;
        if block >= self.floor() {
            self.asks.reopen(block, now);
        }
        Ok(())
    }

    fn on_done(&mut self, now: Instant, failed: Option<String>) {
        self.wanted.done = failed.is_none();
        self.wanted.failed = failed.is_some();
        let state = match failed {
            None => ReceiverState::Done,
            Some(reason) => ReceiverState::Failed(cut(reason, limits::REASON_LEN)),
        };
        self.report(state);
        // GOT_IT does not wait for the next T_ack.
        self.ack_soon(now);
    }

    fn leave(&mut self, now: Instant) {
        if !self.wanted.done && !self.wanted.failed {
            self.report(ReceiverState::Left);
        }
        self.tree.retire();
        self.stage = Stage::Leaving(now + self.config.tree.leave_wait);
    }

    /// Tells the application when every block that is wanted is restored.
    pub(super) fn check_complete(&mut self, now: Instant) {
        let Some(end) = &self.end else { return };
        if self.wanted.complete
            || !self.wanted.said && end.blocks > self.prefix()
            || self.wanted.first.is_none()
            || self.reception.first_gap(0) < end.blocks
        {
            return;
        }
        self.wanted.complete = true;
        self.events.push_back(ReceiverEvent::Complete);
        self.ack_soon(now);
    }
}
