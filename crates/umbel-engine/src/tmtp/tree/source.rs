//! A node's knowledge of the source: its announced address, and its messages.

use std::net::SocketAddr;

use umbel_wire::tmtp::NodeId;

use crate::Instant;
use crate::tmtp::DropReason;

/// Most by which an epoch may be ahead of the source's last heartbeat, for clocks that differ in
/// speed.
const EPOCH_SLACK_MS: u64 = 5_000;

/// The source, as a node knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownSource {
    /// Announced address of the source.
    address: SocketAddr,
    /// The source's number, and its epoch at a time.
    heard: Option<(NodeId, u64, Instant)>,
    /// Address of another source in the same groups.
    rival: Option<SocketAddr>,
}

impl KnownSource {
    /// Creates a source that was announced with this address, and not heard yet.
    pub(super) fn new(address: SocketAddr) -> KnownSource {
        KnownSource { address, heard: None, rival: None }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of the source, once it was heard.
    pub(super) fn id(&self) -> Option<NodeId> {
        self.heard.map(|(id, ..)| id)
    }

    /// Notes a heartbeat.
    ///
    /// # Errors
    ///
    /// If it is another source than before.
    pub(super) fn note(&mut self, now: Instant, id: NodeId, epoch: u64) -> Result<(), DropReason> {
        match self.heard {
            Some((known, ..)) if known != id => Err(DropReason::ForgedSource),
            Some((_, known, _)) if known > epoch => Ok(()),
            _ => {
                self.heard = Some((id, epoch, now));
                Ok(())
            }
        }
    }

    /// Notes another source in the same groups. Returns whether it is the first one.
    pub(super) fn note_rival(&mut self, address: SocketAddr) -> bool {
        self.rival.replace(address).is_none()
    }

    /// Checks that the source can have told this epoch by now.
    ///
    /// # Errors
    ///
    /// If its clock cannot be there yet.
    pub(super) fn check_epoch(&self, now: Instant, epoch: u64) -> Result<(), DropReason> {
        let Some((_, known, at)) = self.heard else { return Ok(()) };
        let passed = u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        if epoch > known.saturating_add(passed).saturating_add(EPOCH_SLACK_MS) {
            return Err(DropReason::AbsurdEpoch);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_source_stays_the_source_and_its_clock_cannot_jump() {
        let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let mut source = KnownSource::new(address(1));
        assert_eq!(source.check_epoch(at(0), u64::MAX), Ok(()), "nothing was heard yet");
        assert_eq!(source.note(at(0), NodeId(1), 100), Ok(()));
        assert_eq!(source.note(at(0), NodeId(2), 200), Err(DropReason::ForgedSource));
        assert_eq!(source.note(at(900), NodeId(1), 50), Ok(()), "an old heartbeat");
        assert_eq!((source.id(), source.address()), (Some(NodeId(1)), address(1)));
        assert_eq!(source.check_epoch(at(10), 110 + EPOCH_SLACK_MS), Ok(()));
        let ahead = source.check_epoch(at(10), 111 + EPOCH_SLACK_MS);
        assert_eq!(ahead, Err(DropReason::AbsurdEpoch));
        assert!(source.note_rival(address(2)) && !source.note_rival(address(3)));
    }
}
