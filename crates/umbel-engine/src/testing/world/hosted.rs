//! The network's needs of any engine, and its checks.

use crate::testing::Tested;
use crate::{Allowance, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};

/// Packets of each class that a host asks for at a time, if they are not paced.
const BATCH: usize = 16;

pub(crate) trait Hosted {
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>);
    fn handle_timeout(&mut self, now: Instant);
    fn poll_membership(&mut self) -> Option<Membership>;
    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit>;
    fn wants_pace(&self) -> bool;
    fn poll_timeout(&self) -> Option<Instant>;
    fn allow(&mut self, reason: &str);
}

impl<E: Engine> Hosted for Tested<E> {
    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        self.engine.handle_datagram(now, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.engine.poll_membership()
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let transmit = self.engine.poll_transmit(now, buf)?;
        check(buf, transmit);
        Some(transmit)
    }

    fn wants_pace(&self) -> bool {
        paced().any(|class| self.engine.wants(class))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.engine.poll_timeout()
    }

    fn allow(&mut self, reason: &str) {
        Tested::allow(self, reason);
    }
}

/// Returns the classes that wait for a pace.
fn paced() -> impl Iterator<Item = RateClass> {
    (0..RateClass::LAYERS).map(RateClass::Layer).chain([RateClass::Data])
}

/// Returns how much a host asks for: one packet if it is paced.
pub(super) fn allowance(is_paced: bool, may_send: bool) -> Allowance {
    let mut allowance = Allowance::default();
    let packets = if is_paced { may_send.into() } else { BATCH };
    paced().for_each(|class| allowance.set(class, packets));
    allowance
}

/// Checks what [`Engine::poll_transmit`] promises of a batch.
#[track_caller]
fn check(buf: &TransmitBuf, transmit: Transmit) {
    let lengths: Vec<usize> = buf.iter().map(|(head, body)| head.len() + body.len()).collect();
    let Some((last, others)) = lengths.split_last() else { panic!("{transmit:?} of nothing") };
    let most = buf.allows(transmit.class);
    assert!(lengths.len() <= most, "{transmit:?} of {lengths:?}, allowed are {most}");
    let are_equal = others.iter().all(|len| *len == lengths[0]) && *last <= lengths[0];
    assert!(are_equal, "{transmit:?} of {lengths:?}");
}
