//! A receiving socket of a port, and the time of the next look at it.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::PollFlags;
use umbel_engine::host::Trouble;
use umbel_engine::{Datagram, Instant};

use crate::gather::Gather;
use crate::port::{Turn, Watch};
use crate::udp::{Received, Receiver};

/// A receiver that lets the datagrams of a dense stream gather.
#[derive(Debug)]
pub(super) struct Inlet {
    receiver: Receiver,
    gather: Gather,
    /// When to look without waiting for the socket. Datagrams gather until then, or more are there
    /// already.
    look_at: Option<Instant>,
    /// Messages that the kernel dropped for lack of room, as reported to the host so far.
    drops_told: u64,
    /// Number of datagrams per message at the last reception. A dropped message counts as this
    /// number.
    coalesced: u64,
}

impl Inlet {
    pub(super) fn new(receiver: Receiver) -> Inlet {
        let gather = Gather::default();
        Inlet { receiver, gather, look_at: None, drops_told: 0, coalesced: 1 }
    }

    pub(super) fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    pub(super) fn watch<'a>(&'a self, watch: &mut Watch<'a>) {
        match self.look_at {
            Some(at) => watch.until(at),
            None => watch.descriptor(self.receiver.as_fd(), PollFlags::POLLIN),
        }
    }

    /// Receives one batch of the waiting datagrams, if it is time to look.
    pub(super) fn take(
        &mut self,
        now: Instant,
        ready: bool,
        give: &mut dyn FnMut(Datagram<'_>),
        turn: &mut Turn,
    ) -> std::io::Result<()> {
        let due = self.look_at.is_none_or(|at| at <= now);
        if !due || (self.look_at.is_none() && !ready) {
            return Ok(());
        }
        self.look_at = None;
        let hand_over = |received: Received<'_>| give(received.datagram());
        let reception = self.receiver.receive(Some(Duration::ZERO), None, hand_over)?;
        if reception.messages == 0 {
            return Ok(());
        }
        turn.datagrams += reception.datagrams;
        self.coalesced = reception.datagrams.div_ceil(reception.messages) as u64;
        self.tell_drops(self.receiver.kernel_drops(), turn);
        let pause = self.gather.heard(now, reception.datagrams, self.receiver.room());
        if reception.full {
            self.look_at = Some(now);
        } else if !pause.is_zero() {
            self.look_at = Some(now + pause);
        }
        Ok(())
    }

    /// Asks the kernel for its drops since the last reception.
    pub(super) fn ask_drops(&mut self, turn: &mut Turn) {
        let drops = self.receiver.drops().kernel;
        self.tell_drops(drops, turn);
    }

    fn tell_drops(&mut self, drops: u64, turn: &mut Turn) {
        let fresh = drops.saturating_sub(self.drops_told);
        self.drops_told = drops;
        if fresh > 0 {
            turn.troubles.push(Trouble::Overrun { datagrams: fresh * self.coalesced.max(1) });
        }
    }
}
