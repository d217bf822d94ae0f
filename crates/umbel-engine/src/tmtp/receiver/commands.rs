//! The application's wishes, and its other commands to a receiver.

use umbel_wire::tmtp::{BlockRun, ReceiverState, limits};

use super::{Receiver, Stage};
use crate::Instant;
use crate::symbols::SymbolSink;
use crate::tmtp::api::{ReceiverCommand, ReceiverCommandError, ReceiverEvent};
use crate::tmtp::text::cut;

/// The application's use of the feed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// The application has said what it wants.
    pub(super) said: bool,
    /// Every wanted block to the end is restored.
    pub(super) complete: bool,
    /// End of the application's part.
    pub(super) outcome: Option<Outcome>,
}

/// End of an application's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has all that it wanted.
    Done,
    /// It has given up.
    Failed,
}

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
        let may = matches!(command, ReceiverCommand::Done { .. }) && self.stage.is_leaving();
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
                self.measure.on_overrun(packets);
            }
            ReceiverCommand::Done { failed } => self.on_done(now, failed),
            ReceiverCommand::Leave => self.leave(now),
        }
        Ok(())
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
        // A block that was wrong here must not repair others' losses.
        if let Some(manager) = self.duty.manager_mut() {
            manager.buffer_mut().drop_block(block);
        }
        if let Some(help) = &mut self.help {
            help.forget(block);
        }
        self.stats.blocks = self.stats.blocks.saturating_sub(1);
        self.wanted.complete = false;
        self.recovery.distrust(now, block);
        self.wariness.on_wrong(now, block);
        if !self.blame(now, block) && block >= self.floor() {
            self.recovery.reopen(now, block);
        }
        self.look_ahead(now);
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
        self.source.on_finished(now);
        self.report(state);
        // GOT_IT does not wait for the next T_ack.
        self.ack_now(now);
    }

    /// Reports to the application when every block that is wanted is restored.
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
