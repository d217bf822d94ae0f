//! The application's commands to a receiver.

use umbel_wire::tmtp::{BlockRun, ReceiverState, limits};

use super::{Outcome, Receiver, Stage};
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
        let leaving = matches!(self.stage, Stage::Leaving { .. } | Stage::Parting { .. });
        let may = matches!(command, ReceiverCommand::Done { .. }) && leaving;
        if self.stage != Stage::Inside && !may {
            return Err(ReceiverCommandError::Outside);
        }
        match command {
            ReceiverCommand::Join => {}
            ReceiverCommand::Want { from, skip } => self.want(now, from, &skip)?,
            ReceiverCommand::Skip(run) => {
                self.delivery.skip(run.blocks());
                self.delivery.room.reopen();
                self.start_asking(now);
            }
            ReceiverCommand::RestoreFailed { block } => self.reopen(now, block)?,
            ReceiverCommand::Room => {
                self.delivery.room.reopen();
                self.ack_now(now);
            }
            ReceiverCommand::Overrun { packets } => {
                self.stats.overrun += u64::from(packets);
                self.acks.on_overrun(packets);
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
            self.memberships.extend(self.config.node.group().map(Membership::Join));
            if !self.authentic.as_mut().is_some_and(|authentic| authentic.begin(now)) {
                self.tree.join(now);
            }
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
            self.delivery.skip(prefix..from);
        }
        for run in skip {
            self.delivery.skip(run.blocks());
        }
        self.start_asking(now);
        Ok(())
    }

    /// Asks for the missing blocks of what is wanted now.
    pub(super) fn start_asking(&mut self, now: Instant) {
        let floor = self.floor();
        if floor < u32::MAX {
            self.recovery.restart(floor);
        }
        self.find_gaps(now);
        self.check_complete(now);
        self.ack_now(now);
    }

    fn reopen(&mut self, now: Instant, block: u32) -> Result<(), ReceiverCommandError> {
        if !self.delivery.reception().is_complete(block) {
            return Err(ReceiverCommandError::UnknownBlock(block));
        }
        self.delivery.reopen(block);
        // What was wrong here must not repair others' losses.
        if let Some(manager) = self.duty.manager_mut() {
            manager.buffer_mut().drop_block(block);
        }
        if let Some(help) = &mut self.help {
            help.forget(block);
        }
        self.stats.blocks = self.stats.blocks.saturating_sub(1);
        self.wanted.complete = false;
        self.recovery.distrust(now, block);
        if block >= self.floor() {
            self.recovery.reopen(now, block);
        }
        self.find_gaps(now);
        Ok(())
    }

    fn on_done(&mut self, now: Instant, failed: Option<String>) {
        let (outcome, state) = match failed {
            None => (Outcome::Done, ReceiverState::Done),
            Some(reason) => {
                (Outcome::Failed, ReceiverState::Failed(cut(reason, limits::REASON_LEN)))
            }
        };
        self.wanted.outcome = Some(outcome);
        self.report(state);
        // GOT_IT does not wait for the next T_ack.
        self.ack_now(now);
    }

    fn leave(&mut self, now: Instant) {
        if self.wanted.outcome.is_none() {
            self.report(ReceiverState::Left);
        }
        self.tree.retire();
        if let Some(help) = &mut self.help {
            help.stop();
        }
        let until = now + self.config.tree.leave_wait;
        self.stage = Stage::Leaving { until, again: false };
    }

    /// Tells the application when every block that is wanted is restored.
    pub(super) fn check_complete(&mut self, now: Instant) {
        let Some(end) = self.source.end() else { return };
        if self.wanted.complete
            || !self.wanted.said && end.blocks > self.prefix()
            || self.joined_at.is_none()
            || self.delivery.reception().first_gap(0) < end.blocks
        {
            return;
        }
        self.wanted.complete = true;
        self.events.push_back(ReceiverEvent::Complete);
        self.ack_now(now);
    }
}
