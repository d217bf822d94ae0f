//! The application's commands to the source. They change the state of [`Source`](super::Source)
//! itself: its stage, and the end of the feed.

use umbel_wire::tmtp::{End, limits};

use super::{CLOSING_BEATS, Source, Stage};
use crate::symbols::SymbolSource;
use crate::tmtp::api::{BlockCount, SourceCommand, SourceCommandError};
use crate::tmtp::text::cut;
use crate::{Instant, Membership};

impl<S: SymbolSource> Source<S> {
    pub(super) fn on_command(
        &mut self,
        now: Instant,
        command: SourceCommand,
    ) -> Result<(), SourceCommandError> {
        if matches!(self.stage, Stage::Closing(_) | Stage::Closed) {
            return Err(SourceCommandError::Closing);
        }
        match command {
            SourceCommand::Start => self.start(now),
            SourceCommand::Extend(runs) => self.extend(&runs)?,
            SourceCommand::Finish { failed } => {
                if self.end.is_some() {
                    return Err(SourceCommandError::Finished);
                }
                self.finish(now, failed);
            }
            SourceCommand::SymbolsReady => self.waits = super::Waits::default(),
            SourceCommand::Pause(paused) => {
                self.paused = paused;
                self.look(now);
            }
            SourceCommand::Close => {
                self.stage = Stage::Closing(CLOSING_BEATS);
                self.tree.retire();
                self.heartbeats.begin(now);
            }
        }
        Ok(())
    }

    fn start(&mut self, now: Instant) {
        if self.stage == Stage::Idle {
            self.stage = Stage::Running;
            self.memberships.extend(self.config.node.group().map(Membership::Join));
            self.heartbeats.begin(now);
        }
    }

    fn extend(&mut self, runs: &[BlockCount]) -> Result<(), SourceCommandError> {
        if self.end.is_some() {
            return Err(SourceCommandError::Finished);
        }
        let max = self.config.shape.block_symbols;
        let wrong = runs.iter().find(|run| run.symbols == 0 || run.symbols > max);
        if let Some(&BlockCount { symbols, .. }) = wrong {
            return Err(SourceCommandError::BlockSymbols { symbols, max });
        }
        if !self.shelf.extend(runs) {
            return Err(SourceCommandError::TooManyBlocks);
        }
        self.shelf.read_ahead(self.next.0, super::data::READ_AHEAD);
        Ok(())
    }

    /// Ends the feed with the last block extended. Children hear of it soon.
    pub(super) fn finish(&mut self, now: Instant, failed: Option<String>) {
        let failed = failed.map(|reason| cut(reason, limits::REASON_LEN));
        self.end = Some(End { blocks: self.shelf.total(), failed });
        self.heartbeats.hurry(now);
    }
}
