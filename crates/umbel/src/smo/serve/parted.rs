//! Addresses whose connections were parted from the others because they held them up.
//!
//! They would do so again: each time for as long as the rules of removal allow. What they ask for
//! next is answered alone, so that one who comes again and again holds up the others once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::smo::CloseReason;

/// Time for which an address is answered alone.
const TIME: Duration = Duration::from_mins(10);
/// Number of addresses at most. The earliest give way.
const ADDRESSES: usize = 1_024;

/// The addresses, and when each was parted.
#[derive(Debug, Default)]
pub(super) struct Parted(BTreeMap<IpAddr, Instant>);

impl Parted {
    /// Notes why a connection that shared a stream was removed.
    pub(super) fn note(&mut self, now: Instant, address: IpAddr, reason: CloseReason) {
        if !held_up(reason) {
            return;
        }
        self.0.insert(address.to_canonical(), now);
        self.0.retain(|_, at| now.since(*at) < TIME);
        if self.0.len() > ADDRESSES
            && let Some(first) = self.0.iter().min_by_key(|(_, at)| **at).map(|(one, _)| *one)
        {
            self.0.remove(&first);
        }
    }

    /// Returns whether what an address asks for is answered alone.
    pub(super) fn has(&self, now: Instant, address: IpAddr) -> bool {
        self.0.get(&address.to_canonical()).is_some_and(|at| now.since(*at) < TIME)
    }
}

/// Returns whether a connection that was removed for this reason held up others.
fn held_up(reason: CloseReason) -> bool {
    match reason {
        CloseReason::Stalled
        | CloseReason::ClosedWindow
        | CloseReason::HoldsUp
        | CloseReason::TooFar
        | CloseReason::TooSlow
        | CloseReason::Optimistic => true,
        // A host that was gone may be back, and the others are the server's or the client's wish.
        CloseReason::Reset
        | CloseReason::Aborted
        | CloseReason::Dead
        | CloseReason::TooLate
        | CloseReason::Gap
        | CloseReason::Crowded
        | CloseReason::Lingered => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn who_held_up_others_is_answered_alone_for_a_while() {
        let mut parted = Parted::default();
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        parted.note(at(0), one, CloseReason::Stalled);
        parted.note(at(0), other, CloseReason::Reset);
        assert!(parted.has(at(599), one) && !parted.has(at(600), one));
        assert!(parted.has(at(1), "::ffff:10.0.0.1".parse().unwrap()));
        assert!(!parted.has(at(1), other));
    }

    #[test]
    fn of_many_the_earliest_give_way() {
        let mut parted = Parted::default();
        let address = |n: u32| IpAddr::from(std::net::Ipv4Addr::from(n));
        for n in 0..10 * ADDRESSES as u32 {
            let now = Instant::EPOCH + Duration::from_millis(n.into());
            parted.note(now, address(n), CloseReason::HoldsUp);
        }
        let held = (0..10 * ADDRESSES as u32).filter(|n| parted.has(at(60), address(*n)));
        assert!(held.eq(9 * ADDRESSES as u32..10 * ADDRESSES as u32));
    }
}
